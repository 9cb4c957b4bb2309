"""The figures of items, drawn by matplotlib: SVG files whose bytes depend on the data alone."""

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType

from fcfl.results import OverSeeds

from .page import Plot
from .records import ClientSpread, ItemResult, Row

WIDTH = 10.0  # inches, 720 points
COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#7a4b9a")  # distinct for colour-blind readers
MARKERS = ("o", "s", "^", "D")  # a shape for each colour, so that colour is never needed
DASHES: tuple[LineStyleType, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (7, 2, 1, 2)))
GREY, INK = "#666666", "#222222"
_SIDES = ((12, 0), (-12, 0), (0, 11), (0, -11))  # points, from a mark to its number
_PANEL = (380, 330)  # about the size of a panel in points
_STYLE = Path(__file__).parent / "figures.mplstyle"


def new_figure(height: float) -> Figure:
    """Return a figure of the common width, laid out by its contents."""
    return Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06))


def write_svg(plot: Plot, draw: Callable[[Plot], Figure], path: Path) -> None:
    """Draw and save a figure with its title and description, and without a date."""
    with matplotlib.rc_context(fname=_STYLE):
        figure = draw(plot)
        file = io.StringIO()
        metadata = {"Title": plot.title, "Creator": "fcfl", "Date": None}
        figure.savefig(file, format="svg", metadata=metadata)
    text = file.getvalue().replace("<svg ", '<svg role="img" ', 1)
    described = f"</title>\n <desc>{escape(plot.description)}</desc>"
    lines = text.replace("</title>", described, 1).splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def padded(values: Sequence[float], margin: float = 0.06) -> tuple[float, float]:
    """Return limits around values, never of zero width."""
    low, high = min(values), max(values)
    space = max((high - low) * margin, abs(high) * 1e-3, 1e-6)
    return low - space, high + space


def mark(kind: int) -> Line2D:
    """Return a marker for a legend."""
    return Line2D([], [], linestyle="none", marker=MARKERS[kind], color=COLOURS[kind])


def legend(figure: Figure, handles: Sequence[Line2D], labels: Sequence[str]) -> None:
    """Draw one line of keys above the panels."""
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), columnspacing=1.6)


def budget_line(axes: Axes, budget: float, label: str) -> None:
    """Draw a vertical dashed line with its name at the top."""
    axes.axvline(budget, color=INK, linestyle=(0, (4, 3)), linewidth=1.2, zorder=1.5)
    axes.annotate(
        label, (budget, 1), xycoords=("data", "axes fraction"), xytext=(4, 2),
        textcoords="offset points", va="bottom", fontsize=9.5,
    )  # fmt: skip


def label_ends(axes: Axes, x: float, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names (height, text, colour) to the right of where lines end, moved up to stay apart."""
    low, high = axes.get_ylim()
    height = low
    for end, text, colour in sorted(ends):
        height = max(end, height)
        axes.annotate(
            text, (x, height), xytext=(8, 0), textcoords="offset points", va="center",
            color=colour, annotation_clip=False,
        )  # fmt: skip
        height += 0.06 * (high - low)


def number_points(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Number points from 1, each on a side where it is clear of marks and other numbers."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    across, upward = _PANEL[0] / (right - left), _PANEL[1] / (high - low)
    marks = [((x - left) * across, (y - low) * upward) for x, y in points]
    numbers: list[tuple[float, float]] = []
    for position, (x, y) in enumerate(marks):
        others = [*marks[:position], *marks[position + 1 :], *numbers]
        places = [(x + dx, y + dy) for dx, dy in _SIDES]
        # 20 points of space are enough: the first such side, else the one with the most.
        space = [min([20.0, *(math.dist(place, o) for o in others)]) for place in places]
        side = space.index(max(space))
        numbers.append(places[side])
        axes.annotate(
            str(position + 1), points[position], xytext=_SIDES[side], textcoords="offset points",
            ha="center", va="center", fontsize=9.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )  # fmt: skip


_KINDS = {"baseline": 0, "theirs": 1, "ours": 2, "given": 3}
_KIND_NAMES = ("baselines", "two-stage, authors' options", "sqp", "published by later papers")


def write_figures(plots: Sequence[Plot], folder: Path) -> None:
    """Write every figure into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        write_svg(plot, DRAW[plot.item.figure], folder / plot.file_name)


# --- methods as rows, a mark for each client (figures 4, S1, S3, S4) ------------------------------


def draw_dots(plot: Plot) -> Figure:
    """Draw disparities and accuracies of both clients, one row per method."""
    assert plot.case is not None
    rows = plot.item.rows_of(plot.case.name, plot.protocol)
    figure = new_figure(1.35 + 0.33 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True)
    budget = plot.case.budget if isinstance(plot.case.budget, float) else None
    shown = [0.0] if budget is None else [0.0, budget]
    _dot_panel(left, rows, plot.item.clients, lambda client: client.disparity, shown)
    _dot_panel(right, rows, plot.item.clients, lambda client: client.accuracy, [])
    left.set_xlabel("held-out disparity")
    right.set_xlabel("held-out accuracy")
    left.set_yticks(range(len(rows)), [row.short_label for row in rows])
    left.set_ylim(len(rows) - 0.5, -0.5)
    for text, row in zip(left.get_yticklabels(), rows, strict=True):
        text.set_fontweight("bold" if row.kind == "ours" else "normal")
    if budget is not None:
        budget_line(left, budget, f"budget {budget:g}")
    legend(figure, [mark(i) for i in range(len(plot.item.clients))], plot.item.clients)
    return figure


def _dot_panel(
    axes: Axes,
    rows: Sequence[Row],
    clients: Sequence[str],
    measure: Callable[[ClientSpread], OverSeeds],
    shown: Sequence[float],
) -> None:
    """Marks are means, bars one standard deviation; the axis also shows the values ``shown``."""
    seen = list(shown)
    for position, row in enumerate(rows):
        for kind, client in enumerate(clients):
            found = measure(row.clients[client])
            if found.mean is None:
                continue
            sd = found.sd or 0.0
            y = position + 0.26 * (kind / max(len(clients) - 1, 1) - 0.5)
            axes.errorbar(
                found.mean, y, xerr=sd, color=COLOURS[kind], marker=MARKERS[kind], markersize=5.5,
                elinewidth=1.6, alpha=0.9,
            )  # fmt: skip
            seen += [found.mean - sd, found.mean + sd]
    axes.set_xlim(*padded(seen))
    axes.locator_params(axis="x", nbins=6)


# --- by w (figures 6, S2) -------------------------------------------------------------------------


def draw_series(plot: Plot) -> Figure:
    """Draw disparity and accuracy against w; a colour per client, a dash per method."""
    item = plot.item
    rows = [row for row in item.finished_rows if row.protocol == plot.protocol]
    names = {row.line: row.short_label for row in rows}
    figure = new_figure(4.6)
    for axes, key in zip(figure.subplots(1, 2), ("disparity", "accuracy"), strict=True):
        few = len(item.clients) <= 2
        seen = list(_published_points(item, key)) if few else []
        for x, y in seen:
            axes.plot(x, y, marker="x", color=INK, markersize=8, markeredgewidth=2, zorder=3)
        ends: dict[str, list[float]] = {}
        for dash, line in enumerate(names):
            for kind, (name, points) in enumerate(_curves(item, plot.protocol, line, key)):
                axes.plot(
                    *zip(*points, strict=True), color=COLOURS[kind], linestyle=DASHES[dash],
                    marker=MARKERS[kind], markerfacecolor="white" if dash else COLOURS[kind],
                )  # fmt: skip
                ends.setdefault(name, []).append(max(points)[1])
                seen += points
        axes.set(xlim=padded([x for x, _ in seen]), ylim=padded([y for _, y in seen]))
        axes.set_title(f"test {key}" if few else _extreme_name(key))
        axes.set_xlabel("w (budget as a share of the disparity without budgets)")
        if few:
            middle = {name: sum(found) / len(found) for name, found in ends.items()}
            last = max(_share(case.name) for case in item.cases)
            label_ends(axes, last, [(middle[n], n, COLOURS[i]) for i, n in enumerate(middle)])
    handles = [Line2D([], [], color=GREY, linestyle=DASHES[i]) for i in range(len(names))]
    labels = list(names.values())
    if any(case.given for case in item.cases):
        handles.append(Line2D([], [], linestyle="none", marker="x", color=INK, markeredgewidth=2))
        labels.append("authors' public results")
    legend(figure, handles, labels)
    return figure


def _extreme_name(key: str) -> str:
    return "test disparity, largest" if key == "disparity" else "test accuracy, lowest"


def _share(case: str) -> float:
    """Return the w of a case that is named ``w = 0.5``."""
    return float(case.split("=")[1])


def _curves(
    item: ItemResult, protocol: str, line: str, key: str
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield the points of a method's curve, for each client or for all together."""
    rows = [r for r in item.finished_rows if r.line == line and r.protocol == protocol]
    if len(item.clients) > 2:
        found = [r.largest_disparity if key == "disparity" else r.worst_accuracy for r in rows]
        yield "", _points(rows, found)
        return
    for client in item.clients:
        of = [row.clients[client] for row in rows]
        yield client, _points(rows, [c.disparity if key == "disparity" else c.accuracy for c in of])


def _points(rows: Sequence[Row], found: Sequence[OverSeeds]) -> list[tuple[float, float]]:
    pairs = zip(rows, found, strict=True)
    return [(_share(row.case), each.mean) for row, each in pairs if each.mean is not None]


def _published_points(item: ItemResult, key: str) -> Iterator[tuple[float, float]]:
    for case in item.cases:
        for given in case.given:
            values: Mapping[str, float] = given.disparity if key == "disparity" else given.accuracy
            for value in values.values():
                yield _share(case.name), value


# --- the synthetic problem (figure 3) -------------------------------------------------------------


def draw_front(plot: Plot) -> Figure:
    """Draw both methods' paths to the optimum, a panel per start, a colour per budget."""
    item = plot.item
    starts = list(dict.fromkeys(case.name.rsplit(", ", 1)[0] for case in item.cases))
    figure = new_figure(5.3)
    for axes, start in zip(figure.subplots(1, len(starts), squeeze=False)[0], starts, strict=True):
        axes.plot(*zip(*(item.front or ()), strict=True), color=GREY, linestyle=DASHES[2])
        axes.annotate("Pareto front", (0.06, 0.92), color=GREY, rotation=-19)
        cases = [case for case in item.cases if case.name.startswith(start)]
        ends = []
        for colour, case in zip(COLOURS, cases, strict=False):
            budget = case.budget if isinstance(case.budget, float) else 0.0
            axes.axhline(budget, color=colour, linestyle=(0, (4, 3)), linewidth=1, alpha=0.7)
            ends.append((budget, f"{budget:g}", colour))
            for row in item.rows_of(case.name, plot.protocol):
                _draw_path(axes, row, colour)
        axes.set(xlim=(0, 1.03), ylim=(0, 1.03), aspect="equal")
        label_ends(axes, 1.03, ends)
        axes.set(xlabel="first objective", ylabel="second objective, dashed: its budget")
        axes.set_title(f"{start[0].upper()}{start[1:]}")
    square = Line2D([], [], color=GREY, marker="s", markersize=4, markerfacecolor="white", ls=":")
    handles = [Line2D([], [], color=GREY, marker="o"), square]
    legend(figure, handles, ["two-stage, the dot where it ends", "sqp, a square each round"])
    return figure


def _draw_path(axes: Axes, row: Row, colour: str) -> None:
    x, y = zip(*(row.runs[0].path or ()), strict=True)
    if row.line == "sqp":
        axes.plot(
            x, y, color=colour, linestyle=":", linewidth=1.2, marker="s", markersize=4,
            markerfacecolor="white", zorder=3,
        )  # fmt: skip
    else:
        axes.plot(x, y, color=colour)
        axes.plot(x[-1], y[-1], color=colour, marker="o", markersize=7, zorder=2.5)


# --- accuracy against disparity (five clients) ----------------------------------------------------


def draw_plane(plot: Plot) -> Figure:
    """Draw accuracy against the largest local disparity; points are numbered, names beside them."""
    points = list(_plane_points(plot.item))
    figure = new_figure(max(4.6, 1.2 + 0.27 * len(points)))
    axes, key = figure.subplots(1, 2, width_ratios=(1.45, 1))
    for kind, _, x, y in points:
        axes.plot(x, y, color=COLOURS[kind], marker=MARKERS[kind], markersize=7)
    axes.set_xlim(*padded([0.0, *(x for _, _, x, _ in points)]))
    axes.set_ylim(*padded([y for *_, y in points]))
    number_points(axes, [(x, y) for *_, x, y in points])
    axes.set(xlabel="largest local disparity, held out", ylabel="accuracy of all rows")
    budget_line(axes, plot.item.limits["local"], f"target {plot.item.limits['local']:g}")
    key.set_axis_off()
    key.set(xlim=(0, 1), ylim=(len(points) + 0.5, 0.5))
    for number, (kind, name, _, _) in enumerate(points, start=1):
        key.plot(0.02, number, color=COLOURS[kind], marker=MARKERS[kind], clip_on=False)
        key.annotate(f"{number}  {name}", (0.07, number), va="center", fontsize=10)
    legend(figure, [mark(kind) for kind in _KINDS.values()], _KIND_NAMES)
    return figure


def _plane_points(item: ItemResult) -> Iterator[tuple[int, str, float, float]]:
    """Yield kind, name, largest local disparity and accuracy of every line."""
    for row in item.finished_rows:
        local, accuracy = row.largest_large_disparity.mean, row.accuracy.mean
        if local is not None and accuracy is not None:
            has_case = row.kind == "ours" and "chosen" not in row.label
            name = f"{row.short_label}, {row.case}" if has_case else row.short_label
            yield _KINDS[row.kind], name, local, accuracy
    for given in (given for case in item.cases for given in case.given):
        yield _KINDS["given"], given.label, given.numbers["local"], given.numbers["accuracy"]


# --- clients as points (figure 5) -----------------------------------------------------------------


def draw_clients(plot: Plot) -> Figure:
    """Draw each client a point: accuracy against disparity, one panel per method."""
    assert plot.case is not None
    rows = plot.item.rows_of(plot.case.name, plot.protocol)
    figure = new_figure(3.6)
    panels = figure.subplots(1, len(rows), sharex=True, sharey=True, squeeze=False)[0]
    points = [[(c.disparity.mean, c.accuracy.mean) for c in r.clients.values()] for r in rows]
    known = [[(x, y) for x, y in p if x is not None and y is not None] for p in points]
    for axes, row, found in zip(panels, rows, known, strict=True):
        kind = _KINDS[row.kind]
        for x, y in found:
            axes.plot(x, y, color=COLOURS[kind], marker=MARKERS[kind], markersize=7, alpha=0.85)
        axes.set_title(row.short_label.split(",")[0].split(" (")[0])
        axes.locator_params(axis="x", nbins=3)
        if isinstance(plot.case.budget, float):
            axes.axvline(plot.case.budget, color=INK, linestyle=(0, (4, 3)), linewidth=1.2)
    panels[0].set_xlim(*padded([0.0, *(x for found in known for x, _ in found)]))
    panels[0].set_ylim(*padded([y for found in known for _, y in found]))
    panels[0].set_ylabel("accuracy")
    budget = "; dashed: budget" if isinstance(plot.case.budget, float) else ""
    figure.supxlabel(f"disparity, a mark for each client{budget}", fontsize=11)
    return figure


DRAW: Mapping[str, Callable[[Plot], Figure]] = {
    "dots": draw_dots,
    "series": draw_series,
    "front": draw_front,
    "plane": draw_plane,
    "clients": draw_clients,
}
