"""Several runs side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fcfl.results import Result
from fcfl.results.many_runs import Judged, judge

from .claims import Claim, by_rule, claims_of, count_verdicts
from .figures import Dot, scatter
from .views import RuleView, rule_views
from .words import title_of, verdict_sentence


@dataclass(frozen=True)
class RunLine:
    """One run in one line: how the worst client fares, and how many budgets are met."""

    name: str
    method: str
    status: str
    worst_client: str
    train_loss: float | None
    lowest_accuracy: float | None
    largest: float | None
    counts: Mapping[str, int]
    sentence: str
    rows_sha256: str | None
    judged: Judged


@dataclass(frozen=True)
class ComparisonView:
    """What the page that compares runs shows; ``settings`` are those that differ."""

    title: str
    runs: tuple[RunLine, ...]
    figure: Markup | None
    rules: tuple[RuleView, ...]
    claims: tuple[Claim, ...]
    settings: tuple[tuple[str, tuple[object, ...]], ...]
    same_rows: bool


def comparison_view(results: Mapping[str, Result]) -> ComparisonView:
    """What the page that compares runs shows."""
    runs = tuple(run_line(name, result) for name, result in results.items())
    claims = [claim for name, result in results.items() for claim in claims_of(result, name)]
    return ComparisonView(
        title=f"{len(results)} runs compared",
        runs=runs,
        figure=_scatter(runs),
        rules=rule_views({of: beside(found) for of, found in by_rule(claims).items()}),
        claims=tuple(sorted(claims, key=lambda claim: (str(claim.of), claim.client))),
        settings=differing_settings(results),
        same_rows=len({run.rows_sha256 for run in runs}) == 1,
    )


def run_line(name: str, result: Result) -> RunLine:
    """What is said of one run."""
    claims = claims_of(result)
    judged = judge(result)
    return RunLine(
        name=name,
        method=result.method,
        status=result.status,
        worst_client=result.worst_client.name or "–",
        train_loss=result.worst_client.train_loss,
        lowest_accuracy=judged.lowest_accuracy,
        largest=judged.largest,
        judged=judged,
        counts=count_verdicts(claim for claim in claims if claim.budget is not None),
        sentence=" ".join(dict.fromkeys((title_of(result), verdict_sentence(result)))),
        rows_sha256=None if result.data is None else result.data.sha256,
    )


def beside(claims: list[Claim]) -> list[Claim]:
    """Claims of the same client in all runs together, the worst client first."""
    clients = list(dict.fromkeys(claim.client for claim in claims))
    return sorted(claims, key=lambda claim: (clients.index(claim.client), claim.run))


def differing_settings(results: Mapping[str, Result]) -> tuple[tuple[str, tuple[object, ...]], ...]:
    """Settings that are not the same in all runs, with each run's value."""
    settings = [result.settings for result in results.values()]
    names = dict.fromkeys(name for given in settings for name in given)
    table = [(name, tuple(given.get(name, "–") for given in settings)) for name in names]
    return tuple(line for line in table if any(value != line[1][0] for value in line[1]))


def _scatter(runs: Sequence[RunLine]) -> Markup | None:
    dots = [
        Dot(
            run.name,
            run.judged.all_rows,
            run.lowest_accuracy,
            _overall(run.counts),
            True,
            run.judged.low,
            run.judged.high,
        )
        for run in runs
        if run.judged.all_rows is not None and run.lowest_accuracy is not None
    ]
    if not dots:
        return None
    axes = ("difference over all rows", "lowest accuracy of a client with enough people")
    return scatter("runs", "Runs by accuracy and disparity", dots, axes)


def _overall(counts: Mapping[str, int]) -> str:
    """The worst verdict of a run."""
    return next((verdict for verdict, count in counts.items() if count), "unconstrained")
