"""Claims of a result, and sentences about them, for page, terminal and cards.

A claim is the disparity of one client by one rule on the judged rows. Sentences use no stronger
words than the verdicts: a budget is met, exceeded or undetermined.
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
MAX_LISTED = 12  # clients listed by name in a sentence
MAX_NAMED = 3  # clients with the same privacy loss or next step, listed by name
MAX_STEPS = 3  # undetermined claims with their own next step
Ends: TypeAlias = tuple[float | None, float | None]
AMONG = {
    "selection": "",
    "true_positive": " with a positive label",
    "false_positive": " with a negative label",
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
    """One disparity of one client on the judged rows.

    ``trained`` is the same disparity on training rows. If ``is_together``, the claim is about all
    rows together, and ``client`` is their label. ``run`` names the run in a comparison of runs.
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

        An undetermined budget is "not compared" if fewer than two groups have enough rows. An
        unconstrained disparity is "not judged" if it has a budget.
        """
        if self.entry.value is None and self.entry.verdict == "undetermined":
            return "not compared"
        is_judged = self.entry.verdict != "unconstrained" or self.entry.budget is None
        return self.entry.verdict if is_judged else "not judged"

    @property
    def price(self) -> float | None:
        """The price of the budget, None if unknown."""
        return None if self.trained is None else self.trained.price

    @property
    def expected(self) -> Forecast | None:
        """The forecast for new rows, None if there is none."""
        return self.entry.expected or (self.trained.expected if self.trained else None)

    @property
    def groups(self) -> tuple[GroupCount, ...]:
        """The compared groups."""
        return tuple(group for group in self.entry.groups if group.is_compared and group.rows)

    @property
    def left_out(self) -> tuple[GroupCount, ...]:
        """Groups with too few rows to compare; only tables of groups show them."""
        return tuple(group for group in self.entry.groups if not group.is_compared)

    @property
    def smallest(self) -> GroupCount | None:
        """The compared group with the fewest rows."""
        return min(self.groups, key=lambda group: group.rows, default=None)

    @property
    def lone_rates(self) -> tuple[str, ...]:
        """Rates of the rule with fewer than two groups to compare, if other rates have two.

        The disparity of such a rate is unknown, so more rows of other rates cannot verify the
        budget.
        """
        compared = {group.rate for group in self.groups}
        every = dict.fromkeys(group.rate for group in (*self.groups, *self.left_out))
        return tuple(rate for rate in every if compared and rate not in compared)

    @property
    def is_near(self) -> bool:
        """Whether the rows suffice to verify the budget but the value is too near it."""
        reach, budget = self.entry.smallest_verifiable, self.entry.budget
        if self.verdict != "undetermined" or reach is None or budget is None:
            return False
        return reach >= budget if self.entry.is_ratio else reach <= budget

    @property
    def excess(self) -> float:
        """Distance by which the interval exceeds the budget; 2 if the value is unknown."""
        entry = self.entry
        if entry.value is None:
            return 2.0
        worst = entry.low if entry.is_ratio else entry.high
        reached = entry.value if worst is None else worst
        limit = entry.budget if entry.budget is not None else (1.0 if entry.is_ratio else 0.0)
        return limit - reached if entry.is_ratio else reached - limit


def claims_of(result: Result, run: str = "") -> list[Claim]:
    """Return all claims on the judged rows: clients first, then all rows together."""
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
    """Sort claims by verdict (exceeded, undetermined, met, others), then by `Claim.excess`."""
    return sorted(claims, key=lambda claim: (VERDICTS.index(claim.verdict), -claim.excess))


def by_rule(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Group claims by the title of their rule, worst first."""
    grouped: dict[str, list[Claim]] = {}
    for claim in worst_first(claims):
        grouped.setdefault(claim.entry.title, []).append(claim)
    return grouped


def side_by_side(results: Mapping[str, Result]) -> dict[str, list[Claim]]:
    """Group the claims of several runs by rule, then by client, worst client first."""
    grouped = by_rule(c for name, result in results.items() for c in claims_of(result, name))
    for title, found in grouped.items():
        clients = list(dict.fromkeys(claim.client for claim in found))
        grouped[title] = sorted(found, key=lambda claim: (clients.index(claim.client), claim.run))
    return grouped


def paired(before: Result, after: Result) -> list[tuple[Claim, Claim]]:
    """Return pairs of claims of two runs on the same rows, for measured differences only."""
    known = {(claim.client, claim.entry.title): claim for claim in claims_of(before)}
    return [
        (known[claim.client, claim.entry.title], claim)
        for claim in claims_of(after)
        if (claim.client, claim.entry.title) in known
        and not claim.entry.is_ratio
        and claim.entry.value is not None
    ]


def first_claim(result: Result) -> Claim | None:
    """Return the claim with the worst verdict.

    Among claims with the same verdict, clients with enough people have priority.
    """
    claims = claims_of(result)
    judged = worst_first([claim for claim in claims if claim.entry.budget is not None] or claims)

    def order(claim: Claim) -> tuple[int, bool]:
        smallest = 0 if claim.smallest is None else claim.smallest.rows
        return VERDICTS.index(claim.verdict), smallest < ENOUGH

    return min(judged, key=order, default=None)


def worst_served_first(result: Result) -> list[tuple[str, ClientResult]]:
    """Return clients by decreasing training loss, then accuracy; all rows together come last."""
    part, everybody = result.judged_part, list(result.everybody.items())

    def order(item: tuple[str, ClientResult]) -> tuple[float, float]:
        loss, accuracy = item[1].train.loss, item[1].part(part).accuracy
        return -(loss or 0.0), 1.0 if accuracy is None else accuracy

    n_clients = len(result.clients)
    return [*sorted(everybody[:n_clients], key=order), *everybody[n_clients:]]


def claims_with_price(result: Result) -> list[Claim]:
    """Return the claims with a positive price, most expensive first."""
    found = [claim for claim in claims_of(result) if (claim.price or 0.0) > 0.0]
    return sorted(found, key=lambda claim: -(claim.price or 0.0))


def groups_of(part: Part) -> list[tuple[str, GroupCount]]:
    """Return (attribute, group) pairs without the duplicates of several rules.

    A group counts as compared if at least one rule compares it.
    """
    found: dict[tuple[str, str, str], GroupCount] = {}
    for entry in part.disparities:
        for group in entry.groups:
            key = entry.attribute, group.rate, group.group
            if key not in found or group.is_compared:
                found[key] = group
    return [(attribute, group) for (attribute, *_), group in found.items()]


def count_verdicts(claims: Iterable[Claim]) -> dict[str, int]:
    """Return the number of claims with each verdict."""
    counts = dict.fromkeys(VERDICTS, 0)
    for claim in claims:
        counts[claim.verdict] += 1
    return counts


def rows_called(result: Result) -> str:
    """Return the name of the judged rows."""
    return "audited rows" if result.method == "audit" else part_called(result.judged_part)


def part_called(part: PartName) -> str:
    """Return the name of the rows of a part."""
    return "held-out rows" if part == "test" else "training rows"


# --- numbers and names ----------------------------------------------------------------------------


def number(value: float | None, digits: int = 4) -> str:
    """Format a number for a table, a dash for None; positive numbers are not shown as 0."""
    if value is None or not math.isfinite(value):
        return "–"
    shown = f"{value:.{digits}f}"
    return f"<{10**-digits:.{digits}f}" if value > 0 and not float(shown) else shown


def share(count: int | None, rows: int) -> str:
    """Format a share with three decimals; only exact values are shown as 0 or 1."""
    if count is None or not rows:
        return "–"
    shown = f"{count / rows:.3f}"
    if shown == "0.000" and count:
        return "<.001"
    return ">.999" if shown == "1.000" and count < rows else shown


def interval(bounds: Ends | None, digits: int = 3) -> str:
    """Format both ends of an interval, or a dash for None."""
    if bounds is None or bounds[0] is None or bounds[1] is None:
        return "–"
    return f"{bounds[0]:.{digits}f} to {bounds[1]:.{digits}f}"


def short_interval(bounds: Ends | None) -> str:
    """Format both ends of an interval for a narrow column, without leading zeros."""
    if bounds is None or bounds[0] is None or bounds[1] is None:
        return "–"
    return "–".join(f"{end:.3f}".replace("0.", ".", 1) for end in bounds if end is not None)


def plain(name: str) -> str:
    """Escape the control characters in a name."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in name)


def listed(names: Sequence[str], most: int = MAX_LISTED) -> str:
    """Return the first names in one string, with the number of the remaining names."""
    left = len(names) - most
    shown = plain(", ".join(names[:most]))
    return f"{shown} and {left} more" if left > 0 else shown


def capitalised(sentence: str) -> str:
    """Return a sentence with a capital first letter."""
    return sentence[:1].upper() + sentence[1:]


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def _has(count: int) -> str:
    return f"{count} has" if count == 1 else f"{count} have"


def rate_words(group: GroupCount) -> str:
    """Return the selected share of a group with its interval."""
    return f"{share(group.selected, group.rows)} ({interval(group.interval)})"


# --- the headline ---------------------------------------------------------------------------------


def title_of(result: Result) -> str:
    """Return the headline: reasons for exit code 3, or warnings and the verdicts on budgets."""
    found = findings_of(result)
    if found:
        reasons = "; ".join(plain(finding.headline) for finding in found)
        return f"{capitalised(reasons)} (exit code 3)."
    warned = [capitalised(plain(f"{one.headline}. ")) for one in warnings_of(result)]
    return "".join(warned) + verdict_sentence(result)


def verdict_sentence(result: Result) -> str:
    """Return a sentence with the numbers of budgets met, exceeded and undetermined."""
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
    """Return a sentence for each reason for exit code 3 and each warning, without advice."""
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
    """Return the worst-served client, or the reason why it is unknown."""
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
    """Describe the decision threshold; empty for an audit."""
    if result.threshold is None:
        return ""
    if result.thresholds is not None:
        return (
            f"Decision thresholds depend on client and group, near a score of {result.threshold:g}."
        )
    return f"People with a score of at least {result.threshold:g} are selected."


# --- training rows, price, margins, cost ----------------------------------------------------------


def trained_sentence(result: Result) -> str:
    """Return the number of budgets met on the training rows; empty for an audit."""
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
    """Return training accuracy and selected share without budgets, with them, and with margins."""
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
    """Return the rows a client needs, as a multiple of its rows; empty if they suffice."""
    short = {} if result.margins is None else result.margins.rows_short
    if client not in short:
        return ""
    times = short[client]
    return "no number suffices" if times is None else f"{times_as_many(times)} times"


def kept_by(result: Result, client: str) -> str:
    """Return whether budgets of a client apply to its own rows or an estimate, if known."""
    pooling = result.pooling
    if pooling is None or client not in pooling.weights:
        return ""
    is_own = client in pooling.own_rows_decide
    found = "own rows" if is_own else f"estimate, weight of own rows {pooling.weights[client]:.2f}"
    return f"{found}; differs from the others" if client in pooling.odd else found


def minimised(result: Result) -> str:
    """Return the name of the training objective, the unit of prices."""
    if result.objective in (None, "max"):
        return "the worst client's training loss"
    what = "mean" if result.objective == "mean" else "soft maximum"
    return f"the {what} of the clients' training losses"


def prices_sentence(result: Result, most: int) -> str:
    """Return the effect of relaxing each of the most expensive budgets by 0.01, as a sentence."""
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
    """Return the number of exchanges by phase, such as ``38 (2 to meet, 12 to train, …)``."""
    cost = result.exchanges
    parts = ", ".join(f"{n:,} {_PHASES.get(name, name)}" for name, n in cost.by_phase.items())
    return f"{cost.total:,} ({parts})" if cost.total else ""


def privacy_sentences(result: Result) -> Iterator[str]:
    """Yield sentences on the privacy loss of each client, its definition and its limits."""
    if result.privacy is None:
        return
    losses: dict[tuple[float, float], list[str]] = {}
    for name, loss in result.privacy.clients.items():
        losses.setdefault((loss.epsilon, loss.delta), []).append(name)
    for (epsilon, delta), names in losses.items():
        yield (
            f"Privacy: epsilon {epsilon:g} at delta {delta:g} for each of "
            f"{listed(names, MAX_NAMED)}. Neighbouring tables differ by one row that is added or "
            f"removed ({result.privacy.neighbours}). All counts and rates contain noise, and "
            "intervals account for it."
        )
    yield f"Privacy does not cover {'; '.join(result.privacy.not_covered)}."


# --- people ---------------------------------------------------------------------------------------


def people_sentence(claim: Claim) -> str:
    """Return ``At north, 90 of 100 White and 75 of 100 Black people are selected; …``.

    Return an empty string if fewer than two groups are compared.
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
    """Return the two groups whose rates define the value of the claim, higher rate first.

    If the rule has several rates, as equalized odds does, one of them defines the value.
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
    """Return the selected shares of two groups, precise enough to distinguish them.

    Shares of groups with up to 100 people are counts. Shares of larger groups are numbers of 100,
    with up to two decimals if rounding would make different shares equal or give 0 or 100. If two
    decimals do not suffice, they are counts too.
    """
    for digits in range(3):
        shares = _per_hundred(first, digits), _per_hundred(second, digits)
        if shares[0] and shares[1] and (shares[0] != shares[1] or _rate(first) == _rate(second)):
            return shares
    return f"{first.selected:,} of {first.rows:,}", f"{second.selected:,} of {second.rows:,}"


def _per_hundred(group: GroupCount, digits: int) -> str:
    """Return the selected number of a small group, or the number of 100 people.

    Return an empty string if rounding would give 0 or 100 for another share.
    """
    if group.rows <= 100:
        return f"{group.selected:,} of {group.rows:,}"
    shown = f"{100 * _rate(group):.{digits}f}"
    is_lost = 0 < group.selected < group.rows and float(shown) in (0.0, 100.0)
    return "" if is_lost else f"{shown} of 100"


def _about_budget(claim: Claim, pair: tuple[GroupCount, GroupCount]) -> str:
    """Return a sentence that compares the shares with the budget."""
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
    """Return advice on exit code 3, and on undetermined and exceeded budgets."""
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
            "with larger margins (--confidence) or agree on a larger --budget."
        )
    has_global = any(claim.is_together for claim in claims)
    if len(result.clients) > 1 and not has_global and any(c.verdict != "met" for c in claims):
        steps.append(
            "Single clients may have too few people for a verdict: --scope global compares groups "
            "over all clients' rows together, and --scope both adds this to each client."
        )
    return steps


def _about_undetermined(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield advice on the first undetermined claims, fewest people needed first."""

    def order(claim: Claim) -> float:
        needed = people_needed(claim)
        return needed if needed is not None else 0.0 if claim.is_near else math.inf

    for claim in sorted(claims, key=order)[:MAX_STEPS]:
        yield f"{plain(claim.client)}: {_advice_on(claim)}"
    if len(claims) > MAX_STEPS:
        left = len(claims) - MAX_STEPS
        yield f"{left} more {'is' if left == 1 else 'are'} open; see the table of all verdicts."


def _advice_on(claim: Claim) -> str:
    needed, smallest, entry = people_needed(claim), claim.smallest, claim.entry
    worst = number(entry.low if entry.is_ratio else entry.high, 3)
    if needed is not None and smallest is not None:
        power = 10 ** max(math.floor(math.log10(needed)) - 1, 0)  # two digits: it is an estimate
        side = "above" if entry.is_ratio else "below"
        return (
            f"about {math.ceil(needed / power) * power:,} people in the smallest group would be "
            f"needed to show a budget of {entry.budget:g} to be met (now {smallest.rows:,}), if "
            f"all groups grow alike; these rows cannot verify a budget {side} "
            f"{number(entry.smallest_verifiable, 3)}."
        )
    if claim.lone_rates:
        among = " and ".join(AMONG[rate].strip() for rate in claim.lone_rates)
        return f"fewer than two groups have enough people {among}, so no budget can be verified."
    if claim.is_near:
        return (
            f"{number(entry.value, 3)} is too near its budget of {entry.budget:g} to tell; a "
            f"budget of {worst} would be shown to be met."
        )
    return (
        f"no number of people can show a budget of {entry.budget:g} to be met; with these rows, a "
        f"budget of {worst} would be shown to be met."
    )


def people_needed(claim: Claim) -> float | None:
    r"""Return the size of the smallest compared group from which the budget can be verified.

    If all groups grow alike, the width of an interval is inversely proportional to the square root
    of the rows: :math:`n (s / b)^2`, where :math:`b` is the budget and :math:`s` the smallest one
    that :math:`n` rows can verify. For a ratio both are distances from one. Return None if the rows
    suffice or if no number of rows does.
    """
    reach, budget, smallest = claim.entry.smallest_verifiable, claim.entry.budget, claim.smallest
    if reach is None or budget is None or smallest is None:
        return None
    if claim.entry.is_ratio:
        reach, budget = 1.0 - reach, 1.0 - budget
    if budget <= 0 or reach <= budget or claim.lone_rates:
        return None
    return smallest.rows * (reach / budget) ** 2
