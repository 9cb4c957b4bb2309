"""Rows of a private run: their columns are declared, and each row's part depends on it alone."""

from dataclasses import replace

from fcfl.data import BUILTIN, Columns, FederatedTable, load_builtin
from fcfl.data.private_rows import federate_declared, read_declared, split_by_content
from fcfl.errors import DataError
from fcfl.runs.data_settings import DataSettings


def open_private(settings: DataSettings) -> FederatedTable:
    """A built-in set or a table; what is said of the rows while they are read is left out."""
    if settings.table in BUILTIN:
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
    columns = Columns(str(settings.client), str(settings.label), settings.sensitive, settings.drop)
    for name in columns.sensitive:
        if name not in declared.levels:
            raise DataError(
                f"`sensitive` must be declared under [groups] in {settings.schema!r}, got {name!r}."
            )
    return federate_declared(
        settings.table, columns, declared, drop_unlabelled=settings.drop_unlabelled
    )
