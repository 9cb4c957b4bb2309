"""The shape every method has: ``init`` makes a state, ``step`` turns reports into the next one."""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import numpy as np

from fcfl._types import ClientId, Reports, Request, Vector
from fcfl.server.problem import Evaluation, Problem

Status = Literal["running", "converged", "stopped", "infeasible", "failed"]

FEASIBILITY_TOLERANCE = 1e-6  # a smooth violation up to this counts as met


class State(Protocol):
    """What the next round needs; plain data, so that a checkpoint is the state written down."""

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
    """What a person wants to see of a round; never read back by the algorithm."""

    round: int
    stage: int
    worst_client: ClientId
    worst_loss: float
    mean_loss: float
    largest_violation: float
    step: float
    note: str = ""


class Method(Protocol[S]):
    """A way to train: two pure functions, and how far a state is on the way."""

    @property
    def name(self) -> str: ...  # noqa: D102
    def init(self, params: Vector, problem: Problem) -> S: ...  # noqa: D102
    def step(self, state: S, reports: Reports) -> tuple[S, RoundInfo]: ...  # noqa: D102
    def fraction_done(self, state: S) -> float: ...  # noqa: D102


def describe_round(
    evaluation: Evaluation, *, round: int, stage: int, step: float, note: str = ""
) -> RoundInfo:
    """Summarise the evaluation of an iterate."""
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
