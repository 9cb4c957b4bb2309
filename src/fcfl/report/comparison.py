"""Several runs side by side."""

from collections.abc import Mapping
from typing import Any

from .claims import Claim, by_rule, claims_of, count_verdicts
from .figures import Dot, scatter
from .views import rule_views
from .words import verdict_sentence

Results = Mapping[str, Mapping[str, Any]]


def comparison_view(results: Results) -> dict[str, Any]:
    """What the page that compares runs shows."""
    runs = [run_summary(name, result) for name, result in results.items()]
    claims = [claim for name, result in results.items() for claim in claims_of(result, name)]
    return {
        "title": f"{len(results)} runs compared",
        "runs": runs,
        "figure": _scatter(runs),
        "rules": rule_views({of: beside(found) for of, found in by_rule(claims).items()}),
        "claims": sorted(claims, key=lambda claim: (str(claim.of), claim.holder)),
        "settings": differing_settings(results),
        "names": list(results),
        "same_rows": len({run["data"] for run in runs}) == 1,
    }


def run_summary(name: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """One run in one line: how the worst client fares, and how many budgets hold."""
    claims = claims_of(result)
    accuracies = [who["test"]["accuracy"] for who in result["clients"].values()]
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return {
        "name": name,
        "method": result["method"],
        "status": result["status"],
        "worst_client": result["worst_client"]["name"] or "–",
        "train_loss": result["worst_client"]["train_loss"],
        "lowest_accuracy": min(known, default=None),
        "largest": largest_difference(claims),
        "counts": count_verdicts(claim for claim in claims if claim.budget is not None),
        "sentence": verdict_sentence(result),
        "data": result.get("data", {}).get("sha256"),
    }


def beside(claims: list[Claim]) -> list[Claim]:
    """Claims of the same client in all runs together, the worst client first."""
    holders = list(dict.fromkeys(claim.holder for claim in claims))
    return sorted(claims, key=lambda claim: (holders.index(claim.holder), claim.run))


def largest_difference(claims: list[Claim]) -> float | None:
    """The largest difference of group rates of any client."""
    compared = [c for c in claims if not c.of.is_ratio and not c.is_together]
    return max((c.value for c in compared if c.value is not None), default=None)


def differing_settings(results: Results) -> list[tuple[str, list[Any]]]:
    """Settings that are not the same in all runs, with each run's value."""
    settings = [result.get("settings", {}) for result in results.values()]
    names = dict.fromkeys(name for given in settings for name in given)
    table = [(name, [given.get(name, "–") for given in settings]) for name in names]
    return [(name, values) for name, values in table if any(v != values[0] for v in values)]


def _scatter(runs: list[dict[str, Any]]) -> Any:
    dots = [
        Dot(run["name"], run["largest"], run["lowest_accuracy"], _overall(run["counts"]), True)
        for run in runs
        if run["largest"] is not None and run["lowest_accuracy"] is not None
    ]
    if not dots:
        return None
    axes = ("largest difference of any client", "lowest accuracy of any client")
    return scatter("runs", "Runs by accuracy and disparity", dots, axes)


def _overall(counts: Mapping[str, int]) -> str:
    """The worst verdict of a run."""
    return next((verdict for verdict, count in counts.items() if count), "unconstrained")
