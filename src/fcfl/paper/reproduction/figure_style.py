"""One look for all figures, and SVG files whose bytes depend on the data alone."""

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType

from .plots import Plot

WIDTH = 10.0  # inches, 720 points
COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#7a4b9a")  # told apart by colour-blind readers
MARKERS = ("o", "s", "^", "D")  # a shape for each colour, so that colour is never needed
DASHES: tuple[LineStyleType, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (7, 2, 1, 2)))
GREY, INK = "#666666", "#222222"
_STYLE = {
    "svg.hashsalt": "fcfl",  # else ids are random
    "svg.fonttype": "none",  # text stays text, for search and screen readers
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so every machine measures alike
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#999999",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.8,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
}


def new_figure(height: float) -> Figure:
    """A figure of the common width, laid out by its contents."""
    return Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06))


def write_svg(plot: Plot, draw: Callable[[Plot], Figure], path: Path) -> None:
    """Draw and save a figure with its title and description, and without a date."""
    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = draw(plot)
        file = io.StringIO()
        metadata = {"Title": plot.title, "Creator": "fcfl", "Date": None}
        figure.savefig(file, format="svg", metadata=metadata)
    text = file.getvalue().replace("<svg ", '<svg role="img" ', 1)
    described = f"</title>\n <desc>{escape(plot.description)}</desc>"
    lines = text.replace("</title>", described, 1).splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def padded(values: Sequence[float], margin: float = 0.06) -> tuple[float, float]:
    """Limits around values, never of zero width."""
    low, high = min(values), max(values)
    space = max((high - low) * margin, abs(high) * 1e-3, 1e-6)
    return low - space, high + space


def mark(kind: int, *, size: float = 6, hollow: bool = False) -> Line2D:
    """A marker for a legend."""
    face = "white" if hollow else COLOURS[kind]
    return Line2D(
        [], [], linestyle="none", marker=MARKERS[kind], markersize=size, color=COLOURS[kind],
        markerfacecolor=face,
    )  # fmt: skip


def legend(figure: Figure, handles: Sequence[Line2D], labels: Sequence[str]) -> None:
    """One line of keys above the panels."""
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), columnspacing=1.6)


def budget_line(axes: Axes, budget: float, label: str) -> None:
    """A vertical dashed line with its name at the top."""
    axes.axvline(budget, color=INK, linestyle=(0, (4, 3)), linewidth=1.2, zorder=1.5)
    axes.annotate(
        label, (budget, 1), xycoords=("data", "axes fraction"), xytext=(4, 2),
        textcoords="offset points", va="bottom", fontsize=9.5,
    )  # fmt: skip


def spread_out(positions: Sequence[float], least: float) -> list[float]:
    """Positions of labels moved apart to ``least``, in the same order."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    moved = [positions[i] for i in order]
    for _ in range(200):
        for i in range(len(moved) - 1):
            overlap = least - (moved[i + 1] - moved[i])
            if overlap > 1e-9:
                moved[i] -= overlap / 2
                moved[i + 1] += overlap / 2
    placed = [0.0] * len(positions)
    for i, position in zip(order, moved, strict=True):
        placed[i] = position
    return placed


def label_ends(axes: Axes, x: float, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names (at height, text, colour) to the right of where lines end, never over each other."""
    low, high = axes.get_ylim()
    heights = spread_out([end for end, _, _ in ends], (high - low) * 0.06)
    for height, (_, text, colour) in zip(heights, ends, strict=True):
        axes.annotate(
            text, (x, height), xytext=(8, 0), textcoords="offset points", va="center",
            color=colour, annotation_clip=False,
        )  # fmt: skip


_SIDES = ((12, 0), (-12, 0), (0, 11), (0, -11))  # points, from a mark to the middle of its number
_PANEL = (380, 330)  # about the size of a panel in points


def number_points(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Number points from 1, each on a side where it is clear of marks and other numbers."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    marks = [
        ((x - left) / (right - left) * _PANEL[0], (y - low) / (high - low) * _PANEL[1])
        for x, y in points
    ]
    numbers: list[tuple[float, float]] = []
    for position, (x, y) in enumerate(marks):
        others = [*marks[:position], *marks[position + 1 :], *numbers]
        side = _free_side((x, y), others)
        numbers.append((x + side[0], y + side[1]))
        axes.annotate(
            str(position + 1), points[position], xytext=side, textcoords="offset points",
            ha="center", va="center", fontsize=9.5,
        )  # fmt: skip


def _free_side(
    mark: tuple[float, float], others: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """The first side with 20 points of space, else the one with the most."""

    def space(side: tuple[float, float]) -> float:
        place = (mark[0] + side[0], mark[1] + side[1])
        return min((math.dist(place, other) for other in others), default=math.inf)

    return next((side for side in _SIDES if space(side) >= 20), max(_SIDES, key=space))
