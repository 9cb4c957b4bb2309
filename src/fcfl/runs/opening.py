"""From settings to what is trained: clients, a model and rules, wherever the rows are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fcfl._checks import did_you_mean
from fcfl._types import ClientId
from fcfl.data import (
    BUILTIN,
    Columns,
    FederatedTable,
    choose_columns,
    federate,
    load_builtin,
    read_tables,
    table_files,
)
from fcfl.data.builtin import ORIGINAL_SPLIT
from fcfl.data.lint import on_command_line
from fcfl.data.roles import check_roles, labelled_rows
from fcfl.data.rows import FILE
from fcfl.data.schema import MAX_LEVELS
from fcfl.data.synthetic import start as synthetic_start
from fcfl.errors import DataError, ManyClients
from fcfl.federation.federation import Federation
from fcfl.methods.method import traits_of
from fcfl.models.linear import Linear
from fcfl.models.loss import CROSS_ENTROPY, HALF, as_loss, loss_notes
from fcfl.models.model import Model, Opaque
from fcfl.models.model_file import Inputs
from fcfl.policy import PrivacyBudget
from fcfl.policy_file import read_policy
from fcfl.results.result import Deployment
from fcfl.rules import Rule
from fcfl.runs.data_settings import MAX_CLIENTS, DataSettings
from fcfl.runs.privacy_settings import check_one_file
from fcfl.runs.private_opening import open_private
from fcfl.runs.settings import Experiment
from fcfl.runs.synthetic_client import RULE, SYNTHETIC, SyntheticParty

_OF_TABLES = (
    *("client", "label", "positive", "drop", "features", "keep", "categorical", "numeric"),
    *("missing", "drop_unlabelled", "max_levels", "max_clients", "schema"),
)  # options that a built-in set would silently ignore


@dataclass(frozen=True)
class Opened:
    """Clients that answer, a model and rules; ``inputs`` are the columns that the model takes.

    ``checksum`` identifies the rows, their split and their columns. ``notes`` are what a person
    should know about the table. A ``method`` replaces the experiment's own. Where clients are
    elsewhere, ``deployment`` says what the run has cost since it was opened.
    """

    federation: Federation
    model: Model
    rules: tuple[Rule, ...]
    checksum: str
    inputs: Inputs | None = None
    notes: tuple[str, ...] = ()
    groups: Mapping[str, Sequence[str]] | None = None
    min_group_rows: int | None = None
    policy_sha256: str | None = None
    method: Any = None
    deployment: Callable[[bool], Deployment] | None = None


Opener = Callable[[Experiment], Opened]
"""From settings to clients, wherever their rows are."""


@dataclass(frozen=True)
class Rules:
    """Rules of a run, from its options or from its policy file."""

    rules: tuple[Rule, ...]
    groups: Mapping[str, Sequence[str]] | None = None
    min_group_rows: int | None = None
    policy_sha256: str | None = None


def rules_of(
    experiment: Experiment,
    attributes: Sequence[str],
    clients: Sequence[ClientId],
    levels: Mapping[str, Sequence[str]],
) -> Rules:
    """The rules that the settings ask for."""
    least = experiment.min_group_rows
    if experiment.policy is None:
        return Rules(experiment.make_rules(attributes, clients), min_group_rows=least)
    policy = read_policy(experiment.policy)
    if least is None and policy.min_group_rows > 1:
        least = policy.min_group_rows
    found = policy.rules(clients), policy.levels(dict(levels))
    return Rules(*found, least, policy.sha256)


def open_run(experiment: Experiment) -> Opened:
    """Load what the experiment names: a table, a built-in set or the synthetic problem."""
    if experiment.table == SYNTHETIC:
        return _open_synthetic(experiment)
    table = open_table(experiment) if experiment.privacy is None else _open_declared(experiment)
    budget = None if experiment.privacy is None else PrivacyBudget(**experiment.privacy)
    asked = rules_of(experiment, table.columns.sensitive, table.clients, table.levels)
    loss = as_loss("loss", experiment.loss)
    federation = Federation.from_rows(table.train, table.test, privacy=budget)
    return Opened(
        federation=federation.masked() if experiment.masked else federation,
        model=Linear(
            table.schema.n_features, experiment.start, experiment.seed, loss, experiment.threshold
        ),
        rules=asked.rules,
        checksum=table.checksum,
        inputs=Inputs(
            table.schema,
            table.labels,
            table.columns.label,
            client_column=table.columns.client,
            missing=experiment.missing,
        ),
        notes=(*table.notes, *loss_notes(loss)),
        groups=asked.groups,
        min_group_rows=asked.min_group_rows,
        policy_sha256=asked.policy_sha256,
    )


def _open_synthetic(experiment: Experiment) -> Opened:
    """One client without rows; ``zero`` starts within the budget, ``uniform`` outside."""
    if isinstance(experiment.budget, Mapping) or experiment.ratio is not None:
        raise DataError("The synthetic problem takes one number as `--budget`, no ratio.")
    if experiment.relative_budget is not None:
        raise DataError("The synthetic problem has no relative budget; give `--budget`.")
    if experiment.loss != CROSS_ENTROPY.name:
        raise DataError("The synthetic problem has a loss of its own; leave `--loss` out.")
    if experiment.threshold != HALF:
        raise DataError("The synthetic problem decides nothing; leave `--threshold` out.")
    if experiment.masked:
        raise DataError("The synthetic problem has one client, no sum; leave `--masked` out.")
    if experiment.sensitive:
        raise DataError("The synthetic problem has no columns; leave `--sensitive` out.")
    if experiment.resplit:
        raise DataError("The synthetic problem has no rows; leave `--resplit` out.")
    traits = traits_of(experiment.make_method())
    if traits.rate_kinds or traits.n_references:
        raise DataError(f"The synthetic problem has no rows, which {experiment.method!r} needs.")
    _check_columns_left_out(experiment)
    first = synthetic_start(feasible=experiment.start == "zero", seed=experiment.seed)
    return Opened(
        federation=Federation({SYNTHETIC: SyntheticParty()}),
        model=Opaque(first),
        rules=(replace(RULE, budget=experiment.budget),),
        checksum=SYNTHETIC,
        min_group_rows=1,  # its rate is that of a formula, not of rows
    )


def open_table(settings: DataSettings) -> FederatedTable:
    """A built-in set by name, else a table with the named columns."""
    table = settings.table
    if settings.schema is not None:
        raise DataError("`--schema` belongs to `fcfl train --privacy`; leave it out here.")
    if table in BUILTIN:
        return _open_builtin(settings)
    if settings.resplit:
        raise DataError("`--resplit` is for the built-in set adult; a table is always split.")
    paths = table_files(table)
    if "." not in table and not paths[0].exists():
        known = [*BUILTIN, SYNTHETIC]
        raise DataError(
            f"There is no file and no built-in set {table!r}. {did_you_mean(table, known)}"
        )
    missing = columns_missing(settings)
    if missing:
        raise DataError(missing)
    columns = Columns(
        settings.client or FILE,
        str(settings.label),
        settings.sensitive,
        settings.drop,
        settings.positive,
    )
    text = (columns.client, *columns.sensitive, *settings.categorical)
    is_by_file = columns.client == FILE
    frame = read_tables(paths, text=text, missing=settings.missing, are_clients=is_by_file)
    check_roles(frame, columns)
    if settings.drop_unlabelled:
        frame = labelled_rows(frame, columns.label)
    frame, columns = choose_columns(frame, columns, settings.choices)
    _check_number_of_clients(frame[columns.client].nunique(), settings)
    federation = federate(
        frame,
        columns,
        test_size=settings.test_size,
        seed=settings.seed,
        max_levels=settings.max_levels or MAX_LEVELS,
    )
    return replace(federation, notes=tuple(map(on_command_line, federation.notes)))


def _open_builtin(settings: DataSettings) -> FederatedTable:
    _check_columns_left_out(settings)
    if not settings.resplit and settings.table in ORIGINAL_SPLIT and settings.test_size != 0.3:
        raise DataError(
            f"`--test-size` {settings.test_size:g} does not apply to {settings.table!r}, which has "
            "a split of its own. Split its rows anew with `--resplit`."
        )
    return load_builtin(
        settings.table,
        sensitive=settings.sensitive or None,
        seed=settings.seed,
        test_size=settings.test_size,
        resplit=settings.resplit,
    )


def _check_number_of_clients(count: int, settings: DataSettings) -> None:
    most = settings.max_clients or MAX_CLIENTS
    if count > most and settings.client is None:
        raise ManyClients(f"There are {count:,} files, whose names are the clients", count)
    if count > most:
        raise ManyClients(f"Column {settings.client!r} names {count:,} clients", count)


def _open_declared(settings: DataSettings) -> FederatedTable:
    """Rows of a private run."""
    if settings.table in BUILTIN:
        _check_columns_left_out(settings)
    else:
        check_one_file(settings)
    missing = columns_missing(settings)
    if missing:
        raise DataError(missing)
    return open_private(settings)


def columns_missing(settings: DataSettings) -> str | None:
    """A sentence when a table is named without the columns it needs."""
    if settings.table in (*BUILTIN, SYNTHETIC):
        return None
    several = len(table_files(settings.table)) > 1
    needed = ("label", "sensitive") if several else ("client", "label", "sensitive")
    absent = [f"--{name}" for name in needed if not getattr(settings, name)]
    if not absent:
        return None
    options = " and ".join(filter(None, [", ".join(absent[:-1]), absent[-1]]))
    return f"A table needs {options}: the names of its columns."


def _check_columns_left_out(settings: DataSettings) -> None:
    """Refuse options that a built-in set would silently ignore."""
    for option in _OF_TABLES:
        if getattr(settings, option) not in (None, (), False):
            flag = option.replace("_", "-")
            raise DataError(
                f"The built-in set {settings.table!r} knows its columns; leave `--{flag}` out."
            )
