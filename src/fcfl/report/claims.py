"""What a result claims: one line per holder of rows and rule, worst first."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Part = Literal["train", "test"]
VERDICTS = ("exceeded", "undetermined", "met", "unconstrained", "not judged")
TOGETHER = "all rows"  # unless a client is called so


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
    """One rule on one holder's rows; ``smallest_group`` is the rows of the smallest one compared.

    ``is_together`` says that the rows are those of all clients; ``run`` names the run where several
    are compared.
    """

    holder: str
    of: RuleName
    value: float | None
    low: float | None
    high: float | None
    budget: float | None
    verdict: str
    smallest_verifiable: float | None
    price: float | None
    rows: int
    smallest_group: int | None
    is_together: bool = False
    run: str = ""

    @property
    def excess(self) -> float:
        """By how much the interval reaches past the budget, or 0; the unmeasured come first."""
        if self.value is None:
            return 2.0
        worst = self.low if self.of.is_ratio else self.high
        reached = self.value if worst is None else worst
        limit = self.budget if self.budget is not None else (1.0 if self.of.is_ratio else 0.0)
        return limit - reached if self.of.is_ratio else reached - limit


def judged_part(result: Mapping[str, Any]) -> Part:
    """The held-out rows, or the training rows where nothing was held out."""
    has_test = any(client["rows"]["test"] for client in result["clients"].values())
    return "test" if has_test else "train"


def rows_called(result: Mapping[str, Any]) -> str:
    """What the judged rows are, in words."""
    if result["method"] == "audit":
        return "audited rows"
    return "held-out rows" if judged_part(result) == "test" else "training rows"


def together_called(result: Mapping[str, Any]) -> str:
    """What all rows together are called: a name that no client has."""
    name = TOGETHER
    while name in result["clients"]:
        name += " together"
    return name


def claims_of(result: Mapping[str, Any], run: str = "") -> list[Claim]:
    """Everything a result says on the judged rows, clients first."""
    part, least = judged_part(result), result.get("audit", {}).get("min_group_rows", 1)
    total = sum(client["rows"][part] for client in result["clients"].values())
    found = [
        claim
        for name, client in result["clients"].items()
        for claim in _claims(name, client[part], client["train"], client["rows"][part], least, run)
    ]
    together = result["global"]
    if len(result["clients"]) > 1:
        name = together_called(result)
        pooled = _claims(name, together[part], together["train"], total, least, run)
        found += [replace(claim, is_together=True) for claim in pooled]
    return found


def by_rule(claims: Iterable[Claim]) -> dict[RuleName, list[Claim]]:
    """Claims of each rule, worst first."""
    grouped: dict[RuleName, list[Claim]] = {}
    for claim in worst_first(claims):
        grouped.setdefault(claim.of, []).append(claim)
    return grouped


def worst_first(claims: Iterable[Claim]) -> list[Claim]:
    """Exceeded budgets, then undetermined ones, then met ones, each by how far they reach."""
    return sorted(claims, key=lambda claim: (VERDICTS.index(claim.verdict), -claim.excess))


def count_verdicts(claims: Iterable[Claim]) -> dict[str, int]:
    """How many budgets have each verdict."""
    counts = dict.fromkeys(VERDICTS, 0)
    for claim in claims:
        counts[claim.verdict] += 1
    return counts


def rule_of(entry: Mapping[str, Any]) -> RuleName:
    """What an entry of a result compares."""
    return RuleName(entry["metric"], entry["rule"], entry["attribute"])


def _claims(
    holder: str,
    part: Mapping[str, Any],
    train: Mapping[str, Any],
    rows: int,
    least: float,
    run: str,
) -> Iterator[Claim]:
    prices = {rule_of(entry): entry.get("price") for entry in train["disparities"]}
    for entry in part["disparities"]:
        of = rule_of(entry)
        yield Claim(
            holder,
            of,
            value=entry.get("value"),
            low=entry.get("low"),
            high=entry.get("high"),
            budget=entry.get("budget"),
            verdict=entry.get("verdict") or "not judged",
            smallest_verifiable=entry.get("smallest_verifiable"),
            price=prices.get(of),
            rows=rows,
            smallest_group=_smallest(entry, least),
            run=run,
        )


def _smallest(entry: Mapping[str, Any], least: float) -> int | None:
    sizes = (group["rows"] for group in entry.get("groups", ()))
    return min((rows for rows in sizes if rows >= max(least, 1)), default=None)
