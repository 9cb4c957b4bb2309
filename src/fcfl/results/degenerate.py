"""Find out whether a trained model selects nearly nobody or everybody, and at which threshold not.

The search asks all clients for counts at other decision thresholds, at most `MOST_COUNTS` times,
and only where the model is degenerate. Nothing else leaves a client than the usual counts.
"""

import math
from collections.abc import Callable, Mapping

from scipy.special import expit, logit

from fcfl._types import ClientId
from fcfl.client.counts import Counts, pool_counts
from fcfl.models.model import Model

from .result import Degenerate, DegenerateRows, degenerate_side

MOST_COUNTS = 10  # thresholds tried
_NEAR = 0.02  # of the rarer label's rows: near enough to stop
_NEAR_ENOUGH = 0.2  # of the rarer label's rows: the most that advice may be off by
_FARTHEST = 30.0  # log-odds, beyond which no score is a probability in float64 other than 0 or 1


def find_degenerate(
    model: Model, train: Mapping[ClientId, Counts], noise: float = 0.0
) -> Degenerate | None:
    """Return the finding for a model by the counts of its decisions, None if it is useful.

    ``noise`` is how far counts of one client may be off. The finding is about

    1. the clients judged by their own rows, if there are any,
    2. all clients together, if their pooled rows are judged so and some client alone is not:
       advice then serves all of them.
    """
    own = [_judged(name, counts, noise) for name, counts in train.items()]
    found = [one for one in own if one is not None]
    if len(found) < len(own):
        together = _judged(None, pool_counts(train.values()), noise * math.sqrt(len(train)))
        found = found if together is None else [together]
    return Degenerate(tuple(found), model.threshold) if found else None


def _judged(client: ClientId | None, counts: Counts, noise: float) -> DegenerateRows | None:
    n_rows, positives, selected = counts.n_rows, counts.n_positive, counts.n_selected
    side = degenerate_side(selected, positives, n_rows, noise)
    return None if side is None else DegenerateRows(client, side, n_rows, positives, selected)


def threshold_selecting(
    wanted: int, n_rows: int, select: Callable[[float], int]
) -> tuple[float, int] | None:
    """Return the threshold that selects about ``wanted`` of the rows, and how many it selects.

    ``select`` counts the rows selected at a threshold. The search brackets the root of the
    log-odds of the share selected, which is nearly linear in those of the threshold. Return None
    if no count is within a fifth.
    """
    rarer, wanted_odds = min(wanted, n_rows - wanted), _odds(wanted, n_rows)
    low = -_FARTHEST, _odds(n_rows, n_rows) - wanted_odds  # log-odds that select too many
    high = _FARTHEST, _odds(0, n_rows) - wanted_odds  # and too few
    at, step, best = float(logit(wanted / n_rows)), 1.0, (math.nan, -n_rows)
    for tried in range(MOST_COUNTS):
        threshold = _typed(at)
        count = select(threshold)
        if abs(count - wanted) < abs(best[1] - wanted):
            best = threshold, count
        if abs(count - wanted) <= _NEAR * rarer:
            break
        point = float(logit(threshold)), _odds(count, n_rows) - wanted_odds
        low, high = (point, high) if count > wanted else (low, point)
        if low[0] == -_FARTHEST or high[0] == _FARTHEST:  # not bracketed yet
            at = point[0] + (step if count > wanted else -step)
            at, step = min(max(at, 1.0 - _FARTHEST), _FARTHEST - 1.0), 2.0 * step
        else:  # the secant; each third time a bisection, if that gains little
            share = 0.5 if tried % 3 == 0 else low[1] / (low[1] - high[1])
            at = low[0] + min(max(share, 0.05), 0.95) * (high[0] - low[0])
    return best if abs(best[1] - wanted) <= _NEAR_ENOUGH * rarer else None


def _odds(count: int, n_rows: int) -> float:
    """Return the log-odds of a share of the rows, finite for all and for none."""
    return float(logit((count + 0.5) / (n_rows + 1.0)))


def _typed(log_odds: float) -> float:
    """Return the probability with three digits off 0 or 1, so that a person can type it."""
    small = float(f"{expit(-abs(log_odds)):.3g}")
    return small if log_odds < 0 else round(1.0 - small, 15)
