"""Self-contained HTML pages of runs, sweeps and comparisons."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fcfl._files import replace_file
from fcfl.errors import DataError
from fcfl.results import COMPARISON, Comparison, RunFolder, read_comparison, read_results, read_run
from fcfl.results.findings import findings_of
from fcfl.results.many_runs import ENOUGH, judge

from . import comparisons, figures, words

PAGE = "report.html"
MAX_SHOWN = 40  # clients in a figure; tables show all
MAX_CHANGES = 20  # lines in the section on changes
MAX_RATES = 8  # clients with a figure of their groups


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a run folder into the folder, or to ``out``."""
    return write(_page_at(out or folder), render_run(read_run(folder)))


def write_comparison_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a comparison of methods from its folder."""
    comparison = read_comparison(folder / COMPARISON)
    places = [folder / run.folder for run in comparison.runs if run.part is not None]
    return write_comparison(places, out or folder, comparison)


def write_comparison(
    folders: Sequence[Path], out: Path, comparison: Comparison | None = None
) -> Path:
    """Write a page that compares several runs; ``out`` is an HTML file or a folder.

    ``comparison`` holds the results of a comparison of methods over all seeds.
    """
    results = read_results(folders)
    page = render("comparison.html", results=results, comparison=comparison)
    return write(_page_at(out), page)


def render_run(run: RunFolder) -> str:
    """Return the page of one run folder."""
    if run.sweep:
        return render("sweep.html", points=run.sweep, result=run.result)
    if run.result is None:
        raise DataError(f"There is nothing to show in {str(run.folder)!r}: it has no points.")
    return render("run.html", result=run.result, plain_run=run.plain, history=run.history)


def render(template: str, **content: object) -> str:
    """Render a template with the given content."""
    return environment().get_template(template).render(**content)


@cache
def environment() -> Environment:
    """Return the environment of all templates, with their filters and modules."""
    found = Environment(
        loader=PackageLoader("fcfl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "number": words.number, "plain": words.plain, "interval": words.interval,
        "short_interval": words.short_interval, "share": words.share, "setting": setting,
        "general": general, "short": short, "score_line": figures.score_line,
        "short_name": figures.shortened,
        "tick": lambda value: f"{value:.6g}".replace("-", "−"),
    }  # fmt: skip
    found.globals |= {
        "comparisons": comparisons, "figures": figures,
        "words": words, "judge": judge, "findings_of": findings_of,
        "ENOUGH": ENOUGH, "MAX_SHOWN": MAX_SHOWN, "MAX_CHANGES": MAX_CHANGES,
        "MAX_RATES": MAX_RATES,
    }  # fmt: skip
    return found


def general(value: float | None, digits: int = 6) -> str:
    """Format a number with ``digits`` significant digits, a dash for None."""
    return "–" if value is None else f"{value:.{digits}g}"


def short(value: object) -> str:
    """Format a value of the table of facts, empty for None."""
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def setting(value: Any) -> str:
    """Format the value of a setting as on the command line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def _page_at(out: Path) -> Path:
    return out if out.suffix.lower() in (".html", ".htm") else out / PAGE


def write(path: Path, content: str) -> Path:
    """Write a page; return where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content.encode())
    return path
