"""Counts with noise: how many rows without it would say as little."""

from collections.abc import Sequence

import numpy as np

from fcfl._types import RateId, Vector


def rows_worth(
    rates: Sequence[RateId], group_counts: Vector, group_selected: Vector, noise_sd: float
) -> Vector:
    r"""Rows of each group whose rate would be as uncertain as that of noisy counts.

    A rate r of n rows varies by :math:`r(1-r)/n` by chance. Noise of the standard deviation
    ``noise_sd`` in the counts of selected and of other rows, each the sum of c cells, adds
    :math:`c s^2 ((1-r)^2 + r^2) / n^2`.
    """
    cells = np.array([2.0 if rate.kind == "selection" else 1.0 for rate in rates])
    rate = (group_selected + 1.0) / (group_counts + 2.0)
    by_chance = rate * (1.0 - rate) / np.maximum(group_counts, 1.0)
    spread = cells * noise_sd**2 * ((1.0 - rate) ** 2 + rate**2)
    by_noise = spread / np.maximum(group_counts, 1.0) ** 2
    return np.asarray(group_counts * by_chance / (by_chance + by_noise))
