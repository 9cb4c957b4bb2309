"""Find out whether a trained model selects nearly nobody or everybody, and at which threshold not.

The search asks all clients for counts at other decision thresholds, at most `MOST_COUNTS` times,
and only where the model is degenerate. Nothing else leaves a client than the usual counts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from fcfl._types import ClientId, Vector
from fcfl.client.counts import Counts, pool_counts
from fcfl.errors import FCFLError
from fcfl.models.loss import HALF
from fcfl.models.model import Model, at_threshold
from fcfl.results.result import Degenerate, DegenerateRows, degenerate_side
from fcfl.training.run import Run

MOST_COUNTS = 10  # thresholds tried; 4 to 7 were enough for label rates from .001 to .4
_NEAR = 0.02  # of the labelled rows: near enough to stop
_NEAR_ENOUGH = 0.2  # of the labelled rows: the most that advice may be off by
_FARTHEST = 30.0  # log-odds, beyond which no score is a probability in float64 other than 0 or 1
_DIGITS = 3  # of a threshold, significant


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
    n_rows, positives, selected = _summary(counts)
    side = degenerate_side(selected, positives, n_rows, noise)
    return None if side is None else DegenerateRows(client, side, n_rows, positives, selected)


def _summary(counts: Counts) -> tuple[int, int, int]:
    """Rows, rows with label 1, and selected rows."""
    positives = counts.true_positive + counts.false_negative
    return counts.n_rows, positives, counts.true_positive + counts.false_positive


def with_advice(run: Run, params: Vector, found: Degenerate) -> Degenerate:
    """Return the finding with the threshold at which as many are selected as have the label."""
    model = run.setup.model
    named = [one.client for one in found.rows]
    n_rows = sum(one.rows for one in found.rows)

    def select(threshold: float) -> int:
        setup = replace(run.setup, model=at_threshold(model, threshold))
        with run.federation.phase("check"):
            counted = run.federation.count(setup, params)
        return sum(
            _summary(said.train)[2]
            for name, said in counted.items()
            if None in named or name in named
        )

    if not (model.loss.has_probabilities and 0 < found.positives < n_rows):
        return found
    try:
        at_threshold(model, HALF / 2)  # a model of one's own may have none
        best = threshold_selecting(found.positives, n_rows, select)
    except (FCFLError, ValueError):  # a site's limit on counts: the model is there all the same
        return found
    if best is None:
        return found
    return replace(found, advised_threshold=best[0], would_select=best[1])


def threshold_selecting(
    wanted: int, n_rows: int, select: Callable[[float], int]
) -> tuple[float, int] | None:
    """Return the threshold that selects about ``wanted`` of the rows, and how many it selects.

    ``select`` counts the rows selected at a threshold. The search starts at the label rate, moves
    out until thresholds on both sides are known, then interpolates the logarithm of the counts in
    log-odds, and bisects where that gains little. None if no count is within a fifth.
    """
    if wanted > n_rows / 2:  # then the others are to be few: the mirror image
        found = threshold_selecting(
            n_rows - wanted, n_rows, lambda other: n_rows - select(_mirrored(other))
        )
        return None if found is None else (_mirrored(found[0]), n_rows - found[1])
    low, high = (-_FARTHEST, n_rows), (_FARTHEST, 0)  # log-odds that select too many, too few
    at, width, best = _log_odds(wanted / n_rows), 1.0, (math.nan, -n_rows)
    for tried in range(MOST_COUNTS):
        threshold = _rounded(at)
        at, count = _log_odds(threshold), select(threshold)
        if abs(count - wanted) < abs(best[1] - wanted):
            best = threshold, count
        if abs(count - wanted) <= _NEAR * wanted:
            break
        if count > wanted:
            low = at, count
        else:
            high = at, count
        if high[0] == _FARTHEST:
            at, width = at + width, 2.0 * width
        elif low[0] == -_FARTHEST:
            at, width = at - width, 2.0 * width
        else:
            at = _between(low, high, wanted, halve=tried % 3 == 2)
        at = min(max(at, -_FARTHEST), _FARTHEST)
    return best if abs(best[1] - wanted) <= _NEAR_ENOUGH * wanted else None


def _between(low: tuple[float, int], high: tuple[float, int], wanted: int, *, halve: bool) -> float:
    ends = math.log(low[1] + 0.5), math.log(high[1] + 0.5)
    share = 0.5 if halve else (ends[0] - math.log(wanted + 0.5)) / (ends[0] - ends[1])
    return low[0] + min(max(share, 0.05), 0.95) * (high[0] - low[0])


def _log_odds(probability: float) -> float:
    return math.log(probability / (1.0 - probability))


def _mirrored(probability: float) -> float:
    return round(1.0 - probability, 15)


def _rounded(log_odds: float) -> float:
    """Return the probability with few digits, so that a person can type it."""
    if log_odds > 0:
        return _mirrored(_rounded(-log_odds))
    return float(f"{1.0 / (1.0 + math.exp(-log_odds)):.{_DIGITS}g}")
