"""Settings of a run that say which rows it is about."""

from dataclasses import dataclass
from functools import partial

from fcfl._checks import check_count, is_count, is_number
from fcfl.data import BUILTIN
from fcfl.data.encoding import MAX_LEVELS
from fcfl.runs.option_fields import (
    COLUMN,
    COLUMNS,
    Kind,
    check_fields,
    number,
    option,
    whole_number,
)

DATA = "Data"  # heading in --help
_option = partial(option, group=DATA)


def _check_test_size(name: str, value: float) -> None:
    if not (is_number(value) and 0 <= value < 1):
        raise ValueError(f"`{name}` must be at least 0 and below 1, got {value!r}.")


def _check_max_levels(name: str, value: int) -> None:
    if not (is_count(value) and value):
        raise ValueError(f"`{name}` must be a whole number, 1 or more, got {value!r}.")


@dataclass(frozen=True)
class DataSettings:
    """The table, which of its columns say what, and how its rows are split."""

    table: str = _option(
        f"CSV or Parquet file, or a built-in set: {', '.join([*BUILTIN, 'synthetic'])}.",
        argument=True,
    )
    client: str | None = _option(
        "Column that names the client a row belongs to.", COLUMN, default=None
    )
    label: str | None = _option(
        "Column to predict; it has two values.", COLUMN, default=None, over_sites=True
    )
    sensitive: tuple[str, ...] = _option(
        "Columns whose groups are compared, separated by commas.",
        COLUMNS,
        default=(),
        over_sites=True,
    )
    positive: str | None = _option(
        "Label value that counts as 1. Default: the larger number or last text.",
        Kind("VALUE"),
        default=None,
        over_sites=True,
    )
    drop: tuple[str, ...] = _option(
        "Columns to leave out, separated by commas.", COLUMNS, default=(), over_sites=True
    )
    max_levels: int | None = _option(
        f"Levels of a column that are used, the most frequent ones. Default: {MAX_LEVELS}.",
        Kind("N", whole_number, _check_max_levels),
        default=None,
    )
    schema: str | None = _option(
        "File that declares labels, groups and columns; for --privacy, which reads none off rows.",
        Kind("FILE"),
        default=None,
    )
    seed: int = _option(
        "Seed of the split and of a random start.",
        Kind("N", whole_number, check_count),
        default=0,
        over_sites=True,
    )
    test_size: float = _option(
        "Share of each client's rows to hold out.",
        Kind("SHARE", number, _check_test_size),
        default=0.3,
        over_sites=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)
