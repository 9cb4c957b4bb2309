"""Strips and bars of a result as inline SVG: values and intervals against budgets."""

from collections.abc import Sequence

from markupsafe import Markup

from fcfl.results import GroupCount

from .claims import Claim
from .svg import Scale, box, css_class, label, line, mark, nice_step, picture, tag, text
from .words import AMONG, interval, number, plain, share

HEIGHT = 30.0  # of a strip
WHOLE = Scale(0.0, 1.0)
_MIDDLE = HEIGHT / 2


def claim_scale(claims: Sequence[Claim]) -> Scale:
    """Return one scale for all strips of a rule: from 0 for a difference, up to 1 for a ratio."""
    entries = [claim.entry for claim in claims]
    ends = [x for e in entries for x in (e.value, e.low, e.high, e.budget) if x is not None]
    if entries and entries[0].is_ratio:
        lowest = min([*ends, 0.9])
        step = nice_step((1.0 - lowest) / 5)
        return Scale(max(1.0 - step * -(-(1.0 - lowest) // step), 0.0), 1.0)
    highest = max([*ends, 1e-3])
    step = nice_step(highest / 5)
    return Scale(0.0, step * -(-highest // step))


def axis(scale: Scale) -> Markup:
    """Draw tick labels over strips."""
    ticks = scale.ticks(5)
    anchors = {ticks[0]: "start", ticks[-1]: "end"}
    places = [
        text(scale.at(tick), 14, label(tick), anchor=anchors.get(tick, "middle")) for tick in ticks
    ]
    return tag("svg", *places, class_="picture", width="100%", height="20", aria_hidden="true")


def claim_strip(claim: Claim, scale: Scale, ident: str) -> Markup:
    """Draw the value as a mark, the interval as a bar, the budget as a tick, shaded beyond."""
    entry, parts = claim.entry, _grid(scale)
    if entry.budget is not None:
        place = scale.at(entry.budget)
        beyond = (scale.start, place) if entry.is_ratio else (place, scale.end)
        parts.append(box(*beyond, 0, HEIGHT, "beyond"))
    if entry.value is not None:
        if entry.low is not None and entry.high is not None:
            ends = scale.at(entry.low), scale.at(entry.high)
            parts.append(box(*ends, _MIDDLE - 3, 6, f"bar {css_class(claim.verdict)}"))
        parts.append(mark(claim.verdict, scale.at(entry.value), _MIDDLE))
    parts += _budget(entry.budget, scale)
    title = f"{plain(claim.client)}: {claim.verdict}"
    budget = "no budget" if entry.budget is None else f"budget {entry.budget:g}"
    about = f"Value {number(entry.value, 3)}, interval {interval(entry.interval)}, {budget}."
    return picture(ident, title, about, HEIGHT, *parts)


def change_strip(before: Claim, after: Claim, scale: Scale, ident: str) -> Markup:
    """Draw a difference without budgets and with them."""
    old, new, parts = before.entry.value, after.entry.value, _grid(scale)
    if old is not None and new is not None:
        ends = sorted((scale.at(old), scale.at(new)))
        parts.append(box(ends[0], ends[1], _MIDDLE - 1, 2, "bar v-unconstrained"))
        parts.append(mark("unconstrained", scale.at(old), _MIDDLE))
        parts.append(mark(after.verdict, scale.at(new), _MIDDLE))
    parts += _budget(after.entry.budget, scale)
    title = f"{plain(after.client)}: plain FedAvg {number(old, 3)}, this run {number(new, 3)}"
    return picture(ident, title, after.entry.title, HEIGHT, *parts)


def rate_strip(group: GroupCount, ident: str) -> Markup:
    """Draw the share of a group that is selected, with its interval, on a scale from 0 to 1."""
    parts, bounds = _grid(WHOLE), group.interval
    if bounds is not None:
        ends = WHOLE.at(bounds[0]), WHOLE.at(bounds[1])
        parts.append(box(*ends, _MIDDLE - 3, 6, "bar v-unconstrained"))
        place = WHOLE.at(group.selected / group.rows)
        parts.append(mark("met", place, _MIDDLE, "v-unconstrained"))
    title = f"{plain(group.group)}{AMONG.get(group.rate, '')}: {rate_words(group)}"
    about = f"{group.selected} of {group.rows} selected."
    return picture(ident, title, about, HEIGHT, *parts)


def rate_words(group: GroupCount) -> str:
    """Return the share of a group that is selected, with its interval."""
    return f"{share(group.selected, group.rows)} ({interval(group.interval)})"


def price_bar(claim: Claim, highest: float, ident: str) -> Markup:
    """Draw the price of a budget as a bar."""
    price, scale = claim.price or 0.0, Scale(0.0, highest, 0.0, 100.0)
    title = f"Price of the budget of {plain(claim.client)}"
    about = f"{price:.3g} of training loss per unit of budget."
    return picture(ident, title, about, 26, box(scale.at(0.0), scale.at(price), 8, 10, "price"))


def _grid(scale: Scale) -> list[Markup]:
    return [line(scale.at(tick), 0, scale.at(tick), HEIGHT, "grid") for tick in scale.ticks(5)]


def _budget(budget: float | None, scale: Scale) -> list[Markup]:
    if budget is None:
        return []
    return [line(scale.at(budget), 1, scale.at(budget), HEIGHT - 1, "budget")]
