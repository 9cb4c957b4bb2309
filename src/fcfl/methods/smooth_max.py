"""The smooth maximum of the paper (eq. 10)."""

import numpy as np
from numpy.typing import ArrayLike

from fcfl._types import Vector


def smooth_max(values: ArrayLike, temperature: float) -> tuple[float, Vector]:
    r"""Smooth maximum of ``values`` and its gradient with respect to them.

    .. math:: \hat m_\delta(v) = \delta \log \sum_i e^{v_i / \delta}
              \in [\max_i v_i,\; \max_i v_i + \delta \log n]

    The gradient is ``softmax(values / temperature)``, a point on the simplex. The maximum of no
    values is minus infinity.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0:
        return -np.inf, np.zeros(0)
    largest = values.max()
    terms = np.exp((values - largest) / temperature)  # at most 1, so nothing overflows
    total = terms.sum()
    return float(largest + temperature * np.log(total)), terms / total
