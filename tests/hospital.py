"""A simulated table of hospital stays, and the command line as a person would use it."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fcfl.cli import main

NAMES = ("--client", "hospital", "--label", "died", "--sensitive", "race")
COLUMNS = (*NAMES, "--min-group-rows", "1")  # the groups of these tables are small
SHORT = ("--method", "two-stage", "--rounds", "20,20")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def stays(n_rows=240, seed=0, hospitals=("north", "south", "west"), races=("black", "white")):
    """Numbers, text, empty cells; who dies depends on age, ward and race."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "hospital": np.resize(hospitals, n_rows),
            "race": rng.choice(races, n_rows),
            "sex": rng.choice(["f", "m"], n_rows),
            "age": rng.normal(60, 15, n_rows).round(),
            "ward": rng.choice(["icu", "er", "07"], n_rows),
        }
    )
    leaning = (frame["age"] - 60) / 15 + (frame["ward"] == "icu") + (frame["race"] == races[0])
    frame["died"] = np.where(leaning + rng.logistic(size=n_rows) > 1, "yes", "no")
    frame.loc[rng.random(n_rows) < 0.1, "age"] = np.nan
    frame.loc[rng.random(n_rows) < 0.1, "ward"] = None
    return frame


def written(frame, path):
    """The path of the table on disk."""
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path


@dataclass
class Outcome:
    """How a command ended, and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str
    exception: BaseException | None = None

    @property
    def output(self):
        return self.stdout + self.stderr


def fcfl(*arguments):
    """Run a command in this process."""
    out, err, stopped, code = io.StringIO(), io.StringIO(), None, 0
    handler = signal.getsignal(signal.SIGTERM)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code or 0
        except Exception as error:
            stopped, code = error, 1
    signal.signal(signal.SIGTERM, handler)
    return Outcome(code, out.getvalue(), err.getvalue(), stopped)


def only_error(outcome, code=1):
    """The sentence of the one line that says what is wrong."""
    lines = [line for line in outcome.stderr.splitlines() if not line.startswith("note: ")]
    assert outcome.exit_code == code, (outcome.exit_code, outcome.output)
    assert len(lines) == 1, outcome.stderr
    assert lines[0].startswith("error: ")
    assert "Traceback" not in outcome.output
    return lines[0].removeprefix("error: ")


def result_of(folder):
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def code_by_decisions(folder):
    """The exit code that a run without pooling deserves, from the counts that it wrote."""
    result, over = result_of(folder), []
    price = result["price"]
    if price and price["with_margins"]["selected"] < 0.5 * price["without_budgets"]["selected"]:
        return 3
    if result.get("degenerate") or any("rate shift" in name for name in result["exceeded"]):
        return 3
    for part in (*result["clients"].values(), result["global"]):
        for entry in part["train"]["disparities"]:
            if None not in (entry["budget"], entry["value"]):
                excess = entry["value"] - entry["budget"]
                over.append(-excess if entry["rule"] == "ratio" else excess)
    return 3 if max(over, default=0.0) > 1e-9 else 0


def weights_of(folder):
    """The weights as text: equal text is equal bits."""
    return json.loads((folder / "model.json").read_text(encoding="utf-8"), parse_float=str)[
        "weights"
    ]


def start_process(*arguments, checkpoint_seconds=0.05, **options):
    """Run a command in a process of its own that writes checkpoints often."""
    program = (
        "import signal, sys; import fcfl.federation.session as running\n"
        f"running.CHECKPOINT_SECONDS = {checkpoint_seconds}\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from fcfl.cli import main; main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},
        **options,
    )
