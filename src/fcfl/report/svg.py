"""SVG elements with everything escaped, scales in per cent, and marks by verdict.

Positions along the page are per cent and sizes are pixels, so a figure fills any width and its
text keeps its size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

MARKS = {
    "met": "M-6,0a6,6 0 1,0 12,0a6,6 0 1,0 -12,0z",  # disc
    "exceeded": "M0,-7L7,6L-7,6z",  # triangle
    "undetermined": "M0,-8L8,0L0,8L-8,0z",  # diamond, drawn hollow
    "unconstrained": "M-5,-5H5V5H-5z",  # square, drawn hollow
    "not judged": "M-5,-5H5V5H-5z",
    "not compared": "M-6,0H6",  # a dash
}


def tag(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """Return ``<name attribute="…">children</name>``; ``class_`` is ``class``, ``_`` is ``-``."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, inside)


def picture(ident: str, title: str, description: str, height: float, *parts: Markup) -> Markup:
    """Return a figure of the full width with a name and a description for screen readers."""
    return tag(
        "svg",
        tag("title", title, id=f"{ident}-title"),
        tag("desc", description, id=f"{ident}-desc"),
        *parts,
        role="img",
        aria_labelledby=f"{ident}-title {ident}-desc",
        class_="picture",
        width="100%",
        height=f"{height:g}",
    )


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from ``[low, high]`` to ``[start, end]``, of per cent or pixels."""

    low: float
    high: float
    start: float = 2.0
    end: float = 98.0

    def at(self, value: float) -> float:
        """Return the place of a value, clipped to the ends."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 3)

    def ticks(self, count: int = 5) -> list[float]:
        """Return round values within the scale."""
        step = nice_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]


def nice_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is at least ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= least * (1 - 1e-9))


def nice_range(values: Sequence[float], *, margin: float = 0.06) -> tuple[float, float]:
    """Return bounds around values, wider than 0."""
    low, high = min(values), max(values)
    spread = max((high - low) * margin, abs(high) * 1e-3, 1e-6)
    return low - spread, high + spread


def label(value: float) -> str:
    """Return a tick's label without needless digits."""
    return f"{value:.6g}".replace("-", "−")


def percent(value: float) -> str:
    """Return a position across the figure."""
    return f"{value:g}%"


def mark(verdict: str, x: float, y: float, colour: str | None = None) -> Markup:
    """Return a verdict's shape at (per cent, pixels), in its colour or another class's."""
    shape = tag("path", d=MARKS[verdict], class_=f"mark {colour or css_class(verdict)}")
    return tag("svg", shape, x=percent(x), y=f"{y:g}", overflow="visible")


def icon(verdict: str) -> Markup:
    """Return a verdict's shape to stand beside its word."""
    shape = tag("path", d=MARKS[verdict], class_=f"mark {css_class(verdict)}")
    return tag(
        "svg", shape, class_="icon", width="18", height="18", viewBox="-9 -9 18 18",
        aria_hidden="true",
    )  # fmt: skip


def css_class(verdict: str) -> str:
    """Return a verdict as a class of the style sheet."""
    return "v-" + verdict.replace(" ", "-")


def text(x: float, y: float, words: str, *, anchor: str = "start", dx: float = 0) -> Markup:
    """Return words at (per cent, pixels)."""
    return tag("text", words, x=percent(x), y=f"{y:g}", dx=f"{dx:g}", text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Return a line between two points in (per cent, pixels)."""
    return tag(
        "line", x1=percent(x1), y1=f"{y1:g}", x2=percent(x2), y2=f"{y2:g}", class_=class_
    )  # fmt: skip


def box(start: float, end: float, y: float, height: float, class_: str) -> Markup:
    """Return a bar between two places in per cent."""
    width = percent(round(max(end - start, 0.0), 3))
    return tag(
        "rect", x=percent(start), y=f"{y:g}", width=width, height=f"{height:g}", class_=class_
    )


def stretched_line(
    places: Sequence[tuple[float, float]], height: float, class_: str = "line"
) -> Markup:
    """Return a line through (per cent, pixels) over the figure; its stroke is not stretched."""
    points = " ".join(f"{x:g},{y:g}" for x, y in places)
    drawn = tag("polyline", points=points, class_=class_, vector_effect="non-scaling-stroke")
    return tag(
        "svg", drawn, x="0", y="0", width="100%", height=f"{height:g}",
        viewBox=f"0 0 100 {height:g}", preserveAspectRatio="none",
    )  # fmt: skip
