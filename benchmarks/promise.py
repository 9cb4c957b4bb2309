"""Budgets that hold: what a budget costs, and how often it is kept on rows not trained on.

::

    python -m benchmarks.promise run --seeds 0-9 --out FILE    train and record, or resume
    python -m benchmarks.promise run --quick                   two seeds of seven tasks
    python -m benchmarks.promise compare FILE                  beside the figures recorded before
    python -m benchmarks.promise small FILE                    35 clients, of which most are small
    python -m benchmarks.promise demo --out FILE               choosing beside nine single settings
    python -m benchmarks.promise grow                          pooled and own rates as rows grow
    python -m benchmarks.promise laws                          what the simulated laws are like

A run is one line of JSON: `promise_runs` says what is in it, `promise_tasks` what is trained on,
`promise_laws` where truth comes from. "Kept" has two columns: in the population, exact for
simulated laws, and on a fresh sample of as many rows as were trained on. `today` records the
figures of the code before a change. Settings are chosen on seeds below 100; 900 to 919 are looked
at once.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.promise_laws import LAWS
from benchmarks.promise_runs import UNIT, is_inside, measure
from benchmarks.promise_tasks import MAIN, QUICK, SMALL, TASKS, Task
from fcfl import Federation, train
from fcfl.models.linear import Linear
from fcfl.rules import Difference, without_budgets
from fcfl.training.margins import MAX_ACCURACY_LOSS, MAX_RATE_SHIFT

RESULTS = Path(__file__).parent / "results"
RECORDED = (RESULTS / "promise-today.jsonl", RESULTS / "promise-today-small.jsonl")
CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99)
SMALL_VARIANTS = ("default", "own", "min100", "global")
SETTINGS = tuple(f"{l2},{o}" for l2 in ("0.003", "0.01", "0.03") for o in ("mean", "0.1", "max"))
Record = dict[str, Any]
Job = tuple[str, int, float, str]


# --- recording ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def task_of(name: str, seed: int) -> Task:
    return TASKS[name](seed)


def run_job(job: Job) -> Record:
    name, seed, confidence, variant = job
    return measure(task_of(name, seed), seed, confidence, variant)


def key(record: Record) -> Job:
    return record["task"], record["seed"], record["confidence"], record["variant"]


def read(path: Path) -> list[Record]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def record(jobs: Iterable[Job], path: Path, workers: int) -> list[Record]:
    """Run what is not in the file yet, and append each result to it as it comes."""
    done = {key(line) for line in read(path)}
    left = [job for job in jobs if job not in done]
    path.parent.mkdir(parents=True, exist_ok=True)
    for place, found in enumerate(results_of(left, workers), 1):
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found, separators=(",", ":")) + "\n")
        print(f"[{place}/{len(left)}] {line_of(found)}", file=sys.stderr, flush=True)
    return read(path)


def results_of(jobs: Sequence[Job], workers: int) -> Iterator[Record]:
    if workers == 1:
        yield from map(run_job, jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(run_job, job) for job in jobs]):
            yield done.result()


def line_of(found: Record) -> str:
    name = f"{found['task']} {found['seed']} {found['confidence']:g} {found['variant']}"
    if "error" in found:
        return f"{name}: {found['error']}"
    inside = kept_of(found, "pop") or kept_of(found, "fresh")
    share = f"{np.mean(inside):.2f}" if inside else "-"
    return (
        f"{name}: {found['exchanges']} exchanges, {found['cpu']} s, accuracy "
        f"{found['accuracy'][-1] / UNIT:.4f}, kept {share}, exit {0 if found['met'] else 3}"
    )


def jobs_of(
    tasks: Sequence[str],
    seeds: Sequence[int],
    confidences: Sequence[float],
    variants: Sequence[str] = ("default",),
) -> Iterator[Job]:
    """Without budgets first, seed by seed: a task is made once for all of its runs."""
    for seed in seeds:
        for task in tasks:
            yield task, seed, 0.0, "none"
            for variant in variants:
                for confidence in confidences:
                    yield task, seed, confidence, variant


# --- reading --------------------------------------------------------------------------------------


def values_of(found: Record, part: str) -> list[int | None]:
    """A part's disparity at each client; with many small clients the smallest groups count."""
    if found["task"] in SMALL:
        return list(found.get(f"{part}_all", found.get(part, [])))
    return list(found.get(part, []))


def kept_of(found: Record, part: str) -> list[bool]:
    """Whether each client keeps its budget, of those that have one."""
    if "kept" in found:
        inside, known = found["kept"].get(part, (0, 0))
        return [True] * inside + [False] * (known - inside)
    rule = TASK_RULES[found["task"]]
    return [is_inside(rule, value) for value in values_of(found, part) if value is not None]


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return float(np.mean(values)) if values else float("nan")


def clustered_error(tables: Sequence[Sequence[float]]) -> float:
    """Standard error of the mean over all entries, tables being independent."""
    sums = np.array([np.sum(table) for table in tables])
    sizes = np.array([len(table) for table in tables])
    if len(tables) < 2:
        return float("nan")
    residuals = sums - sizes * sums.sum() / sizes.sum()
    factor = len(tables) / (len(tables) - 1)
    return float(np.sqrt(factor * (residuals**2).sum()) / sizes.sum())


TASK_RULES = {name: LAWS[name].rule for name in LAWS} | {
    name: Difference("demographic_parity", name.split("-")[1], 0.05)
    for name in TASKS
    if name not in LAWS
}


class Recorded:
    """Lines of one file, by task, variant and confidence."""

    def __init__(self, lines: Sequence[Record]) -> None:
        self.lines = {key(line): line for line in lines if "error" not in line}
        self.errors = [line for line in lines if "error" in line]

    def of(self, task: str, variant: str = "default", confidence: float = 0.9) -> list[Record]:
        """Lines of one task, variant and confidence, by seed."""
        return [
            line
            for (name, _, asked, kind), line in sorted(self.lines.items(), key=lambda i: i[0][1])
            if (name, kind) == (task, variant) and asked == confidence
        ]

    def free(self, found: Record) -> Record | None:
        """The run without budgets on the same rows."""
        return self.lines.get((found["task"], found["seed"], 0.0, "none"))

    @property
    def confidences(self) -> list[float]:
        """Confidences with default runs."""
        return sorted({c for _, _, c, kind in self.lines if kind == "default"})

    @property
    def tasks(self) -> list[str]:
        """Tasks with any run."""
        present = {task for task, *_ in self.lines}
        return [task for task in TASKS if task in present]


def supported(recorded: Recorded, found: Record, part: str) -> list[bool]:
    """Kept or not, at clients whose rows support the confidence that margins were made for.

    A run that reports a lower confidence (`cut_to`) does not count.
    """
    free = recorded.free(found)
    if free is None or not found["confidence"] or "cut_to" in found:
        return []
    even, sides, values = (
        values_of(*of) for of in ((free, "even"), (free, "sides"), (found, part))
    )
    out = []
    for value, chance, n_sides in zip(values, even, sides, strict=bool(values)):
        if value is None or chance is None or not n_sides:
            continue
        if part == "fresh":  # a sample of as many rows has twice the variance
            chance = 2.0 * norm.cdf(norm.ppf((1.0 + chance) / 2.0) / np.sqrt(2.0)) - 1.0
        if chance >= 1.0 - (1.0 - found["confidence"]) * 2.0 / n_sides:
            out.append(is_inside(TASK_RULES[found["task"]], value))
    return out


# --- tables ---------------------------------------------------------------------------------------

HEAD = (
    f"{'':24} {'runs':>4} {'pop':>6} {'fresh':>6} {'accur.':>7} {'worst':>6} {'sel.':>5} "
    f"{'free':>5} {'exch.':>6} {'max':>4} {'cpu s':>6} {'exit 0':>6}  supported: kept (se) of"
)


def table_line(label: str, lines: Sequence[Record], recorded: Recorded) -> str:
    if not lines:
        return f"{label:24} none"
    kept = {p: [k for one in lines for k in kept_of(one, p)] for p in ("pop", "fresh")}
    free = [f for one in lines if (f := recorded.free(one)) is not None]
    asked = [one["exchanges"] for one in lines]
    part = "pop" if kept["pop"] else "fresh"
    tables = [s for one in lines if (s := supported(recorded, one, part))]
    held = [k for s in tables for k in s]
    said = f"{mean(held):.3f} ({clustered_error(tables):.3f}) of {len(held)}" if held else "-"
    return (
        f"{label:24} {len(lines):4d} {mean(kept['pop']):6.3f} {mean(kept['fresh']):6.3f} "
        f"{mean(one['accuracy'][-1] for one in lines) / UNIT:7.4f} "
        f"{mean(one['worst'][-1] for one in lines) / UNIT:6.3f} "
        f"{mean(one['selected'][0] for one in lines) / UNIT:5.3f} "
        f"{mean(one['selected'][0] for one in free) / UNIT:5.3f} "
        f"{mean(asked):6.1f} {max(asked):4d} {mean(one['cpu'] for one in lines):6.1f} "
        f"{sum(one['met'] for one in lines):3d}/{len(lines):<3d} {said}"
    )


def compare(new: Recorded, old: Recorded) -> bool:
    """Print every task's figures beside those recorded before; return whether the claims hold."""
    ok = True
    for task in new.tasks:
        seeds = {line["seed"] for c in new.confidences for line in new.of(task, confidence=c)}
        before = [one for one in old.of(task) if one["seed"] in seeds]
        print(f"\n{task}\n{HEAD}")
        print(table_line("without budgets", new.of(task, "none", 0.0), new))
        curve = {c: new.of(task, confidence=c) for c in new.confidences}
        for confidence, lines in curve.items():
            if lines:
                print(table_line(f"confidence {confidence:g}", lines, new))
                print_collapses(lines, new)
        if before and new is not old:
            print(table_line("before, .9", before, old))
            print_collapses(before, old)
            ok &= is_on_curve(curve, before)
    ok &= is_monotone(new)
    ok &= keeps_exit_zero(new)
    calibrated = [is_calibrated(new, part) for part in ("fresh", "pop")]
    for line in new.errors:
        print(f"error: {line['task']} {line['seed']} {line['confidence']:g}: {line['error']}")
    return ok and calibrated[0]


def is_on_curve(curve: dict[float, list[Record]], before: list[Record]) -> bool:
    """Whether some confidence keeps as many clients at an accuracy no lower, on the same seeds."""
    seeds = {one["seed"] for one in before}
    part = "pop" if "pop" in before[0] else "fresh"
    kept, right = point(before, part)
    found = []
    for confidence, lines in curve.items():
        own = [one for one in lines if one["seed"] in seeds]
        if len(own) == len(before):
            new_kept, new_right = point(own, part)
            if new_kept >= kept - 0.02 and new_right >= right - 0.001:
                found.append(f"{confidence:g}")
    print(f"  as many kept (-.02) at no lower accuracy (-.001): {', '.join(found) or 'NONE'}")
    return bool(found)


def point(lines: Sequence[Record], part: str) -> tuple[float, float]:
    return mean(k for one in lines for k in kept_of(one, part)), mean(
        one["accuracy"][-1] / UNIT for one in lines
    )


def is_monotone(recorded: Recorded) -> bool:
    """Steps from one confidence to the next in which a task's share of clients kept falls."""
    steps = []
    for task in recorded.tasks:
        for part in ("pop", "fresh"):
            curve = []
            for confidence in recorded.confidences:
                kept = [
                    k for o in recorded.of(task, confidence=confidence) for k in kept_of(o, part)
                ]
                curve += [mean(kept)] if kept else []
            steps += [(task, part, after - before) for before, after in pairwise(curve)]
    fallen = [f"{task} {part} {by:+.3f}" for task, part, by in steps if by < -0.02]
    print(
        f"\nSteps in confidence that fall by more than .02: {len(fallen)} of {len(steps)}", fallen
    )
    return not steps or len(fallen) <= 0.05 * len(steps)


def keeps_exit_zero(recorded: Recorded) -> bool:
    """Under exit 0: decisions of clients whose rows can tell, rate shifts, and margins' losses."""
    n_told, outside, others = 0, [], 0
    shifts, losses = [0.0], [0.0]
    for found in recorded.lines.values():
        free = recorded.free(found)
        if found["variant"] != "default" or not found["met"] or free is None:
            continue
        if found["confidence"] and "price" in found:
            without, budgets, margins = found["price"]
            shifts.append(abs(margins[1] - without[1]) / UNIT)
            losses.append((budgets[0] - margins[0]) / UNIT)
        told = [chance is not None and chance >= 0.9 for chance in values_of(free, "even")]
        for value, can_tell in zip(values_of(found, "hard"), told, strict=True):
            if value is None or is_inside(TASK_RULES[found["task"]], value):
                n_told += can_tell
            elif can_tell:
                n_told += 1
                outside.append(f"{found['task']} {found['seed']} {found['confidence']:g}")
            else:
                others += 1
    print(
        f"Exit 0: {len(outside)} of {n_told} clients whose rows can tell have decisions outside on "
        f"training rows {outside[:5]}, and {others} others.\nLargest shift of the share selected "
        f"from the run's own model without budgets: {max(shifts):.4f}; training accuracy that "
        f"margins cost: {max(losses):.4f} at most, {mean(losses[1:]):.4f} on average"
    )
    return (
        not outside
        and max(shifts) <= MAX_RATE_SHIFT + 1 / UNIT
        and max(losses) <= MAX_ACCURACY_LOSS + 1 / UNIT
    )


def is_calibrated(recorded: Recorded, part: str) -> bool:
    """Stated chances against frequencies in ten bins, tables being independent."""
    pairs: dict[tuple[str, int], list[tuple[float, bool]]] = {}
    for found in recorded.lines.values():
        if found["variant"] == "default" and "chance" in found and has_fresh_sample(found):
            values = found.get(part, [])
            for said, value in zip(found["chance"], values, strict=bool(values)):
                if said is not None and value is not None:
                    own = pairs.setdefault((found["task"], found["seed"]), [])
                    own.append((said, is_inside(TASK_RULES[found["task"]], value)))
    total = sum(map(len, pairs.values()))
    what = {"pop": "in the population", "fresh": "on fresh rows"}[part]
    print(f"\nStated chances and frequencies {what}, {total} client-runs, {len(pairs)} tables")
    if not total:
        return True
    beyond: list[float] = []
    for low in np.arange(10) / 10.0:
        inside = [
            [(s, k) for s, k in own if low <= s < low + 0.1 or (low == 0.9 and s == 1.0)]
            for own in pairs.values()
        ]
        report_bin(f"{low:.1f}", inside, beyond)
    sure = [[(s, k) for s, k in own if s >= 0.9] for own in pairs.values()]
    report_bin(">= .9", sure, [])
    report_bin("all", list(pairs.values()), [])
    return sum(b > 2.0 for b in beyond) <= 1 and max(beyond, default=0.0) <= 3.0


def has_fresh_sample(found: Record) -> bool:
    """Whether there are as many held-out rows as training rows: not on Adult's original split."""
    return not found["task"].startswith("original")


def report_bin(label: str, tables: list[list[tuple[float, bool]]], beyond: list[float]) -> None:
    tables = [table for table in tables if table]
    count = sum(map(len, tables))
    if count == 0:
        return
    said = mean(s for table in tables for s, _ in table)
    kept = mean(k for table in tables for _, k in table)
    gaps = clustered_error([[k - s for s, k in table] for table in tables])
    error = max(gaps if np.isfinite(gaps) else 0.0, np.sqrt(max(said * (1 - said), 1e-4) / count))
    beyond.append(abs(kept - said) / error)
    print(
        f"  {label:6} said {said:.3f} kept {kept:.3f} ± {error:.3f} ({beyond[-1]:.1f}) {count:6d}"
    )


def small(new: Recorded, old: Recorded) -> bool:
    """Print many small clients: every variant, collapses, and how often an odd client is named."""
    for task in [name for name in SMALL if name in new.tasks]:
        print(f"\n{task}\n{HEAD}")
        print(table_line("without budgets", new.of(task, "none", 0.0), new))
        for name, recorded in (("", new), ("before: ", old)) if new is not old else (("", new),):
            for variant in SMALL_VARIANTS:
                for confidence in recorded.confidences:
                    if lines := recorded.of(task, variant, confidence):
                        print(table_line(f"{name}{variant} {confidence:g}", lines, recorded))
                        print_collapses(lines, recorded)
    return not new.errors


def print_collapses(lines: Sequence[Record], recorded: Recorded) -> None:
    """Runs under exit 0 that select fewer than half as many as without budgets; the odd client."""
    collapsed, said = 0, 0
    for found in lines:
        free = recorded.free(found)
        if free is not None and found["selected"][0] < free["selected"][0] / 2:
            collapsed += 1
            said += not found["met"]
    if collapsed:
        print(f"{'':24} fewer than half as many selected: {collapsed}, with exit 3: {said}")
    if lines[0]["task"].startswith("odd-") and "exceeded" in lines[0]:
        named = sum("odd" in found["exceeded"] for found in lines)
        others = sum(len(set(found["exceeded"]) - {"odd"}) for found in lines)
        print(f"{'':24} verdict exceeded: odd in {named} of {len(lines)}, others {others}")


# --- choosing -------------------------------------------------------------------------------------

MEASURES: dict[str, Callable[[Record], float]] = {  # the larger the better
    "mean loss": lambda one: -one["loss"][0],
    "worst client's loss": lambda one: -one["loss"][1],
    "accuracy": lambda one: one["accuracy"][1] / UNIT,
    "kept": lambda one: mean(kept_of(one, "fresh")),
}


def demo(recorded: Recorded) -> bool:
    """Print the demo's run beside single settings; a setting that dominates it is named."""
    ours = {one["seed"]: one for one in recorded.of("adult-race")}
    ok = True
    print(f"{'':16}" + "".join(f"{name:>30}" for name in MEASURES))
    print(
        f"{'default':16}"
        + "".join(f"{mean(map(m, ours.values())):30.4f}" for m in MEASURES.values())
    )
    for setting in SETTINGS:
        pairs = [(one, ours[one["seed"]]) for one in recorded.of("adult-race", setting)]
        if len(pairs) < 2:
            continue
        gains = {n: np.array([m(a) - m(b) for a, b in pairs]) for n, m in MEASURES.items()}
        ahead = {
            n: (float(g.mean()), float(g.std(ddof=1) / len(g) ** 0.5)) for n, g in gains.items()
        }
        dominates = all(by >= 0 for by, _ in ahead.values())
        dominates &= any(by > error for by, error in ahead.values())
        ok &= not dominates
        cells = "".join(f"{f'{by:+.4f} ± {error:.4f}':>30}" for by, error in ahead.values())
        print(f"{setting:16}{cells}{'  DOMINATES' if dominates else ''}")
    return ok


# --- rows that grow -------------------------------------------------------------------------------


def grow(seed: int) -> bool:
    """Print how far parameters under pooled and own rates are apart as rows grow."""
    law = replace(LAWS["small-016"], n_clients=(10, 10))
    apart = []
    for n_rows in (10_000, 100_000, 1_000_000):
        population = law.draw(seed)
        rows = population.rows("train", n_rows / population.sizes.sum())
        params = []
        for pooling in ("auto", "none"):
            model = Linear(population.n_features)
            options: dict[str, Any] = {"pooling": pooling, "l2": 0.003, "objective": "mean"}
            trained = train(Federation.from_rows(rows), model, (law.rule,), **options)
            params.append(trained.params)
        apart.append(float(np.linalg.norm(params[0] - params[1])))
        size = float(np.linalg.norm(params[1]))
        print(f"{n_rows:8d} rows: parameters {apart[-1]:.5f} apart, of norm {size:.3f}", flush=True)
    return apart[-1] < apart[0]


def describe_laws(seeds: Sequence[int]) -> None:
    """Print accuracy, share selected and true disparities of models without budgets."""
    for name, law in LAWS.items():
        for seed in seeds:
            population = law.draw(seed)
            rows, rules = population.rows("train"), without_budgets((law.rule,))
            options: dict[str, Any] = {"l2": 0.003, "objective": "mean", "confidence": 0.0}
            model = Linear(population.n_features)
            trained = train(Federation.from_rows(rows), model, rules, **options)
            right, chosen = population.performance(trained.params)
            rates, _ = population.rates(trained.params, trained.rates)
            kinds = [
                [i for i, r in enumerate(trained.rates) if r.kind == k] for k in law.rule.kinds
            ]
            value = [law.rule.worst([law.rule.disparity(own[k]) for k in kinds]) for own in rates]
            first = rates[: law.n_clients[1], 0] - rates[: law.n_clients[1], -1]
            print(
                f"{name:14} {seed:3d}: {len(value):2d} clients, {population.sizes.sum():6d} rows, "
                f"accuracy {population.weights @ right:.3f}, selected "
                f"{population.weights @ chosen:.3f}, disparity {min(value):.3f} to "
                f"{max(value):.3f}, last {value[-1]:.3f}, spread {first.std():.3f}"
            )


# --- command line ---------------------------------------------------------------------------------


def seeds_of(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def listed(text: str) -> list[str]:
    return text.split(",")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "command", choices=("today", "run", "compare", "small", "demo", "grow", "laws")
    )
    parser.add_argument("file", nargs="?", type=Path, default=RESULTS / "promise.jsonl")
    parser.add_argument("--out", type=Path, help="file to append to; by default FILE")
    parser.add_argument("--seeds", type=seeds_of, help="first-last; default 0-9, 0-19 for demo")
    parser.add_argument("--tasks", type=listed, help="names, 'main' or 'small'; default main")
    parser.add_argument("--confidences", type=listed, help="default .5,.8,.9,.95,.99")
    parser.add_argument("--variants", type=listed, default=["default"])
    parser.add_argument("--quick", action="store_true", help=f"seeds 0-1 of {', '.join(QUICK)}")
    parser.add_argument(
        "--before", type=Path, nargs="+", default=RECORDED, help="files to compare with"
    )
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args(arguments)
    options.out = options.out or (RECORDED[0] if options.command == "today" else options.file)
    options.seeds = options.seeds or list(
        range(900, 910) if options.command == "today" else range(2 if options.quick else 10)
    )
    options.tasks = tasks_of(options.tasks or (QUICK if options.quick else ["main"]))
    default = ("0.9",) if options.command == "today" else CONFIDENCES
    options.confidences = [float(c) for c in options.confidences or default]
    return options


def tasks_of(names: Iterable[str]) -> list[str]:
    groups = {"main": MAIN, "small": SMALL}
    found = list(dict.fromkeys(task for name in names for task in groups.get(name, (name,))))
    if unknown := set(found) - set(TASKS):
        raise SystemExit(f"--tasks must be of main, small, {', '.join(TASKS)}; got {unknown}")
    return found


def main(arguments: Sequence[str] = ("compare",)) -> int:
    options = parsed(arguments)
    before = Recorded([line for path in options.before for line in read(path)])
    if options.command in ("today", "run"):
        jobs = jobs_of(options.tasks, options.seeds, options.confidences, options.variants)
        lines = record(jobs, options.out, options.workers)
        asked = set(jobs_of(options.tasks, options.seeds, options.confidences, options.variants))
        compare(Recorded([line for line in lines if key(line) in asked]), before)
        return 0
    if options.command == "laws":
        describe_laws(options.seeds[:2])
        return 0
    if options.command == "grow":
        return int(not grow(options.seeds[0]))
    if options.command == "demo":
        seeds = options.seeds if len(options.seeds) > 10 else range(20)
        jobs = jobs_of(["adult-race"], seeds, [0.9], ("default", *SETTINGS))
        return int(not demo(Recorded(record(jobs, options.out, options.workers))))
    lines = Recorded(read(options.file))
    return int(not {"compare": compare, "small": small}[options.command](lines, before))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
