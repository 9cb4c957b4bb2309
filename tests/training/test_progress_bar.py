"""Progress in Python: shown in a terminal and a notebook, silent elsewhere."""

import os
import pty
import subprocess
import sys

import pytest

from fcfl.federation.session import facts_of, phase_of, progress_bar
from fcfl.methods.method import RoundInfo

NAN = float("nan")
FIT = """
import numpy as np
from fcfl import FCFLClassifier
rng = np.random.default_rng(0)
X, site, sex = rng.normal(size=(200, 2)), rng.choice(["n", "s"], 200), rng.choice([0, 1], 200)
y = X[:, 0] + sex + rng.logistic(size=200) > 0
model = FCFLClassifier(0.1, l2=0.01, objective=1.0, confidence=0, verbose={verbose})
_ = model.fit(X, y, clients=site, sensitive_features=sex)
"""


def on_a_terminal(code):
    """Everything that a program writes to a terminal."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    assert process.wait() == 0, written.decode()
    return written.decode()


@pytest.mark.thorough
def test_a_terminal_shows_a_bar_and_verbose_decides():
    shown = on_a_terminal(FIT.format(verbose=None))
    assert "sqp" in shown and "exchanges" in shown and "━" in shown
    assert on_a_terminal(FIT.format(verbose=False)) == ""


@pytest.mark.parametrize(("verbose", "is_shown"), [(None, False), (False, False), (True, True)])
def test_a_script_is_silent_unless_asked(capsys, verbose, is_shown):
    with progress_bar("sqp", verbose) as show:
        assert (show is not None) == is_shown
        if show is not None:
            show(RoundInfo(1, 1, "a", 0.5, 0.4, 0.0, 1.0, exchange=3, phase="fit"), 0.5)
    assert ("sqp" in capsys.readouterr().out) == is_shown


def test_a_notebook_shows_a_line_that_is_replaced(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook()
    cells = [FIT.format(verbose=None), FIT.format(verbose=False)]
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    done = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": tmp_path}}
    )
    done.execute()
    shown, silent = (cell.outputs for cell in notebook.cells)
    assert [one.output_type for one in shown] == ["display_data"] and silent == []


def test_what_is_not_known_is_left_out():
    choosing = RoundInfo(4, 0, "", NAN, NAN, NAN, 0.0, "choosing l2 and objective")
    assert phase_of(choosing) == "choosing l2 and objective" and facts_of(choosing) == ""
    fit = RoundInfo(4, 1, "a", 0.51234, 0.4, 0.0, 1.0, exchange=1234, phase="tighten")
    assert (phase_of(fit), facts_of(fit)) == ("tighten", "1,234 exchanges, worst loss 0.5123")
