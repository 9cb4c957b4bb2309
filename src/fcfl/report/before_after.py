"""The same clients without budgets (plain FedAvg) and with them."""

from dataclasses import dataclass

from markupsafe import Markup

from fcfl.results import Result

from .claims import Claim, claims_of
from .figures import STRIP_HEIGHT, box, claim_axis, claim_scale
from .svg import Scale, line, mark, picture
from .words import number, plain

MOST_SHOWN = 20


@dataclass(frozen=True)
class ChangeLine:
    """One client by one rule, before and after."""

    client: str
    rule: str
    before: float | None
    after: float | None
    accuracy_before: float | None
    accuracy_after: float | None
    strip: Markup


@dataclass(frozen=True)
class ChangeView:
    """What the budgets changed, and how many lines are left to result.json."""

    axis: Markup
    lines: tuple[ChangeLine, ...]
    left: int


def change_view(result: Result, plain_run: Result | None) -> ChangeView | None:
    """Each difference beside that of plain FedAvg on the same rows."""
    if plain_run is None:
        return None
    before = {(c.client, c.of): c for c in claims_of(plain_run)}
    pairs = [
        (before[(c.client, c.of)], c)
        for c in claims_of(result)
        if (c.client, c.of) in before and not c.of.is_ratio and c.value is not None
    ]
    if not pairs:
        return None
    scale = claim_scale([claim for pair in pairs for claim in pair])
    lines = tuple(
        _line(old, new, result, plain_run, scale, f"change-{i}")
        for i, (old, new) in enumerate(pairs[:MOST_SHOWN])
    )
    return ChangeView(claim_axis(scale), lines, max(len(pairs) - MOST_SHOWN, 0))


def _line(
    old: Claim, new: Claim, result: Result, plain_run: Result, scale: Scale, ident: str
) -> ChangeLine:
    parts = [line(scale.at(t), 0, scale.at(t), STRIP_HEIGHT, "grid") for t in scale.ticks(5)]
    middle = STRIP_HEIGHT / 2
    if old.value is not None and new.value is not None:
        ends = sorted((scale.at(old.value), scale.at(new.value)))
        parts.append(box(ends[0], ends[1], middle - 1, 2, "bar v-unconstrained"))
        parts.append(mark("unconstrained", scale.at(old.value), middle))
        parts.append(mark(new.verdict, scale.at(new.value), middle))
    if new.budget is not None:
        place = scale.at(new.budget)
        parts.append(line(place, 1, place, STRIP_HEIGHT - 1, "budget"))
    words = f"plain FedAvg {number(old.value, 3)}, this run {number(new.value, 3)}"
    title = f"{plain(new.client)}: {words}"
    return ChangeLine(
        new.client,
        str(new.of),
        old.value,
        new.value,
        _accuracy(plain_run, new),
        _accuracy(result, new),
        picture(ident, title, str(new.of), STRIP_HEIGHT, *parts),
    )


def _accuracy(result: Result, claim: Claim) -> float | None:
    who = result.overall if claim.is_together else result.clients[claim.client]
    return who.part(result.judged_part).accuracy
