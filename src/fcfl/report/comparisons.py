"""Sweeps and comparisons of methods: sentences and tables, for page and terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.table import Table

from fcfl.results import Comparison, Result
from fcfl.results.many_runs import ENOUGH, MAJORITY, MethodSummary, OverSeeds, SweepPoint

from .claims import part_called
from .layout import Column, fitted_table
from .words import listed, number

MOST_CLIENTS = 12  # that a sentence names, or with columns of their own


# --- a sweep --------------------------------------------------------------------------------------


def budget_label(point: SweepPoint) -> str:
    """Return a sweep point's budget in few words."""
    if point.relative is not None:
        return f"{point.relative:g} of unconstrained"
    return "no budget" if point.budget is None else f"{point.budget:g}"


def sweep_rows(points: Sequence[SweepPoint]) -> str:
    """Return which rows points are judged by: training rows if there are no held-out ones."""
    return part_called("train" if points[-1].test_accuracy is None else "test")


def tradeoff_sentence(points: Sequence[SweepPoint]) -> str:
    """Return the effect and the cost of the tightest budget, beside the loosest."""
    loose, tight = points[0].judged, points[-1].judged
    if len(points) < 2 or loose.all_rows is None or tight.all_rows is None:
        return f"Sweep of {len(points)} budget{'' if len(points) == 1 else 's'}."
    sentence = (
        f"From budget {budget_label(points[0])} to {budget_label(points[-1])}, the difference over "
        f"all rows goes from {number(loose.all_rows, 3)} to {number(tight.all_rows, 3)}"
    )
    if loose.accuracy is not None and tight.accuracy is not None:
        sentence += f", accuracy from {number(loose.accuracy, 3)} to {number(tight.accuracy, 3)}"
    return sentence + "."


def sweep_notes(points: Sequence[SweepPoint]) -> Iterator[str]:
    """Yield what the tightest budget keeps, who is too small, and which points failed."""
    last = points[-1].judged
    if last.n_budgets:
        yield (
            f"Under the tightest budget, decisions on {sweep_rows(points)} keep {last.kept} of "
            f"{last.n_budgets} budgets of clients with at least {ENOUGH} people in every group."
        )
    if last.too_small:
        yield f"Too small to judge by: {listed(last.too_small, MOST_CLIENTS)}."
    exceeded = [budget_label(point) for point in points if not point.budgets_met]
    if exceeded:
        yield f"Not kept on the training rows: budget {', '.join(exceeded)}."
    degenerate = [budget_label(point) for point in points if point.degenerate]
    if degenerate:
        budgets = ", ".join(degenerate)
        yield f"The model selects nearly nobody, everybody, or too few: budget {budgets}."


def differing_settings(results: Mapping[str, Result]) -> list[tuple[str, list[object]]]:
    """Return settings that are not the same in all runs, with each run's value."""
    settings = [result.settings for result in results.values()]
    names = dict.fromkeys(name for given in settings for name in given)
    table = [(name, [given.get(name, "–") for given in settings]) for name in names]
    return [line for line in table if any(value != line[1][0] for value in line[1])]


# --- methods --------------------------------------------------------------------------------------


def methods_table(comparison: Comparison, width: int = 80) -> Table:
    """Return a comparison for a screen of ``width`` cells."""
    methods = comparison.methods
    columns = [
        Column("method", [one.method for one in methods], is_number=False),
        Column("lowest\naccu-\nracy", [spread(one.lowest_accuracy) for one in methods]),
        Column("all\nrows\naccu-\nracy", [spread(one.accuracy) for one in methods], rank=1),
        Column("all\nrows\nse-\nlected", [number(one.selected.mean, 3) for one in methods], rank=5),
        Column("differ-\nence,\nall\nrows", [number(one.all_rows.mean, 3) for one in methods]),
        Column("interval", [difference_interval(comparison, one) for one in methods], rank=3),
        Column("median\nclient", [number(one.median.mean, 3) for one in methods], rank=4),
        Column("largest\nclient", [number(one.largest.mean, 3) for one in methods], rank=2),
        Column("kept", [keeps(one) for one in methods]),
        Column("ex-\nchanges", [whole(one.exchanges.mean) for one in methods], rank=1),
    ]
    title = f"{comparison.table}: methods on the same rows{seeds_called(comparison)}"
    return fitted_table(title, columns, width)


def methods_sentences(comparison: Comparison) -> list[str]:
    """Return who is best, who is too small, and who has not converged."""
    found = [best_sentence(comparison), too_small_sentence(comparison)]
    for summary in comparison.methods:
        end = how_ended(comparison, summary)
        found.append(f"{summary.method}: {end}." if end else "")
    return [sentence for sentence in found if sentence]


def seeds_called(comparison: Comparison) -> str:
    """Return what numbers are over several seeds, empty for one."""
    count = max((len(summary.seeds) for summary in comparison.methods), default=1)
    return f", mean of {count} seeds ± half its 95 % interval" if count > 1 else ""


def spread(over: OverSeeds) -> str:
    """Return a mean, with half its interval where there is one."""
    if over.mean is None or over.high is None:
        return number(over.mean, 3)
    return f"{number(over.mean, 3)} ± {number(over.high - over.mean, 3)}"


def whole(value: float | None) -> str:
    """Return a whole number."""
    return "–" if value is None else f"{value:.0f}"


def keeps(summary: MethodSummary) -> str:
    """Return how many budgets a method keeps, such as ``5/6``."""
    return f"{summary.kept}/{summary.n_budgets}" if summary.n_budgets else "–"


def how_ended(comparison: Comparison, summary: MethodSummary) -> str:
    """Return how much a method's last run still changed where it stopped, or nothing."""
    return {run.method: run.still_moving for run in comparison.runs}.get(summary.method, "")


def difference_bounds(
    comparison: Comparison, summary: MethodSummary
) -> tuple[float | None, float | None]:
    """Return the interval over all rows: over seeds, or of a single run's disparity."""
    over, runs = summary.all_rows, {run.method: run.judged for run in comparison.runs}
    if len(summary.seeds) == 1 and summary.method in runs:
        return runs[summary.method].low, runs[summary.method].high
    return over.low, over.high


def difference_interval(comparison: Comparison, summary: MethodSummary) -> str:
    """Return the same in a few cells."""
    low, high = difference_bounds(comparison, summary)
    if low is None or high is None:
        return "–"
    return "–".join(f"{end:.3f}".replace("0.", ".", 1) for end in (low, high))


def comparison_rows(comparison: Comparison) -> str:
    """Return which rows methods are judged by."""
    parts = {run.part for run in comparison.runs if run.part is not None}
    return " and ".join(part_called(part) for part in sorted(parts, reverse=True)) or "no rows"


def too_small_sentence(comparison: Comparison) -> str:
    """Return the clients that do not decide how methods compare."""
    names = list(dict.fromkeys(name for one in comparison.methods for name in one.too_small))
    if not names:
        return ""
    return (
        f"{listed(names, MOST_CLIENTS)} {'has' if len(names) == 1 else 'have'} fewer than {ENOUGH} "
        "people in a group that is compared, or no two groups to compare: too few to judge by, and "
        "left out of lowest, median, largest and kept. They are in the table of clients."
    )


def best_sentence(comparison: Comparison) -> str:
    """Return what each method is best at; equals are named together, the majority class never."""
    claims: dict[tuple[str, ...], list[str]] = {}
    methods = [one for one in comparison.methods if one.method != MAJORITY]

    def add(
        is_plural_verb: tuple[str, str],
        what: Callable[[Sequence[MethodSummary]], str],
        value: Callable[[MethodSummary], float | None],
        unless: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        """Name the methods with the largest value, unless these have been named."""
        known = [(one, found) for one in methods if (found := value(one)) is not None]
        best = [one for one, found in known if found == max(other for _, other in known)]
        names = tuple(one.method for one in best)
        if names and names != unless:
            claims.setdefault(names, []).append(f"{is_plural_verb[len(best) > 1]} {what(best)}")
        return names

    def kept_share(one: MethodSummary) -> float | None:
        return one.kept / one.n_budgets if one.kept else None  # none is not most

    def smallest(over: OverSeeds) -> float | None:
        return None if over.mean is None else -over.mean

    has = ("has", "have")
    add(("keeps", "keep"), lambda b: f"most budgets ({_kept(b[0])})", kept_share)
    add(
        has,
        lambda b: f"the smallest difference over all rows ({number(b[0].all_rows.mean, 3)})",
        lambda one: smallest(one.all_rows),
    )
    add(
        has,
        lambda b: f"the smallest difference at any client ({number(b[0].largest.mean, 3)})",
        lambda one: smallest(one.largest),
    )
    highest = "the highest accuracy at the worst client"
    within = add(
        has,
        lambda b: (
            f"{highest} ({number(b[0].lowest_accuracy.mean, 3)}) of those that keep half of the "
            "budgets"
        ),
        lambda one: one.lowest_accuracy.mean if (kept_share(one) or 0.0) >= 0.5 else None,
    )
    add(
        has,
        lambda b: (
            f"{highest} without regard to budgets ({number(b[0].lowest_accuracy.mean, 3)}; kept: "
            f"{_together([_kept(one) for one in b])})"
        ),
        lambda one: one.lowest_accuracy.mean,
        unless=within,
    )
    each = [f"{_together(names)} {_together(what)}" for names, what in claims.items()]
    return f"On {comparison_rows(comparison)} {'; '.join(each)}." if each else ""


def _kept(summary: MethodSummary) -> str:
    return f"{summary.kept} of {summary.n_budgets}"


def _together(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
