"""What a result claims: one line per client and rule, worst first."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fcfl.results import ClientResult, Disparity, Forecast, Result
from fcfl.results.many_runs import ENOUGH
from fcfl.results.result import GroupCount, PartName

VERDICTS = ("exceeded", "undetermined", "met", "not compared", "unconstrained", "not judged")


@dataclass(frozen=True, slots=True)
class RuleName:
    """What is compared between groups."""

    metric: str
    rule: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.metric.replace('_', ' ')} {self.rule}, {self.attribute}"

    @property
    def in_words(self) -> str:
        """The same within a sentence."""
        return f"{self.metric.replace('_', ' ')} {self.rule} by {self.attribute}"

    @property
    def is_ratio(self) -> bool:
        """Whether larger is better."""
        return self.rule == "ratio"


@dataclass(frozen=True, slots=True)
class Claim:
    """One rule on one client's rows.

    ``is_together`` says that the rows are those of all clients, and ``client`` what these are
    called; ``run`` names the run where several are compared. ``groups`` are the groups that are
    compared, ``left_out`` those with too few rows, which nothing but a table of groups may show.
    ``expected`` is what to expect on new rows, where that was estimated.
    """

    client: str
    of: RuleName
    value: float | None
    low: float | None
    high: float | None
    budget: float | None
    verdict: str
    smallest_verifiable: float | None
    price: float | None
    rows: int
    is_together: bool = False
    run: str = ""
    groups: tuple[GroupCount, ...] = ()
    left_out: tuple[GroupCount, ...] = ()
    expected: Forecast | None = None

    @property
    def smallest(self) -> GroupCount | None:
        """The group with the fewest rows of those that are compared."""
        return min(self.groups, key=lambda group: group.rows, default=None)

    @property
    def smallest_group(self) -> int | None:
        """Rows of the smallest group that is compared."""
        return None if self.smallest is None else self.smallest.rows

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
        if self.verdict != "undetermined" or None in (self.budget, self.smallest_verifiable):
            return False
        reach, budget = self.smallest_verifiable or 0.0, self.budget or 0.0
        return reach >= budget if self.of.is_ratio else reach <= budget

    @property
    def excess(self) -> float:
        """By how much the interval reaches past the budget, or 0; the unmeasured come first."""
        if self.value is None:
            return 2.0
        worst = self.low if self.of.is_ratio else self.high
        reached = self.value if worst is None else worst
        limit = self.budget if self.budget is not None else (1.0 if self.of.is_ratio else 0.0)
        return limit - reached if self.of.is_ratio else reached - limit


def rows_called(result: Result) -> str:
    """What the judged rows are, in words."""
    if result.method == "audit":
        return "audited rows"
    return part_called(result.judged_part)


def part_called(part: PartName) -> str:
    """What the rows of a part are, in words."""
    return "held-out rows" if part == "test" else "training rows"


def claims_of(result: Result, run: str = "") -> list[Claim]:
    """Everything a result says on the judged rows, clients first."""
    found = [
        claim
        for name, client in result.clients.items()
        for claim in _claims(name, client, result, run)
    ]
    if len(result.clients) > 1:
        found += _claims(result.name_of_all, result.overall, result, run, is_together=True)
    return found


def by_rule(claims: Iterable[Claim]) -> dict[RuleName, list[Claim]]:
    """Claims of each rule, worst first."""
    grouped: dict[RuleName, list[Claim]] = {}
    for claim in worst_first(claims):
        grouped.setdefault(claim.of, []).append(claim)
    return grouped


def worst_first(claims: Iterable[Claim]) -> list[Claim]:
    """Exceeded budgets, undetermined ones, met ones, the others; each by how far they reach."""
    return sorted(claims, key=lambda claim: (VERDICTS.index(claim.verdict), -claim.excess))


def first_claim(result: Result) -> Claim | None:
    """The claim that matters most.

    Of several undetermined ones that is not the one with the fewest people: those with enough come
    first.
    """
    claims = claims_of(result)
    judged = worst_first([claim for claim in claims if claim.budget is not None] or claims)

    def order(claim: Claim) -> tuple[int, bool]:
        return VERDICTS.index(claim.verdict), (claim.smallest_group or 0) < ENOUGH

    return min(judged, key=order, default=None)


def count_verdicts(claims: Iterable[Claim]) -> dict[str, int]:
    """How many budgets have each verdict."""
    counts = dict.fromkeys(VERDICTS, 0)
    for claim in claims:
        counts[claim.verdict] += 1
    return counts


def rule_of(entry: Disparity) -> RuleName:
    """What a disparity compares."""
    return RuleName(entry.metric, entry.rule, entry.attribute)


def _claims(
    name: str, client: ClientResult, result: Result, run: str, *, is_together: bool = False
) -> Iterator[Claim]:
    part = result.judged_part
    trained = {rule_of(entry): entry for entry in client.train.disparities}
    for entry in client.part(part).disparities:
        yield Claim(
            name,
            rule_of(entry),
            value=entry.value,
            low=entry.low,
            high=entry.high,
            budget=entry.budget,
            verdict=shown_verdict(entry),
            smallest_verifiable=entry.smallest_verifiable,
            price=trained[rule_of(entry)].price if rule_of(entry) in trained else None,
            rows=client.rows.of(part),
            is_together=is_together,
            run=run,
            groups=tuple(group for group in entry.groups if group.is_compared and group.rows),
            left_out=tuple(group for group in entry.groups if not group.is_compared),
            expected=entry.expected or trained.get(rule_of(entry), entry).expected,
        )


def shown_verdict(entry: Disparity) -> str:
    """The verdict; a budget that is called unconstrained was never held against rows.

    Rows of one group alone are no evidence for or against anything: they are not compared.
    """
    if entry.value is None and entry.verdict == "undetermined":
        return "not compared"
    is_judged = entry.verdict != "unconstrained" or entry.budget is None
    return entry.verdict if is_judged else "not judged"
