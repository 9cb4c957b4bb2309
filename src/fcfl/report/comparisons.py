"""Sentences and table cells of sweeps and comparisons of methods, for page and terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fcfl.results import Comparison, Result
from fcfl.results.many_runs import ENOUGH, MAJORITY, MethodSummary, OverSeeds, SweepPoint

from .words import listed, number, part_called

MAX_CLIENTS = 12  # clients named in a sentence, or with their own columns


# --- a sweep --------------------------------------------------------------------------------------


def budget_label(point: SweepPoint) -> str:
    """Return the budget of a sweep point as a short label."""
    if point.relative is not None:
        return f"{point.relative:g} of unconstrained"
    return "no budget" if point.budget is None else f"{point.budget:g}"


def sweep_rows(points: Sequence[SweepPoint]) -> str:
    """Return the name of the judged rows: held-out rows if there are any, else training rows."""
    return part_called("train" if points[-1].test_accuracy is None else "test")


def tradeoff_sentence(points: Sequence[SweepPoint]) -> str:
    """Compare the tightest with the loosest budget: difference over all rows and accuracy."""
    loose, tight = points[0].judged, points[-1].judged
    if len(points) < 2 or loose.all_rows is None or tight.all_rows is None:
        return f"Sweep of {len(points)} budget{'' if len(points) == 1 else 's'}."
    sentence = (
        f"From budget {budget_label(points[0])} to {budget_label(points[-1])}, the difference over "
        f"all rows changes from {number(loose.all_rows, 3)} to {number(tight.all_rows, 3)}"
    )
    if loose.accuracy is not None and tight.accuracy is not None:
        sentence += f", accuracy from {number(loose.accuracy, 3)} to {number(tight.accuracy, 3)}"
    return sentence + "."


def sweep_notes(points: Sequence[SweepPoint]) -> Iterator[str]:
    """Yield sentences on budgets met, on clients with too few people, and on failed points."""
    last = points[-1].judged
    if last.n_budgets:
        yield (
            f"Under the tightest budget, decisions on {sweep_rows(points)} keep {last.kept} of "
            f"{last.n_budgets} budgets of clients with at least {ENOUGH} people in every group."
        )
    if last.too_small:
        yield f"Clients with too few people to compare: {listed(last.too_small, MAX_CLIENTS)}."
    exceeded = [budget_label(point) for point in points if not point.budgets_met]
    if exceeded:
        yield f"Exceeded on the training rows: budget {', '.join(exceeded)}."
    degenerate = [budget_label(point) for point in points if point.degenerate]
    if degenerate:
        budgets = ", ".join(degenerate)
        yield f"Models that select nearly nobody, nearly everybody or too few: budget {budgets}."


def differing_settings(results: Mapping[str, Result]) -> list[tuple[str, list[object]]]:
    """Return the settings that differ between runs, with the value of each run."""
    settings = [result.settings for result in results.values()]
    names = dict.fromkeys(name for given in settings for name in given)
    table = [(name, [given.get(name, "–") for given in settings]) for name in names]
    return [line for line in table if any(value != line[1][0] for value in line[1])]


# --- methods --------------------------------------------------------------------------------------


def methods_sentences(comparison: Comparison) -> list[str]:
    """Return sentences on the best methods, on small clients, and on runs not converged."""
    found = [best_sentence(comparison), too_small_sentence(comparison)]
    for summary in comparison.methods:
        end = how_ended(comparison, summary)
        found.append(f"{summary.method}: {end}." if end else "")
    return [sentence for sentence in found if sentence]


def seeds_called(comparison: Comparison) -> str:
    """Return a note on means over seeds, empty for a single seed."""
    count = max((len(summary.seeds) for summary in comparison.methods), default=1)
    return f", mean of {count} seeds ± half of its 95 % interval" if count > 1 else ""


def spread(over: OverSeeds) -> str:
    """Return a mean with half of its interval, if there is one."""
    if over.mean is None or over.high is None:
        return number(over.mean, 3)
    return f"{number(over.mean, 3)} ± {number(over.high - over.mean, 3)}"


def whole(value: float | None) -> str:
    """Format a value as a whole number, or a dash for None."""
    return "–" if value is None else f"{value:.0f}"


def keeps(summary: MethodSummary) -> str:
    """Return the number of budgets that a method meets, such as ``5/6``."""
    return f"{summary.kept}/{summary.n_budgets}" if summary.n_budgets else "–"


def how_ended(comparison: Comparison, summary: MethodSummary) -> str:
    """Return the change in the last rounds of a method's last run, empty if converged."""
    return {run.method: run.still_moving for run in comparison.runs}.get(summary.method, "")


def difference_bounds(
    comparison: Comparison, summary: MethodSummary
) -> tuple[float | None, float | None]:
    """Return the interval of the difference over all rows: over seeds, or of a single run."""
    over, runs = summary.all_rows, {run.method: run.judged for run in comparison.runs}
    if len(summary.seeds) == 1 and summary.method in runs:
        return runs[summary.method].low, runs[summary.method].high
    return over.low, over.high


def comparison_rows(comparison: Comparison) -> str:
    """Return the names of the rows on which methods are compared."""
    parts = {run.part for run in comparison.runs if run.part is not None}
    return " and ".join(part_called(part) for part in sorted(parts, reverse=True)) or "no rows"


def too_small_sentence(comparison: Comparison) -> str:
    """Return a sentence on the clients that are excluded from the comparison."""
    names = list(dict.fromkeys(name for one in comparison.methods for name in one.too_small))
    if not names:
        return ""
    return (
        f"{listed(names, MAX_CLIENTS)} {'has' if len(names) == 1 else 'have'} fewer than {ENOUGH} "
        "people in a compared group, or fewer than two groups to compare. Excluded from lowest, "
        "median, largest and kept; see the table of clients."
    )


def best_sentence(comparison: Comparison) -> str:
    """Return the best methods by each criterion, ties together, without the majority baseline."""
    methods = {one.method: one for one in comparison.methods if one.method != MAJORITY}
    lowest = {name: one.lowest_accuracy.mean for name, one in methods.items()}
    share = {name: one.kept / one.n_budgets for name, one in methods.items() if one.kept}
    found: dict[tuple[str, ...], list[str]] = {}

    def best(values: Mapping[str, float | None], sign: float = 1.0) -> tuple[str, ...]:
        known = {name: sign * value for name, value in values.items() if value is not None}
        return tuple(name for name, value in known.items() if value == max(known.values()))

    def add(names: tuple[str, ...], what: str, verbs: tuple[str, str] = ("has", "have")) -> None:
        if names:
            found.setdefault(names, []).append(f"{verbs[len(names) > 1]} {what}")

    def kept(name: str) -> str:
        return f"{methods[name].kept} of {methods[name].n_budgets}"

    most = best(share)
    add(most, f"the most budgets ({_together(map(kept, most[:1]))})", ("keeps", "keep"))
    for what, over in (
        ("difference over all rows", {name: one.all_rows.mean for name, one in methods.items()}),
        ("difference at the worst client", {n: one.largest.mean for n, one in methods.items()}),
    ):
        names = best(over, -1.0)
        add(names, f"the smallest {what} ({_value(over, names)})")
    highest = "the highest accuracy at the worst client"
    within = best({name: lowest[name] for name in share if share[name] >= 0.5})
    add(within, f"{highest} ({_value(lowest, within)}) among those that keep half of the budgets")
    names = best(lowest)
    if names != within:
        each = _together(map(kept, names))
        value = _value(lowest, names)
        add(names, f"{highest} regardless of budgets ({value}; kept: {each})")
    clauses = [f"{_together(names)} {_together(what)}" for names, what in found.items()]
    return f"On {comparison_rows(comparison)} {'; '.join(clauses)}." if clauses else ""


def _value(values: Mapping[str, float | None], names: Sequence[str]) -> str:
    return number(values[names[0]], 3) if names else ""


def _together(names: Iterable[str]) -> str:
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last
