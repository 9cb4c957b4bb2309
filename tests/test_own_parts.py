"""A researcher's own method, client and transport, built from public names only."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import fcfl
from hospital import COLUMNS, stays, written

EXAMPLES = Path(__file__).parent.parent / "examples"
OWN = ("own_method", "own_client", "own_transport")
BY_NAME = """
import sys
from fcfl.runs.many_runs import COMPARED
from hospital import fcfl
print(fcfl(*sys.argv[1:]).exit_code, "penalty" in COMPARED)
"""
BITS = """
import runpy, sys
del sys.argv[0]
trained = runpy.run_path(sys.argv[0], run_name="__main__")["trained"]
print(trained.largest_violation.hex(), *map(float.hex, trained.params))
"""
PUBLIC = {
    "train", "Trained", "Session", "Federation", "RemoteFederation", "Transport", "Reply", "Terms",
    "reply_to", "Client", "LocalClient", "ClientData", "Introduction", "Setup", "Counted", "Counts",
    "count_rows", "pool_counts", "Model", "Linear", "Opaque", "Request", "Point",
    "Report", "Reports", "CurvatureWeights", "Extra", "RateId", "Vector", "Matrix",
    "Problem", "Evaluation", "evaluate_point", "RoundInfo", "Status", "describe_round",
    "Difference", "Ratio", "SQP", "TwoStage", "FedAvg", "FairReg", "QFFL", "AFL",
    "FCFLClassifier", "Loss", "CrossEntropy",
    "Hinge", "Squared", "Result", "FCFLError",
    "__version__",
}  # fmt: skip


def load(name):
    sys.path.insert(0, str(EXAMPLES))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def test_the_public_names_are_these_and_each_can_be_had():
    assert set(fcfl.__all__) == PUBLIC == set(dir(fcfl))
    for name in PUBLIC:
        assert getattr(fcfl, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Correspondence'"):
        fcfl.Correspondence  # noqa: B018


@pytest.mark.parametrize("name", OWN)
def test_they_need_no_private_and_no_deep_import(name):
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    froms = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module for module in froms if module.startswith("fcfl")} <= {"fcfl", "fcfl.data"}


def test_a_method_of_ones_own_is_killed_and_resumes_to_the_same_bits(tmp_path):
    command = [sys.executable, "-c", BITS, str(EXAMPLES / "own_method.py")]
    whole = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    folder = tmp_path / "run"
    folder.mkdir()
    process = subprocess.Popen([*command, str(folder)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (folder / "checkpoint.fcfl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    taken = len((folder / "history.jsonl").read_bytes().splitlines())
    assert taken < 400  # it was killed half way
    again = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=True)
    assert again.stdout == whole


def test_a_method_of_ones_own_works_inside_the_classifier():
    rng = np.random.default_rng(0)
    group, X = rng.choice(["a", "b"], 400), rng.standard_normal((400, 3))
    y = X[:, 0] + (group == "a") + rng.logistic(size=400) > 0.5
    method = load("own_method").Penalty(rounds=300)
    model = fcfl.FCFLClassifier(budget=0.05, method=method, l2=1e-3)
    with pytest.warns(ConvergenceWarning, match="All rounds taken"):
        model.fit(X, y, clients=np.resize(["n", "s"], 400), sensitive_features=group)
    assert model.n_iter_ == 300 and model.result_.method == "penalty"
    smooth = [part.train.disparities[0].smooth for part in model.result_.clients.values()]
    assert max(smooth) < 0.08


def test_a_method_of_ones_own_is_called_by_name_with_the_line_of_the_page(tmp_path):
    """In a copy of the package; on a small table."""
    page = (EXAMPLES.parent / "docs" / "own-method.md").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^    (Registered\(.*\n)", page, re.MULTILINE)
    joined = page.replace(" \\\n       ", "")
    typed = dict(re.findall(r"^    fcfl (train|compare) adult (.*)$", joined, re.MULTILINE))
    methods = tmp_path / "fcfl" / "methods"
    shutil.copytree(Path(fcfl.__file__).parent, methods.parent)
    shutil.copy(EXAMPLES / "own_method.py", methods / "penalty.py")
    registry = (methods / "registry.py").read_text(encoding="utf-8")
    registry = registry.replace("_ALL = (\n", f"_ALL = (\n    {entry}")
    (methods / "registry.py").write_text(registry, encoding="utf-8")
    table = written(stays(), tmp_path / "stays.csv")
    paths = f"{tmp_path}{os.pathsep}{Path(__file__).parent}"
    done = subprocess.run(
        [sys.executable, "-c", BY_NAME, "train", str(table), *COLUMNS, *typed["train"].split()],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout in ("0 True\n", "3 True\n")  # 3: in 60 rounds a budget is not met
    settings = (tmp_path / "runs" / "own" / "experiment.toml").read_text(encoding="utf-8")
    assert "growth = 1.05" in settings and "penalty" in typed["compare"]


def test_rows_in_a_database_give_the_reports_of_rows_in_memory():
    frame = load("own_client").load_adult_frames()[1].iloc[:7000]
    client = load("own_client").DatabaseClient("all", frame)
    chunks = list(client.chunks())
    assert len(chunks) == 2
    X = np.vstack([chunk.X for chunk in chunks])
    y = np.concatenate([chunk.y for chunk in chunks])
    sex = np.concatenate([chunk.groups["sex"] for chunk in chunks])
    local = fcfl.LocalClient("all", fcfl.ClientData(X, y, {"sex": sex}, chunks[0].levels))
    rates = tuple(fcfl.RateId("selection", "sex", group) for group in ("Female", "Male"))
    setup = fcfl.Setup(fcfl.Linear(2), rates)
    params = np.array([0.4, -0.3, 0.2])
    (ours,) = client.report(setup, [fcfl.Point(params, "gradients")])
    (memory,) = local.report(setup, [fcfl.Point(params, "gradients")])
    for part in ("n_rows", "loss", "group_counts", "rates", "loss_grad", "rate_grads"):
        np.testing.assert_allclose(getattr(ours, part), getattr(memory, part), rtol=1e-10)
    assert client.count(setup, params).train.true_positive == (
        local.count(setup, params).train.true_positive
    )
