"""A method of your own: gradient steps on the mean loss and a growing penalty on exceeded budgets.

It is two pure functions and a frozen state. `fcfl.train` checkpoints it, resumes it to the same
bits and evaluates it like any other; `FCFLClassifier(method=...)` takes it as well.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

import fcfl
from fcfl.data import load_builtin


@dataclass(frozen=True)
class PenaltyState:
    problem: fcfl.Problem
    params: fcfl.Vector
    request: fcfl.Request
    rounds: tuple[int, ...] = (0,)
    status: fcfl.Status = "running"
    message: str = ""
    penalty: float = 1.0


@dataclass(frozen=True)
class Penalty:
    step_size: float = 0.3
    rounds: int = 400
    growth: float = 1.01
    name: str = "penalty"
    state_class: ClassVar[type] = PenaltyState

    def init(self, params: fcfl.Vector, problem: fcfl.Problem) -> PenaltyState:
        return PenaltyState(problem, params, fcfl.Request((fcfl.Point(params, "gradients"),)))

    def step(
        self, state: PenaltyState, reports: fcfl.Reports
    ) -> tuple[PenaltyState, fcfl.RoundInfo]:
        at = fcfl.evaluate_point(state.problem, state.request.points[0].params, reports)
        exceeded = np.flatnonzero(at.violations > 0)
        push = at.violations[exceeded] @ at.violation_grads(exceeded)  # of the squares, halved
        gradient = at.loss_grads.mean(axis=0) + state.penalty * push
        onward = at.params - self.step_size / max(1.0, np.linalg.norm(gradient)) * gradient
        taken = state.rounds[0] + 1
        state = replace(
            state, params=at.params, rounds=(taken,), penalty=state.penalty * self.growth,
            request=fcfl.Request((fcfl.Point(onward, "gradients"),)),
        )  # fmt: skip
        if taken >= self.rounds:
            state = replace(state, status="stopped", message=f"All {taken} rounds taken.")
        return state, fcfl.describe_round(at, round=taken, stage=1, step=self.step_size)

    def fraction_done(self, state: PenaltyState) -> float:
        return state.rounds[0] / self.rounds


if __name__ == "__main__":
    adult = load_builtin("adult", sensitive=["race"])
    federation = fcfl.Federation.from_rows(adult.train, adult.test)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None  # with a folder: killed, it goes on
    going_on = folder is not None and (folder / "checkpoint.fcfl").exists()
    trained = fcfl.train(
        federation,
        fcfl.Linear(adult.schema.n_features),
        [fcfl.Difference("demographic_parity", "race", 0.05)],
        method=Penalty(),
        l2=1e-3,
        session=fcfl.Session(folder, resume=going_on),
    )
    print(f"{trained.message} Largest violation {trained.largest_violation:.4f}.")
    print({client: round(loss, 4) for client, loss in trained.losses.items()})
    print("first weights", trained.params[:3].tolist())
