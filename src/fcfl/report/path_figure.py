"""The path of training: a quantity by round, with its stages."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from markupsafe import Markup

from fcfl.results import RoundInfo

from .svg import Scale, label, line, nice_range, picture, stretched_line, text

HEIGHT = 190.0
MOST_POINTS = 700  # of a line; more would not be seen

_LEFT, _RIGHT, _TOP, _BOTTOM = 11.0, 99.0, 34.0, HEIGHT - 24

Point = tuple[int, float]
Quantity = Literal["worst_loss", "largest_violation"]


def path_figure(
    ident: str, title: str, rounds: Sequence[RoundInfo], key: Quantity, *, zero: bool = False
) -> Markup | None:
    """One quantity by round; with ``zero`` the line at which budgets are met is drawn."""
    points = [(info.round, float(getattr(info, key))) for info in rounds]
    points = [(number, value) for number, value in points if math.isfinite(value)]
    if not points:
        return None
    values = [value for _, value in points] + ([0.0] if zero else [])
    x = Scale(points[0][0] - 0.5, points[-1][0] + 0.5, _LEFT, _RIGHT)
    y = Scale(*nice_range(values), _BOTTOM, _TOP)
    parts = [*_axes(x, y), *_stages(x, rounds)]
    if zero:
        parts.append(line(_LEFT, y.at(0.0), _RIGHT, y.at(0.0), "zero"))
    parts += [text(0, 14, f"↑ {title}"), _drawn(thinned(points), x, y)]
    first, last = points[0][1], points[-1][1]
    about = f"From {first:.4g} in the first to {last:.4g} in the last of {len(points)} rounds."
    return picture(ident, f"{title} by round", about, HEIGHT, *parts)


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """Of every stretch of rounds the lowest and the highest, and the last of all."""
    if len(points) <= most:
        return list(points)
    size = -(-2 * len(points) // most)
    kept: dict[Point, None] = {}
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        extremes = {min(stretch, key=lambda p: p[1]), max(stretch, key=lambda p: p[1])}
        kept |= dict.fromkeys(sorted(extremes))
    return list(kept | {points[-1]: None})


def _axes(x: Scale, y: Scale) -> Iterator[Markup]:
    for tick in y.ticks(4):
        yield line(_LEFT, y.at(tick), _RIGHT, y.at(tick), "grid")
        yield text(_LEFT - 0.8, y.at(tick) + 4, label(tick), anchor="end")
    whole = [tick for tick in x.ticks(4) if tick == int(tick)]
    for tick in whole:
        anchor = "end" if x.at(tick) > 92 else "middle"
        yield text(x.at(tick), HEIGHT - 6, label(tick), anchor=anchor)


def _stages(x: Scale, rounds: Iterable[RoundInfo]) -> Iterator[Markup]:
    """Where each stage begins, named where there is room; turns begin with stage 1 again."""
    spans = [
        (stage, [info.round for info in infos])
        for stage, infos in groupby(rounds, key=lambda info: info.stage)
    ]
    for stage, numbers in spans:
        start, end = x.at(min(numbers) - 0.5), x.at(max(numbers) + 0.5)
        if start > _LEFT:
            yield line(start, _TOP - 6, start, _BOTTOM, "stage")
        if end - start > 20 and len(spans) > 1:
            yield text(start, _TOP - 4, f"stage {stage}", dx=4)


def _drawn(points: Sequence[Point], x: Scale, y: Scale) -> Markup:
    places = [(x.at(number), y.at(value)) for number, value in points]
    if len(places) == 1:  # a dash, as a line needs two ends
        places.append((places[0][0] + 2, places[0][1]))
    return stretched_line(places, HEIGHT)
