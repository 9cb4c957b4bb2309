"""Sentences about a result. A budget is met, exceeded or undetermined; nothing is ever more."""

import math
from collections.abc import Iterator, Sequence

from fcfl.results import Disparity, Result

from .claims import Claim, claims_of, count_verdicts, first_claim, rows_called, together_called

MOST_NAMED = 3  # exceeded budgets the headline spells out
TOLERANCE = 1e-6  # a disparity that exceeds its budget by less counts as met


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table, a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


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
        facts.append(f"training loss {number(worst.train_loss)} (without the L2 term)")
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


def minimised(result: Result) -> str:
    """What training minimises, and so what prices are paid in."""
    kind = "excess training loss" if result.own_best_losses else "training loss"
    if result.objective in (None, "max"):
        return f"the worst client's {kind}"
    what = "mean" if result.objective == "mean" else "soft maximum"
    return f"the {what} of the clients' {kind}es"


# --- training rows --------------------------------------------------------------------------------


def budgets(result: Result) -> Iterator[tuple[str, Disparity]]:
    """Everyone with a budget, and the entry about it, on training rows."""
    for name, entry in result.training_disparities():
        if entry.budget is not None:
            yield together_called(result) if name is None else name, entry


def is_exceeded(entry: Disparity) -> bool:
    """Whether decisions on training rows break the budget: above a difference's, below a ratio's.

    Where no rows were counted, as in the synthetic problem, what training measured is meant.
    """
    value = trained_value(entry)
    if value is None or entry.budget is None:
        return False
    gap = value - entry.budget
    return (-gap if entry.rule == "ratio" else gap) > TOLERANCE


def trained_value(entry: Disparity) -> float | None:
    """The disparity on training rows, of decisions where rows were counted."""
    return entry.smooth if entry.value is None else entry.value


def headline(result: Result) -> str:
    """Who is served worst, and how many budgets are met on training rows."""
    served = served_sentence(result) or unknown_worst(result)
    if result.method == "audit":
        return served
    given = list(budgets(result))
    if not given:
        return f"{served} No budget was set."
    known = [(name, entry) for name, entry in given if trained_value(entry) is not None]
    exceeded = [(name, entry) for name, entry in known if is_exceeded(entry)]
    met = f"{len(known) - len(exceeded)} of {len(given)} budgets met on the training rows"
    if exceeded:
        met += f". Not met: {_named(exceeded)}"
    if len(known) < len(given):
        met += f". Without two groups to compare: {len(given) - len(known)}"
    return f"{served} {met}."


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


def _named(exceeded: Sequence[tuple[str, Disparity]]) -> str:
    named = [
        f"{plain(name)} {number(trained_value(entry))}, budget {number(entry.budget, 3)}"
        for name, entry in exceeded[:MOST_NAMED]
    ]
    more = [f"{len(exceeded) - MOST_NAMED} more"] if len(exceeded) > MOST_NAMED else []
    return "; ".join(named + more)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
