r"""The privacy loss of several noisy releases together, in closed form.

A release whose noise has the standard deviation :math:`\Delta/\mu`, with :math:`\Delta` the most
that one row changes it in length, is as private as telling N(0, 1) from N(:math:`\mu`, 1) is hard
(Gaussian differential privacy: Dong, Roth and Su, 2022). Releases add up by their squares, also
when later ones depend on earlier answers, and when it is only decided on the way how many there
are (Smith and Thakurta, 2022). All of them together are :math:`(\epsilon, \delta)`-private with

.. math:: \delta = \Phi(-\epsilon/\mu + \mu/2) - e^\epsilon \Phi(-\epsilon/\mu - \mu/2).

That is exact for continuous noise, and for continuous noise that is rounded to a lattice on which
the sums themselves lie. Ours is a discrete Gaussian on that lattice, with at least
`LEAST_SCALE` steps to a standard deviation s. By Poisson's summation formula and the midpoint rule
its law differs from the rounded one by at most .05/s² in total variation, for each number; so that
all numbers of a table, up to `MOST_NUMBERS`, add at most :math:`(1 + e^\epsilon)` times
`DIFFERENCE` to :math:`\delta`. It is taken off :math:`\delta` beforehand.
"""

import math
from collections.abc import Callable

from scipy.special import log_ndtr

LEAST_SCALE = 2**40  # lattice steps to a standard deviation of the noise
MOST_NUMBERS = 10**9  # that are ever released of one table
DIFFERENCE = MOST_NUMBERS * 0.05 / float(LEAST_SCALE) ** 2  # of the laws, in total variation
_LARGEST_MU = 100.0


def delta_of(epsilon: float, mu: float) -> float:
    r"""The smallest :math:`\delta` with which releases of :math:`\mu` in all are private."""
    if mu == 0:
        return 0.0
    below, above = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    exact = math.exp(log_ndtr(below)) - math.exp(epsilon + log_ndtr(above))
    return max(float(exact), 0.0) + discrete_part(epsilon)


def discrete_part(epsilon: float) -> float:
    r"""Return what is added to :math:`\delta` because the noise lies on a lattice."""
    return (1.0 + math.exp(epsilon)) * DIFFERENCE


def epsilon_of(mu: float, delta: float) -> float:
    r"""The smallest :math:`\epsilon` that releases of :math:`\mu` in all have at ``delta``."""
    if mu == 0:
        return 0.0
    if delta_of(0.0, mu) <= delta:
        return 0.0
    most = math.log(delta / DIFFERENCE / 2)  # beyond it the lattice alone takes half of delta
    if not 0 < mu < _LARGEST_MU or delta_of(most, mu) > delta:
        return math.inf
    return _root(lambda epsilon: delta_of(epsilon, mu) - delta, most, xtol=1e-12)


def mu_of(epsilon: float, delta: float) -> float:
    r"""The largest :math:`\mu` in all with which releases are private."""
    check_privacy(epsilon, delta)
    return _root(lambda mu: delta_of(epsilon, mu) - delta, _LARGEST_MU, xtol=1e-15, rtol=1e-14)


def _root(of: Callable[[float], float], most: float, **tolerances: float) -> float:
    """Where a function is zero between 0 and ``most``."""
    from scipy.optimize import brentq  # a site over Flower pays for imports with every message

    return float(brentq(of, 0.0, most, **tolerances))


def check_privacy(epsilon: float, delta: float) -> None:
    """Raise `ValueError` for an invalid privacy loss, or one that lattice noise cannot reach."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"`{name}` must be a positive number, got {value!r}.")
    if not 0 < epsilon <= 20:
        raise ValueError(f"`epsilon` must be above 0 and at most 20, got {epsilon!r}.")
    if not 0 < delta < 0.1:
        raise ValueError(f"`delta` must be above 0 and below 0.1, got {delta!r}.")
    if discrete_part(epsilon) > delta / 2:
        raise ValueError(
            f"`delta` must be at least {2 * discrete_part(epsilon):.1e} with epsilon {epsilon:g}, "
            f"got {delta!r}."
        )
