"""What the page shows, as small dataclasses for its template."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fcfl._types import LABEL_OF
from fcfl.results import ClientResult, Disparity, Part, Result, RoundInfo, RowCounts
from fcfl.results.result import GroupCount, PartName

from .claims import Claim, RuleName, by_rule, claims_of, rule_of
from .figures import Dot, claim_axis, claim_scale, claim_strip, price_bar, scatter
from .path_figure import path_figure
from .svg import Scale
from .words import price_sentence, share

MOST_SHOWN = 40  # clients in a picture; tables have all
MOST_NAMED = 6  # dots with a name

_RATES: dict[str, str] = {
    kind: "selected" if label is None else f"selected, label {label}"
    for kind, label in LABEL_OF.items()
}


@dataclass(frozen=True)
class StripView:
    """A claim and its picture."""

    claim: Claim
    strip: Markup


@dataclass(frozen=True)
class RuleView:
    """The strips of one rule, and how many claims are left to the table."""

    name: RuleName
    axis: Markup
    rows: tuple[StripView, ...]
    left: int


@dataclass(frozen=True)
class ScatterView:
    """Accuracy against disparity by one rule."""

    name: RuleName
    figure: Markup


@dataclass(frozen=True)
class PriceLine:
    """A budget that costs something, with a bar and a sentence."""

    claim: Claim
    bar: Markup
    sentence: str


@dataclass(frozen=True)
class PriceView:
    """Budgets with a price, how many are not shown, how many cost nothing, and who pays."""

    rows: tuple[PriceLine, ...]
    left: int
    free: int
    weights: Mapping[str, float]


@dataclass(frozen=True)
class GroupLine:
    """Rows and selected rows of one group; ``rate`` is in words.

    ``is_compared`` says whether any rule compares the group at this client.
    """

    client: str
    attribute: str
    rate: str
    group: str
    rows: int
    selected: int
    is_compared: bool


@dataclass(frozen=True)
class ClientLine:
    """Losses, accuracies and shares of one client; ``judged`` is of the judged rows.

    Shares are in words: of ``selected`` rows and of ``positives`` with the positive label.
    """

    client: str
    rows: RowCounts
    train_loss: float | None
    judged: Part
    train_selected: str
    selected: str
    positives: str


@dataclass(frozen=True)
class TrainingLine:
    """A rule on training rows."""

    client: str
    of: RuleName
    entry: Disparity

    @property
    def value(self) -> float | None:
        """The disparity of decisions."""
        return self.entry.trained


def rule_views(grouped: Mapping[RuleName, Sequence[Claim]]) -> tuple[RuleView, ...]:
    """For every rule its strips, and how many are left to the table."""
    views = []
    for index, (of, found) in enumerate(grouped.items()):
        shown = found[:MOST_SHOWN]
        scale = claim_scale(shown)
        rows = tuple(
            StripView(claim, claim_strip(claim, scale, f"strip-{index}-{i}"))
            for i, claim in enumerate(shown)
        )
        views.append(RuleView(of, claim_axis(scale), rows, len(found) - len(shown)))
    return tuple(views)


def scatter_views(result: Result) -> tuple[ScatterView, ...]:
    """Accuracy against disparity of each client, one figure for each rule."""
    part, views = result.judged_part, []
    accuracy = {name: client.part(part).accuracy for name, client in result.clients.items()}
    for index, (of, found) in enumerate(by_rule(claims_of(result)).items()):
        dots = _client_dots(found, accuracy)
        if dots:
            budgets = {claim.budget for claim in found if claim.client in accuracy}
            title = f"Accuracy and {of.rule} of each client: {of}"
            figure = scatter(
                f"scatter-{index}", title, dots, (of.rule, "accuracy"),
                budget=budgets.pop() if len(budgets) == 1 else None,
            )  # fmt: skip
            views.append(ScatterView(of, figure))
    return tuple(views)


def _client_dots(found: Sequence[Claim], accuracy: Mapping[str, float | None]) -> list[Dot]:
    placed = [
        (claim, float(accuracy[claim.client] or 0.0))
        for claim in found
        if claim.value is not None and accuracy.get(claim.client) is not None
    ]
    lowest = sorted(placed, key=lambda item: item[1])[: MOST_NAMED // 2]
    named = set(list(dict.fromkeys(c.client for c, _ in [*lowest, *placed]))[:MOST_NAMED])
    return [
        Dot(claim.client, float(claim.value or 0.0), y, claim.verdict, claim.client in named)
        for claim, y in placed
    ]


def claims_with_price(result: Result) -> list[Claim]:
    """Budgets that cost the worst client something, the most expensive first."""
    found = [claim for claim in claims_of(result) if (claim.price or 0.0) > 0.0]
    return sorted(found, key=lambda claim: -(claim.price or 0.0))


def price_view(result: Result) -> PriceView | None:
    """The budgets that cost something with a bar each, how many cost nothing, and who pays."""
    known = [claim for claim in claims_of(result) if claim.price is not None]
    if not known:
        return None
    priced = claims_with_price(result)
    scale = Scale(0.0, max([claim.price or 0.0 for claim in priced], default=1.0), 0.0, 100.0)
    rows = tuple(
        PriceLine(claim, price_bar(claim, scale, f"price-{i}"), price_sentence(claim, result))
        for i, claim in enumerate(priced[:MOST_SHOWN])
    )
    left = max(len(priced) - MOST_SHOWN, 0)
    return PriceView(rows, left, len(known) - len(priced), result.worst_clients)


def path_views(history: Sequence[RoundInfo]) -> list[Markup]:
    """The worst loss and the largest violation by round."""
    loss = path_figure("path-loss", "worst client's training loss", history, "worst_loss")
    violation = path_figure(
        "path-violation", "largest violation", history, "largest_violation", zero=True
    )
    return [figure for figure in (loss, violation) if figure is not None]


def group_lines(result: Result) -> Iterator[GroupLine]:
    """Rows and selected rows of every group of every client, on the judged rows."""
    for name, client in _everybody(result):
        groups = _groups(client.part(result.judged_part).disparities)
        for (attribute, rate, of), group in groups.items():
            what = _RATES.get(rate, rate)
            yield GroupLine(
                name, attribute, what, of, group.rows, group.selected, group.is_compared
            )


def _everybody(result: Result) -> Iterator[tuple[str, ClientResult]]:
    """All clients, and all rows together where there are several."""
    yield from result.clients.items()
    if len(result.clients) > 1:
        yield result.name_of_all, result.overall


def _groups(entries: Sequence[Disparity]) -> dict[tuple[str, str, str], GroupCount]:
    """Return each group once, though several rules have it: as one of them compares it, if any."""
    found: dict[tuple[str, str, str], GroupCount] = {}
    for entry in entries:
        for group in entry.groups:
            key = entry.attribute, group.rate, group.group
            if key not in found or group.is_compared:
                found[key] = group
    return found


def client_lines(result: Result) -> Iterator[ClientLine]:
    """Losses and accuracies of every client and of all rows together, worst served first."""
    part, clients = result.judged_part, result.clients

    def worst_first(name: str) -> tuple[float, float]:
        loss, accuracy = clients[name].train.loss, clients[name].part(part).accuracy
        return -(loss or 0.0), accuracy if accuracy is not None else 1.0

    for name in sorted(clients, key=worst_first):
        yield _client_line(name, clients[name], part)
    if len(clients) > 1:
        yield _client_line(result.name_of_all, result.overall, part)


def _client_line(name: str, client: ClientResult, part: PartName) -> ClientLine:
    judged, rows = client.part(part), client.rows.of(part)
    return ClientLine(
        name,
        client.rows,
        client.train.loss,
        judged,
        share(client.train.selected, client.rows.train),
        share(judged.selected, rows),
        share(judged.positives, rows),
    )


def training_lines(result: Result) -> list[TrainingLine]:
    """Budgets on the training rows, and what is expected on new ones."""
    return [
        TrainingLine(name, rule_of(entry), entry)
        for name, client in _everybody(result)
        for entry in client.train.disparities
        if entry.trained is not None
    ]
