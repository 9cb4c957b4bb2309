"""Figures of a result as inline SVG: claims in, markup out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .claims import Claim
from .svg import (
    Scale,
    css_class,
    label,
    line,
    mark,
    nice_range,
    nice_step,
    percent,
    picture,
    stretched_line,
    tag,
    text,
)
from .words import interval, number, plain

STRIP_HEIGHT = 30.0
PLOT_HEIGHT = 340.0

_NAME_WIDTH = 20.0  # per cent of a figure that a name may take
_LEFT, _RIGHT = 11.0, 97.0  # per cent; tick labels stand left of the plot


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a scatter plot: its name, its place, its verdict, and whether it is named.

    ``low`` and ``high`` are the interval of ``x``, drawn as a bar.
    """

    name: str
    x: float
    y: float
    verdict: str = "unconstrained"
    is_named: bool = False
    low: float | None = None
    high: float | None = None


# --- clients as intervals against their budgets ---------------------------------------------------


def claim_scale(claims: Sequence[Claim]) -> Scale:
    """One scale for all strips of a rule: from 0 for a difference, up to 1 for a ratio."""
    shown = [x for c in claims for x in (c.value, c.low, c.high, c.budget) if x is not None]
    if claims and claims[0].of.is_ratio:
        lowest = min([*shown, 0.9])
        step = nice_step((1.0 - lowest) / 5)
        return Scale(max(1.0 - step * -(-(1.0 - lowest) // step), 0.0), 1.0)
    highest = max([*shown, 1e-3])
    step = nice_step(highest / 5)
    return Scale(0.0, step * -(-highest // step))


def claim_axis(scale: Scale) -> Markup:
    """Tick labels over the strips."""
    ticks = scale.ticks(5)
    anchors = {ticks[0]: "start", ticks[-1]: "end"}
    places = [
        text(scale.at(tick), 14, label(tick), anchor=anchors.get(tick, "middle")) for tick in ticks
    ]
    return tag("svg", *places, class_="picture", width="100%", height="20", aria_hidden="true")


def claim_strip(claim: Claim, scale: Scale, ident: str) -> Markup:
    """Dot: the value. Bar: the interval. Tick: the budget, and behind it what exceeds it."""
    parts = [*_grid(scale), *_beyond(claim, scale), *_found(claim, scale)]
    if claim.budget is not None:
        place = scale.at(claim.budget)
        parts.append(line(place, 1, place, STRIP_HEIGHT - 1, "budget"))
    title = f"{plain(claim.client)}: {claim.verdict}"
    budget = "no budget" if claim.budget is None else f"budget {claim.budget:g}"
    description = f"Value {number(claim.value, 3)}, interval {interval(claim.low, claim.high)}, "
    return picture(ident, title, description + budget + ".", STRIP_HEIGHT, *parts)


def _grid(scale: Scale) -> Iterator[Markup]:
    for tick in scale.ticks(5):
        yield line(scale.at(tick), 0, scale.at(tick), STRIP_HEIGHT, "grid")


def _beyond(claim: Claim, scale: Scale) -> Iterator[Markup]:
    if claim.budget is None:
        return
    place, ratio = scale.at(claim.budget), claim.of.is_ratio
    start, end = (scale.start, place) if ratio else (place, scale.end)
    yield box(start, end, 0, STRIP_HEIGHT, "beyond")


def _found(claim: Claim, scale: Scale) -> Iterator[Markup]:
    middle = STRIP_HEIGHT / 2
    if claim.value is None:
        return
    if claim.low is not None and claim.high is not None:
        ends = scale.at(claim.low), scale.at(claim.high)
        yield box(*ends, middle - 3, 6, f"bar {css_class(claim.verdict)}")
    yield mark(claim.verdict, scale.at(claim.value), middle)


def box(start: float, end: float, y: float, height: float, class_: str) -> Markup:
    """A bar between two places across the figure."""
    width = percent(round(max(end - start, 0.0), 3))
    return tag(
        "rect", x=percent(start), y=f"{y:g}", width=width, height=f"{height:g}", class_=class_
    )


# --- dots -----------------------------------------------------------------------------------------


def scatter(
    ident: str,
    title: str,
    dots: Sequence[Dot],
    axes: tuple[str, str],
    *,
    budget: float | None = None,
    is_path: bool = False,
) -> Markup:
    """Dots with the names of a few; with ``is_path`` a line from each to the next."""
    ends = [end for dot in dots for end in (dot.low, dot.high) if end is not None]
    across = [dot.x for dot in dots] + ends + ([] if budget is None else [budget])
    x = Scale(*nice_range(across), _LEFT, _RIGHT)
    y = Scale(*nice_range([dot.y for dot in dots]), PLOT_HEIGHT - 46, 30)
    parts = [*_axes(x, y, axes)]
    if budget is not None:
        parts.append(line(x.at(budget), 24, x.at(budget), PLOT_HEIGHT - 40, "budget"))
    if is_path:
        parts.append(stretched_line([(x.at(d.x), y.at(d.y)) for d in dots], PLOT_HEIGHT))
    parts += [
        line(x.at(dot.low), y.at(dot.y), x.at(dot.high), y.at(dot.y), "reach")
        for dot in dots
        if dot.low is not None and dot.high is not None
    ]
    parts += [mark(dot.verdict, x.at(dot.x), y.at(dot.y)) for dot in dots]
    parts += _names(dots, x, y, None if budget is None else x.at(budget))
    return picture(ident, title, _description(dots, axes), PLOT_HEIGHT, *parts)


def _axes(x: Scale, y: Scale, axes: tuple[str, str]) -> Iterator[Markup]:
    bottom = PLOT_HEIGHT - 40
    for tick in y.ticks(8):
        yield line(_LEFT - 1, y.at(tick), _RIGHT + 2, y.at(tick), "grid")
        yield text(_LEFT - 1.5, y.at(tick) + 4, label(tick), anchor="end")
    for tick in x.ticks(6):
        yield line(x.at(tick), 24, x.at(tick), bottom, "grid")
        yield text(x.at(tick), bottom + 16, label(tick), anchor="middle")
    yield text(0, 14, f"↑ {axes[1]}")
    yield text(100, PLOT_HEIGHT - 4, f"{axes[0]} →", anchor="end")


def _names(dots: Sequence[Dot], x: Scale, y: Scale, budget: float | None) -> Iterator[Markup]:
    """Names beside their dots, moved down where two would touch, and off the line of the budget."""
    last = -1e9
    for dot in sorted((d for d in dots if d.is_named), key=lambda d: y.at(d.y)):
        above = 0 if dot.low is None else 12  # off the bar of its interval
        last = max(y.at(dot.y) + 4 - above, last + 16)
        place = x.at(dot.x)
        is_left = place < 55
        if budget is not None and abs(place - budget) < _NAME_WIDTH:  # the side without the line
            is_left = (
                place >= budget or place < _LEFT + _NAME_WIDTH / 2
            )  # the side without the line
        anchor, dx = ("start", "12") if is_left else ("end", "-12")
        yield tag(
            "text", shortened(dot.name), x=percent(x.at(dot.x)), y=f"{last:g}", class_="name",
            dx=dx, text_anchor=anchor,
        )  # fmt: skip


def shortened(name: str, most: int = 18) -> str:
    """A name for a figure; tables have the whole."""
    name = plain(name)
    return name if len(name) <= most else name[: most - 1] + "…"


def _description(dots: Sequence[Dot], axes: tuple[str, str]) -> str:
    few = [f"{plain(d.name)}: {axes[0]} {d.x:.3g}, {axes[1]} {d.y:.3g}" for d in dots[:20]]
    more = f"; and {len(dots) - 20} more, all in the table" if len(dots) > 20 else ""
    return "; ".join(few) + more + "."


# --- prices ---------------------------------------------------------------------------------------


def price_bar(claim: Claim, scale: Scale, ident: str) -> Markup:
    """How much the worst client's loss would fall, as a bar."""
    price = claim.price or 0.0
    bar = box(scale.at(0.0), scale.at(price), 8, 10, "price")
    title = f"Price of the budget of {plain(claim.client)}"
    return picture(ident, title, f"{price:.3g} of training loss per unit of budget.", 26, bar)
