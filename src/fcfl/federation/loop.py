"""Training loop of all methods and runtimes, and the cost of a run.

`run` exchanges requests and reports until the method has finished. The cost of a run is a `Tally`
of evaluated points and received bytes, and an `ExchangeCount` of requests.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from fcfl._checks import check_count, part_missing
from fcfl._files import replace_file
from fcfl._types import (
    ClientId,
    Point,
    Report,
    Reports,
    Request,
    SummedReports,
    brief_repr,
    curvature_sum,
    without_curvature,
)
from fcfl.errors import AbsentClientError, ReportError
from fcfl.methods.method import Method, RoundInfo, State, next_state

S = TypeVar("S", bound=State)


class Runtime(Protocol):
    """Evaluates requests at the clients and returns checked reports, without absent clients."""

    def evaluate(self, request: Request) -> Reports: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Tally:
    """Cost of a run: points that each client has evaluated, by kind, and bytes received."""

    values: int = 0
    gradients: int = 0
    curvatures: int = 0
    bytes_from_clients: int = 0

    def plus(self, request: Request, reports: Reports) -> "Tally":
        """Return this tally with one more exchange."""
        wants = [point.want for point in request.points]
        sent = sum(report.nbytes for answers in reports.values() for report in answers)
        for index in range(len(wants)):
            together = curvature_sum(reports, index)  # counted once per client
            sent += 0 if together is None else together.nbytes * len(reports)
        return Tally(
            self.values + wants.count("values") + wants.count("decisions"),
            self.gradients + wants.count("gradients"),
            self.curvatures + wants.count("curvature"),
            self.bytes_from_clients + sent,
        )


def sum_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the total cost of several runs."""
    every = list(tallies)
    return Tally(*(sum(getattr(tally, f.name) for tally in every) for f in fields(Tally)))


@dataclass(frozen=True)
class Progress(Generic[S]):
    """State from which a run can resume: the content of a checkpoint.

    ``memory`` has the last report of each client if it may be used again for an absent client.
    ``options`` has the method's name and options as text.
    """

    state: S
    tally: Tally = field(default_factory=Tally)
    memory: Mapping[ClientId, Report] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    __repr__ = brief_repr


def run(
    method: Method[S], progress: Progress[S], runtime: Runtime, *, max_age: int = 0
) -> Iterator[tuple[Progress[S], RoundInfo]]:
    """Exchange requests and reports until the method has finished, yielding after each round.

    For an absent client, use its last report for at most ``max_age`` rounds, so that its budget is
    still enforced, and then raise `AbsentClientError`. The ``age`` of such a report is positive.
    """
    check_count("max_age", max_age)
    return _rounds(method, progress, runtime, max_age)


def _rounds(
    method: Method[S], progress: Progress[S], runtime: Runtime, max_age: int
) -> Iterator[tuple[Progress[S], RoundInfo]]:
    while progress.state.status == "running":
        request = progress.state.request
        answers = runtime.evaluate(request)
        reports, memory = admit(request, answers, progress, max_age)
        state, info = next_state(method, progress.state, reports)
        tally = progress.tally.plus(request, answers)
        progress = Progress(state, tally, memory, progress.options)
        del answers, reports  # frees curvatures of many clients before the next round
        yield progress, info


def admit(
    request: Request, answers: Reports, progress: Progress[S], max_age: int
) -> tuple[Reports, Mapping[ClientId, Report]]:
    """Return the reports, with last reports of absent clients, and the memory of the next round."""
    problem = progress.state.problem
    strangers = [name for name in answers if name not in problem.clients]
    if strangers:
        raise ReportError(
            f"Client {strangers[0]!r} answered but is not part of this run; "
            f"its clients are {', '.join(map(repr, problem.clients[:12]))}."
        )
    reports: dict[ClientId, tuple[Report, ...]] = {}
    memory: dict[ClientId, Report] = {}
    summed = isinstance(answers, SummedReports)  # sums are over clients that responded
    needed = without_curvature(request.points) if summed else request.points
    for name in problem.clients:
        last = progress.memory.get(name)
        if name in answers:
            reports[name] = answers[name]
            last = _remember(last, request.points, answers[name]) if max_age else None
        else:
            if last is None:
                raise _unknown(name, is_first_round=not any(progress.state.rounds))
            last = _stand_in(name, last, needed, max_age)
            reports[name] = (last,) * len(request.points)
        if last is not None:
            memory[name] = last
    if isinstance(answers, SummedReports):
        return SummedReports(reports, answers.curvature_sums), memory
    return reports, memory


def _remember(
    last: Report | None, points: tuple[Point, ...], answers: tuple[Report, ...]
) -> Report:
    """Return the most complete report to keep; reports with gradients take precedence."""
    ranks = ("decisions", "values", "gradients", "curvature")
    best = max(range(len(points)), key=lambda i: ranks.index(points[i].want))
    if last is not None and answers[best].loss_grad is None and last.loss_grad is not None:
        return replace(last, age=0)
    return answers[best]


def _stand_in(name: ClientId, last: Report, points: tuple[Point, ...], max_age: int) -> Report:
    """Return the last report of an absent client with its age increased, or raise if unusable."""
    if last.age >= max_age:
        rounds = "1 round" if last.age == 0 else f"{last.age + 1} rounds"
        raise AbsentClientError(
            f"Client {name!r} did not answer, and its last report is {rounds} old "
            f"(`max_age` is {max_age}). Resume when it is back."
        )
    part = part_missing(last, points)
    if part is not None:
        raise AbsentClientError(
            f"Client {name!r} did not answer, and its last report has no {part}, "
            "which this round requires. Resume when it is back."
        )
    return replace(last, age=last.age + 1)


def _unknown(name: ClientId, *, is_first_round: bool) -> AbsentClientError:
    """Return the error for an absent client without a stored report."""
    if is_first_round:
        return AbsentClientError(
            f"Client {name!r} did not answer and has not reported before. "
            "Training cannot continue: its budget would be unknown."
        )
    return AbsentClientError(
        f"Client {name!r} did not answer, and with `max_age` 0 none of its earlier reports was "
        "kept. Resume when it is back."
    )


EXCHANGES = "exchanges.json"  # in the folder of a run: exchanges so far
_SAVE_SECONDS = 0.5  # between two writes, as for checkpoints

Phase = Literal[
    "meet",
    "reference",
    "disclose",
    "choose",
    "starts",
    "fit",
    "check",
    "tighten",
    "project",
    "threshold",
    "vote",
]
"""Purpose of an exchange.

meet : introductions, and the counts from which constraints are built
reference : training without budgets, to which relative budgets refer
disclose : reference rows that some methods need
choose : fits of candidate settings, and their leave-one-out losses
starts : comparison of initial parameters
fit : training with the plain budgets
check : hard decisions of a model on all rows
tighten : training under tightened bounds
project : minimum-norm corrections of a model
threshold : thresholds by group
vote : ballots of a negotiation
"""


@dataclass
class ExchangeCount:
    """Number of exchanges by phase.

    A federation adds one per request. The caller sets the phase. Each training run takes the
    exchanges since the previous run.
    """

    by_phase: dict[str, int] = field(default_factory=dict)
    phase: Phase = "meet"
    _path: Path | None = None
    _saved: float = float("-inf")

    @property
    def total(self) -> int:
        """Return the number of exchanges in all phases."""
        return sum(self.by_phase.values())

    def add(self) -> None:
        """Count one exchange in the current phase."""
        self.by_phase[self.phase] = self.by_phase.get(self.phase, 0) + 1
        if self._path is not None and time.monotonic() - self._saved >= _SAVE_SECONDS:
            self.save()

    def take(self) -> dict[str, int]:
        """Return the count by phase and reset it."""
        taken, self.by_phase = self.by_phase, {}
        return taken

    @contextmanager
    def in_phase(self, phase: Phase) -> Iterator[None]:
        """Count exchanges under ``phase`` inside a ``with`` statement."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    @contextmanager
    def kept_in(self, folder: Path | None, *, resume: bool) -> Iterator[None]:
        """Store the count in a run's folder during a run; if ``resume``, add the stored count.

        Without a folder, store nothing. Reset the count at the end.
        """
        if folder is not None and resume:
            for phase, count in read_exchanges(folder).items():
                self.by_phase[phase] = self.by_phase.get(phase, 0) + count
        before, self._path = self._path, None if folder is None else folder / EXCHANGES
        try:
            yield
        finally:
            self.save()
            self._path = before
            self.take()

    def save(self) -> None:
        """Write the count if it has a path; ignore errors, which checkpoints report."""
        self._saved = time.monotonic()
        if self._path is not None:
            with suppress(OSError):
                replace_file(self._path, (json.dumps(self.by_phase) + "\n").encode())


def read_exchanges(folder: Path) -> Mapping[str, int]:
    """Return the stored count of a run, or an empty mapping if it is missing or invalid."""
    try:
        stored = json.loads((folder / EXCHANGES).read_text(encoding="utf-8"))
        return {str(phase): int(count) for phase, count in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
