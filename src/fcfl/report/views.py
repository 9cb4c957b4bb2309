"""What the page shows, as plain values for its template."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from .claims import (
    Claim,
    RuleName,
    by_rule,
    claims_of,
    judged_part,
    rule_of,
    together_called,
)
from .figures import Dot, claim_axis, claim_scale, claim_strip, price_bar, scatter
from .path_figure import path_figure
from .svg import Scale
from .words import price_sentence

MOST_SHOWN = 40  # clients in a picture; tables have all
MOST_NAMED = 6  # dots with a name

_RATES = {
    "selection": "selected",
    "true_positive": "selected, label 1",
    "false_positive": "selected, label 0",
}


def rule_views(grouped: Mapping[RuleName, Sequence[Claim]]) -> list[dict[str, Any]]:
    """For every rule its strips, and how many are left to the table."""
    views = []
    for number, (of, found) in enumerate(grouped.items()):
        shown = found[:MOST_SHOWN]
        scale = claim_scale(shown)
        views.append(
            {
                "name": of,
                "axis": claim_axis(scale),
                "rows": [
                    {"claim": claim, "strip": claim_strip(claim, scale, f"strip-{number}-{i}")}
                    for i, claim in enumerate(shown)
                ],
                "left": len(found) - len(shown),
            }
        )
    return views


def scatter_views(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Accuracy against disparity of each client, one figure for each rule."""
    part, views = judged_part(result), []
    accuracy = {name: client[part]["accuracy"] for name, client in result["clients"].items()}
    for number, (of, found) in enumerate(by_rule(claims_of(result)).items()):
        dots = _client_dots(found, accuracy)
        if dots:
            budgets = {claim.budget for claim in found if claim.holder in accuracy}
            title = f"Accuracy and {of.rule} of each client: {of}"
            figure = scatter(
                f"scatter-{number}", title, dots, (of.rule, "accuracy"),
                budget=budgets.pop() if len(budgets) == 1 else None,
            )  # fmt: skip
            views.append({"name": of, "figure": figure})
    return views


def _client_dots(found: Sequence[Claim], accuracy: Mapping[str, float | None]) -> list[Dot]:
    placed = [
        (claim, float(accuracy[claim.holder] or 0.0))
        for claim in found
        if claim.value is not None and accuracy.get(claim.holder) is not None
    ]
    lowest = sorted(placed, key=lambda item: item[1])[: MOST_NAMED // 2]
    named = set(list(dict.fromkeys(c.holder for c, _ in [*lowest, *placed]))[:MOST_NAMED])
    return [
        Dot(claim.holder, float(claim.value or 0.0), y, claim.verdict, claim.holder in named)
        for claim, y in placed
    ]


def dear_claims(result: Mapping[str, Any]) -> list[Claim]:
    """Budgets that cost the worst client something, the dearest first."""
    dear = [claim for claim in claims_of(result) if (claim.price or 0.0) > 0.0]
    return sorted(dear, key=lambda claim: -(claim.price or 0.0))


def price_view(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """The dear budgets with a bar each, how many cost nothing, and who pays."""
    known = [claim for claim in claims_of(result) if claim.price is not None]
    if not known:
        return None
    dear = dear_claims(result)
    scale = Scale(0.0, max([claim.price or 0.0 for claim in dear], default=1.0), 0.0, 100.0)
    return {
        "rows": [
            {
                "claim": claim,
                "bar": price_bar(claim, scale, f"price-{i}"),
                "sentence": price_sentence(claim, result),
            }
            for i, claim in enumerate(dear[:MOST_SHOWN])
        ],
        "left": max(len(dear) - MOST_SHOWN, 0),
        "free": len(known) - len(dear),
        "weights": result.get("worst_clients", {}),
    }


def path_views(history: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """The worst loss and the largest violation by round."""
    rounds = [info for info in history if "round" in info]
    loss = path_figure("path-loss", "worst client's training loss", rounds, "worst_loss")
    violation = path_figure(
        "path-violation", "largest violation (smooth)", rounds, "largest_violation", zero=True
    )
    return [figure for figure in (loss, violation) if figure is not None]


def sweep_view(points: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The trade-off: the worst client's accuracy against the largest disparity, by budget."""
    if not points:
        return None
    place = "largest_test_disparity", "worst_client_test_accuracy"
    drawn = [p for p in points if all(p.get(key) is not None for key in place)]
    dots = [Dot(budget_label(p), p[place[0]], p[place[1]], is_named=True) for p in drawn]
    axes = ("largest held-out disparity", "worst client's held-out accuracy")
    title = "Trade-off between disparity and the worst client's accuracy, by budget"
    figure = scatter("sweep", title, dots, axes, is_path=True) if dots else None
    return {"figure": figure, "points": [{**p, "label": budget_label(p)} for p in points]}


def budget_label(point: Mapping[str, Any]) -> str:
    """A sweep point's budget in few words."""
    if point.get("relative") is not None:
        return f"{point['relative']:g} of unconstrained"
    return "no budget" if point.get("budget") is None else f"{point['budget']:g}"


def group_counts(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows and selected rows of every group of every holder, on the judged rows."""
    part = judged_part(result)
    holders = [(name, client[part]) for name, client in result["clients"].items()]
    if len(holders) > 1:
        holders.append((together_called(result), result["global"][part]))
    for name, found in holders:
        for (attribute, rate, group), counts in _groups(found["disparities"]).items():
            share = counts["selected"] / counts["rows"] if counts["rows"] else None
            what = _RATES.get(rate, rate)
            yield {
                "holder": name, "attribute": attribute, "rate": what, "group": group,
                "share": share, **counts,
            }  # fmt: skip


def _groups(entries: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], dict[str, int]]:
    """Each group once, though several rules compare it."""
    return {
        (entry["attribute"], group["rate"], group["group"]): {
            "rows": group["rows"],
            "selected": group["selected"],
        }
        for entry in entries
        for group in entry.get("groups", ())
    }


def client_rows(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Losses and accuracies of every client and of all rows together, worst served first."""
    part = judged_part(result)
    clients = result["clients"]

    def worst_first(name: str) -> tuple[float, float]:
        loss, accuracy = clients[name]["train"]["loss"], clients[name][part]["accuracy"]
        return -(loss or 0.0), accuracy if accuracy is not None else 1.0

    for name in sorted(clients, key=worst_first):
        yield {"holder": name, "rows": clients[name]["rows"], **_served(clients[name], part)}
    if len(clients) > 1:
        total = {p: sum(c["rows"][p] for c in clients.values()) for p in ("train", "test")}
        served = _served(result["global"], part)
        yield {"holder": together_called(result), "rows": total, **served}


def _served(who: Mapping[str, Any], part: str) -> dict[str, Any]:
    judged = who[part]
    return {
        "train_loss": who["train"]["loss"],
        "loss": judged["loss"],
        "accuracy": judged["accuracy"],
        "accuracy_interval": judged.get("accuracy_interval"),
        "balanced_accuracy": judged["balanced_accuracy"],
        "balanced_accuracy_interval": judged.get("balanced_accuracy_interval"),
    }


def training_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Budgets on the training rows: the smooth value training kept, and the hard one."""
    everybody = [(together_called(result), result["global"])]
    together = everybody if len(result["clients"]) > 1 else []
    return [
        {"holder": name, "of": rule_of(entry), **entry}
        for name, who in [*result["clients"].items(), *together]
        for entry in who["train"]["disparities"]
        if entry.get("smooth") is not None
    ]
