"""Frames, axes and marks of figures that stand alone; colours that all eyes tell apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fcfl.report.svg import Scale, label, tag

WIDTH = 720.0
COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#7a4b9a")  # each with a shape of its own
DASHES = (None, "6 4", "2 3", "9 3 2 3")
_SHAPES = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z",  # disc
    "M-4.6,-4.6H4.6V4.6H-4.6z",  # square
    "M0,-6L6,5L-6,5z",  # triangle
    "M0,-6.5L6.5,0L0,6.5L-6.5,0z",  # diamond
)
_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Arial, sans-serif; fill: #333; }
text.name { font-size: 13.5px; fill: #111; } text.ours { font-weight: 700; }
text.small { font-size: 12px; fill: #111; }
.grid { stroke: #dde2e7; stroke-width: 1; } .edge { stroke: #777; stroke-width: 1; }
.budget { stroke: #111; stroke-width: 1.6; stroke-dasharray: 5 4; }
.bar { stroke-width: 2.2; opacity: .55; } .path { fill: none; stroke-width: 2; }
"""

Point = tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """A rectangle of the figure with a scale each way."""

    x: tuple[float, float]
    y: tuple[float, float]
    across: tuple[float, float]
    upward: tuple[float, float]

    @property
    def right(self) -> float:
        """The rectangle's right edge."""
        return self.across[1]

    @property
    def x_scale(self) -> Scale:
        """From values to pixels across."""
        return Scale(*self.x, *self.across)

    @property
    def y_scale(self) -> Scale:
        """From values to pixels from the top."""
        return Scale(*self.y, *self.upward)

    def at(self, point: Point) -> Point:
        """Where a point is drawn."""
        return self.x_scale.at(point[0]), self.y_scale.at(point[1])

    def line(self, start: Point, end: Point, class_: str, colour: str | None = None) -> Markup:
        """A straight line between two points."""
        (x1, y1), (x2, y2) = self.at(start), self.at(end)
        style = None if colour is None else f"stroke: {colour}"
        return tag(
            "line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=class_,
            style=style,
        )  # fmt: skip

    def path(self, points: Sequence[Point], colour: str, dash: int) -> Markup:
        """A line through points."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(self.at, points))
        return tag(
            "polyline", points=places, class_="path", stroke=colour, stroke_dasharray=DASHES[dash]
        )

    def cross(self, point: Point) -> Markup:
        """A cross: somebody else's figure."""
        x, y = self.at(point)
        return tag(
            "path", d="M-5,-5L5,5M-5,5L5,-5", transform=f"translate({x:.1f} {y:.1f})",
            stroke="#111", stroke_width="2",
        )  # fmt: skip


def axes(frame: Frame, x_name: str, y_name: str | None, n_ticks: int = 5) -> Iterator[Markup]:
    """Grid lines, tick labels and the names of both axes; without a name, no ticks upward."""
    (left, right), (bottom, top) = frame.across, frame.upward
    for tick in frame.x_scale.ticks(n_ticks):
        x = frame.x_scale.at(tick)
        yield tag("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=f"{top:g}", y2=f"{bottom:g}",
                  class_="grid")  # fmt: skip
        yield tag("text", label(tick), x=f"{x:.1f}", y=f"{bottom + 17:g}", text_anchor="middle")
    if y_name is not None:
        for tick in frame.y_scale.ticks(5):
            y = frame.y_scale.at(tick)
            yield tag("line", x1=f"{left:g}", x2=f"{right:g}", y1=f"{y:.1f}", y2=f"{y:.1f}",
                      class_="grid")  # fmt: skip
            yield tag("text", label(tick), x=f"{left - 6:g}", y=f"{y + 4:.1f}", text_anchor="end")
        yield tag("text", f"↑ {y_name}", x=f"{max(left - 48, 4):g}", y=f"{top - 10:g}")
    yield tag("line", x1=f"{left:g}", x2=f"{right:g}", y1=f"{bottom:g}", y2=f"{bottom:g}",
              class_="edge")  # fmt: skip
    yield tag("text", f"{x_name} →", x=f"{right:g}", y=f"{bottom + 36:g}", text_anchor="end")


def shape(
    kind: int, place: Point, colour: str, *, is_hollow: bool = False, size: float = 1.0
) -> Markup:
    """A mark: disc, square, triangle or diamond."""
    return tag(
        "path", d=_SHAPES[kind],
        transform=f"translate({place[0]:.1f} {place[1]:.1f}) scale({size:g})",
        fill="#fff" if is_hollow else colour, stroke=colour, stroke_width="1.6",
    )  # fmt: skip


def legend(
    entries: Sequence[tuple[str, int | None]], y: float, *, dashes: bool = False
) -> Iterator[Markup]:
    """Marks or dashes and what they stand for, in a line."""
    x = 16.0
    for position, (words, kind) in enumerate(entries):
        if dashes:
            yield tag(
                "line", x1=f"{x:g}", x2=f"{x + 26:g}", y1=f"{y:g}", y2=f"{y:g}",
                stroke="#333", stroke_width="2", stroke_dasharray=DASHES[position],
            )  # fmt: skip
            x += 20
        elif kind is not None:
            yield shape(kind, (x + 4, y), COLOURS[kind])
        yield tag("text", words, x=f"{x + 14:g}", y=f"{y + 4:g}")
        x += 30 + 7.0 * len(words)


def paper(
    ident: str, title: str, description: str, height: float, parts: Sequence[Markup]
) -> Markup:
    """A whole SVG file on white, with its title and description."""
    name = "".join(c if c.isalnum() else "-" for c in ident)
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        tag("style", Markup(_STYLE)),
        tag("rect", width="100%", height="100%", fill="#fff"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        width=f"{WIDTH:g}",
        height=f"{height:g}",
    )
