"""What a result means for people: who is selected how often, and what can be done next."""

import math
from collections.abc import Iterator
from itertools import permutations

from fcfl.results import GroupCount, Result

from .claims import Claim, claims_of, first_claim
from .words import number, plain

AMONG = {
    "selection": "",
    "true_positive": " of those with a positive label",
    "false_positive": " of those with a negative label",
}


def people_sentences(result: Result) -> list[str]:
    """The claim that matters most in people's terms, and who is selected more often."""
    first = first_claim(result)
    return [] if first is None or extremes(first) is None else [people_sentence(first)]


def people_sentence(claim: Claim) -> str:
    """``At north, 90 of 100 White and 75 of 100 Black people are selected; …``."""
    found = extremes(claim)
    if found is None:
        return ""
    most, least = found
    where = "Over all rows" if claim.is_together else f"At {plain(claim.client)}"
    who = f"{per_hundred(most)} {plain(most.group)} people{_of_label(most)}"
    others = f"{per_hundred(least)} {plain(least.group)} people{_of_label(least)}"
    if _share(most) == _share(least):
        return f"{where}, {who} and {others} are selected: as often as each other.{_judged(claim)}"
    more = f"{plain(most.group)} people are selected more often"
    return f"{where}, {who} and {others} are selected: {more}.{_judged(claim)}"


def per_hundred(group: GroupCount) -> str:
    """How many are selected: as counted where they are few, else of each hundred."""
    if group.rows <= 100:
        return f"{group.selected:,} of {group.rows:,}"
    return f"{100 * group.selected / group.rows:.0f} of 100"


def extremes(claim: Claim) -> tuple[GroupCount, GroupCount] | None:
    """The two groups, the more often selected one first, that the claim's value is about.

    Groups that are too small to be compared may differ more.
    """
    pairs = [
        (most, least)
        for most, least in permutations((group for group in claim.groups if group.rows), 2)
        if most.rate == least.rate and _share(most) >= _share(least)
    ]
    if claim.value is None:
        return max(pairs, key=_gap, default=None)
    value, measure = claim.value, _quotient if claim.of.is_ratio else _gap
    return min(pairs, key=lambda pair: (abs(measure(pair) - value), -_gap(pair)), default=None)


def _share(group: GroupCount) -> float:
    return group.selected / group.rows


def _gap(pair: tuple[GroupCount, GroupCount]) -> float:
    return _share(pair[0]) - _share(pair[1])


def _quotient(pair: tuple[GroupCount, GroupCount]) -> float:
    return _share(pair[1]) / _share(pair[0]) if pair[0].selected else 1.0


def _of_label(group: GroupCount) -> str:
    return AMONG.get(group.rate, "")


def _judged(claim: Claim) -> str:
    """What that says about the budget."""
    if claim.budget is None or claim.verdict not in ("met", "exceeded", "undetermined"):
        return ""
    side = "at least" if claim.of.is_ratio else "at most"
    asked = f"a {claim.of.rule} of {side} {claim.budget:g}"
    if claim.is_near:
        return f" That is too near {asked} to tell."
    if claim.verdict == "undetermined":
        pair = extremes(claim)
        few = "they" if pair is None else _people(min(group.rows for group in pair))
        return f" {few[:1].upper()}{few[1:]} are too few to tell whether it is {asked}."
    shown = "is shown to be" if claim.verdict == "met" else "is shown not to be"
    return f" It {shown} {asked}."


def _people(count: int) -> str:
    return "1 person" if count == 1 else f"{count:,} people"


# --- what to do next ------------------------------------------------------------------------------


def next_steps(result: Result) -> list[str]:
    """What would decide what is open, or keep what is exceeded."""
    claims = [claim for claim in claims_of(result) if claim.budget is not None]
    steps = list(_about_undetermined([c for c in claims if c.verdict == "undetermined"]))
    exceeded = [c for c in claims if c.verdict == "exceeded"]
    if exceeded and result.method != "audit":
        steps.append(
            f"{_names(exceeded)}: exceeded on rows that training did not see. Train against "
            "tighter bounds with a larger --confidence, or agree on a larger budget with --budget."
        )
    elif exceeded:
        steps.append(f"{_names(exceeded)}: exceeded. Train with these budgets: fcfl train --help.")
    has_global = any(claim.is_together for claim in claims)
    if len(result.clients) > 1 and not has_global and any(c.verdict != "met" for c in claims):
        steps.append(
            "Single clients may be too small to judge or to hold: --scope global compares groups "
            "over all clients' rows together, --scope both does both."
        )
    return steps


def _about_undetermined(claims: list[Claim]) -> Iterator[str]:
    nearest = sorted(claims, key=lambda claim: rows_needed(claim) or 0.0)
    for claim in nearest[:3]:
        needed = rows_needed(claim)
        if needed is None or claim.smallest_group is None:
            worst = claim.low if claim.of.is_ratio else claim.high
            yield (
                f"{plain(claim.client)}: {number(claim.value, 3)} is too near its budget of "
                f"{claim.budget:g} to tell; one of {number(worst, 3)} would be shown to be met."
            )
            continue
        side = "up to" if claim.of.is_ratio else "from"
        yield (
            f"{plain(claim.client)}: about {_rounded(needed):,} people in the smallest group would "
            f"be needed to show a budget of {claim.budget:g} to be met (now "
            f"{claim.smallest_group:,}); with these rows a budget {side} "
            f"{number(claim.smallest_verifiable, 3)} could be."
        )
    if len(claims) > 3:
        yield f"{len(claims) - 3} more budgets have too few people; see the table of all verdicts."


def rows_needed(claim: Claim) -> float | None:
    r"""People in the smallest group from which on the budget could be verified.

    An interval narrows with the root of its rows: :math:`n (s / b)^2`, where :math:`s` is the
    smallest budget that :math:`n` rows could verify and :math:`b` the budget. For a ratio both are
    distances from one.
    """
    if claim.smallest_verifiable is None or claim.budget is None or claim.smallest_group is None:
        return None
    reach, budget = claim.smallest_verifiable, claim.budget
    if claim.of.is_ratio:
        reach, budget = 1.0 - reach, 1.0 - budget
    if budget <= 0 or reach <= budget:
        return None
    return claim.smallest_group * (reach / budget) ** 2


def _rounded(count: float) -> int:
    """Two digits: it is no more than an estimate."""
    power = 10 ** max(math.floor(math.log10(count)) - 1, 0)
    return int(math.ceil(count / power) * power)


def _names(claims: list[Claim]) -> str:
    names = list(dict.fromkeys(plain(claim.client) for claim in claims))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
