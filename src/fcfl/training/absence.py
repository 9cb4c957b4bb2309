"""The fast method where a report may be old: nothing is concluded from it, and nothing compared."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fcfl._types import Reports, Vector
from fcfl.server.method import RoundInfo
from fcfl.server.problem import Problem
from fcfl.server.sqp.sqp import SQP, SQPState


@dataclass(frozen=True)
class Cautious:
    """The method, told which rounds had a report of an earlier point in them.

    After such a round the next step is taken without a line search, whose old values are those of
    another point; a stage that would end with one is not over until everybody has spoken again.
    """

    method: SQP
    is_somebody_absent: Callable[[], bool]

    @property
    def name(self) -> str:
        """That of the method."""
        return self.method.name

    def init(self, params: Vector, problem: Problem) -> SQPState:
        """As the method does."""
        return self.method.init(params, problem)

    def fraction_done(self, state: SQPState) -> float:
        """As the method does."""
        return self.method.fraction_done(state)

    def step(self, state: SQPState, reports: Reports) -> tuple[SQPState, RoundInfo]:
        """The method's step; with an old report in it, a provisional one."""
        reached, info = self.method.step(state, reports)
        if not self.is_somebody_absent():
            return reached, info
        info = replace(info, note=f"{info.note} with an old report".strip())
        if reached.status != "running" or reached.stage != state.stage:
            reached = replace(state, rounds=reached.rounds)
        search = replace(reached.search, settled=True, merits=())
        return replace(reached, search=search), info
