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
COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#7a4b9a")  # distinct for colour-blind readers
MARKERS = ("o", "s", "^", "D")  # a shape for each colour, so that colour is never needed
DASHES: tuple[LineStyleType, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (7, 2, 1, 2)))
GREY, INK = "#666666", "#222222"
_SIDES = ((12, 0), (-12, 0), (0, 11), (0, -11))  # points, from a mark to its number
_PANEL = (380, 330)  # about the size of a panel in points
_STYLE = {
    "svg.hashsalt": "fcfl",  # else ids are random
    "svg.fonttype": "none",  # text stays text, for search and screen readers
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so every machine measures alike
    "font.size": 11,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
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


def mark(kind: int) -> Line2D:
    """A marker for a legend."""
    return Line2D([], [], linestyle="none", marker=MARKERS[kind], color=COLOURS[kind])


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
