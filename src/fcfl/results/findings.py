"""Reasons for exit code 3 and warnings of the first line, each with advice.

A run ends with exit code 3 if its model is degenerate, if it selects fewer than half as many rows
as without budgets, or if it exceeds training budgets or limits on rates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fcfl._checks import first_of
from fcfl._types import ClientId
from fcfl.audit.verdicts import Disparity
from fcfl.problem import FEASIBILITY_TOLERANCE, Row, name_of

from .result import MarginSummary, PoolingSummary, Result

ROUNDING = 1e-9  # disparities of counts are exact up to this
MAX_LOST = 0.05  # accuracy on training rows that a run may lose without a warning
MIN_SELECTED = 0.5  # share of those selected without budgets; below, a run ends with exit code 3
MAX_ITEMS = 3  # that a finding lists; the table of training rows has all
MIN_REGAINED = 0.005  # accuracy that margins must cost before leaving them out is advised


@dataclass(frozen=True)
class Finding:
    """A reason for exit code 3, or a warning.

    ``headline`` is a clause without a full stop, such as "1 of 5 budgets is exceeded". ``items``
    are what it applies to, with numbers. ``advice`` states what to do.
    """

    headline: str
    items: tuple[str, ...]
    advice: str

    @property
    def stated(self) -> str:
        """The headline with what it applies to, as a sentence."""
        return f"{': '.join(filter(None, [self.headline, '; '.join(self.items)]))}."

    @property
    def sentence(self) -> str:
        """The finding and the advice."""
        return f"{self.stated} {self.advice}"


def findings_of(result: Result) -> tuple[Finding, ...]:
    """Return every reason for exit code 3, the most severe first; a run without any succeeded."""
    return (*_on_degenerate(result), *_on_collapse(result), *_on_exceeded(result))


def warnings_of(result: Result) -> tuple[Finding, ...]:
    """Return warnings for the first line of a run, though its exit code is 0."""
    price = result.price
    if price is None or price.lost <= MAX_LOST or has_collapsed(result):
        return ()
    what = "budgets cost" if result.margins is None else "budgets and margins cost"
    headline = f"{what} {100 * price.lost:.1f} points of accuracy on training rows"
    return (Finding(headline, (), ways_out(result)),)


def _on_degenerate(result: Result) -> Iterator[Finding]:
    """Report a model that selects nearly nobody; cards list items, so small counts are none."""
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
    """A budget or a limit exceeded on training rows by a client, or by all rows (``client`` None).

    ``name`` is the client's name in tables. ``entry`` is the disparity of the budget, None for a
    limit on rate shifts. With ``is_estimate`` the client's own rows keep the budget or cannot tell,
    and its estimate over all clients exceeds it.
    """

    client: ClientId | None
    name: str
    excess: float
    entry: Disparity | None = None
    is_estimate: bool = False

    @property
    def described(self) -> str:
        """Client, excess, rule, value and budget."""
        entry, found = self.entry, f"{self.name} by {self.excess:.2g}"
        if entry is None or entry.budget is None:
            return found
        value = "estimated" if self.is_estimate else f"{entry.trained or 0.0:.3g}"
        return f"{found} ({entry.attribute} {entry.rule} {value}, budget {entry.budget:g})"


def exceeded_budgets(result: Result) -> tuple[ExceededBudget, ...]:
    """Return the disparities behind `Result.exceeded`, the largest excess first."""
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
    """Return whether an entry of training rows exceeds its budget.

    Counts are exact, so their tolerance is rounding. Smooth values are met to the tolerance of
    training.
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
            "rates shift further from those without budgets than allowed",
            _first(limits),
            "To keep the limit, allow a larger --max-rate-shift or a larger --budget.",
        )


def _first(found: Sequence[ExceededBudget]) -> tuple[str, ...]:
    left = len(found) - MAX_ITEMS
    more = (f"{left} more",) if left > 0 else ()
    return (*(one.described for one in found[:MAX_ITEMS]), *more)


def _advice(result: Result, found: Sequence[ExceededBudget]) -> str:
    """Name the options that apply to this run."""
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


# --- what lowers the price ------------------------------------------------------------------------


def ways_out(result: Result) -> str:
    """Return a sentence with every way to lower the price: measured, estimated, or unquantified."""
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
    return f"What would help: {'; or '.join(ways)}."


def times_as_many(times: float) -> str:
    """Write a factor with two digits, or as a whole number."""
    return f"{times:.2g}" if times < 10 else f"{times:,.0f}"


def margin_notes(margins: MarginSummary, kind: str, *, pools: bool) -> list[str]:
    """Return sentences on margins that were reduced, and on clients with too few rows for them.

    ``kind`` names the rows that are counted, such as " with label 1". Where budgets are estimates
    over clients (``pools``), no client alone needs more rows.
    """
    notes, asked = [], f"{margins.confidence:g}"
    if margins.cut_to is not None:
        reached = f"made for {margins.cut_to:g}" if margins.cut_to else "left out"
        notes.append(
            f"Margins for {asked} confidence were {reached}: with more, training does not converge "
            "or loses more accuracy than --max-accuracy-loss allows."
        )
    rows_short = {} if pools else margins.rows_short
    never = [repr(name) for name, times in rows_short.items() if times is None]
    if never:
        notes.append(
            f"No number of rows gives {asked} confidence at {first_of(never, 12)}: the budget "
            "there leaves no margin. Allow a larger budget."
        )
    short = [
        f"{times_as_many(times)} times as many at {name!r}"
        for name, times in rows_short.items()
        if times is not None
    ]
    if short:
        notes.append(
            f"Rows{kind} are too few for {asked} confidence: it would take about "
            f"{first_of(short)}. A larger budget or `--scope global` needs fewer."
        )
    return notes


def pooling_notes(pooling: PoolingSummary) -> list[str]:
    """Return sentences on budgets that estimates keep, and on clients unlike the others."""
    n, n_over = len(pooling.weights), len(pooling.exceed_on_own_rows)
    exceed = "exceeds" if n_over == 1 else "exceed"
    over = f"; {n_over} of them {exceed} a budget on their own training rows" if n_over else ""
    notes = [
        f"Budgets of {n - len(pooling.own_rows_decide)} of {n} clients, whose rows are too few to "
        f"tell, are kept by estimates over all clients{over} (--pooling none: by own rows)."
    ]
    if pooling.odd:
        notes.append(
            f"More than chance separates {first_of(map(repr, pooling.odd), 12)} from the other "
            "clients: estimates there may be too low."
        )
    return notes
