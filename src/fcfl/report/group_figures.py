"""Rates of every group with their intervals, as strips from 0 to 1."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fcfl.results.result import GroupCount

from .claims import Claim
from .figures import STRIP_HEIGHT, box, claim_axis
from .people import AMONG
from .svg import Scale, line, mark, picture
from .words import interval, plain, share

MOST_CLIENTS = 8  # with a picture; all are in the table of groups
WHOLE = Scale(0.0, 1.0)


@dataclass(frozen=True)
class RateStrip:
    """One group: how many of how many are selected, the rate in words, and its picture.

    A group that is not ``is_compared`` has too few rows.
    """

    group: str
    among: str
    rows: int
    selected: int
    rate: str
    strip: Markup
    is_compared: bool


@dataclass(frozen=True)
class RatesView:
    """The groups of one client, by one rule."""

    title: str
    axis: Markup
    rows: tuple[RateStrip, ...]


def rates_views(claims: Sequence[Claim]) -> tuple[RatesView, ...]:
    """Pictures of the claims that matter most, each client and attribute once."""
    views: dict[tuple[str, str, str], RatesView] = {}
    for claim in claims:
        key = (claim.client, claim.of.attribute, claim.of.metric)
        if key in views or len(views) == MOST_CLIENTS or not claim.groups:
            continue
        ident = f"rates-{len(views)}"
        groups = (*claim.groups, *(group for group in claim.left_out if group.rows))
        rows = tuple(_strip(group, f"{ident}-{i}") for i, group in enumerate(groups))
        title = f"{plain(claim.client)}, by {plain(claim.of.attribute)}"
        views[key] = RatesView(title, claim_axis(WHOLE), rows)
    return tuple(views.values())


def _strip(group: GroupCount, ident: str) -> RateStrip:
    found = group.interval
    low, high = found if found is not None else (None, None)
    parts = [line(WHOLE.at(t), 0, WHOLE.at(t), STRIP_HEIGHT, "grid") for t in WHOLE.ticks(5)]
    rate = group.selected / group.rows
    if low is not None and high is not None:
        middle = STRIP_HEIGHT / 2
        parts.append(box(WHOLE.at(low), WHOLE.at(high), middle - 3, 6, "bar v-unconstrained"))
        parts.append(mark("met", WHOLE.at(rate), middle, "v-unconstrained"))
    words = f"{share(group.selected, group.rows)} ({interval(low, high)})"
    title = f"{plain(group.group)}{AMONG.get(group.rate, '')}: {words}"
    counted = f"{group.selected} of {group.rows} selected."
    drawn = picture(ident, title, counted, STRIP_HEIGHT, *parts)
    return RateStrip(
        plain(group.group),
        AMONG.get(group.rate, ""),
        group.rows,
        group.selected,
        words,
        drawn,
        group.is_compared,
    )
