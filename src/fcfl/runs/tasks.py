"""What is trained: a table's clients with a linear model, or the paper's synthetic problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from fcfl._checks import did_you_mean
from fcfl._types import ClientId, Point, RateId, Request, Vector
from fcfl.models.linear import LinearClient, linear_client, linear_logits
from fcfl.data import BUILTIN, Columns, Federation, federate, load_builtin, read_table, synthetic
from fcfl.errors import DataError
from fcfl.models.model_file import LinearModel
from fcfl.training.posing import pose, rates_for
from fcfl.results import ClientResult, Disparity, Overall, Part, RowCounts, WorstClient
from fcfl.results.evaluations import (
    Evaluations,
    RowSections,
    evaluate,
    row_sections,
    smooth_disparities,
)
from fcfl.runs.settings import Experiment
from fcfl.policy import read_policy
from fcfl.rules import Rule, check_budget_clients, without_budgets
from fcfl._files import replace_file
from fcfl.federation.in_process import InProcess
from fcfl.federation.loop import Runtime
from fcfl.server.constraints import bound_rate
from fcfl.server.problem import Problem


class ResultSource(Protocol):
    """Clients that report, and what a model does for them: all that a result speaks of."""

    @property
    def runtime(self) -> Runtime: ...  # noqa: D102
    @property
    def checksum(self) -> str: ...  # noqa: D102
    def sections(self, params: Vector) -> RowSections: ...  # noqa: D102


class Task(ResultSource, Protocol):
    """A training task from its first parameters to its model's file."""

    @property
    def notes(self) -> tuple[str, ...]: ...  # noqa: D102
    def first_params(self, experiment: Experiment) -> Vector: ...  # noqa: D102
    def state(self, l2: float) -> tuple[Problem, tuple[str, ...]]: ...  # noqa: D102
    def relative_budgets(self, params: Vector, share: float) -> list[dict[str, float]]: ...  # noqa: D102
    def with_relative_budgets(self, budgets: Sequence[Mapping[str, float]]) -> "Task": ...  # noqa: D102
    def save_model(self, params: Vector, folder: Path) -> None: ...  # noqa: D102


@dataclass(frozen=True)
class TableTask:
    """A table's clients, each with a linear model's reports on its training rows.

    ``rules`` are what was asked for; ``rules_in_force`` what is trained against, where it differs.
    """

    experiment: Experiment
    federation: Federation
    rules: tuple[Rule, ...]
    rates: tuple[RateId, ...]
    clients: Mapping[ClientId, LinearClient]
    min_group_rows: int = 1
    rules_in_force: tuple[Rule, ...] | None = None

    @property
    def runtime(self) -> InProcess:
        """All clients in this process."""
        return InProcess(self.clients)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about the table."""
        return self.federation.notes

    @property
    def checksum(self) -> str:
        """Identifies the rows, their split and their columns."""
        return self.federation.checksum

    def first_params(self, experiment: Experiment) -> Vector:
        """Zero, where every group is treated alike, or the linear layer's customary start."""
        n_params = self.federation.schema.n_features + 1
        if experiment.start == "zero":
            return np.zeros(n_params)
        spread = 1.0 / np.sqrt(max(n_params - 1, 1))
        return np.random.default_rng(experiment.seed).uniform(-spread, spread, n_params)

    def state(self, l2: float) -> tuple[Problem, tuple[str, ...]]:
        """The problem, and a sentence for each group that cannot be compared."""
        anywhere = Request((Point(np.zeros(self.federation.schema.n_features + 1)),))
        return pose(
            self.experiment,
            self.rules_in_force or self.rules,
            self.rates,
            self.runtime.evaluate(anywhere),
            self.federation.train,
            l2=l2,
            min_group_rows=self.min_group_rows,
        )

    def evaluate(self, params: Vector) -> Evaluations:
        """Hard counts of all rows and smooth reports of the training rows."""
        answers = self.runtime.evaluate(Request((Point(params),)))
        return evaluate(
            self.rules,
            self.rates,
            {"train": self.federation.train, "test": self.federation.test},
            lambda X: linear_logits(X, params),
            {client: reports[0] for client, reports in answers.items()},
            self.min_group_rows,
        )

    def sections(self, params: Vector) -> RowSections:
        """The parts of the result that speak of rows."""
        return row_sections(self.evaluate(params))

    def relative_budgets(self, params: Vector, share: float) -> list[dict[str, float]]:
        """``share`` times each client's smooth disparity on training rows, per attribute."""
        found = self.evaluate(params)
        measured = [rule for rule in without_budgets(self.rules) if rule.name == "difference"]
        return [
            {c: min(share * v, 1.0) for c, v in smooth_disparities(found, rule).items()}
            for rule in dict.fromkeys(measured)
            if rule.scope == "client"
        ]

    def with_relative_budgets(self, budgets: Sequence[Mapping[str, float]]) -> "TableTask":
        """The same task with the measured budgets in force."""
        attributes = self.federation.columns.sensitive
        rules = self.experiment.make_rules(attributes, self.federation.clients, budgets)
        return replace(self, rules=rules)

    def save_model(self, params: Vector, folder: Path) -> None:
        """Write ``model.json``."""
        federation = self.federation
        labels, column = federation.labels, federation.columns.label
        LinearModel(params, federation.schema, labels, column).save(folder / "model.json")


@dataclass(frozen=True)
class SyntheticTask:
    """The paper's synthetic problem: minimise one objective, the other within the budget."""

    experiment: Experiment
    client: synthetic.SyntheticClient

    @property
    def runtime(self) -> InProcess:
        """One client."""
        return InProcess({synthetic.CLIENT: self.client})

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing to say about rows: there are none."""
        return ()

    @property
    def checksum(self) -> str:
        """There are no rows."""
        return "synthetic"

    def first_params(self, experiment: Experiment) -> Vector:
        """``zero``: a start that keeps the budget; ``uniform``: one that exceeds it."""
        return synthetic.start(feasible=experiment.start == "zero", seed=experiment.seed)

    def state(self, l2: float) -> tuple[Problem, tuple[str, ...]]:
        """The problem with its single row."""
        budget = self.experiment.budget
        bound = 1.0 if budget is None else float(budget)  # type: ignore[arg-type]
        row = bound_rate(synthetic.CLIENT, synthetic.RATE, bound)
        return Problem((synthetic.CLIENT,), np.ones(1), 1, row, l2), ()

    def sections(self, params: Vector) -> RowSections:
        """Both objectives, the second as the only disparity."""
        report = self.client.report(Point(params))
        value = float(report.rates[0])
        budget = self.experiment.budget
        assert not isinstance(budget, Mapping)  # `_check_synthetic` has refused it
        entry = Disparity("l2", "objective", "bound", value, smooth=value, budget=budget)
        client = ClientResult(RowCounts(0, 0), Part(report.loss, disparities=(entry,)), Part())
        return RowSections(
            WorstClient(synthetic.CLIENT, report.loss, None),
            {synthetic.CLIENT: client},
            Overall(Part(report.loss), Part()),
        )

    def relative_budgets(self, params: Vector, share: float) -> list[dict[str, float]]:
        """Not reached: `open_task` refuses a relative budget."""
        raise NotImplementedError

    def with_relative_budgets(self, budgets: Sequence[Mapping[str, float]]) -> "SyntheticTask":
        """Not reached either."""
        raise NotImplementedError

    def save_model(self, params: Vector, folder: Path) -> None:
        """Write the parameters; there is nothing to predict with them."""
        text = "\n".join(repr(float(value)) for value in params)
        replace_file(folder / "params.txt", (text + "\n").encode())


def open_task(experiment: Experiment) -> TableTask | SyntheticTask:
    """Load what the experiment names."""
    if experiment.table == "synthetic":
        _check_synthetic(experiment)
        return SyntheticTask(experiment, synthetic.SyntheticClient())
    federation = open_federation(experiment)
    levels, min_group_rows = dict(federation.levels), 1
    if experiment.policy is None:
        rules = experiment.make_rules(federation.columns.sensitive, federation.clients)
    else:
        policy = read_policy(experiment.policy)
        rules, levels = policy.rules(federation.clients), policy.levels(levels)
        min_group_rows = policy.min_group_rows
    check_budget_clients(rules, federation.clients)
    rates = rates_for(experiment, rules, levels)
    clients = {name: linear_client(name, data, rates) for name, data in federation.train.items()}
    return TableTask(experiment, federation, rules, rates, clients, min_group_rows)


def _check_synthetic(experiment: Experiment) -> None:
    if isinstance(experiment.budget, Mapping) or experiment.ratio is not None:
        raise DataError("The synthetic problem takes one number as `--budget`, no ratio.")
    if experiment.relative_budget is not None:
        raise DataError("The synthetic problem has no relative budget; give `--budget`.")
    if experiment.sensitive:
        raise DataError("The synthetic problem has no columns; leave `--sensitive` out.")
    if hasattr(experiment.make_method(), "rate_kinds"):
        raise DataError(f"The synthetic problem has no rows, which {experiment.method!r} needs.")
    _check_columns_left_out(experiment)


def open_federation(experiment: Experiment) -> Federation:
    """A built-in set by name, else a table with the named columns."""
    table = experiment.table
    if table in BUILTIN:
        _check_columns_left_out(experiment)
        return load_builtin(
            table,
            sensitive=experiment.sensitive or None,
            seed=experiment.seed,
            test_size=experiment.test_size,
        )
    if "." not in table and not Path(table).exists():
        known = [*BUILTIN, "synthetic"]
        raise DataError(
            f"There is no file and no built-in set {table!r}. {did_you_mean(table, known)}"
        )
    if Path(table).is_dir():
        raise DataError(f"{table!r} is a folder; name a CSV or Parquet file.")
    missing = columns_missing(experiment)
    if missing:
        raise DataError(missing)
    columns = Columns(
        str(experiment.client),
        str(experiment.label),
        experiment.sensitive,
        experiment.drop,
        experiment.positive,
    )
    frame = read_table(table, text=(columns.client, *columns.sensitive))
    return federate(frame, columns, test_size=experiment.test_size, seed=experiment.seed)


def columns_missing(experiment: Experiment) -> str | None:
    """A sentence when a table is named without the columns it needs."""
    if experiment.table in (*BUILTIN, "synthetic"):
        return None
    needed = ("client", "label", "sensitive")
    absent = [f"--{name}" for name in needed if not getattr(experiment, name)]
    if not absent:
        return None
    options = " and ".join(filter(None, [", ".join(absent[:-1]), absent[-1]]))
    return f"A table needs {options}: the names of its columns."


def _check_columns_left_out(experiment: Experiment) -> None:
    """Refuse options that a built-in set would silently ignore."""
    for option in ("client", "label", "positive", "drop"):
        if getattr(experiment, option):
            raise DataError(
                f"The built-in set {experiment.table!r} knows its columns; leave `--{option}` out."
            )
