"""Large tables: whole fits, reports, growth, many clients, networks; `docs/scale.md` is made here.

`python -m benchmarks.scale` runs all parts and writes `docs/scale.md`; `python -m benchmarks.scale
fit reports` runs the parts named and keeps the others' numbers; `--quick` takes small tables and
writes nothing. Whole fits are processes of their own, in turns, measured in seconds of CPU: others
on the machine then count for little. Exits 1 where a claim of a part does not hold.

The table is simulated: ten coded columns with 800 levels in all, the frequencies of a column's
levels fall like 1/k, 35 clients, an attribute of two groups that the label leans on.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "scale.json"
DOCS = ROOT / "docs" / "scale.md"
WIDTHS = (100, 100, 100, 100, 100, 90, 80, 70, 40, 20)
N_CLIENTS = 35
L2 = 1e-3
BUDGET = 0.05
TRAINED = 0.7  # share of rows, as `fcfl train` holds the others out
Table = dict[str, Any]


# --- the simulated table --------------------------------------------------------------------------


def write_table(
    path: Path, n_rows: int, widths: tuple[int, ...] = WIDTHS, n_clients: int = N_CLIENTS
) -> Path:
    """Write the simulated table as Parquet, the codes as text."""
    import pandas as pd

    rng = np.random.default_rng(0)
    columns: Table = {}
    leaning = np.zeros(n_rows)
    for j, width in enumerate(widths):
        share = 1.0 / np.arange(1, width + 1)
        codes = rng.choice(width, n_rows, p=share / share.sum())
        columns[f"code {j}"] = pd.Categorical.from_codes(codes, [f"L{k}" for k in range(width)])
        leaning += rng.normal(0, 0.5, width)[codes]
    group = rng.choice(2, n_rows, p=[0.6, 0.4])
    columns["group"] = pd.Categorical.from_codes(group, ["a", "b"])
    names = [f"client {k:05d}" for k in range(n_clients)]
    columns["client"] = pd.Categorical.from_codes(rng.integers(0, n_clients, n_rows), names)
    columns["label"] = (leaning + 0.5 * group + rng.logistic(size=n_rows) > 0).astype(int)
    pd.DataFrame(columns).to_parquet(path)
    return path


def columns_of() -> Any:
    from fcfl.data import Columns

    return Columns("client", "label", ("group",))


# --- children: one fit each, in a process of its own ----------------------------------------------


def child_ours(path: str, rounds: str = "") -> Table:
    """`fcfl train` from the file to the page, with the time of its parts."""
    began = time.process_time()
    from fcfl import data
    from fcfl.federation.federation import Federation
    from fcfl.report.page import write_page
    from fcfl.runs import Experiment, run_experiment

    spent = {"imports": time.process_time() - began}

    def timed(where: Any, name: str, part: str) -> None:
        original = getattr(where, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            first = time.process_time()
            try:
                return original(*args, **options)
            finally:
                spent[part] = spent.get(part, 0.0) + time.process_time() - first

        setattr(where, name, wrapped)

    timed(data, "read_tables", "read the file")
    timed(data, "federate", "split and encode")
    timed(Federation, "report", "clients: reports")
    timed(Federation, "count", "clients: decisions counted")
    experiment = Experiment(
        table=path, client="client", label="label", sensitive=("group",), budget=BUDGET, l2=L2,
        objective="max", confidence=0, starts=1,
        rounds=tuple(map(int, rounds.split(","))) if rounds else None,
    )  # fmt: skip
    first, on_the_wall = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        finished = run_experiment(experiment, Path(name) / "run")
        ran = time.process_time()
        write_page(finished.folder)
        spent["page"] = time.process_time() - ran
    inside = sum(v for k, v in spent.items() if k not in ("imports", "page"))
    spent["server, checks, files"] = ran - first - inside
    result = finished.result
    return {
        "parts": spent,
        "wall": time.perf_counter() - on_the_wall,
        "rounds": sum(result.rounds.values()),
        "evaluations": asdict(result.evaluations),
        "status": result.status,
    }


def child_default(path: str) -> Table:
    """`fcfl train` with nothing but the columns and the budget given, from the file to the page."""
    from fcfl.report.page import write_page
    from fcfl.runs import Experiment, run_experiment

    experiment = Experiment(
        table=path, client="client", label="label", sensitive=("group",), budget=BUDGET
    )
    first = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        finished = run_experiment(experiment, Path(name) / "run")
        write_page(finished.folder)
    chosen = finished.result.selection
    return {
        "parts": {"all": time.process_time() - first},
        "status": finished.result.status,
        "selection": None if chosen is None else f"l2 {chosen.l2:g}, {chosen.objective}",
    }


def child_sklearn(path: str, c_given: str) -> Table:
    """Read, encode and fit `LogisticRegression` on the rows that we train on, pooled."""
    began = time.process_time()
    import pandas as pd
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OneHotEncoder

    spent = {"imports": time.process_time() - began}
    first, on_the_wall = time.process_time(), time.perf_counter()
    frame = pd.read_parquet(path).sample(frac=TRAINED, random_state=0)
    y = frame["label"].to_numpy()
    X = frame.drop(columns=["label", "client", "group"])
    read = time.process_time()
    encoded = OneHotEncoder().fit_transform(X)
    coded = time.process_time()
    strength = 1.0 if c_given == "default" else 1.0 / (L2 * len(frame))
    model = LogisticRegression(C=strength, max_iter=10_000).fit(encoded, y)
    done = time.process_time()
    spent |= {"read the file": read - first, "encode": coded - read, "fit": done - coded}
    wall = time.perf_counter() - on_the_wall
    return {"parts": spent, "wall": wall, "iterations": int(model.n_iter_[0])}


def child_fairlearn(path: str) -> Table:
    """The reduction of fairlearn with the clients as control features."""
    import pandas as pd
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    first = time.process_time()
    frame = pd.read_parquet(path).sample(frac=TRAINED, random_state=0)
    features = frame.drop(columns=["label", "client", "group"])
    X = features.apply(lambda column: column.cat.codes).to_numpy()  # it takes no sparse matrix
    reduction = ExponentiatedGradient(
        make_pipeline(OneHotEncoder(), LogisticRegression(max_iter=1000)),
        DemographicParity(difference_bound=BUDGET),
        sample_weight_name="logisticregression__sample_weight",
    )
    reduction.fit(
        X,
        frame["label"].to_numpy(),
        sensitive_features=frame["group"].astype(str).to_numpy(),
        control_features=frame["client"].astype(str).to_numpy(),
    )
    return {"parts": {"encode and fit": time.process_time() - first}}


def child_choosing(path: str) -> Table:
    """A run that chooses l2 and objective, and one bare fit with what it chose."""
    from fcfl import Federation, Linear, train
    from fcfl.data import federate, read_table
    from fcfl.rules import Difference

    table = federate(read_table(Path(path)), columns_of())
    rules = (Difference("demographic_parity", "group", BUDGET),)
    model = Linear(table.schema.n_features)
    federation = Federation.from_rows(table.train, table.test)
    began = time.process_time()
    chosen = train(federation, model, rules, confidence=0.0)
    chose = time.process_time()
    settings = {"l2": chosen.l2, "objective": chosen.objective}
    fitted = train(federation, model, rules, **settings, confidence=0.0, starts=1)
    fit = time.process_time() - chose
    return {
        "parts": {"choosing": chose - began - fit, "fit": fit},
        "selection": f"l2 {chosen.l2:g}, objective {chosen.objective}",
        "parameters": model.n_params,
        "rounds": sum(fitted.state.rounds),
    }


CHILDREN: dict[str, Callable[..., Table]] = {
    "choosing": child_choosing,
    "ours": child_ours,
    "default": child_default,
    "sklearn": child_sklearn,
    "fairlearn": child_fairlearn,
}


def run_child(name: str, *args: str, threads: int = 1) -> Table:
    """One child's numbers, with its seconds in all and its peak memory."""
    given = {key: str(threads) for key in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    environment = os.environ | given | {"FCFL_NUM_THREADS": str(threads)}
    # Some machines forbid to keep compiled modules: each start would then compile them again, half
    # of a fit's seconds, of which a user's second start has none.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "benchmarks.scale", "--child", name, *args]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
    found: Table = json.loads(done.stdout.splitlines()[-1])
    return found


def child_main(name: str, args: list[str]) -> int:
    found = CHILDREN[name](*args)
    found["seconds"] = sum(v for k, v in found["parts"].items() if k != "imports")
    used = resource.getrusage(resource.RUSAGE_SELF)
    found["peak_mb"] = peak_megabytes()
    found["cpu_seconds"] = used.ru_utime + used.ru_stime
    print(json.dumps(found))
    return 0


def peak_megabytes() -> float:
    """The most memory that this program held.

    Not `ru_maxrss`: Linux counts what the parent held when it started this process.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    held = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return float(held.split()[1]) / 1024


# --- parts ----------------------------------------------------------------------------------------


def part_fit(folder: Path, quick: bool, turns: int = 1) -> Table:
    """File to result, beside scikit-learn on the pooled rows; memory beside the columns in use."""
    small = write_table(folder / "first.parquet", 20_000)
    for child, args in (("ours", ()), ("sklearn", ("default",)), ("default", ())):
        run_child(child, str(small), *args)  # what they import is compiled once
    path = write_table(folder / "fit.parquet", 50_000 if quick else 1_000_000)
    in_use = used_megabytes(path)
    lines = []
    for threads in (1, 2):
        found: dict[str, list[Table]] = {}
        for _ in range(turns):
            for who, args in (("ours", ()), ("default C", ("default",)), ("same l2", ("same",))):
                child = "ours" if who == "ours" else "sklearn"
                found.setdefault(who, []).append(
                    run_child(child, str(path), *args, threads=threads)
                )
        lines.append({"threads": threads} | {who: middle(runs) for who, runs in found.items()})
        ours, other = lines[-1]["ours"]["seconds"], lines[-1]["default C"]["seconds"]
        print(f"  {threads} thread(s): ours {ours:.1f} s, scikit-learn {other:.1f} s "
              f"(same l2: {lines[-1]['same l2']['seconds']:.1f} s), ratio {ours / other:.2f}, "
              f"peak {lines[-1]['ours']['peak_mb']:.0f} MB", flush=True)  # fmt: skip
    ratios = {
        "one thread": lines[0]["ours"]["seconds"] / lines[0]["default C"]["seconds"],
        "two threads": lines[1]["ours"]["seconds"] / lines[1]["default C"]["seconds"],
    }
    default = run_child("default", str(path))
    times = default["seconds"] / lines[0]["default C"]["seconds"]
    print(f"  default command: {default['seconds']:.1f} s, {times:.1f} times scikit-learn, "
          f"peak {default['peak_mb']:.0f} MB", flush=True)  # fmt: skip
    most = max(default["peak_mb"], *(line["ours"]["peak_mb"] for line in lines))
    return {
        "rows": 50_000 if quick else 1_000_000,
        "columns_mb": in_use,
        "lines": lines,
        "default": default,
        "claims": {
            **{
                f"{who}: at most 1.2 times scikit-learn's CPU (measured {ratio:.2f})": ratio <= 1.2
                for who, ratio in ratios.items()
            },
            f"the default command at most 8 times scikit-learn (measured {times:.1f})": times <= 8,
            f"peak at most 3 x {in_use:.0f} + 300 MB (measured {most:.0f})": (
                most <= 3 * in_use + 300
            ),
        },
    }


def used_megabytes(path: Path) -> float:
    """The columns of the file as Arrow holds them, text as codes of four bytes."""
    from pyarrow import parquet

    names = [n for n in parquet.read_schema(path).names if n != "label"]
    return float(parquet.read_table(path, read_dictionary=names).nbytes / 1e6)


def middle(runs: list[Table]) -> Table:
    """The run with the median number of seconds."""
    return sorted(runs, key=lambda run: float(run["seconds"]))[len(runs) // 2]


def part_where(folder: Path, quick: bool) -> Table:
    """Where the time of `fcfl train` goes as rows, columns, clients grow; nine rounds at most."""
    lines = []
    for what, sizes in WHERE.items():
        for size in sizes[:2] if quick else sizes:
            path = write_table(folder / f"{what}-{size}.parquet", *where_case(what, size))
            lines.append({"what": what, "size": size, **run_child("ours", str(path), "6,3")})
            path.unlink()
            parts = ", ".join(f"{k} {v:.2f}" for k, v in lines[-1]["parts"].items())
            print(f"  {size:,} {what}, {lines[-1]['rounds']} rounds: {parts}", flush=True)
    return {"lines": lines, "claims": {}}


WHERE = {
    "rows": (10_000, 100_000, 1_000_000),
    "columns": (10, 100, 1_000),
    "clients": (2, 35, 1_000),
}
"""What grows in the profile, and through which sizes."""


def where_case(what: str, size: int) -> tuple[int, tuple[int, ...], int]:
    """Rows, levels of the columns, clients."""
    if what == "rows":
        return size, WIDTHS, min(N_CLIENTS, size // 2_000)
    if what == "columns":
        return 20_000, (2,) * size, 10
    return 100_000, (10,) * 10, size


def part_reports(folder: Path, quick: bool) -> Table:
    """One answer of all 35 clients, by what is wanted; Adult's large client beside torch."""
    path = write_table(folder / "reports.parquet", 50_000 if quick else 1_000_000)
    lines = []
    with federation_of(path) as ask:
        for want in ("values", "gradients", "curvature"):
            seconds = {}
            for threads in ("1", "2"):
                os.environ["FCFL_NUM_THREADS"] = threads
                seconds[threads] = best(lambda want=want: ask(want), 5)
            lines.append({"want": want, "seconds": seconds})
            print(f"  {want}: {1e3 * seconds['1']:.0f} ms, "
                  f"two threads {1e3 * seconds['2']:.0f} ms", flush=True)  # fmt: skip
    os.environ["FCFL_NUM_THREADS"] = "2"
    ours, torch_ms = adult_and_torch()
    print(f"  Adult's large client: {ours:.2f} ms, torch float32 {torch_ms:.2f} ms, "
          f"ratio {ours / torch_ms:.2f}", flush=True)  # fmt: skip
    claim = f"Adult's large client at most a quarter of torch (measured {ours / torch_ms:.2f})"
    return {
        "lines": lines,
        "adult": {"ours_ms": ours, "torch_ms": torch_ms},
        "claims": {claim: ours / torch_ms <= 0.25},
    }


@contextmanager
def federation_of(path: Path) -> Iterator[Any]:
    """A question to all clients of a table."""
    from fcfl._types import CurvatureWeights, Point, Request
    from fcfl.client.client import Setup
    from fcfl.data import federate, read_table
    from fcfl.federation.federation import Federation
    from fcfl.models.linear import Linear
    from fcfl.rules import Difference, rates_needed

    table = federate(read_table(path), columns_of())
    rules = (Difference("demographic_parity", "group", BUDGET),)
    model = Linear(table.schema.n_features)
    setup = Setup(model, rates_needed(rules, table.levels), rules)
    federation = Federation.from_rows(table.train, table.test)
    params = np.random.default_rng(0).normal(0, 0.1, model.n_params)
    weights = {name: CurvatureWeights(0.03, np.ones(2)) for name in federation.names}

    def ask(want: Any) -> object:
        return federation.report(setup, Request((Point(params, want, weights),)))

    yield ask


def best(task: Callable[[], object], times: int) -> float:
    """The shortest of some runs, after one that warms up: others may use the machine too."""
    task()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        task()
        taken.append(time.perf_counter() - began)
    return min(taken)


def adult_and_torch() -> tuple[float, float]:
    """Milliseconds of one report with three gradients, and of torch's two backward passes."""
    import torch

    from benchmarks.reports import RULE, _autograd, interleaved
    from fcfl._types import Point
    from fcfl.data import adult
    from fcfl.models.linear_rows import linear_rows
    from fcfl.rules import rates_needed

    federation = adult(("race",))
    data = federation.train["non-phd"]
    client = linear_rows("non-phd", data, rates_needed([RULE], federation.levels))
    params = np.random.default_rng(0).normal(0.0, 0.1, client.n_params)
    autograd = _autograd(data, params)
    torch.set_num_threads(2)
    point = Point(params, "gradients")
    ours, other = interleaved(lambda: client.report(point), autograd)
    return 1e3 * ours, 1e3 * other


def part_fairlearn(folder: Path, quick: bool) -> Table:
    """The reduction of fairlearn, clients as control features, on a tenth of the rows."""
    n_rows = 10_000 if quick else 100_000
    path = write_table(folder / "fairlearn.parquet", n_rows)
    ours = run_child("ours", str(path))
    other = run_child("fairlearn", str(path))
    print(f"  {n_rows:,} rows: ours {ours['seconds']:.1f} s, "
          f"fairlearn {other['seconds']:.1f} s", flush=True)  # fmt: skip
    return {"rows": n_rows, "ours": ours, "fairlearn": other, "claims": {}}


GROWTH: dict[str, tuple[tuple[int, ...], float]] = {
    "rows": ((10_000, 30_000, 100_000, 300_000, 1_000_000), 1.05),
    "columns": ((10, 30, 100, 300, 1_000), 2.0),
    "clients": ((2, 10, 100, 1_000), 1.05),
}
"""What grows, through which sizes, and the largest slope on log axes."""


def part_choosing(folder: Path, quick: bool) -> Table:
    """What choosing l2 and the objective costs beside the fit with them: many rows and columns."""
    n_rows, n_columns = (50_000, 20) if quick else (1_000_000, 100)
    path = write_table(folder / "choosing.parquet", n_rows, (4,) * n_columns)
    found = run_child("choosing", str(path))
    parts = found["parts"]
    ratio = parts["choosing"] / parts["fit"]
    print(f"  choosing {parts['choosing']:.1f} s ({found['selection']}), one bare fit "
          f"{parts['fit']:.1f} s in {found['rounds']} rounds, ratio {ratio:.1f}")  # fmt: skip
    claim = f"choosing at most 10 times one bare fit (measured {ratio:.1f})"
    return {"rows": n_rows, "columns": n_columns, **found, "claims": {claim: ratio <= 10}}


def part_growth(folder: Path, quick: bool) -> Table:
    """Encoding and one round (a report with curvature from all clients) against size."""
    lines, claims = [], {}
    for what, (sizes, most) in GROWTH.items():
        seconds = []
        for size in sizes[:3] if quick else sizes:
            path = write_table(folder / f"{what}-{size}.parquet", *growth_case(what, size, quick))
            seconds.append(cpu(lambda path=path: one_round(path), 2))
        sizes_run = sizes[: len(seconds)]
        slope = float(np.polyfit(np.log(sizes_run), np.log(seconds), 1)[0])
        claims[f"slope against {what} at most {most:g} (measured {slope:.2f})"] = slope <= most
        lines.append({"what": what, "sizes": sizes_run, "seconds": seconds, "slope": slope})
        shown = ", ".join(f"{n:,}: {s:.2f} s" for n, s in zip(sizes_run, seconds, strict=True))
        print(f"  {what}: {shown}; slope {slope:.2f}", flush=True)
    return {"lines": lines, "claims": claims}


def growth_case(what: str, size: int, quick: bool) -> tuple[int, tuple[int, ...], int]:
    """Rows, levels of the columns, clients."""
    if what == "rows":
        return size, (20,) * 10, 10
    if what == "columns":
        return 5_000 if quick else 20_000, (10,) * max(size // 10, 1), 4
    return 20_000 if quick else 100_000, (5,) * 10, size


def one_round(path: Path) -> None:
    with federation_of(path) as ask:
        ask("curvature")


def part_server(folder: Path, quick: bool) -> Table:
    """A server step at 1,000 clients x 10,000 parameters; 10,000 clients of 100 rows."""
    from benchmarks.growth import one_step

    shape = (100, 1_000, 2) if quick else (1_000, 10_000, 2)
    seconds, sent, beside, _, _ = one_step(*shape)
    print(f"  {shape[0]:,} clients x {shape[1]:,} parameters: {seconds:.2f} s, reports {sent:.0f} "
          f"MB, beside them {beside:.0f} MB", flush=True)  # fmt: skip
    n_clients = 500 if quick else 10_000
    path = write_table(folder / "many.parquet", 100 * n_clients, (5,) * 10, n_clients)
    began = time.process_time()
    with federation_of(path) as ask:
        opened = time.process_time() - began
        first = time.process_time()
        ask("gradients")
        built = time.process_time() - first
        asked = cpu(lambda: ask("gradients"), 1)
        curved = cpu(lambda: ask("curvature"), 1)
    print(f"  {n_clients:,} clients of 100 rows: opened in {opened:.1f} s, first answer "
          f"{built:.1f} s, a round {asked:.1f} s, "
          f"with curvature {curved:.1f} s", flush=True)  # fmt: skip
    total = (sent + beside) / sent
    return {
        "step": {"clients": shape[0], "parameters": shape[1], "seconds": seconds,
                 "reports_mb": sent, "beside_mb": beside},
        "many": {"clients": n_clients, "open": opened, "first": built, "round": asked,
                 "curved": curved},
        "claims": {
            f"a server step below 1 s (measured {seconds:.2f})": seconds < 1.0,
            f"memory below twice the reports (measured {total:.2f})": total < 2.0,
        },
    }  # fmt: skip


def part_network(folder: Path, quick: bool) -> Table:
    """A report of a network of 10⁵ parameters, beside an epoch of plain torch training."""
    import torch
    from torch import nn

    from fcfl._types import Point
    from fcfl.data import adult_5
    from fcfl.models.torch_module import TorchModule
    from fcfl.rules import Difference, rates_needed

    torch.set_num_threads(2)
    torch.manual_seed(0)
    data = max(adult_5(("sex",)).train.values(), key=lambda d: d.n_rows)
    width = 32 if quick else 256
    module = nn.Sequential(
        nn.Linear(data.n_features, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
        nn.Linear(width, 1),
    )  # fmt: skip
    rates = rates_needed([Difference("demographic_parity", "sex", BUDGET)], data.levels)
    model = TorchModule(module)
    rows = model.rows("a", data, rates)
    point = Point(model.start(), "gradients")
    X = torch.tensor(np.asarray(data.X), dtype=torch.float32)
    y = torch.tensor(data.y, dtype=torch.float32)
    trained = nn.Sequential(*(type(m)(*_shape(m)) for m in module))
    optimiser = torch.optim.SGD(trained.parameters(), lr=0.1)

    def epoch() -> None:
        for batch in torch.split(torch.randperm(X.shape[0]), 256):
            optimiser.zero_grad()
            logits = trained(X[batch]).squeeze(1)
            nn.functional.binary_cross_entropy_with_logits(logits, y[batch]).backward()
            optimiser.step()

    times: dict[str, list[float]] = {"report": [], "epoch": []}
    for _ in range(5):
        for name, task in (("report", lambda: rows.report(point)), ("epoch", epoch)):
            began = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - began)
    report, plain = median(times["report"]), median(times["epoch"])
    print(f"  {model.n_params:,} parameters, {data.n_rows:,} rows: report {report:.3f} s, epoch of "
          f"plain torch {plain:.3f} s", flush=True)  # fmt: skip
    return {
        "parameters": model.n_params,
        "rows": data.n_rows,
        "report": report,
        "epoch": plain,
        "claims": {},
    }


def _shape(layer: Any) -> tuple[int, ...]:
    return (layer.in_features, layer.out_features) if hasattr(layer, "in_features") else ()


KERNEL_CASES = (
    (20_000, WIDTHS),
    (700_000, WIDTHS),
    (20_000, (4,) * 100),
    (100_000, (4,) * 100),
)
"""Rows of a client, and the levels of its columns."""


def part_kernels(folder: Path, quick: bool) -> Table:
    """A client's report and its curvature: compiled, by NumPy, and by scipy's sparse product."""
    from fcfl._types import Point
    from fcfl.data.client_data import ClientData, FeatureLayout, code_cells
    from fcfl.models.kernels import kernels
    from fcfl.models.linear_rows import linear_rows
    from fcfl.rules import Difference, rates_needed

    rng, lines = np.random.default_rng(0), []
    os.environ["FCFL_NUM_THREADS"] = "1"
    levels = {"group": ("a", "b")}
    rates = rates_needed([Difference("demographic_parity", "group", BUDGET)], levels)
    for n_rows, widths in KERNEL_CASES[:1] if quick else KERNEL_CASES:
        firsts = tuple(int(f) for f in np.cumsum((0, *widths))[:-1])
        layout = FeatureLayout(sum(widths), firsts, widths)
        cells = [rng.choice(w, n_rows, p=_falling(w)) for w in widths]
        X = code_cells(layout, cells, [], n_rows)
        data = ClientData(X, rng.integers(0, 2, n_rows), {"group": rng.integers(0, 2, n_rows)},
                          levels)  # fmt: skip
        rows = linear_rows("a", data, rates)
        point = Point(rng.normal(0, 0.1, rows.n_params), "gradients")
        diagonal = rng.random(rows.row_counts.size)
        line: Table = {"rows": n_rows, "columns": len(widths), "levels": sum(widths)}
        for name in ("compiled", "numpy"):
            os.environ["FCFL_COMPILED"] = "0" if name == "numpy" else "1"
            if name == "numpy" or kernels() is not None:
                line[f"report {name}"] = cpu(lambda r=rows, p=point: r.report(p))
                line[f"curvature {name}"] = cpu(lambda r=rows, d=diagonal: r.products.gramian(d), 4)
        os.environ.pop("FCFL_COMPILED")
        plain = X.tocsr()
        turned = plain.T.tocsr()

        def sparse_product(plain: Any = plain, turned: Any = turned, d: Any = diagonal) -> Any:
            scaled = plain.copy()
            scaled.data *= np.repeat(d, np.diff(plain.indptr))
            return (turned @ scaled).toarray()

        line["curvature sparse"] = cpu(sparse_product, 1)
        lines.append(line)
        shown = ", ".join(f"{k} {1e3 * line[k]:.1f} ms" for k in line if " " in k)
        print(f"  {n_rows:,} rows, {len(widths)} columns: {shown}", flush=True)
    return {"lines": lines, "claims": {}}


def _falling(width: int) -> Any:
    share = 1.0 / np.arange(1, width + 1)
    return share / share.sum()


def cpu(task: Callable[[], object], times: int = 10) -> float:
    """Seconds of CPU of the quickest run."""
    task()
    taken = []
    for _ in range(times):
        began = time.process_time()
        task()
        taken.append(time.process_time() - began)
    return min(taken)


PARTS: dict[str, Callable[..., Table]] = {
    "fit": part_fit,
    "where": part_where,
    "reports": part_reports,
    "fairlearn": part_fairlearn,
    "choosing": part_choosing,
    "growth": part_growth,
    "server": part_server,
    "network": part_network,
    "kernels": part_kernels,
}


# --- the page -------------------------------------------------------------------------------------


def page(found: dict[str, Table]) -> str:
    """`docs/scale.md` from the numbers of all parts that have been run."""
    sections = [HEAD]
    for name, write in (
        ("fit", page_fit),
        ("reports", page_reports),
        ("fairlearn", page_fairlearn),
        ("choosing", page_choosing),
        ("growth", page_growth),
        ("server", page_server),
        ("network", page_network),
    ):
        if name in found:
            claims = "".join(
                f"* {claim}: {'holds' if holds else '**does not hold**'}\n"
                for claim, holds in found[name]["claims"].items()
            )
            made = f"`python -m benchmarks.scale {name}`, commit {found[name].get('commit', '?')}"
            parts = [write(found[name]).rstrip(), claims.rstrip(), f"({made})"]
            sections.append("\n\n".join(part for part in parts if part))
    return "\n\n".join(sections) + "\n"


HEAD = """# Large tables, many clients

For people with a million rows or a thousand clients: how tables are stored, and what a fit costs.

*Generated by `python -m benchmarks.scale` on a shared machine with two cores. Seconds are of CPU
where nothing else is stated; claims are ratios of these.*

A table of categories is stored as codes from the file to the last report: Arrow reads text as
codes, and a client's rows take four bytes per cell. Columns of few levels are combined, so that a
row needs one code for several of them. One-hot columns in a sparse matrix or in an array, as
scikit-learn's `OneHotEncoder` makes them, are recognised and stored as codes, too.

A report is one pass over the codes by a small compiled kernel, which is built with the package
where there is a C compiler. Without a compiler, or with `FCFL_COMPILED=0`, NumPy and SciPy give the
same numbers to rounding, more slowly. In-process, all clients add their curvature into one matrix.

Rows are divided into blocks by their number alone. Blocks run on as many threads as
`FCFL_NUM_THREADS` or `OMP_NUM_THREADS` set (by default all cores), and sums are taken in the order
of the blocks: a report on codes has the same bits for any number of threads. Reports on arrays of
real numbers use BLAS, whose rounding may depend on its own threads."""


def page_fit(found: Table) -> str:
    lines = [
        f"## One constrained fit, file to result\n\n{found['rows']:,} rows, ten coded columns with "
        f"800 levels, {N_CLIENTS} clients, budget {BUDGET}, l2 {L2:g}, one start, no margins. "
        "scikit-learn reads, encodes and fits the pooled training rows (`lbfgs`, default "
        "tolerance). Seconds of CPU without imports; wall-clock seconds in brackets.\n",
        "| threads | fcfl | rounds | curvatures | peak MB | scikit-learn, C 1 | peak MB "
        "| same l2 | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for line in found["lines"]:
        ours, plain, same = line["ours"], line["default C"], line["same l2"]
        lines.append(
            f"| {line['threads']} | {ours['seconds']:.1f} ({ours['wall']:.0f}) | "
            f"{ours['rounds']} | {ours['evaluations']['curvature']} | {ours['peak_mb']:.0f} | "
            f"{plain['seconds']:.1f} ({plain['wall']:.0f}) | {plain['peak_mb']:.0f} | "
            f"{same['seconds']:.1f} ({same['wall']:.0f}) | "
            f"{ours['seconds'] / plain['seconds']:.2f} |"
        )
    default = found["default"]
    lines.append(
        f"\nThe columns in use are {found['columns_mb']:.0f} MB as codes of four bytes. The "
        f"default command, one thread, settings chosen ({default['selection']}), starts and "
        f"confidence included: {default['seconds']:.1f} s, peak {default['peak_mb']:.0f} MB."
    )
    return "\n".join(lines)


def page_reports(found: Table) -> str:
    lines = [
        f"## One exchange\n\nWall-clock milliseconds until all {N_CLIENTS} clients have responded: "
        "700,000 training rows in all, 801 parameters.\n",
        "| | one thread | two threads |",
        "| --- | --- | --- |",
    ]
    for line in found["lines"]:
        one, two = (1e3 * line["seconds"][key] for key in ("1", "2"))
        lines.append(f"| {line['want']} | {one:.0f} | {two:.0f} |")
    adult = found["adult"]
    lines.append(
        f"\nA report of Adult's large client (loss, two rates, three gradients, float64) takes "
        f"{adult['ours_ms']:.2f} ms, torch's float32 autograd (two backward passes) "
        f"{adult['torch_ms']:.2f} ms, two threads each, measured alternately."
    )
    return "\n".join(lines)


def page_fairlearn(found: Table) -> str:
    return (
        f"## Beside a reduction\n\n{found['rows']:,} rows, one thread: fcfl "
        f"{found['ours']['seconds']:.1f} s, fairlearn's ExponentiatedGradient with the clients as "
        f"control features {found['fairlearn']['seconds']:.1f} s."
    )


def page_choosing(found: Table) -> str:
    parts = found["parts"]
    return (
        f"## Choosing l2 and the objective\n\n{found['rows']:,} rows, {found['columns']} columns "
        f"of codes, {found['parameters']} parameters, {N_CLIENTS} clients, one thread: choosing "
        f"({found['selection']}) takes {parts['choosing']:.1f} s, one bare "
        f"fit of all of them with what was chosen (one start, no margins) {parts['fit']:.1f} s in "
        f"{found['rounds']} rounds."
    )


def page_growth(found: Table) -> str:
    lines = ["## Growth\n\nSeconds to read, encode and report once with curvature.\n"]
    for line in found["lines"]:
        cells = zip(line["sizes"], line["seconds"], strict=True)
        shown = ", ".join(f"{size:,}: {seconds:.2f}" for size, seconds in cells)
        lines.append(f"* {line['what']} ({shown}); slope on log axes {line['slope']:.2f}")
    return "\n".join(lines) + "\n"


def page_server(found: Table) -> str:
    step, many = found["step"], found["many"]
    return (
        f"## Many clients\n\nOne server step with {step['clients']:,} clients and "
        f"{step['parameters']:,} parameters takes {step['seconds']:.2f} s; the reports are "
        f"{step['reports_mb']:.0f} MB, the step needs {step['beside_mb']:.0f} MB beside them. "
        f"{many['clients']:,} clients of 100 rows in-process: opened in {many['open']:.1f} s, "
        f"first report (rows prepared) {many['first']:.1f} s, a round with gradients "
        f"{many['round']:.1f} s, with curvature {many['curved']:.1f} s."
    )


def page_network(found: Table) -> str:
    return (
        f"## A network\n\n{found['parameters']:,} parameters, {found['rows']:,} rows, float32: a "
        f"report with three gradients takes {found['report']:.2f} s, an epoch of plain torch "
        f"training in batches of 256 {found['epoch']:.2f} s, two threads each."
    )


def commit() -> str:
    """The commit that is measured, as git abbreviates it."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


# --- main -----------------------------------------------------------------------------------------


def main() -> int:
    if len(sys.argv) > 2 and sys.argv[1] == "--child":
        return child_main(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of: {', '.join(PARTS)}; default all")
    parser.add_argument("--turns", type=int, default=3, help="of whole fits; the median counts")
    parser.add_argument("--quick", action="store_true", help="small tables; nothing is written")
    options = parser.parse_args([a for a in sys.argv[1:] if a != "scale"])
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; known: {', '.join(PARTS)}")
    failed = False
    for name in options.parts or PARTS:
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            turns = {"turns": 1 if options.quick else options.turns} if name == "fit" else {}
            measured = PARTS[name](Path(folder), options.quick, **turns)
        for claim, holds in measured["claims"].items():
            print(f"  {claim}: {'holds' if holds else 'DOES NOT HOLD'}")
            failed |= not holds
        if not options.quick:
            found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            found[name] = {"commit": commit(), **measured}
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            DOCS.write_text(page(found), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
