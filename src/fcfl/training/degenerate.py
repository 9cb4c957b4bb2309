"""Find out whether a trained model selects nearly nobody or everybody, and at which threshold not.

The search asks all clients for counts at other decision thresholds, at most `MOST_COUNTS` times,
and only where the model is degenerate. Nothing else leaves a client than the usual counts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from scipy.optimize import brentq
from scipy.special import expit, logit

from fcfl._types import ClientId, Vector
from fcfl.client.counts import Counts, pool_counts
from fcfl.errors import FCFLError
from fcfl.models.loss import HALF
from fcfl.models.model import Model, at_threshold
from fcfl.results.result import Degenerate, DegenerateRows, degenerate_side
from fcfl.training.run import Run

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


def with_advice(run: Run, params: Vector, found: Degenerate) -> Degenerate:
    """Return the finding with the threshold at which as many are selected as have the label."""
    model = run.setup.model
    named = [one.client for one in found.rows]
    n_rows = sum(one.rows for one in found.rows)

    def select(threshold: float) -> int:
        setup = replace(run.setup, model=at_threshold(model, threshold))
        with run.federation.phase("check"):
            counted = run.federation.count(setup, params)
        chosen = counted if None in named else {name: counted[name] for name in named if name}
        return sum(said.train.n_selected for said in chosen.values())

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

    ``select`` counts the rows selected at a threshold. The search brackets the root of the
    log-odds of the share selected, which is nearly linear in those of the threshold. Return None
    if no count is within a fifth.
    """
    tried, rarer = dict[float, int](), min(wanted, n_rows - wanted)

    def excess(log_odds: float) -> float:
        """Log-odds of the share selected, less those wanted; 0 if it is near enough."""
        if abs(log_odds) >= _FARTHEST:
            count = n_rows if log_odds < 0 else 0
        else:
            threshold = _typed(log_odds)
            count = tried.get(threshold, -1)
            if count < 0:
                if len(tried) == MOST_COUNTS:
                    return 0.0
                count = tried[threshold] = select(threshold)
        if abs(count - wanted) <= _NEAR * rarer:
            return 0.0
        shares = (count + 0.5) / (n_rows + 1.0), (wanted + 0.5) / (n_rows + 1.0)
        return float(logit(shares[0]) - logit(shares[1]))

    middle = float(logit(wanted / n_rows))
    bracket = [middle - 1.0, middle + 1.0]
    while excess(bracket[0]) < 0.0 and bracket[0] > -_FARTHEST:
        bracket = [max(2.0 * bracket[0] - bracket[1], -_FARTHEST), bracket[0]]
    while excess(bracket[1]) > 0.0 and bracket[1] < _FARTHEST:
        bracket = [bracket[1], min(2.0 * bracket[1] - bracket[0], _FARTHEST)]
    if excess(bracket[0]) * excess(bracket[1]) < 0.0:
        brentq(excess, *bracket, maxiter=50, disp=False)
    if not tried:
        return None
    best = min(tried, key=lambda threshold: abs(tried[threshold] - wanted))
    return (best, tried[best]) if abs(tried[best] - wanted) <= _NEAR_ENOUGH * rarer else None


def _typed(log_odds: float) -> float:
    """Return the probability with three digits off 0 or 1, so that a person can type it."""
    small = float(f"{expit(-abs(log_odds)):.3g}")
    return small if log_odds < 0 else round(1.0 - small, 15)
