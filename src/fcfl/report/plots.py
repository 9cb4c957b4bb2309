"""Plots of a result as inline SVG: scatter plots, the path of training, ROC and calibration."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Literal, TypeAlias

from markupsafe import Markup

from fcfl.results import Comparison, GroupScores, Result, RoundInfo
from fcfl.results.many_runs import ENOUGH, Judged, SweepPoint, judge

from .claims import Claim, claims_of, count_verdicts
from .comparisons import budget_label, difference_bounds
from .svg import (
    Scale,
    label,
    line,
    mark,
    nice_range,
    percent,
    picture,
    stretched_line,
    tag,
    text,
)
from .words import plain

MOST_NAMED = 6  # dots with a name
MOST_POINTS = 700  # of a line; more would not be seen
MOST_GROUPS = 6  # lines in a picture; the table has all
LEAST_IN_BIN = 10  # people, below which a share is not drawn
SCATTER, PATH, SCORES = 340.0, 190.0, 320.0  # heights
_LEFT, _RIGHT = 11.0, 97.0  # per cent; tick labels stand left of the plot
_NAME_WIDTH = 20.0  # per cent of a figure that a name may take
_JUDGED = ("difference over all rows", "lowest accuracy of a client with enough people")

Point: TypeAlias = tuple[float, float]


def _axes(x: Scale, y: Scale, ends: tuple[float, float], titles: tuple[str, str]) -> list[Markup]:
    """Draw grid lines with labels; the plot reaches from ``ends[0]`` down to ``ends[1]``."""
    parts = []
    for tick in y.ticks(8 if ends[1] > PATH else 4):
        parts.append(line(_LEFT - 1, y.at(tick), _RIGHT + 2, y.at(tick), "grid"))
        parts.append(text(_LEFT - 1.5, y.at(tick) + 4, label(tick), anchor="end"))
    for tick in x.ticks(6):
        parts.append(line(x.at(tick), ends[0], x.at(tick), ends[1], "grid"))
        parts.append(text(x.at(tick), ends[1] + 16, label(tick), anchor="middle"))
    parts.append(text(0, 14, f"↑ {titles[1]}"))
    parts.append(text(100, ends[1] + 36, f"{titles[0]} →", anchor="end"))
    return parts


def shortened(name: str, most: int = 18) -> str:
    """Shorten a name for a figure; tables have the whole."""
    name = plain(name)
    return name if len(name) <= most else name[: most - 1] + "…"


# --- scatter plots --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a scatter plot, and whether its name is shown.

    ``low`` and ``high`` are the interval of ``x``, drawn as a bar.
    """

    name: str
    x: float
    y: float
    verdict: str = "unconstrained"
    is_named: bool = True
    low: float | None = None
    high: float | None = None


def scatter(
    ident: str,
    title: str,
    dots: Sequence[Dot],
    titles: tuple[str, str],
    *,
    budget: float | None = None,
    is_path: bool = False,
) -> Markup | None:
    """Draw dots with the names of a few; with ``is_path`` a line from each to the next."""
    if not dots:
        return None
    ends = [end for dot in dots for end in (dot.low, dot.high) if end is not None]
    across = [dot.x for dot in dots] + ends + ([] if budget is None else [budget])
    x = Scale(*nice_range(across), _LEFT, _RIGHT)
    y = Scale(*nice_range([dot.y for dot in dots]), SCATTER - 46, 30)
    parts = _axes(x, y, (24, SCATTER - 40), titles)
    if budget is not None:
        parts.append(line(x.at(budget), 24, x.at(budget), SCATTER - 40, "budget"))
    if is_path:
        parts.append(stretched_line([(x.at(d.x), y.at(d.y)) for d in dots], SCATTER))
    parts += [
        line(x.at(dot.low), y.at(dot.y), x.at(dot.high), y.at(dot.y), "reach")
        for dot in dots
        if dot.low is not None and dot.high is not None
    ]
    parts += [mark(dot.verdict, x.at(dot.x), y.at(dot.y)) for dot in dots]
    parts += _names(dots, x, y, None if budget is None else x.at(budget))
    few = [f"{plain(d.name)}: {titles[0]} {d.x:.3g}, {titles[1]} {d.y:.3g}" for d in dots[:20]]
    more = f"; and {len(dots) - 20} more, all in the table" if len(dots) > 20 else ""
    return picture(ident, title, "; ".join(few) + more + ".", SCATTER, *parts)


def _names(dots: Sequence[Dot], x: Scale, y: Scale, budget: float | None) -> Iterator[Markup]:
    """Draw names beside their dots, moved down where two would touch, and off the budget's line."""
    last = -1e9
    for dot in sorted((d for d in dots if d.is_named), key=lambda d: y.at(d.y)):
        above = 0 if dot.low is None else 12  # off the bar of its interval
        last = max(y.at(dot.y) + 4 - above, last + 16)
        place = x.at(dot.x)
        is_left = place < 55
        if budget is not None and abs(place - budget) < _NAME_WIDTH:  # the side without the line
            is_left = place >= budget or place < _LEFT + _NAME_WIDTH / 2
        anchor, dx = ("start", "12") if is_left else ("end", "-12")
        yield tag(
            "text", shortened(dot.name), x=percent(place), y=f"{last:g}", class_="name", dx=dx,
            text_anchor=anchor,
        )  # fmt: skip


def client_scatter(result: Result, claims: Sequence[Claim], ident: str) -> Markup | None:
    """Draw each client's accuracy against its disparity by one rule."""
    part = result.judged_part
    accuracy = {name: client.part(part).accuracy for name, client in result.clients.items()}
    placed = [
        (claim, claim.entry.value, accuracy[claim.client] or 0.0)
        for claim in claims
        if claim.entry.value is not None and accuracy.get(claim.client) is not None
    ]
    if not placed:
        return None
    lowest = sorted(placed, key=lambda item: item[2])[: MOST_NAMED // 2]
    named = list(dict.fromkeys(claim.client for claim, *_ in [*lowest, *placed]))[:MOST_NAMED]
    dots = [Dot(c.client, x, y, c.verdict, c.client in named) for c, x, y in placed]
    budgets = {claim.entry.budget for claim in claims if claim.client in accuracy}
    rule, title = claims[0].entry.rule, claims[0].entry.title
    return scatter(
        ident, f"Accuracy and {rule} of each client: {title}", dots, (rule, "accuracy"),
        budget=budgets.pop() if len(budgets) == 1 else None,
    )  # fmt: skip


def _judged_dots(found: Sequence[tuple[str, Judged, str]]) -> list[Dot]:
    return [
        Dot(name, one.all_rows, one.lowest_accuracy, verdict, low=one.low, high=one.high)
        for name, one, verdict in found
        if one.all_rows is not None and one.lowest_accuracy is not None
    ]


def sweep_figure(points: Sequence[SweepPoint]) -> Markup | None:
    """Draw the lowest accuracy against the difference over all rows, by budget."""
    dots = _judged_dots([(budget_label(one), one.judged, "unconstrained") for one in points])
    title = "Trade-off between difference and accuracy, by budget"
    return scatter("sweep", title, dots, _JUDGED, is_path=True)


def runs_figure(results: Mapping[str, Result]) -> Markup | None:
    """Draw each run, marked by its worst verdict."""
    found = []
    for name, result in results.items():
        counts = count_verdicts(c for c in claims_of(result) if c.entry.budget is not None)
        verdict = next((word for word, count in counts.items() if count), "unconstrained")
        found.append((name, judge(result), verdict))
    return scatter("runs", "Runs by accuracy and disparity", _judged_dots(found), _JUDGED)


def methods_figure(comparison: Comparison) -> Markup | None:
    """Draw each method by its difference over all rows, with the interval."""
    dots = []
    for summary in comparison.methods:
        x, y = summary.all_rows.mean, summary.lowest_accuracy.mean
        if x is not None and y is not None:
            is_kept = summary.n_budgets and summary.kept == summary.n_budgets
            low, high = difference_bounds(comparison, summary)
            verdict = "met" if is_kept else "unconstrained"
            dots.append(Dot(summary.method, x, y, verdict, low=low, high=high))
    return scatter("methods", "Methods by accuracy and difference", dots, _JUDGED)


# --- the path of training -------------------------------------------------------------------------


def path_figure(
    rounds: Sequence[RoundInfo], key: Literal["worst_loss", "largest_violation"]
) -> Markup | None:
    """Draw the worst client's loss or the largest violation by round, with the stages."""
    points = [(info.round, float(getattr(info, key))) for info in rounds]
    points = [(number, value) for number, value in points if math.isfinite(value)]
    if not points:
        return None
    is_violation = key == "largest_violation"
    title = "largest violation" if is_violation else "worst client's training loss"
    top, bottom = 34.0, PATH - 24
    x = Scale(points[0][0] - 0.5, points[-1][0] + 0.5, _LEFT, 99.0)
    y = Scale(*nice_range([value for _, value in points] + [0.0] * is_violation), bottom, top)
    parts = []
    for tick in y.ticks(4):
        parts.append(line(_LEFT, y.at(tick), 99.0, y.at(tick), "grid"))
        parts.append(text(_LEFT - 0.8, y.at(tick) + 4, label(tick), anchor="end"))
    for tick in x.ticks(4):
        if tick == int(tick):
            anchor = "end" if x.at(tick) > 92 else "middle"
            parts.append(text(x.at(tick), PATH - 6, label(tick), anchor=anchor))
    stages = [(s, [i.round for i in found]) for s, found in groupby(rounds, lambda i: i.stage)]
    for stage, numbers in stages:
        start, end = x.at(min(numbers) - 0.5), x.at(max(numbers) + 0.5)
        if start > _LEFT:
            parts.append(line(start, top - 6, start, bottom, "stage"))
        if end - start > 20 and len(stages) > 1:  # there is space for a name
            parts.append(text(start, top - 4, f"stage {stage}", dx=4))
    if is_violation:  # budgets are met at or below this line
        parts.append(line(_LEFT, y.at(0.0), 99.0, y.at(0.0), "zero"))
    places = [(x.at(number), y.at(value)) for number, value in thinned(points)]
    if len(places) == 1:  # a dash, as a line needs two ends
        places.append((places[0][0] + 2, places[0][1]))
    parts += [text(0, 14, f"↑ {title}"), stretched_line(places, PATH)]
    first, last = points[0][1], points[-1][1]
    about = f"From {first:.4g} in the first to {last:.4g} in the last of {len(points)} rounds."
    return picture(f"path-{key.split('_')[1]}", f"{title} by round", about, PATH, *parts)


def thinned(points: Sequence[tuple[int, float]], most: int = MOST_POINTS) -> list[Point]:
    """Return the lowest and the highest point of every stretch of rounds, and the last of all."""
    if len(points) <= most:
        return list(points)
    size = -(-2 * len(points) // most)
    kept: dict[Point, None] = {}
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        extremes = {min(stretch, key=lambda p: p[1]), max(stretch, key=lambda p: p[1])}
        kept |= dict.fromkeys(sorted(extremes))
    return list(kept | {points[-1]: None})


# --- scores by group ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreLine:
    """Scores of one group: people with each label, area under the curve, mean score.

    ``auc`` is None if a label has too few people, ``mean_score`` and ``share`` positive if the
    group has.
    """

    group: str
    negatives: int
    positives: int
    auc: float | None
    mean_score: float | None
    share: float | None


def score_line(one: GroupScores) -> ScoreLine:
    """Return the numbers of one group."""
    negatives, positives = sum(one.negatives), sum(one.positives)
    n_rows, n_bins = negatives + positives, len(one.negatives)
    bins = enumerate(zip(one.negatives, one.positives, strict=True))
    total = sum((i + 0.5) / n_bins * (n + p) for i, (n, p) in bins)
    return ScoreLine(
        one.group,
        negatives,
        positives,
        area(roc_curve(one)) if min(negatives, positives) >= ENOUGH else None,
        total / n_rows if n_rows >= ENOUGH else None,
        positives / n_rows if n_rows >= ENOUGH else None,
    )


def roc_curve(one: GroupScores) -> list[Point]:
    """Return false and true positive rate as the threshold falls from 1 to 0, bin by bin."""
    negatives, positives = max(sum(one.negatives), 1), max(sum(one.positives), 1)
    false = accumulate(reversed(one.negatives), initial=0)
    true = accumulate(reversed(one.positives), initial=0)
    return [(f / negatives, t / positives) for f, t in zip(false, true, strict=True)]


def area(curve: Sequence[Point]) -> float:
    """Return the area under the curve: scores in one bin count as equal."""
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(curve))


def calibration_points(one: GroupScores) -> list[Point]:
    """Return the middle of each bin with enough people, and their share of positive labels."""
    size, counts = len(one.negatives), zip(one.negatives, one.positives, strict=True)
    return [
        ((i + 0.5) / size, p / (n + p)) for i, (n, p) in enumerate(counts) if n + p >= LEAST_IN_BIN
    ]


def score_plots(groups: Sequence[GroupScores], ident: str) -> tuple[Markup, Markup] | None:
    """Draw ROC curves and calibration of the largest groups with enough people of each label."""
    enough = [one for one in groups if min(sum(one.negatives), sum(one.positives)) >= ENOUGH]
    drawn = sorted(enough, key=lambda one: -sum(one.negatives) - sum(one.positives))[:MOST_GROUPS]
    if not drawn:
        return None
    of = f"by {plain(drawn[0].attribute)}"
    roc = {one.group: roc_curve(one) for one in drawn}
    shares = {one.group: calibration_points(one) for one in drawn}
    areas = [f"{plain(group)}: area {area(curve):.3f}" for group, curve in roc.items()]
    bins = [f"{plain(group)}: {len(points)} bins drawn" for group, points in shares.items()]
    titles = "selected, of those with the negative label", "selected, of the positive"
    return (
        _lines(f"roc-{ident}", f"ROC {of}", areas, roc, titles),
        _lines(f"calibration-{ident}", f"Calibration {of}", bins, shares,
               ("score", "share with the positive label")),
    )  # fmt: skip


def _lines(
    ident: str,
    title: str,
    about: Sequence[str],
    curves: Mapping[str, Sequence[Point]],
    titles: tuple[str, str],
) -> Markup:
    """Draw lines between (0, 0) and (1, 1) with a name each, and the diagonal."""
    bottom = SCORES - 46
    x, y = Scale(0.0, 1.0, _LEFT, _RIGHT), Scale(0.0, 1.0, bottom, 36.0)
    parts = _axes(x, y, (36.0, bottom), titles)
    parts.append(stretched_line([(x.at(t), y.at(t)) for t in (0.0, 1.0)], SCORES, "zero"))
    for place, (group, points) in enumerate(curves.items()):
        drawn = [(x.at(a), y.at(b)) for a, b in points]
        if len(drawn) > 1:
            parts.append(stretched_line(drawn, SCORES, f"line dash-{place}"))
        height = bottom - 10 - 16 * (len(curves) - 1 - place)
        parts.append(line(62, height - 4, 70, height - 4, f"line dash-{place}"))
        parts.append(text(71, height, shortened(group)))
    return picture(ident, title, f"{'; '.join(about)}.", SCORES, *parts)
