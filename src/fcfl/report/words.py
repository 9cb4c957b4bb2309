"""The claims of a result, and sentences about them, for page, terminal and cards.

A claim is one line for each client and rule on the judged rows, worst first. A budget is met,
exceeded or undetermined; no stronger word is used.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeAlias

from fcfl.results import ClientResult, Disparity, Forecast, GroupCount, Part, Result
from fcfl.results.findings import exceeded_budgets, findings_of, times_as_many, warnings_of
from fcfl.results.many_runs import ENOUGH
from fcfl.results.result import PartName

VERDICTS = ("exceeded", "undetermined", "met", "not compared", "unconstrained", "not judged")
MAX_LISTED = 12  # clients whose own rows exceed a budget
MAX_NAMED = 3  # clients of the same privacy loss, or with the same next step
MAX_STEPS = 3  # open claims with a step of their own
Ends: TypeAlias = tuple[float | None, float | None]
AMONG = {
    "selection": "",
    "true_positive": " of those with a positive label",
    "false_positive": " of those with a negative label",
}
_PHASES = {
    "meet": "to meet",
    "reference": "to train without budgets",
    "disclose": "for reference rows",
    "choose": "to choose settings",
    "starts": "to compare starts",
    "fit": "to train",
    "check": "to check decisions",
    "tighten": "to tighten bounds",
    "project": "to correct decisions",
    "threshold": "to choose thresholds",
    "vote": "to vote",
}


# --- claims ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """One disparity on one client's rows.

    ``trained`` is the same disparity on training rows. ``is_together`` marks all clients' rows
    together, and ``client`` is then their name; ``run`` names the run where several are compared.
    """

    client: str
    entry: Disparity
    trained: Disparity | None
    rows: int
    is_together: bool = False
    run: str = ""

    @property
    def verdict(self) -> str:
        """The verdict to show.

        Rows of one group alone are no evidence for or against anything: they are not compared. A
        budget that is called unconstrained was not compared with rows: it is not judged.
        """
        if self.entry.value is None and self.entry.verdict == "undetermined":
            return "not compared"
        is_judged = self.entry.verdict != "unconstrained" or self.entry.budget is None
        return self.entry.verdict if is_judged else "not judged"

    @property
    def price(self) -> float | None:
        """The price of the budget, None where it is not known."""
        return None if self.trained is None else self.trained.price

    @property
    def expected(self) -> Forecast | None:
        """The forecast for new rows, where there is one."""
        return self.entry.expected or (self.trained.expected if self.trained else None)

    @property
    def groups(self) -> tuple[GroupCount, ...]:
        """The groups that are compared."""
        return tuple(group for group in self.entry.groups if group.is_compared and group.rows)

    @property
    def left_out(self) -> tuple[GroupCount, ...]:
        """Groups with too few rows, which only a table of groups may show."""
        return tuple(group for group in self.entry.groups if not group.is_compared)

    @property
    def smallest(self) -> GroupCount | None:
        """The group with the fewest rows of those that are compared."""
        return min(self.groups, key=lambda group: group.rows, default=None)

    @property
    def lone_rates(self) -> tuple[str, ...]:
        """Rates of the rule without two groups to compare, although others have them.

        Such a rate could differ by anything, so no number of rows of the others shows the budget to
        be met.
        """
        compared = {group.rate for group in self.groups}
        every = dict.fromkeys(group.rate for group in (*self.groups, *self.left_out))
        return tuple(rate for rate in every if compared and rate not in compared)

    @property
    def is_near(self) -> bool:
        """Whether the rows could verify the budget, but the value is too near it."""
        reach, budget = self.entry.smallest_verifiable, self.entry.budget
        if self.verdict != "undetermined" or reach is None or budget is None:
            return False
        return reach >= budget if self.entry.is_ratio else reach <= budget

    @property
    def excess(self) -> float:
        """Distance that the interval reaches past the budget; the unmeasured come first."""
        entry = self.entry
        if entry.value is None:
            return 2.0
        worst = entry.low if entry.is_ratio else entry.high
        reached = entry.value if worst is None else worst
        limit = entry.budget if entry.budget is not None else (1.0 if entry.is_ratio else 0.0)
        return limit - reached if entry.is_ratio else reached - limit


def claims_of(result: Result, run: str = "") -> list[Claim]:
    """Return all claims on the judged rows, clients first and all rows together last."""
    part = result.judged_part
    return [
        Claim(
            name,
            entry,
            next((one for one in client.train.disparities if one.title == entry.title), None),
            client.rows.of(part),
            is_together=client is result.overall,
            run=run,
        )
        for name, client in result.everybody.items()
        for entry in client.part(part).disparities
    ]


def worst_first(claims: Iterable[Claim]) -> list[Claim]:
    """Sort claims: exceeded, undetermined, met, the others; each by how far they reach."""
    return sorted(claims, key=lambda claim: (VERDICTS.index(claim.verdict), -claim.excess))


def by_rule(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Return the claims of each rule by its title, worst first."""
    grouped: dict[str, list[Claim]] = {}
    for claim in worst_first(claims):
        grouped.setdefault(claim.entry.title, []).append(claim)
    return grouped


def side_by_side(results: Mapping[str, Result]) -> dict[str, list[Claim]]:
    """Return the claims of several runs by rule, those of one client together, the worst first."""
    grouped = by_rule(c for name, result in results.items() for c in claims_of(result, name))
    for title, found in grouped.items():
        clients = list(dict.fromkeys(claim.client for claim in found))
        grouped[title] = sorted(found, key=lambda claim: (clients.index(claim.client), claim.run))
    return grouped


def paired(before: Result, after: Result) -> list[tuple[Claim, Claim]]:
    """Return each measured difference with that of another run on the same rows."""
    known = {(claim.client, claim.entry.title): claim for claim in claims_of(before)}
    return [
        (known[claim.client, claim.entry.title], claim)
        for claim in claims_of(after)
        if (claim.client, claim.entry.title) in known
        and not claim.entry.is_ratio
        and claim.entry.value is not None
    ]


def first_claim(result: Result) -> Claim | None:
    """Return the claim that matters most.

    Of several undetermined ones that is not the one with the fewest people: those with enough come
    first.
    """
    claims = claims_of(result)
    judged = worst_first([claim for claim in claims if claim.entry.budget is not None] or claims)

    def order(claim: Claim) -> tuple[int, bool]:
        smallest = 0 if claim.smallest is None else claim.smallest.rows
        return VERDICTS.index(claim.verdict), smallest < ENOUGH

    return min(judged, key=order, default=None)


def worst_served_first(result: Result) -> list[tuple[str, ClientResult]]:
    """Return all clients by training loss, then accuracy, and all rows together last."""
    part, everybody = result.judged_part, list(result.everybody.items())

    def order(item: tuple[str, ClientResult]) -> tuple[float, float]:
        loss, accuracy = item[1].train.loss, item[1].part(part).accuracy
        return -(loss or 0.0), 1.0 if accuracy is None else accuracy

    n_clients = len(result.clients)
    return [*sorted(everybody[:n_clients], key=order), *everybody[n_clients:]]


def claims_with_price(result: Result) -> list[Claim]:
    """Return budgets that cost the worst client something, the most expensive first."""
    found = [claim for claim in claims_of(result) if (claim.price or 0.0) > 0.0]
    return sorted(found, key=lambda claim: -(claim.price or 0.0))


def groups_of(part: Part) -> list[tuple[str, GroupCount]]:
    """Return each group with its attribute once, though several rules have it.

    A group counts as compared if one of the rules compares it.
    """
    found: dict[tuple[str, str, str], GroupCount] = {}
    for entry in part.disparities:
        for group in entry.groups:
            key = entry.attribute, group.rate, group.group
            if key not in found or group.is_compared:
                found[key] = group
    return [(attribute, group) for (attribute, *_), group in found.items()]


def count_verdicts(claims: Iterable[Claim]) -> dict[str, int]:
    """Return how many claims have each verdict."""
    counts = dict.fromkeys(VERDICTS, 0)
    for claim in claims:
        counts[claim.verdict] += 1
    return counts


def rows_called(result: Result) -> str:
    """Return what the judged rows are, in words."""
    return "audited rows" if result.method == "audit" else part_called(result.judged_part)


def part_called(part: PartName) -> str:
    """Return what the rows of a part are, in words."""
    return "held-out rows" if part == "test" else "training rows"


# --- numbers and names ----------------------------------------------------------------------------


def number(value: float | None, digits: int = 4) -> str:
    """Return a number for a table, a dash for None; only 0 itself is shown as 0."""
    if value is None or not math.isfinite(value):
        return "–"
    shown = f"{value:.{digits}f}"
    return f"<{10**-digits:.{digits}f}" if value > 0 and not float(shown) else shown


def share(count: int | None, rows: int) -> str:
    """Return a share with three decimals; only nobody is 0 and only everybody is 1."""
    if count is None or not rows:
        return "–"
    shown = f"{count / rows:.3f}"
    if shown == "0.000" and count:
        return "<.001"
    return ">.999" if shown == "1.000" and count < rows else shown


def interval(bounds: Ends | None, digits: int = 3) -> str:
    """Return both ends, a dash where there is no interval."""
    if bounds is None or bounds[0] is None or bounds[1] is None:
        return "–"
    return f"{bounds[0]:.{digits}f} to {bounds[1]:.{digits}f}"


def short_interval(bounds: Ends | None) -> str:
    """Return both ends without the zero before the point, for a narrow column."""
    if bounds is None or bounds[0] is None or bounds[1] is None:
        return "–"
    return "–".join(f"{end:.3f}".replace("0.", ".", 1) for end in bounds if end is not None)


def plain(name: str) -> str:
    """Return a name without characters that would control a terminal or a line of text."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in name)


def listed(names: Sequence[str], most: int = MAX_LISTED) -> str:
    """Return the first names of several, and how many more there are."""
    left = len(names) - most
    shown = plain(", ".join(names[:most]))
    return f"{shown} and {left} more" if left > 0 else shown


def capitalised(sentence: str) -> str:
    """Return a sentence that begins with a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def _has(count: int) -> str:
    return f"{count} has" if count == 1 else f"{count} have"


def rate_words(group: GroupCount) -> str:
    """Return the share of a group that is selected, with its interval."""
    return f"{share(group.selected, group.rows)} ({interval(group.interval)})"


# --- the headline ---------------------------------------------------------------------------------


def title_of(result: Result) -> str:
    """Return the headline: reasons for exit code 3, a high price, or the verdicts on budgets."""
    found = findings_of(result)
    if found:
        reasons = "; ".join(plain(finding.headline) for finding in found)
        return f"{capitalised(reasons)} (exit code 3)."
    warned = [capitalised(plain(f"{one.headline}. ")) for one in warnings_of(result)]
    return "".join(warned) + verdict_sentence(result)


def verdict_sentence(result: Result) -> str:
    """Return how many budgets are shown to be met, exceeded or left open by the judged rows."""
    claims = [claim for claim in claims_of(result) if claim.entry.budget is not None]
    if not claims:
        return "No budget was set: disparities are measured, not judged."
    counts, given = count_verdicts(claims), _counted(len(claims), "budget")
    if counts["not judged"]:
        return f"{given} set, not judged on {rows_called(result)}."
    known = [f"{counts['met']} of {given} shown to be met on {rows_called(result)}"]
    if counts["exceeded"]:
        known.append(f"{counts['exceeded']} exceeded")
    near = sum(claim.is_near for claim in claims)
    if near:
        known.append(f"{near} {'is' if near == 1 else 'are'} too near the budget to tell")
    if counts["undetermined"] > near:
        known.append(f"{_has(counts['undetermined'] - near)} too few people to tell")
    if counts["not compared"]:
        known.append(f"{_has(counts['not compared'])} no two groups to compare")
    return ", ".join(known) + "."


def finding_sentences(result: Result) -> list[str]:
    """Return one sentence for each reason for exit code 3 and each warning, with all details."""
    return [capitalised(plain(one.stated)) for one in (*findings_of(result), *warnings_of(result))]


def standing(result: Result) -> str:
    """Return reasons for exit code 3, warnings and the verdicts on budgets, for a card."""
    return " ".join([*finding_sentences(result), verdict_sentence(result)])


def detail_sentences(result: Result) -> list[str]:
    """Return the sentences under the headline of a page."""
    first, verdicts = first_claim(result), verdict_sentence(result)
    found = [
        "" if verdicts in title_of(result) else verdicts,
        "" if first is None else people_sentence(first),
        "" if first is None else claim_sentence(first),
        served_sentence(result),
        threshold_sentence(result),
    ]
    return [sentence for sentence in found if sentence]


def claim_sentence(claim: Claim) -> str:
    """Return ``phd: budget 0.05 undetermined on 181 rows (smallest group 24): …``."""
    who, entry, smallest = plain(claim.client), claim.entry, claim.smallest
    what = plain(entry.in_words)
    if entry.value is None:
        return f"{who}: {what} cannot be measured, fewer than two groups have enough rows."
    on = f"on {_counted(claim.rows, 'row')}"
    if smallest is not None:
        on += f" (smallest group {smallest.rows:,})"
    found = f"{what} is {number(entry.value, 3)}"
    if entry.low is not None:
        found += f", interval {interval(entry.interval)}"
    if entry.budget is None:
        return f"{who}: {found} {on}; no budget."
    sentence = f"{who}: budget {entry.budget:g} {claim.verdict} {on}: {found}."
    if claim.verdict == "undetermined" and entry.smallest_verifiable is not None:
        side = "above" if entry.is_ratio else "below"
        reach = f"{entry.smallest_verifiable:.3f}"
        sentence += f" These rows cannot verify a budget {side} {reach}."
    return sentence


def served_sentence(result: Result) -> str:
    """Return the client served worst, or why it is not known."""
    worst = result.worst_client
    if worst.name is None:
        why = "without labels"
        if result.privacy is not None:
            why = "because clients that add noise report no losses"
        return f"The client served worst is not known {why}."
    facts = [plain(worst.name)]
    if worst.train_loss is not None:
        facts.append(f"training loss {number(worst.train_loss)}")
    if worst.test_accuracy is not None:
        rows = "accuracy" if result.method == "audit" else "test accuracy"
        facts.append(f"{rows} {number(worst.test_accuracy)}")
    return f"Worst served: {', '.join(facts)}."


def threshold_sentence(result: Result) -> str:
    """Return the score from which rows are selected; empty for an audit."""
    if result.threshold is None:
        return ""
    if result.thresholds is not None:
        return f"People are selected by client and group, near a score of {result.threshold:g}."
    return f"People are selected from a score of {result.threshold:g} on."


# --- training rows, price, margins, cost ----------------------------------------------------------


def trained_sentence(result: Result) -> str:
    """Return how many budgets are met on the training rows; empty for an audit."""
    if result.method == "audit":
        return ""
    given = [entry for _, entry in result.training_disparities() if entry.budget is not None]
    if not given:
        return "No budget was set."
    n_exceeded = sum(one.entry is not None for one in exceeded_budgets(result))
    pooling = result.pooling
    n_unknown = 0 if pooling else sum(entry.trained is None for entry in given)
    met = len(given) - n_unknown - n_exceeded
    sentence = f"{met} of {_counted(len(given), 'budget')} met on the training rows"
    if n_unknown:
        return f"{sentence}, {_has(n_unknown)} no two groups to compare."
    if pooling is None:
        return f"{sentence}."
    n, n_own, over = len(pooling.weights), len(pooling.own_rows_decide), pooling.exceed_on_own_rows
    exceed = f"exceed{'s' if len(over) == 1 else ''} a budget on their own training rows"
    sentence += f": {n_own} of {n} clients are judged by their own rows, the others by estimates"
    return f"{sentence} over all clients{f'; {listed(over)} {exceed}' if over else ''}."


def steps_sentence(result: Result) -> str:
    """Return accuracy and share selected on training rows in three steps, in one sentence."""
    price = result.price
    if price is None:
        return ""
    steps = [price.without_budgets, price.with_budgets]
    if result.margins is not None:
        steps.append(price.with_margins)
    accuracy = " → ".join(f"{one.accuracy:.3f}" for one in steps)
    selected = " → ".join(f"{one.selected:.3f}" for one in steps)
    last = " → with margins" if result.margins is not None else ""
    return f"Training rows, without budgets → with{last}: accuracy {accuracy}, selected {selected}."


def rows_needed(result: Result, client: str) -> str:
    """Return how many times its rows a client needs for the confidence, empty if they suffice."""
    short = {} if result.margins is None else result.margins.rows_short
    if client not in short:
        return ""
    times = short[client]
    return "no number suffices" if times is None else f"{times_as_many(times)} times"


def kept_by(result: Result, client: str) -> str:
    """Return whether a client's own rows or an estimate keep its budgets, empty if unknown."""
    pooling = result.pooling
    if pooling is None or client not in pooling.weights:
        return ""
    is_own = client in pooling.own_rows_decide
    found = "own rows" if is_own else f"estimate, own rows weigh {pooling.weights[client]:.2f}"
    return f"{found}; differs from the others" if client in pooling.odd else found


def minimised(result: Result) -> str:
    """Return what training minimises, which prices are measured in."""
    if result.objective in (None, "max"):
        return "the worst client's training loss"
    what = "mean" if result.objective == "mean" else "soft maximum"
    return f"the {what} of the clients' training losses"


def prices_sentence(result: Result, most: int) -> str:
    """Return the price of one hundredth of the most expensive budgets, in one sentence."""
    claims = claims_with_price(result)[:most]
    if not claims:
        return ""
    is_one = len({claim.entry.title for claim in claims}) == 1
    each = [
        f"{plain(claim.client)} {0.01 * (claim.price or 0.0):.2g}"
        + ("" if is_one else f" ({plain(claim.entry.in_words)})")
        for claim in claims
    ]
    return (
        f"Relaxing one budget by 0.01 would lower {minimised(result)} by about: {', '.join(each)}."
    )


def exchanges_called(result: Result) -> str:
    """Return ``38 (2 to meet, 12 to train, …)``, empty without exchanges."""
    cost = result.exchanges
    parts = ", ".join(f"{n:,} {_PHASES.get(name, name)}" for name, n in cost.by_phase.items())
    return f"{cost.total:,} ({parts})" if cost.total else ""


def privacy_sentences(result: Result) -> Iterator[str]:
    """Yield the privacy loss of each client, its definition, and what it does not cover."""
    if result.privacy is None:
        return
    losses: dict[tuple[float, float], list[str]] = {}
    for name, loss in result.privacy.clients.items():
        losses.setdefault((loss.epsilon, loss.delta), []).append(name)
    for (epsilon, delta), names in losses.items():
        yield (
            f"Privacy: epsilon {epsilon:g} at delta {delta:g} for each of "
            f"{listed(names, MAX_NAMED)}. Neighbouring tables differ by one row that is added or "
            f"removed ({result.privacy.neighbours}). All counts and rates here have noise, and "
            "intervals are wider accordingly."
        )
    yield f"Privacy does not cover {'; '.join(result.privacy.not_covered)}."


# --- people ---------------------------------------------------------------------------------------


def people_sentence(claim: Claim) -> str:
    """Return ``At north, 90 of 100 White and 75 of 100 Black people are selected; …``.

    Empty where no two groups are compared.
    """
    found = extremes(claim)
    if found is None:
        return ""
    most, least = found
    where = "Over all rows" if claim.is_together else f"At {plain(claim.client)}"
    shares = distinct_shares(most, least)
    who = f"{shares[0]} {plain(most.group)} people{AMONG.get(most.rate, '')}"
    others = f"{shares[1]} {plain(least.group)} people{AMONG.get(least.rate, '')}"
    more = f"{plain(most.group)} people are selected more often"
    if _rate(most) == _rate(least):
        more = "equally often"
    return f"{where}, {who} and {others} are selected: {more}.{_about_budget(claim, found)}"


def extremes(claim: Claim) -> tuple[GroupCount, GroupCount] | None:
    """Return the two compared groups that the claim's value is about, the most selected one first.

    With several rates, such as those of equalized odds, the value is that of one of them.
    """

    def gap(pair: tuple[GroupCount, GroupCount]) -> float:
        return _rate(pair[0]) - _rate(pair[1])

    def quotient(pair: tuple[GroupCount, GroupCount]) -> float:
        return _rate(pair[1]) / _rate(pair[0]) if pair[0].selected else 1.0

    pairs = [
        (most, least)
        for most, least in permutations(claim.groups, 2)
        if most.rate == least.rate and _rate(most) >= _rate(least)
    ]
    if claim.entry.is_ratio:
        return min(pairs, key=lambda pair: (quotient(pair), -gap(pair)), default=None)
    return max(pairs, key=gap, default=None)


def _rate(group: GroupCount) -> float:
    return group.selected / group.rows


def distinct_shares(first: GroupCount, second: GroupCount) -> tuple[str, str]:
    """Return how many of each group are selected, precisely enough to distinguish the shares.

    Groups of up to 100 are counted. Of larger ones this is the number of 100; where it would be 0,
    100 or the same for different shares, a decimal is added, and after two the groups are counted.
    """
    for digits in range(3):
        shares = _per_hundred(first, digits), _per_hundred(second, digits)
        if shares[0] and shares[1] and (shares[0] != shares[1] or _rate(first) == _rate(second)):
            return shares
    return f"{first.selected:,} of {first.rows:,}", f"{second.selected:,} of {second.rows:,}"


def _per_hundred(group: GroupCount, digits: int) -> str:
    """Return the number selected of a small group, or of each hundred.

    Empty if rounding would turn some people into nobody, or not all of them into everybody.
    """
    if group.rows <= 100:
        return f"{group.selected:,} of {group.rows:,}"
    shown = f"{100 * _rate(group):.{digits}f}"
    is_lost = 0 < group.selected < group.rows and float(shown) in (0.0, 100.0)
    return "" if is_lost else f"{shown} of 100"


def _about_budget(claim: Claim, pair: tuple[GroupCount, GroupCount]) -> str:
    """Return what the shares show about the budget."""
    entry, smallest = claim.entry, claim.smallest
    if entry.budget is None or claim.verdict not in ("met", "exceeded", "undetermined"):
        return ""
    claimed = f"{'at least' if entry.is_ratio else 'at most'} {entry.budget:g}"
    if claim.is_near:
        return f" That is too near {entry.budget:g} to tell whether the {entry.rule} is {claimed}."
    if claim.verdict == "undetermined":
        people = "They are"
        if smallest is not None:
            people = "1 person is" if smallest.rows == 1 else f"{smallest.rows:,} people are"
            if smallest not in pair:
                group = f"{plain(smallest.group)}{AMONG.get(smallest.rate, '')}"
                people = f"In the group {group}, {people}"
        return f" {people} too few to tell whether the {entry.rule} is {claimed}."
    shown = claimed
    if claim.verdict == "exceeded":
        shown = f"{'below' if entry.is_ratio else 'above'} {entry.budget:g}"
    return f" The {entry.rule} is shown to be {shown}."


# --- next steps -----------------------------------------------------------------------------------


def next_steps(result: Result) -> list[str]:
    """Return advice on exit code 3, on open budgets, and on exceeded ones."""
    claims = [claim for claim in claims_of(result) if claim.entry.budget is not None]
    wrong = (*findings_of(result), *warnings_of(result))
    steps = [capitalised(plain(one.sentence)) for one in wrong]
    steps += _about_undetermined([c for c in claims if c.verdict == "undetermined"])
    exceeded = list(dict.fromkeys(c.client for c in claims if c.verdict == "exceeded"))
    if exceeded and result.method == "audit":
        names = listed(exceeded, MAX_NAMED)
        steps.append(f"{names}: exceeded. Train with these budgets: fcfl train --help.")
    elif exceeded and result.judged_part == "test":
        steps.append(
            f"{listed(exceeded, MAX_NAMED)}: exceeded on rows that training did not use. Train "
            "with larger margins (--confidence), or agree on a larger budget with --budget."
        )
    has_global = any(claim.is_together for claim in claims)
    if len(result.clients) > 1 and not has_global and any(c.verdict != "met" for c in claims):
        steps.append(
            "Single clients may be too small to judge or to constrain: --scope global compares "
            "groups over all clients' rows together, --scope both does both."
        )
    return steps


def _about_undetermined(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield what would decide a few claims: those that need the fewest people come first."""

    def order(claim: Claim) -> float:
        needed = people_needed(claim)
        return needed if needed is not None else 0.0 if claim.is_near else math.inf

    for claim in sorted(claims, key=order)[:MAX_STEPS]:
        yield f"{plain(claim.client)}: {_what_would_decide(claim)}"
    if len(claims) > MAX_STEPS:
        left = len(claims) - MAX_STEPS
        yield f"{left} more {'is' if left == 1 else 'are'} open; see the table of all verdicts."


def _what_would_decide(claim: Claim) -> str:
    needed, smallest, entry = people_needed(claim), claim.smallest, claim.entry
    worst = number(entry.low if entry.is_ratio else entry.high, 3)
    if needed is not None and smallest is not None:
        power = 10 ** max(math.floor(math.log10(needed)) - 1, 0)  # two digits: it is an estimate
        side = "up to" if entry.is_ratio else "from"
        return (
            f"about {math.ceil(needed / power) * power:,} people in the smallest group would be "
            f"needed to show a budget of {entry.budget:g} to be met (now {smallest.rows:,}), if "
            f"all groups grow alike; with these rows a budget {side} "
            f"{number(entry.smallest_verifiable, 3)} could be."
        )
    if claim.lone_rates:
        among = " and ".join(AMONG[rate].strip() for rate in claim.lone_rates)
        return f"no two groups have enough people {among}; until then no budget can be verified."
    if claim.is_near:
        return (
            f"{number(entry.value, 3)} is too near its budget of {entry.budget:g} to tell; one of "
            f"{worst} would be shown to be met."
        )
    return (
        f"no number of people shows a budget of {entry.budget:g} to be met; with these rows one of "
        f"{worst} would be."
    )


def people_needed(claim: Claim) -> float | None:
    r"""Return the people in the smallest compared group from which the budget could be verified.

    An interval narrows with the root of its rows, if all groups grow alike: :math:`n (s / b)^2`,
    where :math:`s` is the smallest budget that :math:`n` rows could verify and :math:`b` the
    budget. For a ratio both are distances from one. None if the rows suffice, or if no number does.
    """
    reach, budget, smallest = claim.entry.smallest_verifiable, claim.entry.budget, claim.smallest
    if reach is None or budget is None or smallest is None:
        return None
    if claim.entry.is_ratio:
        reach, budget = 1.0 - reach, 1.0 - budget
    if budget <= 0 or reach <= budget or claim.lone_rates:
        return None
    return smallest.rows * (reach / budget) ** 2
