"""Sentences about a result. A budget is met, exceeded or undetermined; nothing is ever more."""

import math
from collections.abc import Iterator, Sequence

from fcfl.results import Result
from fcfl.results.findings import exceeded_budgets, findings_of, warnings_of
from fcfl.results.result import PoolingSummary

from .claims import Claim, claims_of, count_verdicts, first_claim, rows_called

MOST_LISTED = 12  # clients whose own rows exceed a budget
MOST_NAMED = 3  # clients of the same privacy loss that are spelled out
_PHASES = {
    "meet": "to meet",
    "reference": "to train without budgets",
    "disclose": "for reference rows",
    "alone": "to train clients alone",
    "choose": "to choose settings",
    "starts": "to compare starts",
    "fit": "to train",
    "check": "to check decisions",
    "tighten": "to tighten bounds",
    "project": "to correct decisions",
    "threshold": "to choose thresholds",
    "vote": "to vote",
}


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table, a dash where there is none; only nothing is 0."""
    if value is None or not math.isfinite(value):
        return "–"
    told = f"{value:.{digits}f}"
    return f"<{10**-digits:.{digits}f}" if value > 0 and not float(told) else told


def share(count: int | None, rows: int) -> str:
    """Return a share with three decimals; only nobody is 0 and only everybody is 1."""
    if count is None or not rows:
        return "–"
    told = f"{count / rows:.3f}"
    if told == "0.000" and count:
        return "<.001"
    return ">.999" if told == "1.000" and count < rows else told


def plain(name: str) -> str:
    """A name as it is, but without characters that would steer a terminal or a line of text."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in name)


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """Both ends, a dash where there is no interval."""
    if low is None or high is None:
        return "–"
    return f"{low:.{digits}f} to {high:.{digits}f}"


def verdict_sentence(result: Result) -> str:
    """What is known of the budgets on the judged rows: shown to be met, exceeded, or not known."""
    claims = [claim for claim in claims_of(result) if claim.budget is not None]
    if not claims:
        return "No budget was set: disparities are measured, not judged."
    counts = count_verdicts(claims)
    given = "1 budget" if len(claims) == 1 else f"{len(claims)} budgets"
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


def _has(count: int) -> str:
    return f"{count} has" if count == 1 else f"{count} have"


def worst_sentence(result: Result) -> str | None:
    """The claim that matters most, with its rows and its interval."""
    first = first_claim(result)
    return None if first is None else claim_sentence(first)


def claim_sentence(claim: Claim) -> str:
    """``phd: budget 0.05 undetermined on 181 rows (smallest group 24), …``."""
    who, what = plain(claim.client), plain(claim.of.in_words)
    if claim.value is None:
        return f"{who}: {what} cannot be measured, fewer than two groups have enough rows."
    on = f"on {_rows(claim.rows)}"
    if claim.smallest_group is not None:
        on += f" (smallest group {claim.smallest_group:,})"
    found = f"{what} is {number(claim.value, 3)}"
    if claim.low is not None:
        found += f", interval {interval(claim.low, claim.high)}"
    if claim.budget is None:
        return f"{who}: {found} {on}; no budget."
    return f"{who}: budget {claim.budget:g} {claim.verdict} {on}: {found}.{_reach(claim)}"


def _reach(claim: Claim) -> str:
    """What the rows could show at all, where they decide nothing."""
    if claim.verdict != "undetermined" or claim.smallest_verifiable is None:
        return ""
    side = "above" if claim.of.is_ratio else "below"
    return f" These rows cannot verify a budget {side} {claim.smallest_verifiable:.3f}."


def served_sentence(result: Result) -> str | None:
    """Who is served worst, where that is known."""
    worst = result.worst_client
    if worst.name is None:
        return None
    facts = []
    if worst.train_loss is not None:
        facts.append(f"training loss {number(worst.train_loss)}")
    if worst.test_accuracy is not None:
        rows = "accuracy" if result.method == "audit" else "test accuracy"
        facts.append(f"{rows} {number(worst.test_accuracy)}")
    return f"Worst served: {', '.join([plain(worst.name), *facts])}."


def price_sentence(claim: Claim, result: Result) -> str:
    """What one hundredth of a budget costs."""
    whose = f"the budget over {claim.client}" if claim.is_together else f"{claim.client}'s budget"
    saved = 0.01 * (claim.price or 0.0)
    return (
        f"Relaxing {plain(whose)} ({plain(claim.of.in_words)}) by 0.01 would lower "
        f"{minimised(result)} by about {saved:.2g}."
    )


def prices_sentence(claims: Sequence[Claim], result: Result) -> str:
    """Return what one hundredth of each of several budgets costs, in one sentence."""
    if not claims:
        return ""
    attributes = {claim.of for claim in claims}
    each = [
        f"{plain(claim.client)} {0.01 * (claim.price or 0.0):.2g}"
        + (f" ({plain(claim.of.in_words)})" if len(attributes) > 1 else "")
        for claim in claims
    ]
    return (
        f"Relaxing one budget by 0.01 would lower {minimised(result)} by about: {', '.join(each)}."
    )


def minimised(result: Result) -> str:
    """What training minimises, and so what prices are paid in."""
    kind = "excess training loss" if result.own_best_losses else "training loss"
    if result.objective in (None, "max"):
        return f"the worst client's {kind}"
    what = "mean" if result.objective == "mean" else "soft maximum"
    return f"the {what} of the clients' {kind}es"


# --- training rows --------------------------------------------------------------------------------


def title_of(result: Result) -> str:
    """Return the headline: reasons for exit code 3, a high price, or what is known of budgets."""
    found = findings_of(result)
    if found:
        reasons = "; ".join(plain(finding.headline) for finding in found)
        return f"{capitalised(reasons)} (exit code 3)."
    warned = [capitalised(plain(f"{one.headline}. ")) for one in warnings_of(result)]
    return "".join(warned) + verdict_sentence(result)


def capitalised(sentence: str) -> str:
    """Return a sentence that begins with a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def finding_sentences(result: Result) -> list[str]:
    """Return one sentence for each reason for exit code 3 and each warning, with all details."""
    return [
        plain(": ".join(filter(None, [capitalised(one.headline), "; ".join(one.details)])) + ".")
        for one in (*findings_of(result), *warnings_of(result))
    ]


def threshold_sentence(result: Result) -> str | None:
    """State from which score on rows are selected; an audit does not know it."""
    if result.threshold is None:
        return None
    if result.thresholds is not None:
        return f"People are selected by client and group, near a score of {result.threshold:g}."
    return f"People are selected from a score of {result.threshold:g} on."


def standing(result: Result) -> str:
    """Return reasons for exit code 3, warnings and what is known of the budgets, for a card."""
    return " ".join([*finding_sentences(result), verdict_sentence(result)])


def trained_sentence(result: Result) -> str:
    """Return how many budgets are met on the training rows; nothing for an audit."""
    if result.method == "audit":
        return ""
    given = [entry for _, entry in result.training_disparities() if entry.budget is not None]
    if not given:
        return "No budget was set."
    if result.pooling is not None:
        return _kept_by_estimates(result, result.pooling, len(given))
    known = [entry for entry in given if entry.trained is not None]
    met = len(known) - sum(one.entry is not None for one in exceeded_budgets(result))
    sentence = f"{met} of {_budgets(len(given))} met on the training rows"
    if len(known) < len(given):
        sentence += f", {_has(len(given) - len(known))} no two groups to compare"
    return f"{sentence}."


def _budgets(n: int) -> str:
    return "1 budget" if n == 1 else f"{n} budgets"


def _kept_by_estimates(result: Result, pooling: PoolingSummary, n_given: int) -> str:
    """Return how many budgets are met, by what, and whose own rows exceed theirs."""
    met = n_given - sum(one.entry is not None for one in exceeded_budgets(result))
    n_clients, n_own = len(pooling.weights), len(pooling.own_rows_decide)
    sentence = (
        f"{met} of {_budgets(n_given)} met on the training rows: {n_own} of {n_clients} clients "
        "are judged by their own rows, the others by estimates over all clients"
    )
    over = pooling.exceed_on_own_rows
    if not over:
        return f"{sentence}."
    exceed = "exceeds" if len(over) == 1 else "exceed"
    return f"{sentence}. Of these, {listed(over)} {exceed} a budget on their own training rows."


def listed(names: Sequence[str]) -> str:
    """Return the first names of several, and how many more there are."""
    left = len(names) - MOST_LISTED
    shown = plain(", ".join(names[:MOST_LISTED]))
    return f"{shown} and {left} more" if left > 0 else shown


def cost_sentence(result: Result) -> str | None:
    """Return how many exchanges the run took and what for; None if clients were not asked."""
    parts = exchanges_called(result)
    return f"Exchanges with all clients: {parts}." if parts else None


def exchanges_called(result: Result) -> str:
    """Return ``38 (2 to meet, 12 to train, …)``, empty without exchanges."""
    cost = result.exchanges
    parts = ", ".join(f"{n:,} {_PHASES.get(name, name)}" for name, n in cost.by_phase.items())
    return f"{cost.total:,} ({parts})" if cost.total else ""


def unknown_worst(result: Result) -> str:
    """Why nobody is named as served worst."""
    if result.privacy is not None:
        return "Who is served worst is not known: clients that add noise tell no losses."
    return "Who is served worst is not known without labels."


def privacy_sentences(result: Result) -> Iterator[str]:
    """What the run disclosed of a row at most, of which neighbours, and what that leaves out."""
    if result.privacy is None:
        return
    losses: dict[tuple[float, float], list[str]] = {}
    for name, loss in result.privacy.clients.items():
        losses.setdefault((loss.epsilon, loss.delta), []).append(name)
    for (epsilon, delta), names in losses.items():
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        who = plain(", ".join(names[:MOST_NAMED])) + more
        yield (
            f"Privacy: epsilon {epsilon:g} at delta {delta:g} for each of {who}. Neighbouring "
            f"tables differ by one row that is added or removed ({result.privacy.neighbours}). All "
            "counts and rates here have noise, and intervals are as much wider."
        )
    yield f"Privacy does not cover {'; '.join(result.privacy.not_covered)}."


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
