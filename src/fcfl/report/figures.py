"""Scales, dots and lines of figures, which ``templates/figures.html`` draws as SVG.

Horizontal positions are in per cent and heights in pixels, so that a figure fills any width without
scaling its text.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Literal, NamedTuple, TypeAlias

from fcfl.results import Comparison, GroupScores, Result, RoundInfo
from fcfl.results.many_runs import ENOUGH, Judged, SweepPoint, judge

from .comparisons import budget_label, difference_bounds
from .words import Claim, claims_of, count_verdicts, plain

MARKS = {
    "met": "M-6,0a6,6 0 1,0 12,0a6,6 0 1,0 -12,0z",  # disc
    "exceeded": "M0,-7L7,6L-7,6z",  # triangle
    "undetermined": "M0,-8L8,0L0,8L-8,0z",  # diamond, drawn hollow
    "unconstrained": "M-5,-5H5V5H-5z",  # square, drawn hollow
    "not judged": "M-5,-5H5V5H-5z",
    "not compared": "M-6,0H6",  # a dash
}
MAX_NAMES = 6  # dots with a name
MAX_POINTS = 700  # points of a line; more would not be visible
MAX_GROUPS = 6  # lines in a figure; the table shows all groups
MIN_IN_BIN = 10  # people in a bin for its share to be drawn
LEFT, RIGHT, TOP, BELOW = 11.0, 97.0, 34.0, 46.0  # margins of a plot: per cent, then pixels
_NAME_WIDTH = 20.0  # largest width of a name, in per cent
_JUDGED = ("difference over all rows", "lowest accuracy of a client with enough people")

Point: TypeAlias = tuple[float, float]


# --- scales ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from ``[low, high]`` to positions ``[start, end]`` in per cent or pixels."""

    low: float
    high: float
    start: float = 2.0
    end: float = 98.0

    def at(self, value: float) -> float:
        """Return the position of a value, clipped to the ends."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 3)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about ``count`` round values within the scale."""
        step = nice_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]


WHOLE = Scale(0.0, 1.0)


def nice_step(smallest: float) -> float:
    """Return the smallest step of at least ``smallest`` that is 1, 2 or 5 times a power of 10."""
    power = 10.0 ** math.floor(math.log10(smallest))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= smallest * (1 - 1e-9))


def nice_range(values: Sequence[float], *, margin: float = 0.06) -> tuple[float, float]:
    """Return bounds around all values with a margin, so that their distance is positive."""
    low, high = min(values), max(values)
    spread = max((high - low) * margin, abs(high) * 1e-3, 1e-6)
    return low - spread, high + spread


def claim_scale(claims: Sequence[Claim]) -> Scale:
    """Return the common scale of a rule's strips: from 0 for differences, up to 1 for ratios."""
    entries = [claim.entry for claim in claims]
    ends = [x for e in entries for x in (e.value, e.low, e.high, e.budget) if x is not None]
    if entries and entries[0].is_ratio:
        lowest = min([*ends, 0.9])
        step = nice_step((1.0 - lowest) / 5)
        return Scale(max(1.0 - step * -(-(1.0 - lowest) // step), 0.0), 1.0)
    highest = max([*ends, 1e-3])
    step = nice_step(highest / 5)
    return Scale(0.0, step * -(-highest // step))


# --- plots ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a scatter plot; ``is_named`` shows its name.

    ``low`` and ``high`` are the ends of the interval of ``x``, drawn as a bar.
    """

    name: str
    x: float
    y: float
    verdict: str = "unconstrained"
    is_named: bool = True
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Plot:
    """A figure with two axes.

    ``lines`` are pairs of a CSS class and points; ``legend`` names the lines of class ``dash-0`` to
    ``dash-5``. ``verticals`` are vertical lines: value of ``x``, CSS class and name. If
    ``is_whole``, only whole numbers are labelled on the axis of ``x``.
    """

    ident: str
    title: str
    about: str
    axes: tuple[str, str]
    x: Scale
    y: Scale
    height: float
    dots: Sequence[Dot] = ()
    lines: Sequence[tuple[str, Sequence[Point]]] = ()
    legend: Sequence[str] = ()
    verticals: Sequence[tuple[float, str, str]] = ()
    is_whole: bool = False

    @property
    def names(self) -> Iterator[tuple[str, float, float, bool]]:
        """Names beside their dots, as (name, x, y, starts at x).

        Names that would overlap are moved down, and names near the line of the budget to one side.
        """
        budget = next(
            (self.x.at(value) for value, kind, _ in self.verticals if kind == "budget"), None
        )
        last = -1e9
        for dot in sorted((d for d in self.dots if d.is_named), key=lambda d: self.y.at(d.y)):
            above = 0 if dot.low is None else 12  # above the bar of the interval
            last = max(self.y.at(dot.y) + 4 - above, last + 16)
            place = self.x.at(dot.x)
            begins = place < 55
            if budget is not None and abs(place - budget) < _NAME_WIDTH:  # away from the line
                begins = place >= budget or place < LEFT + _NAME_WIDTH / 2
            yield shortened(dot.name), place, last, begins


def shortened(name: str, most: int = 18) -> str:
    """Shorten a name for a figure; tables show the full name."""
    name = plain(name)
    return name if len(name) <= most else name[: most - 1] + "…"


def scatter(
    ident: str,
    title: str,
    dots: Sequence[Dot],
    axes: tuple[str, str],
    *,
    budget: float | None = None,
    is_path: bool = False,
) -> Plot | None:
    """Return a scatter plot, None without dots; if ``is_path``, a line connects the dots."""
    if not dots:
        return None
    ends = [end for dot in dots for end in (dot.low, dot.high) if end is not None]
    across = [dot.x for dot in dots] + ends + ([] if budget is None else [budget])
    few = [f"{plain(d.name)}: {axes[0]} {d.x:.3g}, {axes[1]} {d.y:.3g}" for d in dots[:20]]
    more = f"; and {len(dots) - 20} more, all in the table" if len(dots) > 20 else ""
    height = 340.0
    return Plot(
        ident,
        title,
        "; ".join(few) + more + ".",
        axes,
        Scale(*nice_range(across), LEFT, RIGHT),
        Scale(*nice_range([dot.y for dot in dots]), height - BELOW, TOP),
        height,
        dots,
        lines=[("line", [(dot.x, dot.y) for dot in dots])] if is_path else [],
        verticals=[] if budget is None else [(budget, "budget", "")],
    )


def client_scatter(result: Result, claims: Sequence[Claim], ident: str) -> Plot | None:
    """Return a plot of each client's accuracy against its disparity by one rule."""
    part = result.judged_part
    accuracy = {name: client.part(part).accuracy for name, client in result.clients.items()}
    placed = [
        (claim, claim.entry.value, accuracy[claim.client] or 0.0)
        for claim in claims
        if claim.entry.value is not None and accuracy.get(claim.client) is not None
    ]
    lowest = sorted(placed, key=lambda item: item[2])[: MAX_NAMES // 2]
    named = list(dict.fromkeys(claim.client for claim, *_ in [*lowest, *placed]))[:MAX_NAMES]
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


def sweep_figure(points: Sequence[SweepPoint]) -> Plot | None:
    """Return a plot of lowest accuracy against difference over all rows, by budget."""
    dots = _judged_dots([(budget_label(one), one.judged, "unconstrained") for one in points])
    title = "Trade-off between difference and accuracy, by budget"
    return scatter("sweep", title, dots, _JUDGED, is_path=True)


def runs_figure(results: Mapping[str, Result]) -> Plot | None:
    """Return a plot of runs, each marked by its worst verdict."""
    found = []
    for name, result in results.items():
        counts = count_verdicts(c for c in claims_of(result) if c.entry.budget is not None)
        verdict = next((word for word, count in counts.items() if count), "unconstrained")
        found.append((name, judge(result), verdict))
    return scatter("runs", "Runs by accuracy and disparity", _judged_dots(found), _JUDGED)


def methods_figure(comparison: Comparison) -> Plot | None:
    """Return a plot of methods, with intervals of the difference over all rows."""
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
) -> Plot | None:
    """Return a plot of the worst client's loss or largest violation by round, with stages."""
    points = [(float(info.round), float(getattr(info, key))) for info in rounds]
    points = [(number, value) for number, value in points if math.isfinite(value)]
    if not points:
        return None
    is_violation = key == "largest_violation"
    title = "largest violation" if is_violation else "worst client's training loss"
    first, last = points[0], points[-1]
    height, places = 200.0, thinned(points)
    if len(places) == 1:  # a single point is drawn as a dash
        places = [(first[0] - 0.1, first[1]), (first[0] + 0.1, first[1])]
    x = Scale(first[0] - 0.5, last[0] + 0.5, LEFT, RIGHT)
    y = Scale(*nice_range([v for _, v in points] + [0.0] * is_violation), height - BELOW, TOP)
    stages = [(s, [i.round for i in found]) for s, found in groupby(rounds, lambda i: i.stage)]
    verticals = []
    for stage, numbers in stages if len(stages) > 1 else ():
        start, end = min(numbers) - 0.5, max(numbers) + 0.5
        is_wide = x.at(end) - x.at(start) > 20  # enough space for a name
        verticals.append((start, "stage", f"stage {stage}" if is_wide else ""))
    return Plot(
        f"path-{key.split('_')[1]}",
        f"{title} by round",
        f"From {first[1]:.4g} in the first to {last[1]:.4g} in the last of {len(points)} rounds.",
        ("round", title),
        x,
        y,
        height,
        # budgets are met at or below 0
        lines=[("zero", [(x.low, 0.0), (x.high, 0.0)])] * is_violation + [("line", places)],
        verticals=verticals,
        is_whole=True,
    )


def thinned(points: Sequence[Point], most: int = MAX_POINTS) -> list[Point]:
    """Reduce points to the lowest and highest of each stretch of rounds, and the last point."""
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


class ScoreLine(NamedTuple):
    """Summary of the scores of one group; ``negatives`` and ``positives`` count people by label.

    ``auc`` is the area under the ROC curve, None if a label has too few people. ``mean_score`` and
    the positive ``share`` are None if the group has too few people.
    """

    group: str
    negatives: int
    positives: int
    auc: float | None
    mean_score: float | None
    share: float | None


def score_line(one: GroupScores) -> ScoreLine:
    """Return the summary of one group's scores."""
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
    """Return (false-positive rate, true-positive rate) at the bin edges from 1 down to 0."""
    negatives, positives = max(sum(one.negatives), 1), max(sum(one.positives), 1)
    false = accumulate(reversed(one.negatives), initial=0)
    true = accumulate(reversed(one.positives), initial=0)
    return [(f / negatives, t / positives) for f, t in zip(false, true, strict=True)]


def area(curve: Sequence[Point]) -> float:
    """Return the area under a ROC curve; scores in the same bin count as ties."""
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(curve))


def calibration_points(one: GroupScores) -> list[Point]:
    """Return (midpoint, share of positive labels) of each bin with enough people."""
    size, counts = len(one.negatives), zip(one.negatives, one.positives, strict=True)
    return [
        ((i + 0.5) / size, p / (n + p)) for i, (n, p) in enumerate(counts) if n + p >= MIN_IN_BIN
    ]


def score_plots(groups: Sequence[GroupScores], ident: str) -> tuple[Plot, ...]:
    """Return a ROC plot and a calibration plot of the largest groups with enough people."""
    enough = [one for one in groups if min(sum(one.negatives), sum(one.positives)) >= ENOUGH]
    drawn = sorted(enough, key=lambda one: -sum(one.negatives) - sum(one.positives))[:MAX_GROUPS]
    if not drawn:
        return ()
    names, of = [plain(one.group) for one in drawn], f"by {plain(drawn[0].attribute)}"
    roc, shares = [roc_curve(one) for one in drawn], [calibration_points(one) for one in drawn]
    areas = [f"area {area(curve):.3f}" for curve in roc]
    bins = [f"{len(points)} bins drawn" for points in shares]
    scores = ("selected share, negative label", "selected share, positive label")
    labels = ("score", "share with the positive label")
    height = 320.0
    return tuple(
        Plot(
            f"{kind.lower()}-{ident}",
            f"{kind} {of}",
            "; ".join(f"{name}: {what}" for name, what in zip(names, about, strict=True)) + ".",
            axes,
            Scale(0.0, 1.0, LEFT, RIGHT),
            Scale(0.0, 1.0, height - BELOW, TOP),
            height,
            lines=[("zero", [(0.0, 0.0), (1.0, 1.0)])]
            + [(f"line dash-{i}", points) for i, points in enumerate(curves)],
            legend=names,
        )
        for kind, about, axes, curves in (
            ("ROC", areas, scores, roc),
            ("Calibration", bins, labels, shares),
        )
    )
