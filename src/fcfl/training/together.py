"""Several trainings in lock step: one exchange a round for all that are not done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fcfl._types import Point, Reports, Request, reports_on
from fcfl.federation.federation import Bound
from fcfl.methods.method import RoundInfo
from fcfl.methods.method_checks import next_state

K = TypeVar("K")
OnShare = Callable[[RoundInfo, float], None]


@dataclass(frozen=True)
class Lane:
    """One of the trainings: its method and state, and the reports that it was last given."""

    method: Any
    state: Any
    reports: Reports | None = None  # on its last request

    @property
    def is_running(self) -> bool:
        """Whether it has something to ask."""
        return bool(self.state.status == "running")

    @property
    def points(self) -> tuple[Point, ...]:
        """What it asks next."""
        return tuple(self.state.request.points)


def run_together(
    lanes: Mapping[K, Lane],
    clients: Bound,
    what: str,
    on_round: OnShare | None = None,
) -> dict[K, Lane]:
    """Train all lanes to their ends; ``what`` they are for is reported with every exchange."""
    reached, n_exchanges, done = dict(lanes), 0, 0.0
    while any(lane.is_running for lane in reached.values()):
        running = {key: lane for key, lane in reached.items() if lane.is_running}
        answers = ask_together([lane.points for lane in running.values()], clients, what)
        for (key, lane), reports in zip(running.items(), answers, strict=True):
            state, _ = next_state(lane.method, lane.state, reports)
            reached[key] = replace(lane, state=state, reports=reports)
        n_exchanges += 1
        if on_round is not None:
            least = min(lane.method.fraction_done(lane.state) for lane in reached.values())
            done = max(done, least)  # residuals rise at times
            on_round(progress_info(n_exchanges, what), done)
    return reached


def ask_together(questions: Sequence[Sequence[Point]], clients: Bound, what: str) -> list[Reports]:
    """Ask several lists of points in one exchange; the reports on each list."""
    points = tuple(point for asked in questions for point in asked)
    if not points:
        return [{} for _ in questions]
    reports = clients.evaluate(Request(points))
    clients.federation.check_all_answered(f"how models do, for {what}")
    ends = np.cumsum([len(asked) for asked in questions])
    places = [slice(end - len(asked), end) for end, asked in zip(ends, questions, strict=True)]
    return [reports_on(reports, place) for place in places]


def progress_info(number: int, what: str) -> RoundInfo:
    """A line for the progress bar about a round that is not one of the training itself."""
    return RoundInfo(number, 0, "", np.nan, np.nan, np.nan, 0.0, what)
