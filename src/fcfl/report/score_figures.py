"""How well scores tell labels apart, and how well they fit them, by group: ROC and calibration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from markupsafe import Markup

from fcfl.results import Result
from fcfl.results.many_runs import ENOUGH
from fcfl.results.result import GroupScores

from .figures import shortened
from .svg import Scale, label, line, picture, stretched_line, text
from .words import plain

HEIGHT = 320.0
MOST_GROUPS = 6  # lines in a picture; the table has all
LEAST_IN_BIN = 10  # people, below which a share is not drawn
_LEFT, _RIGHT, _TOP, _BOTTOM = 11.0, 97.0, 36.0, HEIGHT - 46
_X, _Y = Scale(0.0, 1.0, _LEFT, _RIGHT), Scale(0.0, 1.0, _BOTTOM, _TOP)
Point = tuple[float, float]


@dataclass(frozen=True)
class ScoreLine:
    """One group: people with each label, area under the curve, mean score, share positive."""

    group: str
    negatives: int
    positives: int
    auc: float | None
    mean_score: float | None
    share: float | None

    @property
    def is_enough(self) -> bool:
        """Whether there are enough people with each label to draw a curve."""
        return self.auc is not None


@dataclass(frozen=True)
class ScoreView:
    """ROC and calibration of the groups of one attribute, over all clients' judged rows."""

    attribute: str
    roc: Markup | None
    calibration: Markup | None
    lines: tuple[ScoreLine, ...]
    too_small: tuple[str, ...]


def score_views(result: Result) -> tuple[ScoreView, ...]:
    """One view for each attribute whose scores were counted."""
    found: dict[str, list[GroupScores]] = {}
    for one in result.overall.part(result.judged_part).scores:
        found.setdefault(one.attribute, []).append(one)
    return tuple(
        _view(attribute, groups, index) for index, (attribute, groups) in enumerate(found.items())
    )


def _view(attribute: str, groups: Sequence[GroupScores], index: int) -> ScoreView:
    lines = tuple(map(score_line, groups))
    enough = [one for one, known in zip(groups, lines, strict=True) if known.is_enough]
    drawn = sorted(enough, key=lambda one: -_n_rows(one))[:MOST_GROUPS]
    too_small = tuple(known.group for known in lines if not known.is_enough)
    if not drawn:
        return ScoreView(attribute, None, None, lines, too_small)
    of = f"by {plain(attribute)}"
    curves = {one.group: roc_curve(one) for one in drawn}
    shares = {one.group: calibration_points(one) for one in drawn}
    aucs = [f"{plain(k.group)}: area {k.auc:.3f}" for k in lines if k.auc is not None]
    return ScoreView(
        attribute,
        _plot(f"roc-{index}", f"ROC {of}", aucs, curves,
              ("selected, of those with the negative label", "selected, of the positive")),
        _plot(f"calibration-{index}", f"Calibration {of}", _said(shares), shares,
              ("score", "share with the positive label")),
        lines,
        too_small,
    )  # fmt: skip


def score_line(one: GroupScores) -> ScoreLine:
    """The numbers of one group; no area where either label has too few people."""
    negatives, positives = sum(one.negatives), sum(one.positives)
    n_rows = negatives + positives
    is_enough = min(negatives, positives) >= ENOUGH
    middles = [(i + 0.5) / len(one.negatives) for i in range(len(one.negatives))]
    each = [n + p for n, p in zip(one.negatives, one.positives, strict=True)]
    mean = sum(m * n for m, n in zip(middles, each, strict=True)) / n_rows if n_rows else None
    return ScoreLine(
        one.group,
        negatives,
        positives,
        area(roc_curve(one)) if is_enough else None,
        mean if n_rows >= ENOUGH else None,
        positives / n_rows if n_rows >= ENOUGH else None,
    )


def roc_curve(one: GroupScores) -> list[Point]:
    """False and true positive rate as the threshold falls from 1 to 0, bin by bin."""
    negatives, positives = max(sum(one.negatives), 1), max(sum(one.positives), 1)
    false = accumulate(reversed(one.negatives), initial=0)
    true = accumulate(reversed(one.positives), initial=0)
    return [(f / negatives, t / positives) for f, t in zip(false, true, strict=True)]


def area(curve: Sequence[Point]) -> float:
    """Area under the curve: scores in one bin count as equal."""
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(curve))


def calibration_points(one: GroupScores) -> list[Point]:
    """The middle of each bin with enough people, and the share of them with the positive label."""
    size = len(one.negatives)
    counts = zip(one.negatives, one.positives, strict=True)
    return [
        ((i + 0.5) / size, p / (n + p)) for i, (n, p) in enumerate(counts) if n + p >= LEAST_IN_BIN
    ]


def _n_rows(one: GroupScores) -> int:
    return sum(one.negatives) + sum(one.positives)


def _said(shares: Mapping[str, Sequence[Point]]) -> list[str]:
    return [f"{plain(group)}: {len(points)} bins drawn" for group, points in shares.items()]


def _plot(
    ident: str,
    title: str,
    about: Sequence[str],
    curves: Mapping[str, Sequence[Point]],
    axes: tuple[str, str],
) -> Markup:
    """Lines from (0, 0) to (1, 1) with a name each, and the diagonal."""
    diagonal = stretched_line([(_X.at(t), _Y.at(t)) for t in (0.0, 1.0)], HEIGHT, "zero")
    parts = [*_grid(axes), diagonal]
    for place, (group, points) in enumerate(curves.items()):
        drawn = [(_X.at(x), _Y.at(y)) for x, y in points]
        if len(drawn) > 1:
            parts.append(stretched_line(drawn, HEIGHT, f"line dash-{place}"))
        y = _BOTTOM - 10 - 16 * (len(curves) - 1 - place)
        parts.append(line(62, y - 4, 70, y - 4, f"line dash-{place}"))
        parts.append(text(71, y, shortened(group)))
    return picture(ident, title, f"{'; '.join(about)}.", HEIGHT, *parts)


def _grid(axes: tuple[str, str]) -> Iterator[Markup]:
    for tick in _Y.ticks(5):
        yield line(_LEFT, _Y.at(tick), _RIGHT, _Y.at(tick), "grid")
        yield text(_LEFT - 0.8, _Y.at(tick) + 4, label(tick), anchor="end")
        yield text(_X.at(tick), _BOTTOM + 22, label(tick), anchor="middle")
    yield text(0, 14, f"↑ {axes[1]}")
    yield text(100, HEIGHT - 4, f"{axes[0]} →", anchor="end")
