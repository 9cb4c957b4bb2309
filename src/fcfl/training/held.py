"""A model after some turn, what it decides on training rows, and what to say of that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcfl._checks import first_of
from fcfl._types import ClientId, Vector
from fcfl.client.counts import Counts, pool_counts
from fcfl.results.evaluations import Evaluations
from fcfl.rules import Rule
from fcfl.server.decisions import KEPT
from fcfl.server.method import FEASIBILITY_TOLERANCE, traits_of
from fcfl.server.problem import Evaluation, Problem, evaluate_point
from fcfl.training.run_stages import Run

NEARLY = 1e-4  # smooth violation of a turn that does not converge, as networks often do not
SHOWN = 0.005  # a smaller change of what a client selects is not told


@dataclass(frozen=True)
class Held:
    """A model after some turn, and what it decides.

    ``state`` is the last one of the method that trains; ``params`` may have been moved since.
    ``decided`` are the hard rates of training rows, stacked client by client.
    """

    params: Vector
    state: Any
    found: Evaluations
    decided: Vector

    @property
    def at(self) -> Evaluation:
        """The problem that was solved last, at this model: losses and smooth rates."""
        reports = {client: (report,) for client, report in self.found.reports.items()}
        return evaluate_point(self.state.problem, self.params, reports)

    @property
    def accuracy(self) -> float:
        """Share of all training rows that are decided rightly."""
        counts = pool_counts(self.found.train.values())
        return (counts.true_negative + counts.true_positive) / max(counts.n_rows, 1)

    @property
    def mean_loss(self) -> float:
        """Mean of the clients' losses on training rows."""
        return float(self.at.losses.mean())

    @property
    def is_sound(self) -> bool:
        """Whether training came to its end, or at least inside the bounds."""
        if self.state.status == "converged":
            return True
        return self.state.status == "stopped" and self.at.largest_violation <= NEARLY

    def excess(self, problem: Problem) -> Vector:
        """By how much decisions exceed each bound of a problem; 0 where they keep it."""
        over = problem.constraints.violations(self.decided)
        return np.where(over > self._tolerance, over, 0.0)

    @property
    def _tolerance(self) -> float:
        """Counts are exact; smooth rates, which stand in where a client counts none, are not."""
        is_counted = all(counts.n_rows for counts in self.found.train.values())
        return KEPT if is_counted else FEASIBILITY_TOLERANCE

    def changes(self, since: "Held") -> dict[ClientId, float]:
        """By how much the share that each client selects has changed."""
        return {
            client: _selected(counts) - _selected(since.found.train[client])
            for client, counts in self.found.train.items()
        }


def _selected(counts: Counts) -> float:
    return (counts.true_positive + counts.false_positive) / max(counts.n_rows, 1)


def held_at(
    run: Run, params: Vector, state: Any, rules: Sequence[Rule], clients: Sequence[ClientId]
) -> Held:
    """What a model decides, of the clients in this order; held against ``rules``."""
    with run.federation.phase("check"):
        counted = run.federation.count(run.setup, params)
    decided = np.concatenate([counted[client].rates for client in clients])
    return Held(params, state, run.evaluations(counted, rules), decided)


def sentence_on_changes(changes: Mapping[ClientId, float]) -> tuple[str, ...]:
    """How far margins move what clients select, where it is worth a word."""
    shown = {client: by for client, by in changes.items() if abs(by) >= SHOWN}
    if not shown:
        return ()
    listed = first_of((f"{client!r} {by:+.3f}" for client, by in shown.items()), 12)
    return (f"Margins change the share selected: {listed}.",)


def sentence_on_no_margins(method: Any, confidence: float) -> tuple[str, ...]:
    """That a method which keeps budgets in training has no margins for new rows."""
    if not traits_of(method).enforces_budgets:
        return ()
    return (
        f"Method {method.name!r} trains with the plain budgets: `confidence` {confidence:g} has no "
        "margins there, and budgets may be exceeded on new rows.",
    )


def sentence_on_exceeded(held: Held, problem: Problem, most_accuracy: float) -> str:
    """Which budgets decisions on training rows do not keep, and what would not be paid for it."""
    most: dict[str, float] = {}
    for row, excess in zip(problem.constraints.rows, held.excess(problem), strict=True):
        if excess > 0:
            who = "all clients together" if row.client is None else repr(row.client)
            name = f"{who} ({row.metric}, {row.attribute})"
            most[name] = max(most.get(name, 0.0), float(excess))
    listed = [f"{name} by {by:.3g}" for name, by in sorted(most.items(), key=lambda i: -i[1])]
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return (
        f"Decisions on training rows exceed the budget of {', '.join(listed[:5])}{more}: "
        f"training could not bring them inside for {most_accuracy:g} of accuracy."
    )
