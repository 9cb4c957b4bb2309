"""The training loop of all methods and runtimes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Generic, Protocol, TypeVar

from fcfl._checks import check_count, part_missing
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
    """Evaluates requests at the clients; the reports are checked.

    A client that did not answer is left out.
    """

    def evaluate(self, request: Request) -> Reports: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Tally:
    """The cost of a run: points evaluated by each client, by kind, and bytes received."""

    values: int = 0
    gradients: int = 0
    curvatures: int = 0
    bytes_from_clients: int = 0

    def plus(self, request: Request, reports: Reports) -> "Tally":
        """Return this tally with one more exchange."""
        wants = [point.want for point in request.points]
        sent = sum(report.nbytes for answers in reports.values() for report in answers)
        for index in range(len(wants)):
            together = curvature_sum(reports, index)  # counted as if each client had sent its own
            sent += 0 if together is None else together.nbytes * len(reports)
        return Tally(
            self.values + wants.count("values") + wants.count("decisions"),
            self.gradients + wants.count("gradients"),
            self.curvatures + wants.count("curvature"),
            self.bytes_from_clients + sent,
        )


def sum_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the cost of several runs together."""
    every = list(tallies)
    return Tally(*(sum(getattr(tally, f.name) for tally in every) for f in fields(Tally)))


@dataclass(frozen=True)
class Progress(Generic[S]):
    """Everything a run needs to resume: the content of a checkpoint.

    ``memory`` has the last report of every client if reports may stand in for newer ones; ``age``
    counts the rounds in which a report has. ``options`` are the method's name and options as text.
    """

    state: S
    tally: Tally = field(default_factory=Tally)
    memory: Mapping[ClientId, Report] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    __repr__ = brief_repr


def run(
    method: Method[S], progress: Progress[S], runtime: Runtime, *, max_age: int = 0
) -> Iterator[tuple[Progress[S], RoundInfo]]:
    """Exchange requests and reports until the method is done, yielding after every round.

    The last report of an absent client stays in force for at most ``max_age`` rounds, so that its
    budget is still enforced. After that, raise `AbsentClientError`. The ``age`` of a report shows a
    method that the report is stale.
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
        del answers, reports  # curvatures of many clients: gone before the next ones are made
        yield progress, info


def admit(
    request: Request, answers: Reports, progress: Progress[S], max_age: int
) -> tuple[Reports, Mapping[ClientId, Report]]:
    """Return the reports, completed for absent clients, and the next memory; reject strangers."""
    problem = progress.state.problem
    strangers = [name for name in answers if name not in problem.clients]
    if strangers:
        raise ReportError(
            f"Client {strangers[0]!r} answered but is not part of this run; "
            f"its clients are {', '.join(map(repr, problem.clients[:12]))}."
        )
    reports: dict[ClientId, tuple[Report, ...]] = {}
    memory: dict[ClientId, Report] = {}
    summed = isinstance(answers, SummedReports)  # over those that answered: it has no stand-ins
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
    """Return the fullest report to keep; one with gradients is not replaced by one without."""
    ranks = ("decisions", "values", "gradients", "curvature")
    best = max(range(len(points)), key=lambda i: ranks.index(points[i].want))
    if last is not None and answers[best].loss_grad is None and last.loss_grad is not None:
        return replace(last, age=0)
    return answers[best]


def _stand_in(name: ClientId, last: Report, points: tuple[Point, ...], max_age: int) -> Report:
    """Return the last report of an absent client, one round older; raise if it cannot serve."""
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
            "which this round needs. Resume when it is back."
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
