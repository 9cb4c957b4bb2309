"""One reading of each item, made from its numbers: what holds, what is noise, what does not."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .page_tables import Item, Row, number, rows_of, sampling_deviation, share

OURS = "sqp"
_SEEN = 1.96  # standard errors
_CHANCE = 0.05  # a sign test above this decides nothing


def readings(item: Item) -> list[str]:
    """Sentences, in the order of the tables."""
    if item["figure"] == "front":
        return [_front(item)]
    if item["figure"] == "series":
        return list(_series(item))
    said = []
    for case in item["cases"]:
        for protocol in item["protocols"]:
            rows = rows_of(item, case["name"], protocol)
            if protocol == "original":
                said += list(_original(case, rows))
            elif case["budget"] is not None:
                said += list(_shares(case, rows, protocol))
            else:
                said += list(_no_budget(case, rows))
    said += list(_limits(item))
    return said or ["One split of so few rows decides nothing; run it with more --seeds."]


# --- the paper's protocol -------------------------------------------------------------------------


def _original(case: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    """Worst-client accuracy beside theirs, and budgets on training rows."""
    lines = [row for row in rows if row["line"] in ("two-stage", "sqp", "sqp-mean")]
    for given in [given for given in case["given"] if given.get("accuracy")][:1]:
        worst = min(given["accuracy"], key=given["accuracy"].__getitem__)
        theirs = given["accuracy"][worst]
        if lines:
            people = lines[0]["runs"][0]["clients"][worst]["rows"]
            told = "; ".join(_beside(row, worst, theirs) for row in lines)
            yield (
                f"{case['name']}, original split: {worst} accuracy was {number(theirs)} "
                f"({given['label']}); {told}. One person of {people} is {number(1 / people)}, one "
                f"standard deviation of sampling {number(sampling_deviation(theirs, people))}."
            )
        yield from _kept(case, given, rows)


def _beside(row: Row, client: str, theirs: float) -> str:
    found = row["clients"][client]["accuracy"]["mean"]
    people = row["runs"][0]["clients"][client]["rows"]
    apart = found - theirs
    if apart >= 0:
        verdict = "no worse"
    elif apart >= -sampling_deviation(theirs, people):
        verdict = "lower, within one standard deviation"
    else:
        verdict = "lower by more than one standard deviation"
    return f"{row['label']} {number(found)}, {verdict}"


def _kept(case: Mapping[str, Any], given: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    """Whose budgets hold: theirs on test rows, ours on training rows."""
    budget, disparity = case["budget"], given.get("disparity")
    if budget is None or not disparity:
        return
    bounds = budget if isinstance(budget, Mapping) else dict.fromkeys(disparity, budget)
    broken = [c for c in disparity if disparity[c] > bounds[c]]
    theirs = f"exceed the budget of {' and '.join(broken)}" if broken else "keep the budgets"
    ours = [
        f"{row['label']} {share(row['share_met_in_training'], row['n_runs'])}"
        for row in rows
        if row["kind"] != "baseline"
    ]
    yield (
        f"{case['name']}: {given['label']} {theirs} on test rows; runs that meet all budgets on "
        f"their training rows: {', '.join(ours)}."
    )


# --- re-splits ------------------------------------------------------------------------------------


def _shares(case: Mapping[str, Any], rows: Sequence[Row], protocol: str) -> Iterator[str]:
    """How often budgets hold on held-out rows, ours against every baseline."""
    baselines = [row for row in rows if row["kind"] == "baseline"]
    for name in (OURS, "sqp-sure", "sqp-tenth", "sqp-max", "two-stage"):
        ours = next((row for row in rows if row["line"] == name), None)
        if ours is None or ours["n_runs"] < 2:
            continue
        verdicts: dict[str, list[Row]] = {k: [] for k in _VERDICTS}
        for row in baselines:
            verdicts[_against(ours, row)].append(row)
        kept = share(ours["share_within"]["all"], ours["n_runs"])
        told = _list(ours, verdicts) if name == OURS else _short_list(ours, verdicts)
        yield (
            f"{case['name']}, {ours['n_runs']} random splits: {ours['label']} keeps every budget "
            f"on held-out rows in {kept} (worst client's accuracy {mean(ours, 'worst_accuracy')}, "
            f"all rows {mean(ours, 'accuracy')}). {told}"
        )
    yield from _noise(case, rows)


_VERDICTS = {
    "beaten": "More often than, at a worst-client accuracy these splits cannot tell to be lower:",
    "dearer": "More often than, but at a lower worst-client accuracy:",
    "level": "As often as:",
    "not beaten": "Less often than:",
}


def _against(ours: Row, other: Row) -> str:
    """More often within budget at no lower accuracy, as the paired splits can tell."""
    more, fewer = _discordant(ours, other)
    gap, error = difference(ours, other, "worst_accuracy")
    if more > fewer:
        return "beaten" if gap >= -_SEEN * error else "dearer"
    return "level" if more == fewer else "not beaten"


def _discordant(ours: Row, other: Row) -> tuple[int, int]:
    """Splits in which only we keep all budgets, and in which only the other does."""
    pairs = [(bool(a["within_all"]), bool(b["within_all"])) for a, b in _paired(ours, other)]
    return sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)


def chance(more: int, fewer: int) -> float:
    """Exact two-sided sign test: how often fair coins fall at least so unevenly."""
    count = more + fewer
    tail = sum(math.comb(count, k) for k in range(min(more, fewer) + 1)) * 0.5**count
    return float(min(1.0, 2 * tail))


def difference(ours: Row, other: Row, key: str) -> tuple[float, float]:
    """Mean paired difference and its standard error."""
    apart = [a[key] - b[key] for a, b in _paired(ours, other)]
    mean = sum(apart) / len(apart)
    if len(apart) < 2:
        return mean, math.inf
    variance = sum((value - mean) ** 2 for value in apart) / (len(apart) - 1)
    return mean, math.sqrt(variance / len(apart))


def _paired(ours: Row, other: Row) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    by_seed = {run["seed"]: run for run in other["runs"]}
    return [(run, by_seed[run["seed"]]) for run in ours["runs"] if run["seed"] in by_seed]


def _named(ours: Row, row: Row) -> str:
    """Its share, its worst client's accuracy, that of all rows, and whether it may be chance."""
    within = share(row["share_within"]["all"], row["n_runs"])
    doubt = "; may be chance" if chance(*_discordant(ours, row)) > _CHANCE else ""
    accuracies = f"{mean(row, 'worst_accuracy')}, {mean(row, 'accuracy')}"
    return f"{row['label']} ({within}, {accuracies}{doubt})"


def _list(ours: Row, verdicts: Mapping[str, Sequence[Row]]) -> str:
    said = [
        f"{_VERDICTS[verdict]} {', '.join(_named(ours, row) for row in rows)}."
        for verdict, rows in verdicts.items()
        if rows
    ]
    return " ".join([*said, *_why(ours, verdicts["not beaten"])])


def _short_list(ours: Row, verdicts: Mapping[str, Sequence[Row]]) -> str:
    """How many baselines it beats, and by name only those it does not."""
    beaten, total = len(verdicts["beaten"]), sum(map(len, verdicts.values()))
    said = [f"More often than {beaten} of {total} baselines at no lower worst-client accuracy."]
    behind = [_named(ours, row) for row in verdicts["not beaten"]]
    return " ".join([*said, *([f"Less often than: {', '.join(behind)}."] if behind else [])])


def _why(ours: Row, ahead: Sequence[Row]) -> Iterator[str]:
    """What it costs to keep budgets more often, where it costs something."""
    for row in ahead:
        gap, error = difference(ours, row, "accuracy")
        if gap > _SEEN * error:
            yield (
                f"{row['label']} knows no budget and goes beyond it: its accuracy on all rows is "
                f"lower by {number(gap)} ± {number(_SEEN * error)}."
            )


def _noise(case: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    """Clients whose held-out disparity moves more between splits than the budget is wide."""
    ours = next((row for row in rows if row["line"] == OURS), None)
    budget = case["budget"]
    if ours is None or not isinstance(budget, float):
        return
    loud = {c: found["disparity"]["sd"] for c, found in ours["clients"].items()}
    named = [f"{c} ({number(sd)})" for c, sd in loud.items() if sd is not None and sd > budget / 2]
    if named:
        yield (
            f"{case['name']}: noise. The held-out disparity of {', '.join(named)} has a standard "
            f"deviation over splits of more than half the budget {number(budget, 2)}; one split "
            "says nothing about it, and no method can promise it."
        )


def _no_budget(case: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    """The worst client's accuracy and loss, ours against each, as the paired splits can tell."""
    ours = next((row for row in rows if row["line"] == OURS), None)
    if ours is None or ours["n_runs"] < 2:
        return
    told = []
    for row in rows:
        if row is ours:
            continue
        gap, error = difference(ours, row, "worst_accuracy")
        verdict = "higher" if gap > _SEEN * error else "lower" if gap < -_SEEN * error else "level"
        told.append(f"{verdict} against {row['label']} ({gap:+.4f} ± {_SEEN * error:.4f})")
    yield (
        f"{case['name']}, {ours['n_runs']} random splits: the worst client's accuracy with "
        f"{ours['label']} is {mean(ours, 'worst_accuracy')}; {', '.join(told)}."
    )


# --- series, fronts, limits -----------------------------------------------------------------------


def _series(item: Item) -> Iterator[str]:
    """What falls as budgets tighten, and whose budgets hold."""
    first, last = item["cases"][0]["name"], item["cases"][-1]["name"]
    for protocol in item["protocols"]:
        starts = {row["line"]: row for row in rows_of(item, first, protocol)}
        for after in rows_of(item, last, protocol):
            before = starts.get(after["line"], after)
            met = [r for r in item["rows"] if r["line"] == after["line"] and r["n_runs"]]
            kept = sum(round(row["share_met_in_training"] * row["n_runs"]) for row in met)
            yield (
                f"{after['label']}: from {first} to {last} the largest test disparity goes from "
                f"{mean(before, 'largest_disparity')} to {mean(after, 'largest_disparity')}, the "
                f"worst client's accuracy from {mean(before, 'worst_accuracy')} to "
                f"{mean(after, 'worst_accuracy')}; all budgets are met on training rows in "
                f"{kept} of {sum(row['n_runs'] for row in met)} runs."
            )
    for case in item["cases"]:
        yield from _original(case, rows_of(item, case["name"], "original"))


def _front(item: Item) -> str:
    """How far from the constrained optimum each method ends."""
    told = []
    for line in dict.fromkeys(row["line"] for row in item["rows"]):
        rows = [row for row in item["rows"] if row["line"] == line and row["n_runs"]]
        optimum = {case["name"]: case["optimum"] for case in item["cases"]}
        budget = {case["name"]: case["budget"] for case in item["cases"]}
        gap = max(row["runs"][0]["train_loss"] - optimum[row["case"]] for row in rows)
        over = max(
            row["runs"][0]["clients"]["synthetic"]["train_smooth"] - budget[row["case"]]
            for row in rows
        )
        rounds = [round(row["rounds"]) for row in rows]
        told.append(
            f"{rows[0]['label']} ends at most {gap:.4f} above the optimum, {_over(over)}, after "
            f"{min(rounds)} to {max(rounds)} rounds"
        )
    return "; ".join(told) + "."


def _over(over: float) -> str:
    return "within the budget" if over <= 1e-6 else f"over the budget by at most {over:.1e}"


def _limits(item: Item) -> Iterator[str]:
    """Who reaches accuracy, local and global limits at once, and who does not."""
    limits = item["limits"]
    if not limits:
        return
    reached, short = [], []
    for row in item["rows"]:
        if not row["n_runs"]:
            continue
        told = (
            f"{row['label']}, {row['case']} (accuracy {mean(row, 'accuracy')}, local "
            f"{mean(row, 'largest_disparity')}, with 100 rows a group "
            f"{mean(row, 'largest_large_disparity')}, global {mean(row, 'global_disparity')})"
        )
        if _is_reached(row, limits):
            reached.append(told)
        elif row["kind"] != "baseline":
            short.append(told)
    yield (
        f"The aim, accuracy at least {number(limits['accuracy'], 2)}, local at most "
        f"{number(limits['local'], 2)} and global at most {number(limits['global'], 2)}, is "
        "reached on average, local over clients with 100 held-out rows of each group, by: "
        f"{'; '.join(reached) or 'none'}."
    )
    if short:
        yield f"Not by: {'; '.join(short)}."
    yield from _small(item)


def _is_reached(row: Row, limits: Mapping[str, float]) -> bool:
    local, overall = row["largest_large_disparity"]["mean"], row["global_disparity"]["mean"]
    accurate = row["accuracy"]["mean"] >= limits["accuracy"]
    return bool(accurate and local <= limits["local"] and overall <= limits["global"])


def mean(row: Row, key: str) -> str:
    """The mean over runs, as text."""
    return number(row[key]["mean"])


def _small(item: Item) -> Iterator[str]:
    """How many clients cannot show such a limit at all."""
    runs: list[Any] = next((row["runs"] for row in item["rows"] if row["n_runs"]), [])
    sizes = [c["smallest_group"] or 0 for run in runs for c in run["clients"].values()]
    few = sum(size < 100 for size in sizes)
    if few:
        yield (
            f"{few} of {len(sizes)} clients in these partitions hold out fewer than 100 rows of a "
            f"group; the smallest has {min(sizes)}. Their disparity is chance, and so is the "
            "largest over all clients."
        )
