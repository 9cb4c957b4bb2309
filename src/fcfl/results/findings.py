"""What makes a run end with exit code 3: a degenerate model, or exceeded training budgets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fcfl._types import ClientId
from fcfl.server.method import FEASIBILITY_TOLERANCE

from .client_result import Disparity
from .result import Result

ROUNDING = 1e-9  # disparities of counts are exact up to this
MOST_NAMED = 3  # budgets that a finding lists; the table of training rows has all


@dataclass(frozen=True)
class ExceededBudget:
    """A budget that is exceeded on training rows: of a client, or of all rows together (None).

    ``name`` is what a table calls them.
    """

    client: ClientId | None
    name: str
    entry: Disparity
    value: float
    budget: float

    @property
    def excess(self) -> float:
        """Distance from the budget."""
        return abs(self.value - self.budget)


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
        return f"{self.headline}: {', '.join(self.named)}. {self.advice}"


def findings_of(result: Result) -> tuple[Finding, ...]:
    """Return every reason for exit code 3, the most severe first; a run without any succeeded."""
    return (*_on_degenerate(result), *_on_exceeded(result))


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
    """Return the training budgets that are exceeded, the largest excess first.

    An audit has no training rows, so that none of its budgets is here.
    """
    return tuple(sorted(_exceeded(result), key=lambda one: -one.excess))


def _exceeded(result: Result) -> Iterator[ExceededBudget]:
    for client, entry in result.training_disparities():
        value = trained_value(entry)
        if is_exceeded(entry) and value is not None and entry.budget is not None:
            name = result.name_of_all if client is None else client
            yield ExceededBudget(client, name, entry, value, entry.budget)


def _on_degenerate(result: Result) -> Iterator[Finding]:
    """Report a model that selects nearly nobody; cards list details, so small counts are none."""
    found = result.degenerate
    if found is not None:
        advice = found.way_out("--threshold ")
        yield Finding(found.headline, tuple(found.named), (), advice)


def _on_exceeded(result: Result) -> Iterator[Finding]:
    found = exceeded_budgets(result)
    if not found:
        return
    given = sum(entry.budget is not None for _, entry in result.training_disparities())
    of = "1 budget" if given == 1 else f"{len(found)} of {given} budgets"
    verb = "is" if len(found) == 1 else "are"
    left = len(found) - MOST_NAMED
    more = (f"{left} more",) if left > 0 else ()
    named = [f"{one.name} ({one.entry.attribute}, by {one.excess:.2g})" for one in found]
    yield Finding(
        f"{of} {verb} exceeded on the training rows",
        (*named[:MOST_NAMED], *more),
        (*map(_phrase, found[:MOST_NAMED]), *more),
        _advice(result, found),
    )


def _phrase(one: ExceededBudget) -> str:
    entry = one.entry
    what = f"{entry.metric.replace('_', ' ')} {entry.rule} by {entry.attribute}"
    return f"{one.name} by {one.excess:.2g} ({what} {one.value:.3g}, budget {one.budget:g})"


def _advice(result: Result, found: Sequence[ExceededBudget]) -> str:
    """Name the options that apply to this run."""
    is_of_clients = all(one.client is not None for one in found)
    is_of_one = len({one.entry.attribute for one in found}) == 1
    may_choose_thresholds = is_of_clients and is_of_one and result.thresholds is None
    options = ["allow a larger --budget"]
    if result.method not in ("sqp", "private"):
        options.append("train with --method sqp, which enforces budgets on decisions")
    elif result.method == "sqp" and may_choose_thresholds:
        options.append("choose thresholds by group with --thresholds group")
    if len(result.clients) > 1 and is_of_clients:
        options.append("compare all clients' rows together with --scope global")
    either = ", ".join(options[:-1]) + (" or " if options[:-1] else "") + options[-1]
    return f"To meet {'this budget' if len(found) == 1 else 'these budgets'}, {either}."
