"""Reasons for exit code 3, and warnings, each with advice.

A run ends with exit code 3 if its model is degenerate, selects fewer than half as many rows as
without budgets, or exceeds budgets or limits on rate shifts on training rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fcfl._checks import first_of
from fcfl._types import ClientId
from fcfl.audit.verdicts import Disparity
from fcfl.problem import FEASIBILITY_TOLERANCE, Row, name_of

from .result import MarginSummary, PoolingSummary, Result

ROUNDING = 1e-9  # rounding error of disparities computed from counts
MAX_LOST = 0.05  # largest loss of training accuracy without a warning
MIN_SELECTED = 0.5  # smallest ratio of selected rows to those selected without budgets
MAX_ITEMS = 3  # items listed in a finding; the table of training rows lists all
MIN_REGAINED = 0.005  # cost of margins, in accuracy, from which smaller margins are advised


@dataclass(frozen=True)
class Finding:
    """A reason for exit code 3, or a warning.

    ``headline`` is a clause without a full stop, such as "1 of 5 budgets is exceeded". ``items``
    are the clients or values concerned. ``advice`` is a sentence that names options.
    """

    headline: str
    items: tuple[str, ...]
    advice: str

    @property
    def stated(self) -> str:
        """Headline and items, as a sentence."""
        return f"{': '.join(filter(None, [self.headline, '; '.join(self.items)]))}."

    @property
    def sentence(self) -> str:
        """Headline, items and advice."""
        return f"{self.stated} {self.advice}"


def findings_of(result: Result) -> tuple[Finding, ...]:
    """Return all reasons for exit code 3, most severe first; empty if the run succeeded."""
    return (*_on_degenerate(result), *_on_collapse(result), *_on_exceeded(result))


def warnings_of(result: Result) -> tuple[Finding, ...]:
    """Return warnings about a run that ended with exit code 0."""
    price = result.price
    if price is None or price.lost <= MAX_LOST or has_collapsed(result):
        return ()
    cost = "budgets cost" if result.margins is None else "budgets and margins cost"
    headline = f"{cost} {100 * price.lost:.1f} points of accuracy on training rows"
    return (Finding(headline, (), ways_out(result)),)


def _on_degenerate(result: Result) -> Iterator[Finding]:
    """Report a degenerate model; counts are advice, not items, because cards print items."""
    found = result.degenerate
    if found is not None:
        yield Finding(found.headline, (), f"{found.counts} {found.way_out('--threshold ')}")


def has_collapsed(result: Result) -> bool:
    """Return whether the model selects fewer than half as many training rows as without budgets."""
    price = result.price
    if price is None:
        return False
    return price.with_margins.selected < MIN_SELECTED * price.without_budgets.selected


def _on_collapse(result: Result) -> Iterator[Finding]:
    price = result.price
    if price is not None and has_collapsed(result):
        shares = (
            f"{price.without_budgets.selected:.1%} without budgets",
            f"{price.with_budgets.selected:.1%} with budgets",
            f"{price.with_margins.selected:.1%} at the end",
        )
        headline = "the model selects fewer than half as many training rows as without budgets"
        yield Finding(headline, shares, ways_out(result))


# --- exceeded budgets -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ExceededBudget:
    """A budget or limit exceeded on training rows; ``client`` is None for all rows together.

    ``name`` is the client's name in tables. ``entry`` is the disparity of the budget, None for a
    limit on rate shifts. If ``is_estimate``, the estimate over all clients exceeds the budget, but
    the client's own rows do not show it.
    """

    client: ClientId | None
    name: str
    excess: float
    entry: Disparity | None = None
    is_estimate: bool = False

    @property
    def described(self) -> str:
        """Client, excess, rule, value and budget, as text."""
        entry, found = self.entry, f"{self.name} by {self.excess:.2g}"
        if entry is None or entry.budget is None:
            return found
        value = "estimated" if self.is_estimate else f"{entry.trained or 0.0:.3g}"
        return f"{found} ({entry.attribute} {entry.rule} {value}, budget {entry.budget:g})"


def exceeded_budgets(result: Result) -> tuple[ExceededBudget, ...]:
    """Return the budgets and limits in `Result.exceeded`, largest excess first."""
    return tuple(sorted(_exceeded(result), key=lambda one: -one.excess))


def _exceeded(result: Result) -> Iterator[ExceededBudget]:
    entries: dict[str, list[tuple[ClientId | None, Disparity]]] = {}
    for client, entry in result.training_disparities():
        if entry.budget is not None:
            row = Row(client, entry.rule, entry.metric, entry.attribute, "", "", "", 0.0)
            entries.setdefault(name_of(row), []).append((client, entry))
    pooling = result.pooling
    for called, excess in result.exceeded.items():
        if called not in entries:  # a limit on rate shifts
            yield ExceededBudget(None, called, excess)
            continue
        own = [(client, entry) for client, entry in entries[called] if is_exceeded(entry)]
        for client, entry in own or entries[called][:1]:
            name = result.name_of_all if client is None else client
            if client is None or pooling is None or client in pooling.own_rows_decide:
                by = abs((entry.trained or 0.0) - (entry.budget or 0.0)) if own else excess
                yield ExceededBudget(client, name, by, entry)
            else:
                yield ExceededBudget(client, name, excess, entry, is_estimate=True)


def is_exceeded(entry: Disparity) -> bool:
    """Return whether a disparity on training rows exceeds its budget.

    The tolerance is rounding error for counts, and the feasibility tolerance for smooth values.
    """
    value = entry.trained
    if value is None or entry.budget is None:
        return False
    gap = entry.budget - value if entry.is_ratio else value - entry.budget
    return gap > (FEASIBILITY_TOLERANCE if entry.value is None else ROUNDING)


def _on_exceeded(result: Result) -> Iterator[Finding]:
    found = exceeded_budgets(result)
    budgets = [one for one in found if one.entry is not None]
    limits = [one for one in found if one.entry is None]
    if budgets:
        given = sum(entry.budget is not None for _, entry in result.training_disparities())
        of = "1 budget" if given == 1 else f"{len(budgets)} of {given} budgets"
        headline = f"{of} {'is' if len(budgets) == 1 else 'are'} exceeded on the training rows"
        yield Finding(headline, _first(budgets), _advice(result, budgets))
    if limits:
        yield Finding(
            "group rates shift by more than the limit from their values without budgets",
            _first(limits),
            "To keep the limit, allow a larger --max-rate-shift or a larger --budget.",
        )


def _first(found: Sequence[ExceededBudget]) -> tuple[str, ...]:
    left = len(found) - MAX_ITEMS
    more = (f"{left} more",) if left > 0 else ()
    return (*(one.described for one in found[:MAX_ITEMS]), *more)


def _advice(result: Result, found: Sequence[ExceededBudget]) -> str:
    """Return a sentence with the options that apply to this run."""
    is_of_clients = all(one.client is not None for one in found)
    is_of_one = len({one.entry.attribute for one in found if one.entry is not None}) == 1
    options = ["allow a larger --budget"]
    if result.method not in ("sqp", "private"):
        options.append("train with --method sqp, which enforces budgets on decisions")
    elif result.method == "sqp" and is_of_clients and is_of_one and result.thresholds is None:
        options.append("choose thresholds by group with --thresholds group")
    if len(result.clients) > 1 and is_of_clients:
        options.append("compare all clients' rows together with --scope global")
    these = "this budget" if len(found) == 1 else "these budgets"
    return f"To meet {these}, {', or '.join(options)}."


# --- lowering the price ------------------------------------------------------------------------


def ways_out(result: Result) -> str:
    """Return a sentence that lists ways to lower the cost of budgets, with effects if known."""
    price, margins = result.price, result.margins
    ways = ["looser budgets"]
    dear = max(result.prices, key=lambda one: one.value, default=None)
    if dear is not None and dear.value > 0:
        whose = result.name_of_all if dear.client is None else dear.client
        is_ratio = dear.rule == "ratio"
        ways = [
            f"a {'smaller --ratio' if is_ratio else 'larger --budget'} "
            f"(0.01 {'less' if is_ratio else 'more'} for {whose}, {dear.attribute}, would lower "
            f"the training objective by about {0.01 * dear.value:.2g})"
        ]
    if price is not None and margins is not None:
        regained = price.with_budgets.accuracy - price.with_margins.accuracy
        if regained >= MIN_REGAINED:
            points = f"{100 * regained:.1f} points of accuracy"
            ways.append(f"a smaller --confidence (0 regains {points})")
    short = {} if margins is None else margins.rows_short
    known = [(times, client) for client, times in short.items() if times is not None]
    if known:
        times, client = max(known)
        ways.append(f"more rows (about {times_as_many(times)} times as many for {client})")
    elif not short:
        ways.append("more rows")
    is_global = any(entry.budget is not None for entry in result.overall.train.disparities)
    if len(result.clients) > 1 and not is_global:
        ways.append("--scope global")
    if result.threshold is not None:
        ways.append(f"another --threshold than {result.threshold:g}")
    return f"Ways to lower the cost: {'; or '.join(ways)}."


def times_as_many(times: float) -> str:
    """Format a factor with two digits, or as a whole number from 10."""
    return f"{times:.2g}" if times < 10 else f"{times:,.0f}"


def margin_notes(margins: MarginSummary, kind: str, *, pools: bool) -> list[str]:
    """Return notes on reduced margins, and on clients with too few rows for the confidence.

    ``kind`` describes the counted rows, such as " with label 1". If ``pools``, budgets apply to
    estimates over clients, and no single client needs more rows.
    """
    notes, requested = [], f"{margins.confidence:g}"
    if margins.cut_to is not None:
        reached = f"reduced to {margins.cut_to:g}" if margins.cut_to else "left out"
        notes.append(
            f"Margins for {requested} confidence were {reached}: with larger ones, training does "
            "not converge or loses more accuracy than --max-accuracy-loss allows."
        )
    rows_short = {} if pools else margins.rows_short
    never = [repr(name) for name, times in rows_short.items() if times is None]
    if never:
        notes.append(
            f"No number of rows gives {requested} confidence at {first_of(never, 12)}: the budget "
            "leaves no margin. Allow a larger budget."
        )
    short = [
        f"{times_as_many(times)} times as many at {name!r}"
        for name, times in rows_short.items()
        if times is not None
    ]
    if short:
        notes.append(
            f"Too few rows{kind} for {requested} confidence, which requires about "
            f"{first_of(short)}. A larger budget or `--scope global` requires fewer rows."
        )
    return notes


def pooling_notes(pooling: PoolingSummary) -> list[str]:
    """Return notes on budgets that apply to estimates, and on outliers among clients."""
    n, n_over = len(pooling.weights), len(pooling.exceed_on_own_rows)
    exceed = "exceeds a budget on its" if n_over == 1 else "exceed a budget on their"
    over = f"; {n_over} of them {exceed} own training rows" if n_over else ""
    notes = [
        f"{n - len(pooling.own_rows_decide)} of {n} clients with too few rows to tell: budgets are "
        f"applied to estimates over all clients{over} (--pooling none: to own rows)."
    ]
    if pooling.odd:
        notes.append(
            f"Clients that differ from the others by more than chance: "
            f"{first_of(map(repr, pooling.odd), 12)}. Their estimates may be too low."
        )
    return notes
