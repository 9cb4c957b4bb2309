"""What the page of a sweep shows: the trade-off curve, its table, and what they say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fcfl.results.many_runs import ENOUGH, SweepPoint

from .claims import part_called
from .figures import Dot, scatter
from .words import number, plain

MOST_NAMED = 6  # clients that are too small


@dataclass(frozen=True)
class SweepLine:
    """A point of a sweep and its budget in few words."""

    label: str
    point: SweepPoint


@dataclass(frozen=True)
class SweepView:
    """The trade-off curve, its table, and what they say."""

    figure: Markup | None
    lines: tuple[SweepLine, ...]
    title: str
    sentences: tuple[str, ...]
    rows: str


def sweep_view(points: Sequence[SweepPoint]) -> SweepView | None:
    """The trade-off: the lowest accuracy against the difference over all rows, by budget."""
    if not points:
        return None
    dots = [
        Dot(
            budget_label(point),
            one.all_rows,
            one.lowest_accuracy,
            is_named=True,
            low=one.low,
            high=one.high,
        )
        for point in points
        for one in (point.judged,)
        if one.all_rows is not None and one.lowest_accuracy is not None
    ]
    axes = ("difference over all rows", "lowest accuracy of a client with enough people")
    title = "Trade-off between difference and accuracy, by budget"
    figure = scatter("sweep", title, dots, axes, is_path=True) if dots else None
    lines = tuple(SweepLine(budget_label(point), point) for point in points)
    said = tradeoff_sentence(points), tuple(_about_points(points))
    return SweepView(figure, lines, *said, _rows_of(points[-1]))


def _rows_of(point: SweepPoint) -> str:
    """What the rows are that a point is judged by: without held-out ones those of training."""
    return part_called("train" if point.test_accuracy is None else "test")


def tradeoff_sentence(points: Sequence[SweepPoint]) -> str:
    """What the tightest budget buys, and what it costs, beside the loosest."""
    first, last = points[0], points[-1]
    loose, tight = first.judged, last.judged
    if len(points) < 2 or loose.all_rows is None or tight.all_rows is None:
        return f"Sweep of {len(points)} budget{'' if len(points) == 1 else 's'}."
    sentence = (
        f"From budget {budget_label(first)} to {budget_label(last)}, the difference over all rows "
        f"goes from {number(loose.all_rows, 3)} to {number(tight.all_rows, 3)}"
    )
    if loose.accuracy is not None and tight.accuracy is not None:
        sentence += f", accuracy from {number(loose.accuracy, 3)} to {number(tight.accuracy, 3)}"
    return sentence + "."


def _about_points(points: Sequence[SweepPoint]) -> Iterator[str]:
    last = points[-1].judged
    if last.n_budgets:
        yield (
            f"Under the tightest budget, decisions on {_rows_of(points[-1])} keep {last.kept} of "
            f"{last.n_budgets} budgets of clients with at least {ENOUGH} people in every group."
        )
    if last.too_small:
        names = ", ".join(plain(name) for name in last.too_small[:MOST_NAMED])
        more = len(last.too_small) - MOST_NAMED
        yield f"Too small to judge by: {names}{f' and {more} more' if more > 0 else ''}."
    exceeded = [budget_label(point) for point in points if not point.budgets_met]
    if exceeded:
        yield f"Not kept on the training rows: budget {', '.join(exceeded)}."
    degenerate = [budget_label(point) for point in points if point.degenerate]
    if degenerate:
        budgets = ", ".join(degenerate)
        yield f"The model selects nearly nobody, everybody, or too few: budget {budgets}."


def budget_label(point: SweepPoint) -> str:
    """A sweep point's budget in few words."""
    if point.relative is not None:
        return f"{point.relative:g} of unconstrained"
    return "no budget" if point.budget is None else f"{point.budget:g}"
