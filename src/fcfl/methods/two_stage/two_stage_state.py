"""What the two-stage method remembers between rounds."""

from dataclasses import dataclass, replace

import numpy as np

from fcfl._types import Point, Request, Vector, brief_repr
from fcfl.methods.method import Status
from fcfl.problem.evaluation import Problem


@dataclass(frozen=True)
class TwoStageState:
    """The iterate, the step being tried from it, and what the trial must not make worse.

    A trial goes along ``direction``, tilted towards ``other``; ``tilt`` counts how far. When
    ``violation_at_start`` is given, ``other`` is the violation's gradient: the trial is turned
    towards it just so far that the violation is zero after the step to first order, then tilted
    towards their bisector. Stage 2 computes the other direction only once it is ``cautious``: after
    its first refused step, because most steps are accepted and it costs a linear programme.

    ``rounds`` counts exchanges and ``steps`` accepted steps, in each stage. ``losses`` (one per
    client) and ``violations`` (one per block) are those of the iterate.
    """

    problem: Problem
    params: Vector
    request: Request
    status: Status
    message: str
    stage: int
    rounds: tuple[int, int]
    steps: tuple[int, int]
    temperatures: tuple[float, float]
    step_size: float
    tilt: int
    trials: int
    cautious: bool
    direction: Vector | None
    other: Vector | None
    violation_at_start: float | None
    losses: Vector
    violations: Vector

    __repr__ = brief_repr


def first_state(
    params: Vector, problem: Problem, temperatures: tuple[float, float], step_size: float
) -> TwoStageState:
    """The state before any report: ask for the gradients at ``params``."""
    return TwoStageState(
        problem=problem,
        params=params,
        request=ask_for_gradients(params),
        status="running",
        message="",
        stage=1,
        rounds=(0, 0),
        steps=(0, 0),
        temperatures=temperatures,
        step_size=step_size,
        tilt=0,
        trials=0,
        cautious=False,
        direction=None,
        other=None,
        violation_at_start=None,
        losses=np.zeros(0),
        violations=np.zeros(0),
    )


def reset_search(state: TwoStageState, step_size: float) -> TwoStageState:
    """Forget the direction and start with a full step."""
    return replace(state, direction=None, other=None, step_size=step_size, tilt=0, trials=0)


def ask_for_gradients(params: Vector) -> Request:
    """A request for values and gradients at one point."""
    return Request((Point(params, "gradients"),))


def add_one(counts: tuple[int, int], stage: int) -> tuple[int, int]:
    """One more in the count of ``stage``."""
    first, second = counts
    return (first + 1, second) if stage == 1 else (first, second + 1)
