"""What a client's report costs beside autograd, and what the server costs beside the clients."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benchmarks import Measured
from benchmarks.in_process import InProcess
from fcfl._types import Point, Request
from fcfl.data import adult
from fcfl.federation.loop import Progress, admit
from fcfl.methods.two_stage import TwoStage
from fcfl.models.linear_rows import linear_rows
from fcfl.problem import build_problem
from fcfl.rules import Difference, rates_needed

RULE = Difference("demographic_parity", "race", 0.05)
REPETITIONS = 60


def report_and_autograd() -> Measured:
    """One report of Adult's larger client: loss, two rates, three gradients."""
    federation = adult(("race",))
    data = federation.train["non-phd"]
    client = linear_rows("non-phd", data, rates_needed([RULE], federation.levels))
    params = np.random.default_rng(0).normal(0.0, 0.1, client.n_params)
    autograd = _autograd(data, params)
    report, (loss_grads, _) = client.report(Point(params, "gradients")), autograd()
    theirs = np.append(loss_grads[0].numpy(), loss_grads[1].numpy())
    assert np.allclose(report.loss_grad, theirs, atol=1e-5), "the two compute different things"
    ours, other = interleaved(lambda: client.report(Point(params, "gradients")), autograd)
    rows, features = data.X.shape
    return Measured(
        f"report: 3 gradients, float64, {client.row_counts.size} distinct of {rows} rows",
        1e3 * ours,
        f"torch: 2 backward passes, float32, dense {rows} x {features}",
        1e3 * other,
        at_most=0.25,
    )


def _autograd(data: Any, params: np.ndarray[Any, Any]) -> Callable[[], Any]:
    """Loss and |difference of smooth rates| by torch, one backward pass each."""
    import torch

    torch.set_num_threads(1)
    X = torch.tensor(data.X.toarray(), dtype=torch.float32)
    y = torch.tensor(data.y, dtype=torch.float32)
    white, others = (data.groups["race"] == code for code in (0, 1))
    signed = torch.tensor(white / white.sum() - others / others.sum(), dtype=torch.float32)
    weights = torch.tensor(params[:-1], dtype=torch.float32, requires_grad=True)
    intercept = torch.tensor(params[-1], dtype=torch.float32, requires_grad=True)
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits

    def evaluate() -> Any:
        logits = X @ weights + intercept
        loss = loss_of(logits, y)
        score = torch.sigmoid(10.0 * logits)
        disparity = (score @ signed).abs()
        loss_grads = torch.autograd.grad(loss, (weights, intercept), retain_graph=True)
        return loss_grads, torch.autograd.grad(disparity, (weights, intercept))

    return evaluate


def interleaved(*functions: Callable[[], object]) -> list[float]:
    """Median seconds of each function, measured in turns so that load falls on all alike."""
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(REPETITIONS + 5):
        for function, taken in zip(functions, times, strict=True):
            began = time.perf_counter()
            function()
            if turn >= 5:  # the first turns warm up
                taken.append(time.perf_counter() - began)
    return [median(taken) for taken in times]


def server_and_clients() -> Measured:
    """A published two-stage run of 2,300 rounds on Adult: time of the server, time of clients."""
    federation = adult(("race",))
    rates = rates_needed([RULE], federation.levels)
    clients = {name: linear_rows(name, data, rates) for name, data in federation.train.items()}
    runtime = InProcess(clients)
    params = np.zeros(federation.schema.n_features + 1)
    problem, _ = build_problem([RULE], rates, runtime.evaluate(Request((Point(params),))))
    method = TwoStage.published(0.03, (800, 1500))
    progress = Progress(method.init(params, problem))
    in_server = in_clients = 0.0
    while progress.state.status == "running":
        began = time.perf_counter()
        answers = runtime.evaluate(progress.state.request)
        answered = time.perf_counter()
        reports, memory = admit(progress.state.request, answers, progress, 0)
        state, _ = method.step(progress.state, reports)
        in_server += time.perf_counter() - answered
        in_clients += answered - began
        progress = Progress(state, progress.tally, memory)
    return Measured(
        f"server: admission and step, {sum(progress.state.rounds)} rounds",
        1e3 * in_server,
        f"clients: reports of {len(clients)} clients",
        1e3 * in_clients,
        at_most=1.0,
    )
