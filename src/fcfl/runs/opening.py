"""From settings to what is trained: clients, a model and rules, wherever the rows are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fcfl._checks import did_you_mean
from fcfl._types import ClientId
from fcfl.data import BUILTIN, Columns, FederatedTable, federate, load_builtin, read_table
from fcfl.data.declared import read_declared, split_by_content
from fcfl.data.encoding import MAX_LEVELS
from fcfl.data.own_table import known_groups
from fcfl.data.synthetic import start as synthetic_start
from fcfl.errors import DataError
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from fcfl.models.loss import CROSS_ENTROPY, as_loss, loss_notes
from fcfl.models.model import Model, Opaque
from fcfl.models.model_file import Inputs
from fcfl.policy import PrivacyBudget
from fcfl.policy_file import read_policy
from fcfl.results import Deployment
from fcfl.rules import Rule
from fcfl.runs.data_settings import DataSettings
from fcfl.runs.settings import Experiment
from fcfl.runs.synthetic_client import RULE, SYNTHETIC, SyntheticParty
from fcfl.server.method import traits_of


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
    table = open_table(experiment) if experiment.privacy is None else open_private(experiment)
    budget = None if experiment.privacy is None else PrivacyBudget(**experiment.privacy)
    asked = rules_of(experiment, table.columns.sensitive, table.clients, table.levels)
    loss = as_loss("loss", experiment.loss)
    federation = Federation.from_rows(table.train, table.test, privacy=budget)
    return Opened(
        federation=federation.masked() if experiment.masked else federation,
        model=Linear(table.schema.n_features, experiment.start, experiment.seed, loss),
        rules=asked.rules,
        checksum=table.checksum,
        inputs=Inputs(
            table.schema,
            table.labels,
            table.columns.label,
            client_column=table.columns.client,
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
    if experiment.sensitive:
        raise DataError("The synthetic problem has no columns; leave `--sensitive` out.")
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
    if table in BUILTIN:
        _check_columns_left_out(settings)
        return load_builtin(
            table,
            sensitive=settings.sensitive or None,
            seed=settings.seed,
            test_size=settings.test_size,
        )
    if "." not in table and not Path(table).exists():
        known = [*BUILTIN, SYNTHETIC]
        raise DataError(
            f"There is no file and no built-in set {table!r}. {did_you_mean(table, known)}"
        )
    if Path(table).is_dir():
        raise DataError(f"{table!r} is a folder; name a CSV or Parquet file.")
    missing = columns_missing(settings)
    if missing:
        raise DataError(missing)
    columns = Columns(
        str(settings.client),
        str(settings.label),
        settings.sensitive,
        settings.drop,
        settings.positive,
    )
    frame = read_table(table, text=(columns.client, *columns.sensitive))
    return federate(
        frame,
        columns,
        test_size=settings.test_size,
        seed=settings.seed,
        max_levels=settings.max_levels or MAX_LEVELS,
    )


def open_private(settings: DataSettings) -> FederatedTable:
    """The same with declared columns, and split by what each row holds: see docs/privacy.md.

    What is said of the rows while they are read is left out.
    """
    if settings.table in BUILTIN:
        _check_columns_left_out(settings)
        table = load_builtin(
            settings.table,
            sensitive=settings.sensitive or None,
            seed=settings.seed,
            test_size=0.0,
            declared=True,
        )
    else:
        table = _declared_table(settings)
    if not any(data.n_rows for data in table.test.values()):  # those of two files are kept
        parts = {
            client: split_by_content(data, settings.test_size, settings.seed)
            for client, data in table.train.items()
        }
        train = {client: part for client, (part, _) in parts.items()}
        test = {client: part for client, (_, part) in parts.items()}
        table = replace(table, train=train, test=test)
    return replace(table, notes=())


def _declared_table(settings: DataSettings) -> FederatedTable:
    if settings.schema is None:
        raise DataError(
            "`--privacy` needs `--schema FILE`, which declares labels, groups and columns: nothing "
            "of them may be read off private rows. docs/privacy.md has an example."
        )
    declared = read_declared(settings.schema)
    missing = columns_missing(settings)
    if missing:
        raise DataError(missing)
    columns = Columns(str(settings.client), str(settings.label), settings.sensitive, settings.drop)
    for name in columns.sensitive:
        if name not in declared.levels:
            raise DataError(
                f"`sensitive` must be declared under [groups] in {settings.schema!r}, got {name!r}."
            )
    frame = read_table(settings.table, text=(columns.client, *columns.sensitive))
    return federate(
        known_groups(frame, {name: declared.levels[name] for name in columns.sensitive}),
        columns,
        test_size=0.0,
        schema=declared.schema,
        levels=declared.levels,
        labels=declared.labels,
    )


def columns_missing(settings: DataSettings) -> str | None:
    """A sentence when a table is named without the columns it needs."""
    if settings.table in (*BUILTIN, SYNTHETIC):
        return None
    needed = ("client", "label", "sensitive")
    absent = [f"--{name}" for name in needed if not getattr(settings, name)]
    if not absent:
        return None
    options = " and ".join(filter(None, [", ".join(absent[:-1]), absent[-1]]))
    return f"A table needs {options}: the names of its columns."


def _check_columns_left_out(settings: DataSettings) -> None:
    """Refuse options that a built-in set would silently ignore."""
    for option in ("client", "label", "positive", "drop", "max_levels", "schema"):
        if getattr(settings, option):
            flag = option.replace("_", "-")
            raise DataError(
                f"The built-in set {settings.table!r} knows its columns; leave `--{flag}` out."
            )
