"""``report.html``: one file that needs nothing else, for somebody who was not there."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .claims import by_rule, claims_of, rows_called, worst_first
from .comparison import comparison_view
from .method_tables import methods_view
from .run_files import Run, read_results, read_run
from .svg import icon
from .views import (
    client_rows,
    group_counts,
    path_views,
    price_view,
    rule_views,
    scatter_views,
    sweep_view,
    training_rows,
)
from .words import (
    headline,
    interval,
    minimised,
    number,
    plain,
    served_sentence,
    verdict_sentence,
    worst_sentence,
)

PAGE = "report.html"


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Draw a run's page from its files and write it beside them, or to ``out``."""
    return _write(_page_at(out or folder), render_run(read_run(folder)))


def write_comparison(
    folders: Sequence[Path], out: Path, content: Mapping[str, Any] | None = None
) -> Path:
    """Draw several runs side by side; ``out`` is a file ending in .html, or a folder.

    ``content`` is what a comparison of methods found over all seeds.
    """
    view = comparison_view(read_results(folders)) | methods_view(content)
    return _write(_page_at(out), _render("comparison.html", **view))


def _page_at(out: Path) -> Path:
    return out if out.suffix.lower() in (".html", ".htm") else out / PAGE


def render_run(run: Run) -> str:
    """The page of one folder."""
    sweep = sweep_view(run.sweep)
    if run.result is None:
        return _render("sweep.html", title="Sweep of budgets", sweep=sweep)
    return _render("run.html", sweep=sweep, path=path_views(run.history), **run_view(run.result))


def run_view(result: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the page says of one result."""
    claims = claims_of(result)
    return {
        "title": verdict_sentence(result),
        "result": result,
        "details": [s for s in (worst_sentence(result), served_sentence(result)) if s],
        "trained": None if result["method"] == "audit" else headline(result),
        "rows_called": rows_called(result),
        "rules": rule_views(by_rule(claims)),
        "claims": worst_first(claims),
        "scatters": scatter_views(result),
        "prices": price_view(result),
        "clients": list(client_rows(result)),
        "groups": list(group_counts(result)),
        "training": training_rows(result),
        "facts": facts(result),
        "minimised": minimised(result),
    }


def facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How the result came about, line by line."""
    rounds = ", ".join(f"{stage} {count}" for stage, count in result["rounds"].items())
    asked = ", ".join(f"{count} {what}" for what, count in result["evaluations"].items() if count)
    sent = result.get("bytes_from_clients")
    known = {
        "method": result["method"],
        "status": result["status"],
        "how it ended": result["message"],
        "rounds": rounds,
        "evaluations per client": asked,
        "sent by clients": f"{sent / 1e6:.3g} MB" if sent else "",
        "seconds": _short(result.get("seconds")),
        "KKT residual": _short(result.get("kkt_residual")),
        "l2": _short(result.get("l2")),
        "objective": _short(result.get("objective")),
        "seed": _short(result.get("seed")),
        "data": str(result.get("data", {}).get("table", "")),
        "SHA-256 of the rows": str(result.get("data", {}).get("sha256", "")),
        "SHA-256 of the policy": str(result.get("data", {}).get("policy_sha256", "")),
        "versions": _versions(result),
    }
    return [(name, value) for name, value in known.items() if value]


def _versions(result: Mapping[str, Any]) -> str:
    known = result.get("versions") or {"fcfl": result["fcfl_version"]}
    return ", ".join(f"{name} {version}" for name, version in known.items())


def _short(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def setting(value: Any) -> str:
    """A setting's value in the words of the command line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def _render(template: str, **view: Any) -> str:
    environment = Environment(
        loader=PackageLoader("fcfl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number, plain=plain, icon=icon, setting=setting, interval=_interval
    )
    return environment.get_template(template).render(**view)


def _interval(bounds: Sequence[float] | None, digits: int = 3) -> str:
    return "–" if bounds is None else interval(bounds[0], bounds[1], digits)


def _write(path: Path, content: str) -> Path:
    """Write in one step: a reader sees the old page or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".draft")
    try:
        draft.write_text(content, encoding="utf-8")
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return path
