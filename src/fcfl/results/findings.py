"""What makes a run end with exit code 3, and what its first line warns of.

A run ends with exit code 3 if its model is degenerate, if it selects fewer than half as many rows
as without budgets, or if it exceeds training budgets or limits on rates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fcfl._types import ClientId
from fcfl.problem.constraints import FEASIBILITY_TOLERANCE, Row, name_of

from .client_result import Disparity
from .result import Result
from .ways_out import ways_out

ROUNDING = 1e-9  # disparities of counts are exact up to this
MOST_LOST = 0.05  # accuracy on training rows that a run may lose without a warning
LEAST_SELECTED = 0.5  # share of those selected without budgets; below, a run ends with exit code 3
MOST_NAMED = 3  # budgets that a finding lists; the table of training rows has all


@dataclass(frozen=True)
class ExceededBudget:
    """What is exceeded on training rows by a client, or by all rows together (``client`` None).

    ``name`` is what a table calls them. ``entry`` is the disparity of the budget, None for a limit
    on rate shifts. With ``is_estimate`` the client's own rows keep the budget or cannot tell, and
    its estimate over all clients exceeds it.
    """

    client: ClientId | None
    name: str
    excess: float
    entry: Disparity | None = None
    is_estimate: bool = False

    @property
    def what(self) -> str:
        """The attribute of a budget, or that a rate has shifted."""
        if self.entry is None:
            return "rate shift"
        return self.entry.attribute + (", estimated" if self.is_estimate else "")


@dataclass(frozen=True)
class Finding:
    """A reason for exit code 3.

    ``headline`` is a clause without a full stop, such as "1 of 5 budgets is exceeded". ``named``
    are a few words for each thing that is wrong, ``details`` the same with all numbers, and
    ``advice`` is a sentence on what to do.
    """

    headline: str
    named: tuple[str, ...]
    details: tuple[str, ...]
    advice: str

    @property
    def sentence(self) -> str:
        """What is wrong, where, and what to do about it."""
        return f"{self.stated}. {self.advice}"

    @property
    def stated(self) -> str:
        """What is wrong, and where, without a full stop."""
        return f"{self.headline}: {', '.join(self.named)}" if self.named else self.headline


def findings_of(result: Result) -> tuple[Finding, ...]:
    """Return every reason for exit code 3, the most severe first; a run without any succeeded."""
    return (*_on_degenerate(result), *_on_collapse(result), *_on_exceeded(result))


def warnings_of(result: Result) -> tuple[Finding, ...]:
    """Return what the first line of a run must warn of, though its exit code is 0."""
    price = result.price
    if price is None or price.lost <= MOST_LOST or has_collapsed(result):
        return ()
    what = "budgets cost" if result.margins is None else "budgets and margins cost"
    headline = f"{what} {100 * price.lost:.1f} points of accuracy on training rows"
    return (Finding(headline, (), (), ways_out(result)),)


def has_collapsed(result: Result) -> bool:
    """Whether the model selects fewer than half as many training rows as without budgets."""
    price = result.price
    if price is None:
        return False
    return price.with_margins.selected < LEAST_SELECTED * price.without_budgets.selected


def _on_collapse(result: Result) -> Iterator[Finding]:
    """Report a model that selects fewer than half as many rows as the one without budgets."""
    price = result.price
    if price is None or not has_collapsed(result):
        return
    before, after = price.without_budgets.selected, price.with_margins.selected
    shares = f"{before:.1%} without budgets", f"{price.with_budgets.selected:.1%} with budgets"
    yield Finding(
        "the model selects fewer than half as many training rows as without budgets",
        (*shares, f"{after:.1%} at the end"),
        (*shares, f"{after:.1%} at the end"),
        ways_out(result),
    )


def trained_value(entry: Disparity) -> float | None:
    """Return the disparity of decisions on training rows, or the smooth one if none were counted.

    The synthetic problem has no rows: training measures its rates by a formula.
    """
    return entry.smooth if entry.value is None else entry.value


def is_exceeded(entry: Disparity) -> bool:
    """Whether an entry of training rows exceeds its budget.

    Counts are exact, so their tolerance is rounding. Smooth values are met to the tolerance of
    training.
    """
    value = trained_value(entry)
    if value is None or entry.budget is None:
        return False
    gap = entry.budget - value if entry.rule == "ratio" else value - entry.budget
    return gap > (FEASIBILITY_TOLERANCE if entry.value is None else ROUNDING)


def exceeded_budgets(result: Result) -> tuple[ExceededBudget, ...]:
    """Return what is exceeded on training rows, the largest excess first.

    A run states it (`Result.exceeded`): a budget is no finding where a client's rows cannot tell
    and the estimate keeps it. Without that statement every training disparity decides. An audit has
    no training rows, so that none of its budgets is here.
    """
    found = _exceeded_entries(result) if result.exceeded is None else _stated(result)
    return tuple(sorted(found, key=lambda one: -one.excess))


def _exceeded_entries(result: Result) -> Iterator[ExceededBudget]:
    for client, entry in result.training_disparities():
        if is_exceeded(entry):
            name = result.name_of_all if client is None else client
            yield ExceededBudget(client, name, _excess(entry), entry)


def _excess(entry: Disparity) -> float:
    return abs((trained_value(entry) or 0.0) - (entry.budget or 0.0))


def _stated(result: Result) -> Iterator[ExceededBudget]:
    """Find the disparities behind the names in `Result.exceeded`; limits on rates have none."""
    entries: dict[str, list[tuple[ClientId | None, Disparity]]] = {}
    for client, entry in result.training_disparities():
        if entry.budget is not None:
            called = name_of(_row(client, entry.rule, entry.metric, entry.attribute))
            entries.setdefault(called, []).append((client, entry))
    for called, excess in (result.exceeded or {}).items():
        if called not in entries:
            yield ExceededBudget(None, called, excess)
            continue
        own = [(client, entry) for client, entry in entries[called] if is_exceeded(entry)]
        for client, entry in own or entries[called][:1]:
            name = result.name_of_all if client is None else client
            pooling = result.pooling
            tells = client is None or pooling is None or client in pooling.own_rows_decide
            if own and tells:
                yield ExceededBudget(client, name, _excess(entry), entry)
            else:
                yield ExceededBudget(client, name, excess, entry, is_estimate=not tells)


def _row(client: ClientId | None, rule: str, metric: str, attribute: str) -> Row:
    return Row(client, rule, metric, attribute, "", "", "", 0.0)


def _on_degenerate(result: Result) -> Iterator[Finding]:
    """Report a model that selects nearly nobody; cards list details, so small counts are none."""
    found = result.degenerate
    if found is not None:
        advice = found.way_out("--threshold ")
        yield Finding(found.headline, tuple(found.named), (), advice)


def _on_exceeded(result: Result) -> Iterator[Finding]:
    found = exceeded_budgets(result)
    budgets = [one for one in found if one.entry is not None]
    if budgets:
        given = sum(entry.budget is not None for _, entry in result.training_disparities())
        of = "1 budget" if given == 1 else f"{len(budgets)} of {given} budgets"
        verb = "is" if len(budgets) == 1 else "are"
        named = [f"{one.name} ({one.what}, by {one.excess:.2g})" for one in budgets]
        yield Finding(
            f"{of} {verb} exceeded on the training rows",
            _first(named),
            _first(list(map(_phrase, budgets))),
            _advice(result, budgets),
        )
    limits = [one for one in found if one.entry is None]
    if limits:
        named = [f"{one.name} by {one.excess:.2g}" for one in limits]
        yield Finding(
            "rates shift further from those without budgets than allowed",
            _first(named),
            _first(named),
            "To keep the limit, allow a larger --max-rate-shift or a larger --budget.",
        )


def _first(listed: Sequence[str]) -> tuple[str, ...]:
    left = len(listed) - MOST_NAMED
    return (*listed[:MOST_NAMED], *((f"{left} more",) if left > 0 else ()))


def _phrase(one: ExceededBudget) -> str:
    entry = one.entry
    if entry is None or entry.budget is None:
        return f"{one.name} by {one.excess:.2g}"
    value = "its estimate" if one.is_estimate else f"{trained_value(entry) or 0.0:.3g}"
    what = f"{entry.metric.replace('_', ' ')} {entry.rule} by {entry.attribute}"
    return f"{one.name} by {one.excess:.2g} ({what} {value}, budget {entry.budget:g})"


def _advice(result: Result, found: Sequence[ExceededBudget]) -> str:
    """Name the options that apply to this run."""
    is_of_clients = all(one.client is not None for one in found)
    is_of_one = len({one.entry.attribute for one in found if one.entry is not None}) == 1
    may_choose_thresholds = is_of_clients and is_of_one and result.thresholds is None
    options = ["allow a larger --budget"]
    if result.method not in ("sqp", "private"):
        options.append("train with --method sqp, which enforces budgets on decisions")
    elif result.method == "sqp" and may_choose_thresholds:
        options.append("choose thresholds by group with --thresholds group")
    if len(result.clients) > 1 and is_of_clients:
        options.append("compare all clients' rows together with --scope global")
    comma = "," if len(options) > 2 else ""
    first = ", ".join(options[:-1]) + f"{comma} or " if options[:-1] else ""
    either = first + options[-1]
    return f"To meet {'this budget' if len(found) == 1 else 'these budgets'}, {either}."
