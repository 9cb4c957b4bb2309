"""Choose the L2 weight and the objective by cross-validation inside the clients.

Every client splits its own training rows into folds, scores each candidate on the rows it held
out, and says only sums over them (`HeldOut`); `selection_rule` chooses. First three L2 weights are
tried under the objective nearest the mean, and further ones while the best is the last on its side;
then the weight where a parabola through the losses is lowest; then two more objectives at the best
weight. The fits of several candidates go in lock step, one exchange a round, each from one that is
near; a fold costs one Newton step on the KKT conditions from its candidate's fit, and only those at
the chosen weight are trained to their ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fcfl._types import Fold
from fcfl.client.folds import THIN_STEP
from fcfl.client.questions import Setup
from fcfl.federation.federation import Federation
from fcfl.results import Selection
from fcfl.rules import Rule
from fcfl.training.candidate_fits import CandidateFits
from fcfl.training.fitted_file import Fitted
from fcfl.training.progress_share import OnRound, part_of
from fcfl.training.selection_rule import N_FOLDS, Candidate, named

L2_GRID = (1.0, 3e-1, 1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4)
L2_TRIED = (3e-2, 1e-2, 3e-3)  # first; then on, while the best is the last on its side
# The maximum itself says nothing of clients below it: fits of settings alike end far apart.
OBJECTIVE_GRID = ("mean", 0.3, 0.03)
MOST_ROWS = 100_000  # used for choosing; more rows would not change the choice


@dataclass(frozen=True)
class OpenSettings:
    """What is left to choose: ``"auto"``, or the value that is given."""

    l2: float | Literal["auto"]
    objective: float | Literal["max", "mean", "auto"]

    @property
    def is_open(self) -> bool:
        """Whether anything is left to cross-validation."""
        return "auto" in (self.l2, self.objective)

    def objectives(self, n_clients: int) -> tuple[Any, ...]:
        """From the mean towards the maximum; one client alone is both."""
        if self.objective != "auto":
            return (self.objective,)
        return OBJECTIVE_GRID if n_clients > 1 else ("max",)

    def weights(self) -> tuple[float, ...]:
        """L2 weights to try first."""
        return L2_TRIED if self.l2 == "auto" else (float(self.l2),)


def select(
    federation: Federation,
    setup: Setup,
    rules: Sequence[Rule],
    method: Any,
    settings: OpenSettings,
    *,
    seed: int,
    min_group_rows: float | None = 1.0,
    on_round: OnRound | None = None,
    progress_file: Path | None = None,
) -> Selection:
    """Cross-validate candidates; the choice, the table and one sentence of reading.

    What was fitted is kept in ``progress_file``, and not fitted again.
    """
    n_clients = len(federation.names)
    most = max(MOST_ROWS // n_clients // THIN_STEP * THIN_STEP, 500)
    folds = [Fold(index, N_FOLDS, seed, most) for index in range(N_FOLDS)]
    search = CandidateFits(federation, setup, rules, method, folds, min_group_rows, progress_file)
    if not search.holds_out:
        return _nothing_to_hold_out(settings)
    first, *others = settings.objectives(n_clients)
    weights, l2_is_open = settings.weights(), settings.l2 == "auto"
    fitted = search.fit([(w, first) for w in weights], {}, part_of(on_round, 0.0, 0.4))
    chosen = search.decide(fitted)
    while l2_is_open and (further := _further(fitted, chosen)) is not None:
        fitted |= search.fit([(further, first)], fitted, part_of(on_round, 0.4, 0.6))
        chosen = search.decide(fitted)
    if l2_is_open:
        fitted |= search.fit([(chosen.l2, first)], fitted, part_of(on_round, 0.6, 0.7))
    l2 = search.decide(fitted, between=False).l2
    compared: list[Candidate] = [(l2, objective) for objective in (first, *others)]
    fitted |= search.fit(compared[1:], fitted, part_of(on_round, 0.7, 0.9))
    fitted = search.refined(fitted, compared, part_of(on_round, 0.9, 1.0))
    return search.decide(fitted, between=False)


def _further(fitted: Mapping[Candidate, Fitted], chosen: Selection) -> float | None:
    """The next L2 weight to try, where the best one is the last on its side."""
    assert chosen.chosen is not None
    tried = [l2 for l2, _ in fitted]
    lowest = min(chosen.table, key=lambda line: line.mean_loss).l2
    if lowest == max(tried):
        return next((w for w in reversed(L2_GRID) if w > lowest), None)
    if lowest == min(tried):
        return next((w for w in L2_GRID if w < lowest), None)
    return None


def _nothing_to_hold_out(settings: OpenSettings) -> Selection:
    """Clients of a handful of rows: a moderate choice, and it is said."""
    return Selection(
        l2=1e-2 if settings.l2 == "auto" else float(settings.l2),
        objective=named(1.0 if settings.objective == "auto" else settings.objective),
        folds=0,
        sentence=f"No client has the {2 * N_FOLDS} training rows that cross-validation needs; "
        "l2 and objective were not chosen but set to a middle value.",
    )
