"""What a result means for people: who is selected how often, and what can be done next."""

import math
from collections.abc import Iterator, Sequence
from itertools import permutations

from fcfl.results import Result
from fcfl.results.findings import findings_of, warnings_of
from fcfl.results.result import GroupCount

from .claims import Claim, claims_of, first_claim
from .words import capitalised, number, plain

MOST_STEPS = 3  # open claims with a step of their own

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
    shares = told_shares(most, least)
    who = f"{shares[0]} {plain(most.group)} people{_of_label(most)}"
    others = f"{shares[1]} {plain(least.group)} people{_of_label(least)}"
    if _share(most) == _share(least):
        return f"{where}, {who} and {others} are selected: as often as each other.{_judged(claim)}"
    more = f"{plain(most.group)} people are selected more often"
    return f"{where}, {who} and {others} are selected: {more}.{_judged(claim)}"


def told_shares(first: GroupCount, second: GroupCount) -> tuple[str, str]:
    """Return how many of each group are selected, precisely enough to tell the shares apart.

    Groups of up to 100 are counted. Of larger ones this is the number of 100; where it would be 0,
    100 or the same for different shares, a decimal is added, and after two the groups are counted.
    """
    for digits in range(3):
        told = per_hundred(first, digits), per_hundred(second, digits)
        if None not in told and (told[0] != told[1] or _share(first) == _share(second)):
            return str(told[0]), str(told[1])
    return _counted(first), _counted(second)


def per_hundred(group: GroupCount, digits: int = 0) -> str | None:
    """Return how many are selected: as counted in a small group, else of each hundred.

    None if rounding would turn some people into nobody, or not all of them into everybody.
    """
    if group.rows <= 100:
        return _counted(group)
    told = f"{100 * group.selected / group.rows:.{digits}f}"
    is_lost = 0 < group.selected < group.rows and float(told) in (0.0, 100.0)
    return None if is_lost else f"{told} of 100"


def _counted(group: GroupCount) -> str:
    return f"{group.selected:,} of {group.rows:,}"


def extremes(claim: Claim) -> tuple[GroupCount, GroupCount] | None:
    """Return the two compared groups that the claim's value is about, the most selected one first.

    With several rates, such as those of equalized odds, the value is that of one of them.
    """
    pairs = [
        (most, least)
        for most, least in permutations(claim.groups, 2)
        if most.rate == least.rate and _share(most) >= _share(least)
    ]
    if claim.of.is_ratio:
        return min(pairs, key=lambda pair: (_quotient(pair), -_gap(pair)), default=None)
    return max(pairs, key=_gap, default=None)


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
    asked = f"{side} {claim.budget:g}"
    if claim.is_near:
        return f" That is too near {claim.budget:g} to tell whether the {claim.of.rule} is {asked}."
    if claim.verdict == "undetermined":
        return f" {_too_few(claim)} too few to tell whether the {claim.of.rule} is {asked}."
    shown = "is shown to be" if claim.verdict == "met" else "is shown not to be"
    return f" The {claim.of.rule} {shown} {asked}."


def _too_few(claim: Claim) -> str:
    """Name the group that leaves a claim open: the smallest one that is compared."""
    pair, smallest = extremes(claim), claim.smallest
    if pair is None or smallest is None:
        return "They are"
    people = "1 person is" if smallest.rows == 1 else f"{smallest.rows:,} people are"
    if smallest in pair:
        return people
    return f"In the group {plain(smallest.group)}{_of_label(smallest)}, {people}"


# --- what to do next ------------------------------------------------------------------------------


def next_steps(result: Result) -> list[str]:
    """Return what to do about exit code 3, what would decide what is open, and what is exceeded."""
    claims = [claim for claim in claims_of(result) if claim.budget is not None]
    wrong = (*findings_of(result), *warnings_of(result))
    steps = [capitalised(plain(one.sentence)) for one in wrong]
    steps += _about_undetermined([c for c in claims if c.verdict == "undetermined"])
    exceeded = [c for c in claims if c.verdict == "exceeded"]
    if exceeded and result.method == "audit":
        steps.append(f"{_names(exceeded)}: exceeded. Train with these budgets: fcfl train --help.")
    elif exceeded and result.judged_part == "test":
        steps.append(
            f"{_names(exceeded)}: exceeded on rows that training did not see. Train against "
            "tighter bounds with a larger --confidence, or agree on a larger budget with --budget."
        )
    has_global = any(claim.is_together for claim in claims)
    if len(result.clients) > 1 and not has_global and any(c.verdict != "met" for c in claims):
        steps.append(
            "Single clients may be too small to judge or to hold: --scope global compares groups "
            "over all clients' rows together, --scope both does both."
        )
    return steps


def _about_undetermined(claims: Sequence[Claim]) -> Iterator[str]:
    """Say what would decide a few claims: those that need the fewest people come first."""
    for claim in sorted(claims, key=_people_needed)[:MOST_STEPS]:
        yield f"{plain(claim.client)}: {_what_would_decide(claim)}"
    if len(claims) > MOST_STEPS:
        left = len(claims) - MOST_STEPS
        yield f"{left} more {'is' if left == 1 else 'are'} open; see the table of all verdicts."


def _people_needed(claim: Claim) -> float:
    """Return what claims are sorted by: those that no number of people decides come last."""
    needed = rows_needed(claim)
    return needed if needed is not None else 0.0 if claim.is_near else math.inf


def _what_would_decide(claim: Claim) -> str:
    needed, smallest = rows_needed(claim), claim.smallest
    worst = claim.low if claim.of.is_ratio else claim.high
    side = "up to" if claim.of.is_ratio else "from"
    if needed is not None and smallest is not None:
        return (
            f"about {_rounded(needed):,} people in the smallest group would be needed to show a "
            f"budget of {claim.budget:g} to be met (now {smallest.rows:,}), if all groups grow "
            f"alike; with these rows a budget {side} {number(claim.smallest_verifiable, 3)} could "
            "be."
        )
    if claim.lone_rates:
        among = " and ".join(AMONG[rate].strip() for rate in claim.lone_rates)
        return f"no two groups have enough people {among}; until then no budget can be verified."
    if claim.is_near:
        return (
            f"{number(claim.value, 3)} is too near its budget of {claim.budget:g} to tell; one of "
            f"{number(worst, 3)} would be shown to be met."
        )
    return (
        f"no number of people shows a budget of {claim.budget:g} to be met; with these rows one of "
        f"{number(worst, 3)} would be."
    )


def rows_needed(claim: Claim) -> float | None:
    r"""Return the people in the smallest compared group from which the budget could be verified.

    An interval narrows with the root of its rows, if all groups grow alike: :math:`n (s / b)^2`,
    where :math:`s` is the smallest budget that :math:`n` rows could verify and :math:`b` the
    budget. For a ratio both are distances from one. None if the rows suffice, or if no number does.
    """
    if claim.smallest_verifiable is None or claim.budget is None or claim.smallest_group is None:
        return None
    reach, budget = claim.smallest_verifiable, claim.budget
    if claim.of.is_ratio:
        reach, budget = 1.0 - reach, 1.0 - budget
    if budget <= 0 or reach <= budget or claim.lone_rates:
        return None
    return claim.smallest_group * (reach / budget) ** 2


def _rounded(count: float) -> int:
    """Two digits: it is no more than an estimate."""
    power = 10 ** max(math.floor(math.log10(count)) - 1, 0)
    return int(math.ceil(count / power) * power)


def _names(claims: list[Claim]) -> str:
    names = list(dict.fromkeys(plain(claim.client) for claim in claims))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
