"""One training run of `benchmarks.promise`, and everything recorded about it.

Everything is counted or computed outside the package, so that two versions of it can be compared:
exchanges where requests leave the `Federation`, disparities from hard counts, truth from the law.
`fit`, `stated_chances` and `exceeded` are the only functions that know what a version offers.
"""

import inspect
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, wraps
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

import fcfl
from benchmarks.promise_tasks import COMPARED, Task
from fcfl import Federation, train
from fcfl.client.counts import Counts, pool_counts
from fcfl.models.linear import Linear
from fcfl.rules import Difference, Rule, without_budgets

Array = NDArray[np.float64]
NOT_REQUESTS = {
    "bind", "only", "under", "phase", "check_chooses_thresholds", "check_all_answered",
}  # fmt: skip
UNIT = 1e4  # disparities and shares are recorded in ten-thousandths
L2_FREE, OBJECTIVE_FREE = 3e-3, "mean"  # of the model without budgets that shares are compared with


# --- what depends on the version ------------------------------------------------------------------


def fit(task: Task, federation: Federation, seed: int, confidence: float, variant: str) -> Any:
    """Train with the default command's options, or as a variant says.

    none : without budgets
    own : each client's own rates, also where a version pools them
    min100 : compare only groups of at least 100 rows
    global : the same budget for all clients' rows together
    uncapped : margins may cost any accuracy and shift rates anywhere
    L2,OBJECTIVE : one setting instead of choosing
    """
    known = inspect.signature(train).parameters
    rules: tuple[Rule, ...] = (task.rule,)
    options: dict[str, Any] = {"confidence": confidence, "seed": seed}
    if variant == "none":
        rules = without_budgets(rules)
        options |= {"l2": L2_FREE, "objective": OBJECTIVE_FREE, "confidence": 0.0}
    elif variant == "own":
        options |= {"pooling": "none"} if "pooling" in known else {}
    elif variant == "min100":
        options["min_group_rows"] = 100
    elif variant == "global":
        rules = (replace(task.rule, scope="global"),)
    elif variant == "uncapped":
        options |= {"max_accuracy_loss": 1.0, "max_rate_shift": 1.0}
    elif variant != "default":
        l2, objective = variant.split(",")
        options |= {
            "l2": float(l2),
            "objective": objective if objective in ("mean", "max") else float(objective),
        }
    model = Linear(task.n_features)
    return train(federation, model, rules, **options)


def stated(trained: Any) -> tuple[list[float | None], list[str]]:
    """Return each client's stated chance, and the clients whose held-out rows exceed a budget."""
    result = trained.result(seed=0, start="zero", settings={}, data=None)
    parts = {name: (one.train, one.test) for name, one in result.clients.items()}
    if trained.rules[0].scope == "global":
        parts = {"": (result.overall.train, result.overall.test)}
    chances: list[float | None] = []
    exceeded = []
    for name, (trained_on, held_out) in parts.items():
        entry = trained_on.disparities[0]
        chances.append(None if entry.expected is None else entry.expected.chance_kept)
        if held_out.disparities and held_out.disparities[0].verdict == "exceeded":
            exceeded.append(name)
    return chances, exceeded


# --- exchanges ------------------------------------------------------------------------------------


class CountingFederation(Federation):
    """A federation that counts its requests by kind, a request within a request as one."""

    def counting(self) -> "CountingFederation":
        """Start to count, from nothing."""
        self.asked: Counter[str] = Counter()
        self.depth = 0
        return self


def _counted(name: str, request: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(request)
    def ask(self: CountingFederation, *args: Any, **options: Any) -> Any:
        self.asked[name] += self.depth == 0
        self.depth += 1
        try:
            return request(self, *args, **options)
        finally:
            self.depth -= 1

    return ask


for _name, _method in vars(Federation).items():
    if inspect.isfunction(_method) and not _name.startswith("_") and _name not in NOT_REQUESTS:
        setattr(CountingFederation, _name, _counted(_name, _method))


@cache
def version() -> str:
    """Return the commit of the package that runs, with a plus sign if it was edited since."""
    folder = Path(fcfl.__file__).parent
    said = [
        subprocess.run(["git", "-C", folder, *command], capture_output=True, text=True, check=False)
        for command in (["rev-parse", "--short=10", "HEAD"], ["status", "--porcelain", "."])
    ]
    return said[0].stdout.strip() + ("+" if said[1].stdout.strip() else "")


# --- one run --------------------------------------------------------------------------------------


def measure(task: Task, seed: int, confidence: float, variant: str) -> dict[str, Any]:
    """Train once and return what is recorded."""
    record: dict[str, Any] = {
        "task": task.name,
        "seed": seed,
        "confidence": confidence,
        "variant": variant,
        "code": version(),
    }
    federation = CountingFederation.from_rows(task.train, task.fresh).counting()
    began = time.process_time()
    try:
        trained = fit(task, federation, seed, confidence, variant)
    except (ValueError, ArithmeticError, fcfl.FCFLError) as error:
        return record | {"error": str(error)[:300], "cpu": round(time.process_time() - began, 2)}
    found = trained.evaluations
    names = list(task.train)
    before, after = ([part[name] for name in names] for part in (found.train, found.test))
    record |= {
        "exchanges": sum(federation.asked.values()),
        "phases": dict(trained.exchanges),
        "cpu": round(time.process_time() - began, 2),
        "met": bool(trained.budgets_met),
        "status": trained.status,
        "l2": trained.l2,
        "objective": trained.objective,
        "accuracy": [_share(accuracy([pool_counts(part)])[0]) for part in (before, after)],
        "worst": [_share(min(accuracy(part))) for part in (before, after)],
        "loss": [round(float(np.sum([c.loss_sum for c in after]) / rows(after)), 5)],
        "selected": [_share(v) for v in (selected([pool_counts(before)])[0], *selected(before))],
    }
    record["loss"].append(round(max(c.loss_sum / c.n_rows for c in after), 5))
    counts = {
        "hard": (np.array([c.group_selected for c in before]), _counts(before)),
        "fresh": (np.array([c.group_selected for c in after]), _counts(after)),
    }
    reports = [found.reports[name] for name in names]
    smooth = np.array([report.rates * report.group_counts for report in reports])
    counts["smooth"] = (smooth, _counts(before))
    if task.population is not None:
        rates, mass = task.population.rates(trained.params, trained.rates)
        mass = mass * task.population.weights[:, None]
        counts["pop"] = (rates * mass, mass)
        right, chosen = task.population.performance(trained.params)
        weights = task.population.weights
        record["accuracy"].append(_share(weights @ right))
        record["worst"].append(_share(right.min()))
        record["selected_pop"] = _share(weights @ chosen)
    shown = task.rule if variant != "global" else replace(task.rule, scope="client")
    record |= _disparities(shown, trained.rates, counts)
    if variant == "none":
        record["rows"] = [c.n_rows for c in before]
        record |= _even(task.rule, trained.rates, *counts["hard"])
    elif variant != "global":
        chances, exceeded = stated(trained)
        record["chance"] = [None if c is None else round(c, 4) for c in chances]
        record["exceeded"] = exceeded
    if trained.price is not None:
        price = trained.price
        steps = (price.without_budgets, price.with_budgets, price.with_margins)
        record["price"] = [[_share(step.accuracy), _share(step.selected)] for step in steps]
    if trained.margins is not None and trained.margins.cut_to is not None:
        record["cut_to"] = trained.margins.cut_to
    record["notes"] = [note[:80] for note in trained.notes[:4]]
    return _compact(record, task.rule) if task.is_small else record


def is_inside(rule: Rule, value: int) -> bool:
    """Whether a recorded disparity keeps the rule's budget."""
    assert isinstance(rule.budget, float)
    over = value - rule.budget * UNIT
    return over <= 1e-6 if isinstance(rule, Difference) else over >= -1e-6


def _compact(record: dict[str, Any], rule: Rule) -> dict[str, Any]:
    """Leave out what no table shows of tens of clients.

    Per-client figures stay for default runs and own rates; of the others how many are inside.
    """
    found = dict(record)
    found["selected"] = [record["selected"][0], *(f(record["selected"][1:]) for f in (min, max))]
    for name in ("smooth", "smooth_all", "hard", "asked", "notes", "even", "sides"):
        if name in ("smooth", "hard") and f"{name}_all" not in record:
            found[f"{name}_all"] = record[name]
        found.pop(name, None)
    if record["variant"] not in ("default", "own"):
        found["kept"] = {}
        for part in ("pop", "fresh"):
            values = record.get(f"{part}_all", record[part])
            known = [is_inside(rule, value) for value in values if value is not None]
            found["kept"][part] = [sum(known), len(known)]
        for name in ("pop", "fresh", "pop_all", "fresh_all", "hard_all", "chance"):
            found.pop(name, None)
    found.pop("smooth_all", None)
    return found


def rows(counts: Sequence[Counts]) -> int:
    """All rows counted."""
    return sum(c.n_rows for c in counts)


def accuracy(counts: Sequence[Counts]) -> list[float]:
    """Share of each client's rows that are decided rightly."""
    return [(c.true_positive + c.true_negative) / c.n_rows for c in counts]


def selected(counts: Sequence[Counts]) -> list[float]:
    """Share of each client's rows that are selected."""
    return [(c.true_positive + c.false_positive) / c.n_rows for c in counts]


def _counts(counts: Sequence[Counts]) -> Array:
    return np.array([c.group_counts for c in counts])


def _share(value: float) -> int:
    return round(float(value) * UNIT)


def compared(
    rule: Rule, rates: Sequence[Any], trained_rows: Array, least: float
) -> list[list[list[int]]]:
    """For each client and kind of rate the columns of groups with enough training rows."""
    return [
        [
            [
                column
                for column, rate in enumerate(rates)
                if rate.kind == kind and rate.attribute == rule.attribute and own[column] >= least
            ]
            for kind in rule.kinds
        ]
        for own in trained_rows
    ]


def _disparities(
    rule: Rule, rates: Sequence[Any], counts: Mapping[str, tuple[Array, Array]]
) -> dict[str, list[int | None]]:
    """Each part's disparity at every client, or of all rows; ``_all`` with the smallest groups.

    Rounded towards the budget's wrong side, so that a recorded value inside is inside.
    """
    found: dict[str, list[int | None]] = {}
    is_global = rule.scope == "global"
    trained_rows = counts["hard"][1]
    if is_global:
        trained_rows = trained_rows.sum(axis=0, keepdims=True)
    for least, suffix in ((COMPARED, ""), (1.0, "_all")):
        columns = compared(rule, rates, trained_rows, least)
        for part, (chosen, mass) in counts.items():
            if is_global:
                chosen, mass = (v.sum(axis=0, keepdims=True) for v in (chosen, mass))
            found[part + suffix] = [
                _rounded(rule, chosen[k], mass[k], columns[k]) for k in range(len(columns))
            ]
    same = all(found[part] == found[f"{part}_all"] for part in counts)
    return {name: v for name, v in found.items() if not (same and name.endswith("_all"))}


def _rounded(rule: Rule, chosen: Array, mass: Array, kinds: list[list[int]]) -> int | None:
    values = [
        rule.disparity([float(chosen[i] / mass[i]) for i in groups if mass[i] > 0])
        for groups in kinds
        if sum(mass[i] > 0 for i in groups) >= 2
    ]
    if not values:
        return None
    value = rule.worst(values) * UNIT
    is_difference = isinstance(rule, Difference)
    return int(np.ceil(value - 1e-4) if is_difference else np.floor(value + 1e-4))


def _even(rule: Rule, rates: Sequence[Any], chosen: Array, mass: Array) -> dict[str, list[Any]]:
    """For each client the least chance over its rows that a parity model keeps the budget.

    P(|sZ| <= room) with s = sqrt(Σ a² p(1-p)/n), p the rate of the groups compared, together;
    ``sides`` is how many groups times how many kinds of rate there are.
    """
    if rule.scope == "global":
        chosen, mass = (v.sum(axis=0, keepdims=True) for v in (chosen, mass))
    found: dict[str, list[Any]] = {}
    for least, suffix in ((COMPARED, ""), (1.0, "_all")):
        even, sides = [], []
        for k, kinds in enumerate(compared(rule, rates, mass, least)):
            chances = [
                _parity_chance(rule, float(p), mass[k][list(pair)])
                for groups in kinds
                if len(groups) >= 2
                for p in [chosen[k][groups].sum() / mass[k][groups].sum()]
                for pair in combinations(groups, 2)
            ]
            even.append(round(min(chances), 4) if chances else None)
            sides.append(sum(len(groups) for groups in kinds if len(groups) >= 2))
        found |= {f"even{suffix}": even, f"sides{suffix}": sides}
    return found


def _parity_chance(rule: Rule, p: float, n: Array) -> float:
    budget = rule.budget
    assert isinstance(budget, float)
    deviation = np.sqrt(p * (1.0 - p))
    if isinstance(rule, Difference):
        room, sides = budget, [deviation * np.sqrt((1.0 / n).sum())] * 2
    else:
        room = (1.0 - budget) * p
        weights = np.array([[budget**2, 1.0], [1.0, budget**2]])
        sides = list(deviation * np.sqrt((weights / n).sum(axis=1)))
    upper, lower = (norm.cdf(room / max(side, 1e-12)) for side in sides)
    return float(upper + lower - 1.0)
