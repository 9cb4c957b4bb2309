"""The same numbers as before: parameters of two dozen runs, compared with a recording.

`python -m benchmarks recorded` runs every case and exits 1 when a parameter differs by more than
1e-10 from ``benchmarks/results/recorded.json``; `python -m benchmarks.recorded --write` records
anew, and `python -m benchmarks.recorded sqp torch` runs the cases that begin with these words. The
recording was made on one machine with one thread: another BLAS, or two threads, may round
differently, and the run with confidence, which does not converge, then ends elsewhere.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.open_site import open_site
from fcfl import FCFLClassifier
from fcfl.methods.registry import METHODS
from fcfl.rules import Difference, Ratio
from fcfl.runs import Experiment, run_experiment
from fcfl.runs.site_run import run_sites
from fcfl.sites.transport import InProcessTransport
from fcfl.torch import TorchClient, train_module

FILE = Path(__file__).parent / "results" / "recorded.json"
TOLERANCE = 1e-10
PAPER = ("mmpf", "agnostic-fair", "fedmgda", "fairfed", "fedfb")  # in paper/
RACE: dict[str, Any] = {"table": "adult", "sensitive": ("race",), "budget": 0.05, "l2": 1e-3}
SEX: dict[str, Any] = {**RACE, "sensitive": ("sex",)}
MAX: dict[str, Any] = {"objective": "max"}


def _run(**settings: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return run_experiment(Experiment(**settings), Path(folder) / "run").params


def _short(method: str, rounds: int, **more: Any) -> Any:
    return _run(**RACE, method=method, rounds=(rounds,), **more)


def _stays(n_rows: int = 900, seed: int = 5) -> Any:
    """Numbers, text and gaps; three hospitals of unequal size."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "hospital": rng.choice(["north", "south", "west"], n_rows, p=[0.6, 0.3, 0.1]),
            "race": rng.choice(["a", "b", "c"], n_rows, p=[0.5, 0.4, 0.1]),
            "age": rng.normal(60, 15, n_rows).round(),
            "ward": rng.choice(["icu", "er", "07"], n_rows),
        }
    )
    leaning = (frame["age"] - 60) / 15 + (frame["ward"] == "icu") + (frame["race"] == "a")
    frame["died"] = np.where(leaning + rng.logistic(size=n_rows) > 1, "yes", "no")
    frame.loc[rng.random(n_rows) < 0.1, "age"] = np.nan
    frame.loc[rng.random(n_rows) < 0.1, "ward"] = None
    return frame


def _table(**settings: Any) -> Any:
    columns = {"client": "hospital", "label": "died", "sensitive": ("race",), "budget": 0.1}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stays.csv"
        _stays().to_csv(path, index=False)
        return _run(**{"table": str(path), **columns, **settings})


def _flower() -> Any:
    """Three sites in one process: the same messages, without a network."""
    with tempfile.TemporaryDirectory() as name:
        folder, configs = Path(name), {}
        for number, (site, rows) in enumerate(_stays().groupby("hospital")):
            path = folder / f"{site}.csv"
            rows.drop(columns="hospital").to_csv(path, index=False)
            configs[number] = open_site(str(site), path, folder / f"cache-{number}")
        config = {
            "sites": "north,south,west", "out": str(folder / "run"), "label": "died",
            "sensitive": "race", "budget": "0.1", "l2": 0.003, "objective": "0.3",
        }  # fmt: skip
        return run_sites(
            InProcessTransport(configs), config, on_message=lambda sentence: None
        ).params


def _resumed() -> Any:
    """Killed once its history has some rounds, then gone on with."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        options = "train adult --sensitive race --budget 0.05 --method two-stage --rounds 300,100"
        command = [sys.executable, "-c", "from fcfl.cli import main; main()", *options.split()]
        process = subprocess.Popen(
            [*command, "--out", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not (folder / "checkpoint.fcfl").exists() and process.poll() is None:
            time.sleep(0.05)
        time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        again = [*command[:3], "train", "--resume", "--out", str(folder)]
        done = subprocess.run(again, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            raise RuntimeError(done.stderr)
        model = json.loads((folder / "model.json").read_text())
        return np.array(list(model["weights"].values()))


def _module(**options: Any) -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)
    return torch.nn.Sequential(*layers).double()


def _simulated(seed: int, n_rows: int = 300) -> Any:
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(n_rows, 4)), rng.choice(["a", "b"], n_rows)
    y = (X[:, 0] + (group == "a") + rng.logistic(size=n_rows) > 0.5).astype(float)
    return X, y, group


def _torch() -> Any:
    module = _module()
    clients = {site: TorchClient(module, *_simulated(k)) for k, site in enumerate("ns")}
    return train_module(module, clients, [Difference("demographic_parity", "group", 0.05)]).params


def _estimator(**options: Any) -> Any:
    X, y, group = _simulated(7, 600)
    site = np.resize(["n", "n", "s"], 600)
    model = FCFLClassifier(**{"budget": 0.05, **options})
    model.fit(X, y, clients=site, sensitive_features=group)
    if model.model is not None:
        flat = [leaf.detach().numpy().ravel() for leaf in model.module_.parameters()]
        return np.concatenate(flat)
    return np.append(model.coef_, model.intercept_)


RULES = (Difference("equalized_odds", "sensitive_feature", 0.1),
         Ratio("demographic_parity", "sensitive_feature", 0.8, "global"))  # fmt: skip

CASES: dict[str, Callable[[], Any]] = {
    "sqp exact": lambda: _run(**RACE, **MAX),
    "sqp learnt": lambda: _run(**RACE, **MAX, curvature="lbfgs"),
    "sqp temperature": lambda: _run(**RACE, objective=0.3),
    "sqp uniform start": lambda: _run(**RACE, **MAX, start="uniform", seed=3),
    "sqp chosen settings": lambda: _run(table="adult", sensitive=("race",), budget=0.05),
    "sqp table, chosen settings": lambda: _table(),
    "two-stage paper": lambda: _run(**RACE, method="two-stage", rounds=(150, 60)),
    "two-stage published": lambda: _run(
        **RACE, method="two-stage", published=True, rounds=(150, 60)
    ),
    "fedavg": lambda: _short("fedavg", 60),
    "fedavg local": lambda: _short("fedavg", 5, options={"local_epochs": 2, "batch_rows": 500}),
    "fair-reg": lambda: _short("fair-reg", 60),
    "q-ffl": lambda: _short("q-ffl", 60),
    "afl": lambda: _short("afl", 60),
    "mmpf": lambda: _short("mmpf", 100),
    "agnostic-fair": lambda: _short("agnostic-fair", 12),
    "fedmgda": lambda: _short("fedmgda", 40),
    "fairfed": lambda: _short("fairfed", 12),
    "fedfb": lambda: _short("fedfb", 12),
    "ratio": lambda: _run(**{**SEX, "budget": None}, **MAX, ratio=0.8),
    "equalized odds": lambda: _run(**SEX, **MAX, metric="equalized_odds"),
    "global scope": lambda: _run(**SEX, **MAX, scope="global"),
    "both scopes": lambda: _table(scope="both", l2=0.01, objective="max"),
    "relative": lambda: _run(**{**RACE, "budget": None}, **MAX, relative_budget=0.5),
    "confidence": lambda: _run(**{**SEX, "table": "adult-5"}, **MAX, confidence=0.9),
    "synthetic": lambda: _run(table="synthetic", budget=0.4, l2=0.0, **MAX),
    "synthetic two-stage": lambda: _run(table="synthetic", budget=0.4, method="two-stage"),
    "torch": _torch,
    "estimator": lambda: _estimator(),
    "estimator rules": lambda: _estimator(budget=RULES, l2=0.01, objective=1.0),
    "estimator torch": lambda: _estimator(model=_module()),
    "flower in one process": _flower,
    "resumed": _resumed,
}  # fmt: skip


def main() -> int:
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # read when numpy is imported
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **threads})
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    if names == ["recorded"]:
        names = []
    chosen = {k: run for k, run in CASES.items() if not names or k.startswith(tuple(names))}
    if "mmpf" not in METHODS:
        print(f"{', '.join(PAPER)}: left out, they need `make paper`")
        chosen = {k: run for k, run in chosen.items() if k not in PAPER}
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    failed = 0
    for name, run in chosen.items():
        began = time.monotonic()
        params = np.asarray(run(), dtype=np.float64)
        seconds = time.monotonic() - began
        if "--write" in sys.argv:
            known[name] = params.tolist()
            print(f"{name}: {params.size} parameters recorded, {seconds:.1f} s", flush=True)
            continue
        before = np.array(known[name])
        away = np.abs(params - before).max() if params.shape == before.shape else np.inf
        failed += not away <= TOLERANCE
        verdict = "same" if away <= TOLERANCE else "DIFFERS"
        print(f"{name}: largest difference {away:.1e}, {verdict}, {seconds:.1f} s", flush=True)
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(known) + "\n", encoding="utf-8")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
