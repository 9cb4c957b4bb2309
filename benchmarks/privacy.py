"""Privacy that is counted: what noise costs, and whether it is there.

`python -m benchmarks.privacy [PART …] [--quick] [--first SEED] [--seeds N]`, parts:

partitions   adult-5, five clients that add their own noise, by epsilon
pooled       all rows one client, split 75/25, budget .03, by epsilon; beside RaCO-DP's figure
others       race, equal opportunity, and a simulated table with codes and unequal clients
sizes        five simulated clients of 10³, 10⁴ and 10⁵ rows
neighbours   what one row changes, over 10⁴ pairs of tables, as a share of each sensitivity
distinguish  two neighbouring tables told apart by 10⁵ releases; the same with half the noise
noise        10⁶ draws against the exact law
accountant   epsilon beside dp-accounting's privacy loss distributions

Rules and constants were chosen on seeds below 100; fresh ones begin at 700.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.private_neighbours import largest_shares
from fcfl import Difference, Federation, Linear, train
from fcfl._types import Point, RateId, Report
from fcfl.client.discrete_gaussian import discrete_gaussian
from fcfl.client.private import PrivateClient, PrivateRows, private_rows, with_noise
from fcfl.data.builtin import adult_5
from fcfl.data.client_data import ClientData
from fcfl.data.declared_rows import split_by_content
from fcfl.methods.private import Private
from fcfl.policy import PrivacyBudget
from fcfl.privacy import Release, epsilon_of
from fcfl.rules import RATE_KINDS

EPSILONS = (math.inf, 8.0, 4.0, 2.0, 1.0, 0.5)
NO_NOISE = PrivacyBudget(20.0, 0.05)  # stands for it: the client below adds none
LARGE, ENOUGH = 3000, 100  # training rows of a client, held-out rows of its smaller group


@dataclass(frozen=True)
class Table:
    """Training and held-out rows of every client, and one rule."""

    train: Mapping[str, ClientData]
    test: Mapping[str, ClientData]
    rule: Difference


class NoiselessClient(PrivateClient):
    """The same sums without noise, for the line with epsilon infinite."""

    def report(self, setup: Any, points: Any) -> tuple[Report, ...]:
        """Exact sums, whatever they would cost."""
        return tuple(self._exact(setup, point) for point in points)

    def _exact(self, setup: Any, point: Point) -> Report:
        said = {}
        for release in point.extras:
            total, unit = self._part(setup, release).exact_sum(release, point)  # type: ignore[arg-type]
            said[release.kind] = total * unit  # type: ignore[attr-defined]
        nothing = np.zeros(len(setup.rates))
        return Report(1.0, 0.0, nothing, nothing, extras=said)


def fit(table: Table, epsilon: float, delta: float) -> Any:
    if math.isinf(epsilon):
        clients = {
            name: NoiselessClient(name, rows, table.test[name], privacy=NO_NOISE)
            for name, rows in table.train.items()
        }
        federation, method = Federation(clients), Private(NO_NOISE.epsilon, NO_NOISE.delta)
    else:
        budget = PrivacyBudget(epsilon, delta)
        federation = Federation.from_rows(table.train, table.test, privacy=budget)
        method = Private(epsilon, delta)
    n_features = next(iter(table.train.values())).n_features
    return train(federation, Linear(n_features), [table.rule], method=method)


# --- what a model does, counted exactly: the benchmark has the rows -------------------------------


@dataclass(frozen=True)
class Scored:
    """What a model does for one table's clients, on rows held out unless said otherwise."""

    accuracy: float
    kept: tuple[bool, ...]  # by clients with many rows, held out
    kept_in_training: tuple[bool, ...]
    kept_by_small: tuple[bool, ...]
    largest: float
    more: tuple[float, ...]  # disparities held out less those in training, by the same clients
    sure: tuple[bool, ...] = ()  # kept in training, by all clients that the run does not name


def disparity(params: Any, data: ClientData, rule: Difference) -> tuple[float, int]:
    """The largest difference of rates between groups, and the rows of the smallest one."""
    selected = data.X @ params[:-1] + params[-1] >= 0
    largest, fewest = 0.0, data.n_rows
    for kind in RATE_KINDS[rule.metric]:
        label = {"selection": None, "true_positive": 1, "false_positive": 0}[kind]
        inside = np.ones(data.n_rows, bool) if label is None else data.y == label
        codes = data.groups[rule.attribute]
        parts = [inside & (codes == code) for code in range(len(data.levels[rule.attribute]))]
        fewest = min(fewest, *(int(part.sum()) for part in parts))
        rates = [selected[part].mean() for part in parts if part.any()]
        largest = max(largest, max(rates) - min(rates)) if rates else largest
    return largest, fewest


def named(trained: Any, table: Table) -> set[str]:
    """Clients that the run names because noise keeps their budgets from being sure."""
    notes = [note for note in trained.notes if ", so that its budget of " in note]
    return {name for name in table.train if any(f"Client {name!r} " in note for note in notes)}


def score(params: Any, table: Table, not_sure: set[str] | None = None) -> Scored:
    right = n_rows = 0
    sure = []
    kept, trained, small, sizes, more = [], [], [], [], []
    for name, data in table.test.items():
        selected = data.X @ params[:-1] + params[-1] >= 0
        right, n_rows = right + int((selected == (data.y == 1)).sum()), n_rows + data.n_rows
        value, fewest = disparity(params, data, table.rule)
        budget = float(table.rule.budget_of(name) or 0.0)
        is_kept, own = value <= budget, disparity(params, table.train[name], table.rule)[0]
        if not_sure is not None and name not in not_sure:
            sure.append(own <= budget)
        if fewest < ENOUGH:
            continue
        if table.train[name].n_rows < LARGE:
            small.append(is_kept)
            continue
        kept.append(is_kept)
        sizes.append(value)
        trained.append(own <= budget)
        more.append(value - own)
    largest = max(sizes, default=math.nan)
    by_clients = tuple(kept), tuple(trained), tuple(small)
    return Scored(right / n_rows, *by_clients, largest, tuple(more), tuple(sure))


def line(label: str, scores: list[Scored], seconds: float) -> str:
    accuracy = [one.accuracy for one in scores]
    kept, trained, small = (
        [value for one in scores for value in getattr(one, part)]
        for part in ("kept", "kept_in_training", "kept_by_small")
    )
    known = [one.largest for one in scores if not math.isnan(one.largest)]
    shares = [f"{np.mean(part):.3f} of {len(part)}" if part else "–" for part in (kept, trained)]
    few = f"{np.mean(small):.2f} of {len(small)}" if small else "–"
    return (
        f"{label:>22}  accuracy {np.mean(accuracy):.4f} ± {np.std(accuracy):.4f}  largest "
        f"{np.mean(known) if known else math.nan:.4f}  kept {shares[0]}, in training "
        f"{shares[1]}, by small clients {few}  ({seconds / max(len(scores), 1):.2f} CPU s)"
    )


def by_epsilon(
    tables: list[Table], delta: float, epsilons: tuple[float, ...], label: str = "epsilon"
) -> dict[float, list[Scored]]:
    found = {}
    for epsilon in epsilons:
        began = time.process_time()
        runs = [(fit(table, epsilon, delta), table) for table in tables]
        scores = [score(run.params, table, named(run, table)) for run, table in runs]
        print(line(f"{label} {epsilon:g}", scores, time.process_time() - began), flush=True)
        sure = [value for one in scores for value in one.sure]
        clients = sum(len(table.train) for table in tables)
        print(
            f"{'':>24}not named {len(sure)} of {clients} clients, in training kept by {sum(sure)}"
        )
        found[epsilon] = scores
    return found


# --- tables ---------------------------------------------------------------------------------------


def adult_table(
    seed: int, *, sensitive: str = "sex", metric: str = "demographic_parity", clients: int = 5,
    budget: float = 0.05, test_size: float = 0.3,
) -> Table:  # fmt: skip
    table = adult_5((sensitive,), clients, seed=seed, test_size=0.0, declared=True)
    parts = {name: split_by_content(d, test_size, seed) for name, d in table.train.items()}
    return Table(
        {name: part[0] for name, part in parts.items()},
        {name: part[1] for name, part in parts.items()},
        Difference(metric, sensitive, budget),  # type: ignore[arg-type]
    )


def simulated_table(seed: int, sizes: tuple[int, ...], budget: float = 0.05) -> Table:
    """Two columns of codes, four numbers, and groups that differ in them, unlike by client."""
    rng = np.random.default_rng([seed, 77])
    effects = [0.7 * rng.standard_normal(12), 0.5 * rng.standard_normal(20)]
    slopes = np.array([0.8, -0.6, 0.4, 0.2])
    levels = {"group": ("a", "b")}
    parts: dict[str, tuple[ClientData, ClientData]] = {}
    for number, size in enumerate(sizes):
        n_rows = int(size / 0.7)
        group = (rng.random(n_rows) < rng.uniform(0.3, 0.7)).astype(np.int32)
        codes = [rng.choice(len(e), n_rows, p=rng.dirichlet(np.full(len(e), 3.0))) for e in effects]
        codes[0] = np.where((group == 1) & (rng.random(n_rows) < 0.3), 0, codes[0])
        X = rng.standard_normal((n_rows, 4))
        X[:, 0] += 0.6 * group
        score = X @ slopes + sum(e[c] for e, c in zip(effects, codes, strict=True)) - 1.0
        y = (score + rng.logistic(size=n_rows) > 0).astype(float)
        ones = [np.eye(len(e))[c] for e, c in zip(effects, codes, strict=True)]
        data = ClientData(np.column_stack([X, *ones]), y, {"group": group}, levels)
        parts[f"client-{number + 1}"] = split_by_content(data, 0.3, seed)
    return Table(
        {name: part[0] for name, part in parts.items()},
        {name: part[1] for name, part in parts.items()},
        Difference("demographic_parity", "group", budget),
    )


# --- parts ----------------------------------------------------------------------------------------


def partitions(first: int, seeds: int, quick: bool) -> None:
    print(f"adult-5, budget .05, delta 1e-6, partitions {first}–{first + seeds - 1}")
    tables = [adult_table(seed) for seed in range(first, first + seeds)]
    by_epsilon(tables, 1e-6, (math.inf, 2.0, 1.0) if quick else EPSILONS)


def pooled(first: int, seeds: int, quick: bool) -> None:
    print(f"one client, 75/25, budget .03, delta 1e-5, seeds {first}–{first + seeds - 1}")
    print("RaCO-DP (ICLR 2026, central, epsilon 1) reports .831 at .030")
    tables = [
        adult_table(seed, clients=1, budget=0.03, test_size=0.25)
        for seed in range(first, first + seeds)
    ]
    found = by_epsilon(tables, 1e-5, (math.inf, 1.0) if quick else EPSILONS)
    for epsilon, scores in found.items():
        more = [value for one in scores for value in one.more]
        own = [one.largest - one.more[0] for one in scores]
        print(
            f"epsilon {epsilon:g}: disparity in training {np.mean(own):.4f} ± {np.std(own):.4f}, "
            f"held out higher by {np.mean(more):+.4f} ± {np.std(more):.4f}"
        )


def others(first: int, seeds: int, quick: bool) -> None:
    epsilons = (2.0,) if quick else (math.inf, 2.0, 1.0)
    span = range(first, first + max(seeds // 2, 1))
    for label, options in (
        ("race", {"sensitive": "race"}),
        ("equal opportunity", {"metric": "equal_opportunity"}),
    ):
        print(f"adult-5, {label}, budget .05, delta 1e-6, partitions {span[0]}–{span[-1]}")
        by_epsilon([adult_table(seed, **options) for seed in span], 1e-6, epsilons)  # type: ignore[arg-type]
    print(f"simulated, codes, six unequal clients, seeds {span[0]}–{span[-1]}")
    sizes = (1500, 4000, 6000, 10_000, 20_000, 40_000)
    by_epsilon([simulated_table(seed, sizes) for seed in span], 1e-6, epsilons)


def sizes(first: int, seeds: int, quick: bool) -> None:
    for size in (1000, 10_000) if quick else (1000, 10_000, 100_000):
        count = max(seeds // (4 if size == 100_000 else 2), 1)
        print(f"five simulated clients of {size} training rows, seeds {first}–{first + count - 1}")
        tables = [simulated_table(first + i, (size,) * 5) for i in range(count)]
        by_epsilon(tables, 1e-6, (2.0,) if quick else EPSILONS)


def neighbours(first: int, seeds: int, quick: bool) -> None:
    n_pairs = 500 if quick else 10_000
    levels = {"race": ("black", "white", "other"), "sex": ("f", "m")}
    rates = tuple(
        RateId(kind, name, group)  # type: ignore[arg-type]
        for name, groups in levels.items()
        for kind in ("selection", "true_positive", "false_positive")
        for group in groups
    )
    found = largest_shares(first, n_pairs, rates, levels)
    print(f"largest change by one row, as a share of its sensitivity, {n_pairs} pairs of tables")
    for kind, share in found.items():
        print(f"{kind:>12}  {share:.4f}  {'holds' if 1 / 3 <= share <= 1 else 'DOES NOT HOLD'}")


def distinguish(first: int, seeds: int, quick: bool) -> None:
    """Lower bounds (confidence .999) of epsilon from how often a threshold is passed."""
    runs, delta, mu = (10_000 if quick else 100_000), 0.01, 1.0
    rng = np.random.default_rng(first)
    levels = {"sex": ("f", "m")}
    rates = (RateId("selection", "sex", "f"), RateId("selection", "sex", "m"))
    X, y = rng.standard_normal((30, 3)), rng.integers(0, 2, 30).astype(float)
    table = ClientData(X, y, {"sex": rng.integers(0, 2, 30)}, levels)
    X[0], y[0] = 50.0, 0.0  # the row that is there or not: as long as a row may be, and wrong
    claimed = epsilon_of(mu, delta)
    print(f"mu {mu:g}: epsilon {claimed:.3f} is claimed at delta {delta:g}; {runs} runs each")
    for kind in ("counts", "rates", "gradient", "scores"):
        for label, factor in (("full noise", 1.0), ("half the noise", 2.0)):
            bound = _empirical_epsilon(kind, table, rates, mu * factor, delta, runs)
            verdict = "within" if bound <= claimed else "caught"
            print(f"{kind:>10}, {label:>14}: at least {bound:.3f}: {verdict}", flush=True)


def _empirical_epsilon(
    kind: Any, table: ClientData, rates: Any, mu: float, delta: float, runs: int
) -> float:
    point = Point(np.array([8.0, -6.0, 4.0, 2.0]))
    release = Release(kind, mu)
    parts = [private_rows(part, rates) for part in (table, table.take(np.arange(1, 30)))]
    sums = [part.exact_sum(release, point) for part in parts]
    direction = (sums[0][0] - sums[1][0]).astype(float) * sums[0][1]
    direction /= np.linalg.norm(direction)
    seen = [_projections(part, release, point, direction, runs) for part in parts]
    half = runs // 2  # thresholds are chosen on one half and judged on the other
    best = 0.0
    for sign in (1.0, -1.0):
        with_row, without = (sign * one for one in seen)
        if sign < 0:
            with_row, without = without, with_row
        cuts = np.quantile(without[:half], np.linspace(0.5, 0.9995, 60))
        guesses = [
            (np.mean(with_row[:half] >= cut) - delta) / max(np.mean(without[:half] >= cut), 1e-9)
            for cut in cuts
        ]
        cut = cuts[int(np.argmax(guesses))]
        ups, downs = ((one[half:] >= cut).sum() for one in (with_row, without))
        low = stats.beta.ppf(0.0005, ups, half - ups + 1) - delta
        high = stats.beta.ppf(0.9995, downs + 1, half - downs)
        best = max(best, math.log(max(low / high, 1.0)))
    return best


def _projections(
    rows: PrivateRows, release: Release, point: Point, direction: Any, runs: int
) -> Any:
    """What so many releases look like along one direction; their noise is drawn at once."""
    total, unit = rows.exact_sum(release, point)
    sd = release.noise_sd(rows.rates) / unit
    drawn = with_noise(np.tile(total.ravel(), (runs, 1)), sd) * unit
    return drawn @ direction.ravel()


def noise(first: int, seeds: int, quick: bool) -> None:
    size = 100_000 if quick else 1_000_000
    for scale in (1, 5, 40):
        began = time.process_time()
        draws = discrete_gaussian(scale, size)
        seconds = time.process_time() - began
        reach = 12 * scale
        k = np.arange(-reach, reach + 1)
        law = np.exp(-(k**2) / (2.0 * scale**2))
        expected, observed = size * law / law.sum(), np.bincount(draws + reach, minlength=k.size)
        often = expected > 10
        seen = np.append(observed[often], observed[~often].sum())
        p = stats.chisquare(seen, np.append(expected[often], expected[~often].sum())).pvalue
        print(f"scale {scale:>3}: {size} draws, χ² p = {p:.3f}, {1e6 * seconds / size:.2f} µs each")


def accountant(first: int, seeds: int, quick: bool) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    worst = 0.0
    for releases in (1, 17, 70):
        for mu in (0.1, 0.3, 1.0):
            each = pld.from_gaussian_mechanism(
                math.sqrt(releases) / mu, value_discretization_interval=1e-4
            )
            for delta in (1e-8, 1e-6, 1e-5):
                theirs = each.self_compose(releases).get_epsilon_for_delta(delta)
                ours = epsilon_of(mu, delta)
                worst = max(worst, abs(ours - theirs) / theirs)
                print(
                    f"{releases:>3} releases, mu {mu:g}, delta {delta:g}: {ours:.5f} {theirs:.5f}"
                )
    print(f"largest difference {worst:.1e} of epsilon")


PARTS: dict[str, Callable[[int, int, bool], None]] = {
    "partitions": partitions, "pooled": pooled, "others": others, "sizes": sizes,
    "neighbours": neighbours, "distinguish": distinguish, "noise": noise, "accountant": accountant,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.privacy", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of: {', '.join(PARTS)}; default all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--first", type=int, default=700)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    for name in options.parts or PARTS:
        print(f"\n=== {name}", flush=True)
        seeds = min(options.seeds, 2) if options.quick else options.seeds
        PARTS[name](options.first, seeds, options.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
