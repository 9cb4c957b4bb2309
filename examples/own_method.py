"""A method of your own: gradient steps on the mean loss, with a growing penalty on violations.

python examples/own_method.py [FOLDER]; after a kill the same command resumes to the same bits.
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


@dataclass(frozen=True)
class Penalty:
    rounds: int = 400
    growth: float = 1.02
    name: str = "penalty"
    state_class: ClassVar[type] = PenaltyState

    def init(self, params, problem):
        return PenaltyState(problem, params, fcfl.Request((fcfl.Point(params, "gradients"),)))

    def step(self, state, reports):
        at = fcfl.evaluate_point(state.problem, state.request.points[0].params, reports)
        over, taken = np.flatnonzero(at.violations > 0), state.rounds[0] + 1
        weight, slopes = self.growth**taken, at.violation_grads(over)
        gradient = at.loss_grads.mean(axis=0) + weight * at.violations[over] @ slopes
        onward = fcfl.Point(at.params - gradient / (2.0 + weight * np.sum(slopes**2)), "gradients")
        state = replace(state, params=at.params, rounds=(taken,), request=fcfl.Request((onward,)))
        if taken >= self.rounds:
            state = replace(state, status="stopped", message="All rounds taken.")
        return state, fcfl.describe_round(at, round=taken, stage=1, step=1.0)

    def fraction_done(self, state):
        return state.rounds[0] / self.rounds


if __name__ == "__main__":
    adult, rule = load_builtin("adult"), fcfl.Difference("demographic_parity", "race", 0.05)
    folder = Path(*sys.argv[1:2]) if sys.argv[1:] else None
    session = fcfl.Session(folder, resume=folder is not None and any(folder.glob("checkpoint*")))
    federation, model = fcfl.Federation.from_rows(adult.train), fcfl.Linear(adult.schema.n_features)
    trained = fcfl.train(federation, model, [rule], method=Penalty(), l2=1e-3, session=session)
    losses = (f"{name}: loss {loss:.4f}" for name, loss in trained.losses.items())
    print(trained.message, f"Over budget by {trained.largest_violation:.4f}.", *losses, sep="\n")
