"""The shape every method has: ``init`` makes a state, ``step`` turns reports into the next one."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np

from fcfl._types import ClientId, RateKind, Reports, Request, Vector
from fcfl.problem.evaluation import Evaluation, Problem

Status = Literal["running", "converged", "stopped", "infeasible", "failed"]


class State(Protocol):
    """What the next round needs; plain data, so that a checkpoint is the state written down.

    A frozen dataclass of numbers, text, arrays, tuples, mappings with text keys, and other such
    dataclasses. The type hints of its fields must mention every dataclass that they may hold:
    these are the classes that a checkpoint may build again.

    ``params`` is the model that the run would end with now, ``request`` what is asked of all
    clients next, and ``rounds`` the exchanges so far, by stage. The loop goes on while ``status``
    is "running"; at the end ``message`` says why, in a sentence.
    """

    @property
    def problem(self) -> Problem: ...  # noqa: D102
    @property
    def params(self) -> Vector: ...  # noqa: D102
    @property
    def request(self) -> Request: ...  # noqa: D102
    @property
    def rounds(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def status(self) -> Status: ...  # noqa: D102
    @property
    def message(self) -> str: ...  # noqa: D102


S = TypeVar("S", bound=State)


@dataclass(frozen=True, slots=True)
class RoundInfo:
    """What a person wants to see of a round; never read back by the algorithm.

    ``round`` counts from 1 over both stages. The losses and ``largest_violation`` (smooth, minus
    infinity without budgets) are those of the point that was evaluated, on training rows.
    ``step`` is the step length or step size, 0 when none was accepted; ``note`` says in a word what
    became of the round, such as "refused". ``loss_gap`` and ``violation_gap`` say how far the
    smooth maxima lie above the maxima, for a method that uses them. ``exchange`` is the number of
    exchanges of the run so far, ``phase`` what they were made for; training sets both.
    """

    round: int
    stage: int
    worst_client: ClientId
    worst_loss: float
    mean_loss: float
    largest_violation: float
    step: float
    note: str = ""
    loss_gap: float | None = None
    violation_gap: float | None = None
    exchange: int | None = None
    phase: str | None = None


class Method(Protocol[S]):
    """A way to train: two pure functions, and how far a state has come.

    ``init`` makes the first state, with the first request. ``step`` takes a state and the reports
    on its request to the next state; the same arguments always give the same result, so that a run
    can be replayed and resumed. ``fraction_done`` is between 0 and 1, for progress bars.

    ``state_class`` is the class of its states, from which checkpoints are read. A report with an
    ``age`` above 0 is stale: it is about an earlier point, because its client did not answer.
    What else the package may want to know of a method is optional: see `Traits`.
    """

    state_class: ClassVar[type[Any]]

    @property
    def name(self) -> str: ...  # noqa: D102
    def init(self, params: Vector, problem: Problem) -> S: ...  # noqa: D102
    def step(self, state: S, reports: Reports) -> tuple[S, RoundInfo]: ...  # noqa: D102
    def fraction_done(self, state: S) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Traits:
    """What the rest of the package asks of a method, so that it need not know which one it is.

    A method states what differs from these defaults as class attributes of the same names; it
    needs no base class. `traits_of` reads them.

    Parameters
    ----------
    enforces_budgets
        Whether its model keeps the budgets. If not, a run says that they are only measured.
    objectives
        What it may minimise over clients: ``"max"``, ``"mean"``, and ``"temperature"`` for the
        smooth maximum at any positive one. Empty when it has an objective of its own.
    is_cross_validated
        Whether ``l2`` and ``objective`` are chosen by leave-one-out losses when they are left open:
        it must be fast, and start from any parameters.
    n_stages
        How many counts its option ``rounds`` has; with 1 it is a plain number.
    rate_kinds
        Rates that it needs besides those that the rules compare.
    n_references
        Rows that are disclosed to the server as reference points.
    over_sites
        Whether sites over a network answer all that it requests.
    is_private
        Whether it asks for noisy sums only: nothing else is then asked of clients, before or after.
    """

    enforces_budgets: bool = True
    objectives: tuple[str, ...] = ()
    is_cross_validated: bool = False
    n_stages: int = 1
    rate_kinds: tuple[RateKind, ...] = ()
    n_references: int = 0
    over_sites: bool = True
    is_private: bool = False


def traits_of(method: Any) -> Traits:
    """The traits of a method or of its class; those that it does not state have the defaults.

    The one place where a method is asked for an attribute that it may not have.
    """
    names = Traits.__dataclass_fields__
    stated = {name: getattr(method, name) for name in names if hasattr(method, name)}
    return Traits(**stated)


def describe_round(
    evaluation: Evaluation, *, round: int, stage: int, step: float, note: str = ""
) -> RoundInfo:
    """The `RoundInfo` of a round in which ``evaluation`` was the point of interest."""
    losses = evaluation.losses
    worst = int(np.argmax(losses))
    return RoundInfo(
        round=round,
        stage=stage,
        worst_client=evaluation.problem.clients[worst],
        worst_loss=float(losses[worst]),
        mean_loss=float(losses.mean()),
        largest_violation=evaluation.largest_violation,
        step=step,
        note=note,
    )
