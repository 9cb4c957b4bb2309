"""Choose the L2 weight and the objective by cross-validation inside the clients.

Every client splits its own training rows into folds, scores each candidate on the rows it held
out, and says only sums over them (`HeldOut`); `selection_rule` chooses. First three L2 weights are
tried under an objective near the mean, and further ones while the best is the last on its side;
then two more objectives at the best weight, and around it for one that is better; last where a
parabola through the losses is lowest. The fits of several candidates go in lock step, one exchange
a round, each from one that is near; a fold costs one Newton step on the KKT conditions from its
candidate's fit, and only those of the best few are trained to their ends. The result says how flat
it was, and when weighing the worst client more buys it nothing.
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
NEAR = (3.0, 1 / 3.0)  # times the best weight: where another objective is tried, too
# The maximum itself says nothing of clients below it: fits of settings alike end far apart.
OBJECTIVE_GRID = (10.0, 0.3, 0.03)
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
        """From near the mean towards the maximum; one client alone is both."""
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
    if others:
        fitted |= search.fit([(chosen.l2, o) for o in others], fitted, part_of(on_round, 0.6, 0.8))
        chosen = search.decide(fitted)
    if l2_is_open and chosen.objective != named(first):
        best: Any = next(o for o in others if named(o) == chosen.objective)
        around: list[Candidate] = [(float(f"{chosen.l2 * by:.2g}"), best) for by in NEAR]
        fitted |= search.fit(around, fitted, part_of(on_round, 0.8, 0.9))
        chosen = search.decide(fitted)
    if l2_is_open:
        last: Any = next(o for o in (first, *others) if named(o) == chosen.objective)
        fitted |= search.fit([(chosen.l2, last)], fitted, part_of(on_round, 0.9, 0.95))
    return search.decide(search.refined(fitted, part_of(on_round, 0.95, 1.0)), between=False)


def _further(fitted: Mapping[Candidate, Fitted], chosen: Selection) -> float | None:
    """The next L2 weight to try, where the best one is the last on its side."""
    assert chosen.chosen is not None
    tried = [l2 for l2, _ in fitted]
    lowest = min(chosen.table, key=lambda line: line.worst_loss).l2
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
