"""``report.html``: one file that needs nothing else, for somebody who was not there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from fcfl._files import replace_file
from fcfl.errors import DataError
from fcfl.results import Comparison, Result, RunFolder, read_comparison, read_results, read_run
from fcfl.results.files import COMPARISON
from fcfl.results.findings import Finding, findings_of
from fcfl.results.many_runs import ENOUGH

from .before_after import ChangeView, change_view
from .budget_price import BudgetPrice, price_in_steps
from .claims import Claim, by_rule, claims_of, rows_called, worst_first
from .glossary import GLOSSARY
from .group_figures import RatesView, rates_views
from .method_tables import methods_view
from .people import next_steps, people_sentences
from .run_comparison import comparison_view
from .score_figures import ScoreView, score_views
from .svg import icon
from .sweep_views import sweep_view
from .views import (
    ClientLine,
    GroupLine,
    PriceView,
    RuleView,
    ScatterView,
    TrainingLine,
    client_lines,
    group_lines,
    path_views,
    price_view,
    rule_views,
    scatter_views,
    training_lines,
)
from .words import (
    exchanges_called,
    interval,
    minimised,
    number,
    plain,
    privacy_sentences,
    served_sentence,
    share,
    threshold_sentence,
    title_of,
    trained_sentence,
    verdict_sentence,
    worst_sentence,
)

PAGE = "report.html"


@dataclass(frozen=True)
class RunView:
    """Everything the page says of one result."""

    title: str
    result: Result
    findings: tuple[Finding, ...]
    details: tuple[str, ...]
    trained: str
    rows_called: str
    rules: tuple[RuleView, ...]
    claims: tuple[Claim, ...]
    scatters: tuple[ScatterView, ...]
    scores: tuple[ScoreView, ...]
    price: BudgetPrice | None
    prices: PriceView | None
    clients: tuple[ClientLine, ...]
    groups: tuple[GroupLine, ...]
    training: tuple[TrainingLine, ...]
    facts: tuple[tuple[str, str], ...]
    minimised: str
    rates: tuple[RatesView, ...]
    change: ChangeView | None
    steps: tuple[str, ...]
    expects: bool
    privacy: tuple[str, ...] = ()


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Draw a run's page from its files and write it beside them, or to ``out``."""
    return _write(_page_at(out or folder), render_run(read_run(folder)))


def write_comparison_page(folder: Path, out: Path | None = None) -> Path:
    """Draw a comparison of methods again from its folder."""
    comparison = read_comparison(folder / COMPARISON)
    places = [folder / run.folder for run in comparison.runs if run.part is not None]
    return write_comparison(places, out or folder, comparison)


def write_comparison(
    folders: Sequence[Path], out: Path, comparison: Comparison | None = None
) -> Path:
    """Draw several runs side by side; ``out`` is a file ending in .html, or a folder.

    ``comparison`` is what a comparison of methods found over all seeds.
    """
    runs, methods = comparison_view(read_results(folders)), methods_view(comparison)
    title = methods.title or runs.title
    page = _render("comparison.html", title=title, view=runs, methods=methods)
    return _write(_page_at(out), page)


def _page_at(out: Path) -> Path:
    return out if out.suffix.lower() in (".html", ".htm") else out / PAGE


def render_run(run: RunFolder) -> str:
    """The page of one folder."""
    sweep = sweep_view(run.sweep)
    if sweep is not None:
        table = run.result.data.table if run.result is not None and run.result.data else ""
        return _render("sweep.html", title=sweep.title, table=table, sweep=sweep)
    if run.result is None:
        raise DataError(f"There is nothing to show in {str(run.folder)!r}: it has no points.")
    path = path_views(run.history)
    return _render("run.html", path=path, **vars(run_view(run.result, run.plain)))


def run_view(result: Result, plain_run: Result | None = None) -> RunView:
    """Everything the page says of one result, beside plain FedAvg where that was run too."""
    claims = claims_of(result)
    title, verdicts = title_of(result), verdict_sentence(result)
    details = (
        verdicts if verdicts != title else "",
        *people_sentences(result),
        worst_sentence(result),
        served_sentence(result),
        threshold_sentence(result),
    )
    return RunView(
        title=title,
        result=result,
        findings=findings_of(result),
        details=tuple(sentence for sentence in details if sentence),
        trained=trained_sentence(result),
        rows_called=rows_called(result),
        rules=rule_views(by_rule(claims)),
        claims=tuple(worst_first(claims)),
        scatters=scatter_views(result),
        scores=score_views(result),
        price=price_in_steps(result),
        prices=price_view(result),
        clients=tuple(client_lines(result)),
        groups=tuple(group_lines(result)),
        training=tuple(training_lines(result)),
        facts=tuple(facts(result)),
        privacy=tuple(privacy_sentences(result)),
        minimised=minimised(result),
        rates=rates_views(worst_first(claims)),
        change=change_view(result, plain_run),
        steps=tuple(next_steps(result)),
        expects=any(line.entry.expected for line in training_lines(result)),
    )


def facts(result: Result) -> Iterable[tuple[str, str]]:
    """How the result came about, line by line."""
    counts, data = result.evaluations, result.data
    asked = {"value": counts.value, "gradient": counts.gradient, "curvature": counts.curvature}
    sent = result.bytes_from_clients
    known = {
        "method": result.method,
        "status": result.status,
        "how it ended": result.message,
        "exchanges with all clients": exchanges_called(result),
        "evaluations per client": ", ".join(f"{n} {what}" for what, n in asked.items() if n),
        "sent by clients": f"{sent / 1e6:.3g} MB" if sent else "",
        "seconds": _short(result.seconds),
        "KKT residual": _short(result.kkt_residual),
        "l2": _short(result.l2),
        "objective": _short(result.objective),
        "decision threshold": _short(result.threshold),
        "seed": _short(result.seed),
        "data": data.table if data else "",
        "SHA-256 of the rows": data.sha256 if data else "",
        "SHA-256 of the policy": (data.policy_sha256 or "") if data else "",
        "versions": _versions(result),
    }
    return [(name, value) for name, value in known.items() if value]


def _versions(result: Result) -> str:
    known = result.versions or {"fcfl": result.fcfl_version}
    return ", ".join(f"{name} {version}" for name, version in known.items())


def _short(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def setting(value: object) -> str:
    """A setting's value in the words of the command line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def _render(template: str, **view: object) -> str:
    environment = Environment(
        loader=PackageLoader("fcfl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number, plain=plain, icon=icon, setting=setting, interval=_interval, share=share
    )
    return environment.get_template(template).render(glossary=GLOSSARY, enough=ENOUGH, **view)


def _interval(bounds: Sequence[float] | None, digits: int = 3) -> str:
    return "–" if bounds is None else interval(bounds[0], bounds[1], digits)


def _write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content.encode())
    return path
