"""Claims of a result: one line for each client and rule on the judged rows, worst first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fcfl.results import ClientResult, Disparity, Forecast, GroupCount, Part, Result
from fcfl.results.many_runs import ENOUGH
from fcfl.results.result import PartName

VERDICTS = ("exceeded", "undetermined", "met", "not compared", "unconstrained", "not judged")


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
