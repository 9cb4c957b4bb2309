"""Sentences about an item, made from its numbers: what holds, what is noise, what does not."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from fcfl.results import OverSeeds

from .records import CaseResult, ItemResult, Published, Row, RunFigures
from .tables import number, sampling_deviation, share

STANDARD_ERRORS = 1.96  # a smaller difference may be chance
SIGNIFICANCE = 0.05  # of the sign test
Measure: TypeAlias = Literal["accuracy", "worst_accuracy"]
Verdict: TypeAlias = Literal["better", "costly", "level", "worse"]


def compare(ours: Row, other: Row) -> Verdict:
    """Return who is within all budgets in more splits, and if that costs the worst client."""
    more, fewer = discordant(ours, other)
    if more > fewer:
        gap, error = difference(ours, other, "worst_accuracy")
        return "better" if gap >= -STANDARD_ERRORS * error else "costly"
    return "level" if more == fewer else "worse"


def may_be_chance(ours: Row, other: Row) -> bool:
    """Return whether the sign test leaves the counts of splits within budget undecided."""
    return sign_test(*discordant(ours, other)) > SIGNIFICANCE


def discordant(ours: Row, other: Row) -> tuple[int, int]:
    """Splits in which only we are within all budgets, and in which only the other is."""
    pairs = [(bool(a.within_all), bool(b.within_all)) for a, b in _paired(ours, other)]
    return sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)


def sign_test(more: int, fewer: int) -> float:
    """Return exact two-sided sign test: how often fair coins fall at least so unevenly."""
    count = more + fewer
    tail = sum(math.comb(count, k) for k in range(min(more, fewer) + 1)) * 0.5**count
    return float(min(1.0, 2 * tail))


def difference(ours: Row, other: Row, measure: Measure) -> tuple[float, float]:
    """Return mean paired difference and its standard error."""
    gaps = [
        float(getattr(a, measure)) - float(getattr(b, measure)) for a, b in _paired(ours, other)
    ]
    mean = sum(gaps) / len(gaps)
    if len(gaps) < 2:
        return mean, math.inf
    variance = sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1)
    return mean, math.sqrt(variance / len(gaps))


def _paired(ours: Row, other: Row) -> list[tuple[RunFigures, RunFigures]]:
    by_seed = {run.seed: run for run in other.runs}
    return [(run, by_seed[run.seed]) for run in ours.runs if run.seed in by_seed]


OURS = "sqp"
_VERDICTS: dict[Verdict, str] = {
    "better": "More often than, at a worst-client accuracy not measurably lower:",
    "costly": "More often than, but at a lower worst-client accuracy:",
    "level": "As often as:",
    "worse": "Less often than:",
}


def readings(item: ItemResult) -> list[str]:
    """Return sentences, in the order of the tables."""
    if not item.finished_rows:
        return ["No run finished."]
    if item.figure == "front":
        return [_front(item)]
    if item.figure == "series":
        return list(_series(item))
    sentences: list[str] = []
    for case in item.cases:
        for protocol in item.protocols:
            rows = item.rows_of(case.name, protocol)
            if protocol == "original":
                sentences += _original(case, rows)
            elif case.budget is not None:
                sentences += _shares(case, rows)
            else:
                sentences += _no_budget(case, rows)
    sentences += _limits(item)
    return sentences or ["One split of so few rows decides nothing; run it with more --seeds."]


# --- the paper's protocol -------------------------------------------------------------------------


def _original(case: CaseResult, rows: Sequence[Row]) -> Iterator[str]:
    """Yield worst-client accuracy beside theirs, and budgets on training rows."""
    lines = [row for row in rows if row.line in ("two-stage", "sqp", "sqp-mean")]
    for given in [given for given in case.given if given.accuracy][:1]:
        worst = given.worst_client
        theirs = given.accuracy[worst]
        if lines:
            people = lines[0].runs[0].clients[worst].rows
            ours = "; ".join(_beside(row, worst, theirs) for row in lines)
            yield (
                f"{case.name}, original split: {worst} accuracy was {number(theirs)} "
                f"({given.label}); {ours}. One person of {people} is {number(1 / people)}, one "
                f"standard deviation of sampling {number(sampling_deviation(theirs, people))}."
            )
        yield from _met(case, given, rows)


def _beside(row: Row, client: str, theirs: float) -> str:
    found = row.clients[client].accuracy.mean or 0.0
    people = row.runs[0].clients[client].rows
    below = found >= theirs - sampling_deviation(theirs, people)
    lower = "lower, within" if below else "lower by more than"
    verdict = "no worse" if found >= theirs else f"{lower} one standard deviation"
    return f"{row.label} {number(found)}, {verdict}"


def _met(case: CaseResult, given: Published, rows: Sequence[Row]) -> Iterator[str]:
    """Yield whose budgets are met: theirs on test rows, ours on training rows."""
    exceeded = case.exceeded_by(given)
    if exceeded is None:
        return
    theirs = f"exceed the budget of {' and '.join(exceeded)}" if exceeded else "meet the budgets"
    own = (row for row in rows if row.kind != "baseline")
    ours = (f"{row.label} {share(row.share_met_in_training, row.n_runs)}" for row in own)
    yield (
        f"{case.name}: {given.label} {theirs} on test rows; runs that meet all budgets on "
        f"their training rows: {', '.join(ours)}."
    )


# --- random splits --------------------------------------------------------------------------------


def _shares(case: CaseResult, rows: Sequence[Row]) -> Iterator[str]:
    """Yield how often budgets are met on held-out rows, ours against every baseline."""
    lines = {row.line: row for row in rows if row.n_runs > 1}
    for name in (OURS, "sqp-sure", "sqp-tenth", "sqp-max", "two-stage"):
        if (ours := lines.get(name)) is None:
            continue
        verdicts: dict[Verdict, list[Row]] = {verdict: [] for verdict in _VERDICTS}
        for row in rows:
            if row.kind == "baseline":
                verdicts[compare(ours, row)].append(row)
        compared = _list_all(ours, verdicts) if name == OURS else _list_worse(ours, verdicts)
        yield (
            f"{case.name}, {ours.n_runs} random splits: {ours.label} is within every budget on "
            f"held-out rows in {share(ours.share_within['all'], ours.n_runs)} (worst client's "
            f"accuracy {mean(ours.worst_accuracy)}, all rows {mean(ours.accuracy)}). {compared}"
        )
    yield from _noise(case, rows)


def _list_all(ours: Row, verdicts: Mapping[Verdict, Sequence[Row]]) -> str:
    """Return every baseline under its verdict."""
    sentences = [
        f"{_VERDICTS[verdict]} {', '.join(_compared(ours, row) for row in rows)}."
        for verdict, rows in verdicts.items()
        if rows
    ]
    return " ".join([*sentences, *_costs(ours, verdicts["worse"])])


def _list_worse(ours: Row, verdicts: Mapping[Verdict, Sequence[Row]]) -> str:
    """Return how many baselines it beats, and the names of those that beat it."""
    better, total = len(verdicts["better"]), sum(map(len, verdicts.values()))
    sentence = f"More often than {better} of {total} baselines at no lower worst-client accuracy."
    ahead = [_compared(ours, row) for row in verdicts["worse"]]
    return f"{sentence} Less often than: {', '.join(ahead)}." if ahead else sentence


def _compared(ours: Row, row: Row) -> str:
    """Return a row's share and accuracies, and whether the share may be chance."""
    within = share(row.share_within["all"], row.n_runs)
    doubt = "; may be chance" if may_be_chance(ours, row) else ""
    return f"{row.label} ({within}, {mean(row.worst_accuracy)}, {mean(row.accuracy)}{doubt})"


def _costs(ours: Row, ahead: Sequence[Row]) -> Iterator[str]:
    """Yield what it costs a baseline to be within budget more often."""
    for row in ahead:
        gap, error = difference(ours, row, "accuracy")
        if gap > STANDARD_ERRORS * error:
            yield (
                f"{row.label} does not enforce budgets and reduces disparities further: its "
                f"accuracy on all rows is lower by {number(gap)} ± "
                f"{number(STANDARD_ERRORS * error)}."
            )


def _noise(case: CaseResult, rows: Sequence[Row]) -> Iterator[str]:
    """Yield clients whose held-out disparity varies between splits by more than half the budget."""
    ours = next((row for row in rows if row.line == OURS), None)
    budget = case.budget
    if ours is None or not isinstance(budget, float):
        return
    deviations = {client: found.disparity.sd or 0.0 for client, found in ours.clients.items()}
    if noisy := [f"{c} ({number(sd)})" for c, sd in deviations.items() if sd > budget / 2]:
        yield (
            f"{case.name}: noise. The held-out disparity of {', '.join(noisy)} has a standard "
            f"deviation over splits of more than half the budget {number(budget, 2)}; one split "
            "says nothing about it, and no method can guarantee it."
        )


def _no_budget(case: CaseResult, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the worst client's accuracy, ours against each, over the paired splits."""
    ours = next((row for row in rows if row.line == OURS), None)
    if ours is None or ours.n_runs < 2:
        return
    compared = []
    for row in rows:
        if row is ours:
            continue
        gap, error = difference(ours, row, "worst_accuracy")
        margin = STANDARD_ERRORS * error
        verdict = "higher" if gap > margin else "lower" if gap < -margin else "level"
        compared.append(f"{verdict} against {row.label} ({gap:+.4f} ± {margin:.4f})")
    yield (
        f"{case.name}, {ours.n_runs} random splits: the worst client's accuracy with "
        f"{ours.label} is {mean(ours.worst_accuracy)}; {', '.join(compared)}."
    )


# --- series, fronts, limits -----------------------------------------------------------------------


def _series(item: ItemResult) -> Iterator[str]:
    """Yield what falls as budgets tighten, and whose budgets are met."""
    first, last = item.cases[0].name, item.cases[-1].name
    for protocol in item.protocols:
        starts = {row.line: row for row in item.rows_of(first, protocol)}
        for after in item.rows_of(last, protocol):
            before = starts.get(after.line, after)
            same = [row for row in item.finished_rows if row.line == after.line]
            met = sum(round((row.share_met_in_training or 0) * row.n_runs) for row in same)
            yield (
                f"{after.label}: from {first} to {last} the largest test disparity goes from "
                f"{mean(before.largest_disparity)} to {mean(after.largest_disparity)}, the "
                f"worst client's accuracy from {mean(before.worst_accuracy)} to "
                f"{mean(after.worst_accuracy)}; all budgets are met on training rows in "
                f"{met} of {sum(row.n_runs for row in same)} runs."
            )
    for case in item.cases:
        yield from _original(case, item.rows_of(case.name, "original"))


def _front(item: ItemResult) -> str:
    """Return how far from the constrained optimum each method ends."""
    cases = {case.name: case for case in item.cases}
    sentences = []
    for line in dict.fromkeys(row.line for row in item.finished_rows):
        rows = [row for row in item.finished_rows if row.line == line]
        gap, excess = 0.0, 0.0
        for row in rows:
            run, case = row.runs[0], cases[row.case]
            gap = max(gap, (run.train_loss or 0.0) - (case.optimum or 0.0))
            budget = case.budget if isinstance(case.budget, float) else 0.0
            excess = max(excess, (run.clients["synthetic"].train_smooth or 0.0) - budget)
        rounds = [round(row.rounds or 0) for row in rows]
        over = f"over the budget by at most {excess:.1e}" if excess > 1e-6 else "within the budget"
        sentences.append(
            f"{rows[0].label} ends at most {gap:.4f} above the optimum, {over}, after "
            f"{min(rounds)} to {max(rounds)} rounds"
        )
    return "; ".join(sentences) + "."


def _limits(item: ItemResult) -> Iterator[str]:
    """Yield which lines reach the accuracy, local and global limits at once, and which do not."""
    limits = item.limits
    if not limits:
        return
    reached = [row for row in item.finished_rows if _reaches(row, limits)]
    short = [r for r in item.finished_rows if r.kind != "baseline" and not _reaches(r, limits)]
    yield (
        f"The target, accuracy at least {number(limits['accuracy'], 2)}, local at most "
        f"{number(limits['local'], 2)} and global at most {number(limits['global'], 2)}, is "
        "reached on average, local over clients with 100 held-out rows of each group, by: "
        f"{'; '.join(map(_describe_limits, reached)) or 'none'}."
    )
    if short:
        yield f"Not by: {'; '.join(map(_describe_limits, short))}."
    yield from _small_clients(item)


def _describe_limits(row: Row) -> str:
    return (
        f"{row.label}, {row.case} (accuracy {mean(row.accuracy)}, local "
        f"{mean(row.largest_disparity)}, with 100 rows per group "
        f"{mean(row.largest_large_disparity)}, global {mean(row.global_disparity)})"
    )


def _reaches(row: Row, limits: Mapping[str, float]) -> bool:
    accuracy, overall = row.accuracy.mean, row.global_disparity.mean
    local = row.largest_large_disparity.mean
    if accuracy is None or local is None or overall is None:
        return False
    within = local <= limits["local"] and overall <= limits["global"]
    return within and accuracy >= limits["accuracy"]


def _small_clients(item: ItemResult) -> Iterator[str]:
    """Yield how many clients are too small to show such a limit at all."""
    runs = item.finished_rows[0].runs if item.finished_rows else ()
    sizes = [client.smallest_group or 0 for run in runs for client in run.clients.values()]
    few = sum(size < 100 for size in sizes)
    if few:
        yield (
            f"{few} of {len(sizes)} clients in these partitions hold out fewer than 100 rows of a "
            f"group; the smallest has {min(sizes)}. Their disparity is chance, and so is the "
            "largest over all clients."
        )


def mean(found: OverSeeds) -> str:
    """Return the mean over runs, as text."""
    return number(found.mean)
