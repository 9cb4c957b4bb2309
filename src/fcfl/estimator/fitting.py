"""Train on rows in memory, and compose the same result as a run of the command line."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from fcfl._types import ClientId, Point, RateId, Request, Vector
from fcfl.audit import Audit
from fcfl.data import ClientData
from fcfl.federation.in_process import Client, InProcess
from fcfl.federation.loop import Progress, run
from fcfl.results import Result
from fcfl.results.evaluations import Evaluations, RowSections, evaluate, row_sections
from fcfl.results.result import objective_setting
from fcfl.rules import Rule, check_budget_clients
from fcfl.runs.run import describe_run
from fcfl.runs.settings import Experiment
from fcfl.server.method import RoundInfo
from fcfl.training.own_best import ALONE, with_own_best
from fcfl.training.posing import pose, rates_for
from fcfl.training.selection import Rows, select

MakeClient = Callable[[ClientId, ClientData, Sequence[RateId]], Client]
Logits = Callable[[Any, Vector], Vector]


@dataclass(frozen=True)
class Model:
    """What is trained: how a client reports on it, its logits, where training starts.

    ``suited`` gives a method what this model can afford.
    """

    make_client: MakeClient
    logits: Logits
    start: Vector
    suited: Callable[[Any], Any] = lambda method: method
    start_name: str = "zero"


@dataclass(frozen=True)
class Fit:
    """A trained model: its parameters, every round, and what it does for each client."""

    params: Vector
    history: tuple[RoundInfo, ...]
    result: Result
    audit: Audit


@dataclass(frozen=True)
class RowsInMemory:
    """Clients' rows, what is compared between their groups, and the model they report on."""

    train: Mapping[ClientId, ClientData]
    rules: tuple[Rule, ...]
    rates: tuple[RateId, ...]
    model: Model
    min_group_rows: float

    @cached_property
    def runtime(self) -> InProcess:
        """All clients in this process."""
        make = self.model.make_client
        return InProcess({name: make(name, data, self.rates) for name, data in self.train.items()})

    @property
    def checksum(self) -> str:
        """Identifies the rows, their owners and their groups."""
        digest = hashlib.sha256()
        for name, data in self.train.items():
            digest.update(name.encode())
            for array in _arrays(data):
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def evaluate(self, params: Vector) -> Evaluations:
        """Hard counts and smooth reports of all rows; none are held out."""
        answers = self.runtime.evaluate(Request((Point(params),)))
        return evaluate(
            self.rules,
            self.rates,
            {"train": self.train, "test": {c: data.take([]) for c, data in self.train.items()}},
            lambda X: self.model.logits(X, params),
            {client: reports[0] for client, reports in answers.items()},
            self.min_group_rows,
        )

    def sections(self, params: Vector) -> RowSections:
        """The parts of the result that speak of rows."""
        return row_sections(self.evaluate(params))


def _arrays(data: ClientData) -> Iterable[Any]:
    X = data.X
    yield from (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
    yield data.y
    yield from data.groups.values()
    if data.weights is not None:
        yield data.weights


def fit_rows(
    experiment: Experiment,
    train: Mapping[ClientId, ClientData],
    rules: Sequence[Rule],
    model: Model,
    min_group_rows: float,
) -> Fit:
    """Choose what is left open, train to the end, and describe what came out."""
    levels = next(iter(train.values())).levels
    check_budget_clients(rules, list(train))
    rates = rates_for(experiment, rules, levels)
    rows = RowsInMemory(train, tuple(rules), rates, model, min_group_rows)
    chosen = None
    if experiment.wants_selection:
        chosen = select(experiment, Rows(train, rules, rates, min_group_rows))
        experiment = experiment.settled(chosen.l2, objective_setting(chosen.objective))
    counted = rows.runtime.evaluate(Request((Point(model.start),)))
    l2 = experiment.l2_weight
    problem, notes = pose(
        experiment, rules, rates, counted, train, l2=l2, min_group_rows=min_group_rows
    )
    if experiment.excess_loss:
        problem = with_own_best(problem, rows.runtime, model.start, model.suited(ALONE))
    method = model.suited(experiment.make_method())
    progress: Progress[Any] = Progress(method.init(model.start, problem))
    history = []
    for reached, info in run(method, progress, rows.runtime):
        progress = reached
        history.append(info)
    params = progress.state.params
    result = describe_run(experiment, rows, progress, notes, model.start_name, chosen)
    return Fit(params, tuple(history), result, rows.evaluate(params).audits["train"])
