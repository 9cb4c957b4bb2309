"""Which figures an item has: file names, titles and descriptions; drawn by ``item_figures``."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from .item_result import CaseResult, ItemResult

INSTALL = "pip install 'fcfl[paper]'"


def can_draw() -> bool:
    """Whether matplotlib, the extra ``paper``, is installed."""
    return find_spec("matplotlib") is not None


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure to be drawn: of a whole item, or of one of its cases."""

    item: ItemResult
    case: CaseResult | None
    protocol: str
    file_name: str
    title: str
    description: str


def plots_of(item: ItemResult) -> list[Plot]:
    """The figures of an item, in order; none where no run finished."""
    if not item.finished_rows:
        return []
    return list(_of_cases(item) if item.figure in ("dots", "clients") else _of_item(item))


def _of_cases(item: ItemResult) -> Iterator[Plot]:
    """One figure per case: methods as rows of dots, or clients as points."""
    protocols = list(item.protocols)
    protocol = protocols[-1] if item.figure == "dots" else protocols[0]
    for position, case in enumerate(item.cases, start=1):
        rows = item.rows_of(case.name, protocol)
        if not rows:
            continue
        if item.figure == "dots":
            runs = _count_runs(protocol, max(row.n_runs for row in rows))
            title = f"{item.title}, {case.name}: {runs}"
            budget = "; the dashed line is the budget" if isinstance(case.budget, float) else ""
            text = f"{title}; marks are means, bars one standard deviation over splits{budget}."
        else:
            title = f"{item.title}, {case.name}: each client's accuracy and disparity"
            text = f"{title}, held-out rows, means over splits."
        yield Plot(item, case, protocol, f"{item.name}-{position}.svg", title, text)


def _count_runs(protocol: str, count: int) -> str:
    word = {"resplits": "random re-split", "original": "seed"}.get(protocol, "random split")
    return f"{count} {word}{'' if count == 1 else 's'}"


def _of_item(item: ItemResult) -> Iterator[Plot]:
    """One figure for all cases together."""
    if item.figure == "series":
        title = f"{item.title}: test disparity and accuracy as budgets tighten"
        text = f"{title}, means over seeds."
    elif item.figure == "front":
        title = "Synthetic problem: paths to the constrained optimum"
        text = (
            f"{title}; one colour per budget, solid lines: two-stage, squares: every round of sqp, "
            "grey: Pareto front."
        )
    else:
        title = f"{item.title}: accuracy against the largest local disparity"
        text = f"{title}; clients with 100 held-out rows of each group; dashed: the target."
    yield Plot(item, None, next(iter(item.protocols)), f"{item.name}.svg", title, text)
