"""Open a run: create clients, a model and rules from settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fcfl import data
from fcfl._checks import did_you_mean
from fcfl._types import ClientId
from fcfl.data.builtin import ORIGINAL_SPLIT
from fcfl.data.cells import MAX_LEVELS
from fcfl.data.columns import check_roles, labelled_rows, on_command_line
from fcfl.data.declared_rows import federate_declared, read_declared, split_by_content
from fcfl.data.rows import FILE
from fcfl.errors import DataError, ManyClients
from fcfl.federation.federation import Federation
from fcfl.methods.method import traits_of
from fcfl.models.linear import Linear
from fcfl.models.loss import as_loss, loss_notes
from fcfl.models.model import Inputs, Model, Opaque
from fcfl.policy import PrivacyBudget, read_policy
from fcfl.results.result import Deployment
from fcfl.rules import Rule
from fcfl.runs.settings import MAX_CLIENTS, SYNTHETIC, DataSettings, Experiment, check_left_out

_OF_TABLES = dict.fromkeys(
    (
        *("client", "label", "positive", "drop", "features", "keep", "categorical", "numeric"),
        *("missing", "drop_unlabelled", "max_levels", "max_clients", "schema"),
    ),
    "its columns are fixed",
)
_OF_ROWS = _OF_TABLES | {
    "sensitive": "it has no columns",
    "resplit": "it has no rows",
    "ratio": "it compares one number with zero",
    "relative_budget": "it has no model without budgets",
    "loss": "its loss is fixed",
    "threshold": "it makes no decisions",
}


@dataclass(frozen=True)
class Opened:
    """Clients, a model and rules, ready for training.

    ``checksum`` identifies the rows, their split and their columns. ``inputs`` describes the
    model's columns, and ``notes`` are messages for users about the table. ``method`` replaces the
    experiment's method, if given. For clients at sites, ``deployment`` returns the traffic since
    the run was opened.
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
"""Function that opens a run with the given settings."""


def rules_of(
    experiment: Experiment,
    attributes: Sequence[str],
    clients: Sequence[ClientId],
    levels: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return the fields of `Opened` about rules, from the options or the policy file."""
    least = experiment.min_group_rows
    if experiment.policy is None:
        return {"rules": experiment.make_rules(attributes, clients), "min_group_rows": least}
    policy = read_policy(experiment.policy)
    if least is None and policy.min_group_rows > 1:
        least = policy.min_group_rows
    return {
        "rules": policy.rules(clients),
        "groups": policy.levels(dict(levels)),
        "min_group_rows": least,
        "policy_sha256": policy.sha256,
    }


def open_run(experiment: Experiment) -> Opened:
    """Load the experiment's table, built-in set or synthetic problem."""
    if experiment.table == SYNTHETIC:
        return _open_synthetic(experiment)
    budget = None
    if experiment.privacy is None:
        table = open_table(experiment)
    else:
        table, budget = _open_private(experiment), PrivacyBudget(**experiment.privacy)
    loss = as_loss("loss", experiment.loss)
    federation = Federation.from_rows(table.train, table.test, privacy=budget)
    return Opened(
        federation=federation,
        model=Linear(
            table.schema.n_features, experiment.start, experiment.seed, loss, experiment.threshold
        ),
        checksum=table.checksum,
        inputs=Inputs(
            table.schema,
            table.labels,
            table.columns.label,
            client_column=table.columns.client,
            missing=experiment.missing,
        ),
        notes=(*table.notes, *loss_notes(loss)),
        **rules_of(experiment, table.columns.sensitive, table.clients, table.levels),
    )


def _open_synthetic(experiment: Experiment) -> Opened:
    """Open one client without rows; start ``zero`` satisfies the budget, ``uniform`` exceeds it."""
    check_left_out(experiment, _OF_ROWS, "with the synthetic problem")
    if isinstance(experiment.budget, Mapping):
        raise DataError("`budget` must be one number for the synthetic problem: it has one client.")
    from fcfl.runs import synthetic

    traits = traits_of(experiment.make_method())
    if traits.rate_kinds or traits.n_references:
        raise DataError(f"The synthetic problem has no rows, which {experiment.method!r} needs.")
    first = synthetic.start(feasible=experiment.start == "zero", seed=experiment.seed)
    return Opened(
        federation=Federation({SYNTHETIC: synthetic.SyntheticParty()}),
        model=Opaque(first),
        rules=(replace(synthetic.RULE, budget=experiment.budget),),
        checksum=SYNTHETIC,
        min_group_rows=1,  # its rate is that of a formula, not of rows
    )


def open_table(settings: DataSettings) -> data.FederatedTable:
    """Read a built-in set by name, else a table with the named columns."""
    table = settings.table
    if settings.schema is not None:
        raise DataError("`schema` belongs to `fcfl train --privacy`; leave it out here.")
    if table in data.BUILTIN:
        check_left_out(settings, _OF_TABLES, f"with the built-in set {settings.table!r}")
        if settings.test_size != 0.3 and not settings.resplit and table in ORIGINAL_SPLIT:
            raise DataError(
                f"`test_size` must be left out with {table!r}, which has a split of its own, got "
                f"{settings.test_size:g}. Split its rows again with `--resplit`."
            )
        return data.load_builtin(
            table,
            sensitive=settings.sensitive or None,
            seed=settings.seed,
            test_size=settings.test_size,
            resplit=settings.resplit,
        )
    if settings.resplit:
        raise DataError("`resplit` applies to the built-in set adult only.")
    paths = data.table_files(table)
    if "." not in table and not paths[0].exists():
        known = [*data.BUILTIN, SYNTHETIC]
        raise DataError(
            f"There is no file and no built-in set {table!r}. {did_you_mean(table, known)}"
        )
    check_columns_named(settings)
    columns = replace(_columns(settings), client=settings.client or FILE)
    frame = data.read_tables(
        paths,
        text=(columns.client, *columns.sensitive, *settings.categorical),
        missing=settings.missing,
        are_clients=columns.client == FILE,
    )
    check_roles(frame, columns)
    if settings.drop_unlabelled:
        frame = labelled_rows(frame, columns.label)
    frame, columns = data.choose_columns(frame, columns, settings.choices)
    count = frame[columns.client].nunique()
    if count > (settings.max_clients or MAX_CLIENTS):
        if settings.client is None:
            raise ManyClients(f"There are {count:,} files, one per client", count)
        raise ManyClients(f"Column {settings.client!r} names {count:,} clients", count)
    federation = data.federate(
        frame,
        columns,
        test_size=settings.test_size,
        seed=settings.seed,
        max_levels=settings.max_levels or MAX_LEVELS,
    )
    return replace(federation, notes=tuple(map(on_command_line, federation.notes)))


def _columns(settings: DataSettings) -> data.Columns:
    return data.Columns(
        str(settings.client),
        str(settings.label),
        settings.sensitive,
        settings.drop,
        settings.positive,
    )


def check_columns_named(settings: DataSettings) -> None:
    """Raise `ValueError` if a table is given without the names of required columns."""
    if settings.table in (*data.BUILTIN, SYNTHETIC):
        return
    several = len(data.table_files(settings.table)) > 1
    needed = ("label", "sensitive") if several else ("client", "label", "sensitive")
    absent = [f"--{name}" for name in needed if not getattr(settings, name)]
    if absent:
        options = " and ".join(filter(None, [", ".join(absent[:-1]), absent[-1]]))
        raise ValueError(f"A table requires {options}, with names of its columns.")


def _open_private(settings: DataSettings) -> data.FederatedTable:
    """Read private rows: columns are declared, and the split of a row depends on its content only.

    The table has no notes, because notes would disclose properties of the rows.
    """
    if settings.table in data.BUILTIN:
        check_left_out(settings, _OF_TABLES, f"with the built-in set {settings.table!r}")
        table = data.load_builtin(
            settings.table,
            sensitive=settings.sensitive or None,
            seed=settings.seed,
            test_size=0.0,
            declared=True,
        )
    else:
        table = _declared_table(settings)
    if not any(rows.n_rows for rows in table.test.values()):  # a published split is kept
        parts = {
            client: split_by_content(rows, settings.test_size, settings.seed)
            for client, rows in table.train.items()
        }
        table = replace(
            table,
            train={client: train for client, (train, _) in parts.items()},
            test={client: test for client, (_, test) in parts.items()},
        )
    return replace(table, notes=())


def _declared_table(settings: DataSettings) -> data.FederatedTable:
    paths = data.table_files(settings.table)
    if len(paths) > 1:
        raise DataError(
            f"`privacy` requires a table in one file with a column of clients, got {len(paths)} "
            f"files in {settings.table!r}. Join them, or train over sites with a file each."
        )
    check_columns_named(settings)
    if settings.schema is None:
        raise DataError(
            "`privacy` requires `--schema FILE`, which declares labels, groups and columns: they "
            "must not be derived from private rows. docs/privacy.md has an example."
        )
    declared = read_declared(settings.schema)
    for name in settings.sensitive:
        if name not in declared.levels:
            raise DataError(
                f"`sensitive` must be declared under [groups] in {settings.schema!r}, got {name!r}."
            )
    return federate_declared(
        settings.table,
        _columns(settings),
        declared,
        drop_unlabelled=settings.drop_unlabelled,
    )
