"""Settings of a run that say which rows it is about."""

from dataclasses import dataclass
from functools import partial

from fcfl._checks import check_count, is_count, is_number
from fcfl.data import BUILTIN, Choices
from fcfl.data.encoding import MAX_LEVELS
from fcfl.runs.option_fields import (
    COLUMN,
    COLUMNS,
    FLAG,
    Kind,
    check_fields,
    check_words,
    number,
    option,
    whole_number,
    words,
)

DATA = "Data"  # heading in --help
MAX_CLIENTS = 1000
_option = partial(option, group=DATA)


def _check_test_size(name: str, value: float) -> None:
    if not (is_number(value) and 0 <= value < 1):
        raise ValueError(f"`{name}` must be at least 0 and below 1, got {value!r}.")


def _check_at_least_one(name: str, value: int) -> None:
    if not (is_count(value) and value):
        raise ValueError(f"`{name}` must be a whole number, 1 or more, got {value!r}.")


@dataclass(frozen=True)
class DataSettings:
    """The table, which of its columns say what, and how its rows are split."""

    table: str = _option(
        "CSV, Parquet or xlsx file, several of them, a folder with one for each client, or a "
        f"built-in set: {', '.join([*BUILTIN, 'synthetic'])}.",
        argument=True,
        repeated=True,
    )
    client: str | None = _option(
        "Column that names the client a row belongs to. Of several files, by default their names.",
        COLUMN,
        default=None,
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
    features: tuple[str, ...] = _option(
        "The only columns to use as features. Default: all without another role.",
        COLUMNS,
        default=(),
    )
    keep: tuple[str, ...] = _option(
        "Columns to use though they look like an identifier, a date or the label itself.",
        COLUMNS,
        default=(),
    )
    categorical: tuple[str, ...] = _option(
        "Columns whose numbers are codes: one feature for each value.", COLUMNS, default=()
    )
    numeric: tuple[str, ...] = _option("Columns to use as numbers.", COLUMNS, default=())
    missing: tuple[str, ...] | None = _option(
        "Cells that count as empty, separated by commas. Default: ?, -, . and other usual marks.",
        Kind("TEXT,…", words, check_words),
        default=None,
    )
    max_levels: int | None = _option(
        f"Levels of a column that are used, the most frequent ones. Default: {MAX_LEVELS}.",
        Kind("N", whole_number, _check_at_least_one),
        default=None,
    )
    max_clients: int | None = _option(
        f"Clients that may be many: more than this are asked about. Default: {MAX_CLIENTS:,}.",
        Kind("N", whole_number, _check_at_least_one),
        default=None,
    )
    resplit: bool = _option(
        "Split the rows of adult anew, by --seed and --test-size, not as they were published.",
        FLAG,
        default=False,
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

    @property
    def choices(self) -> Choices:
        """What is said about single columns."""
        return Choices(self.features, self.keep, self.categorical, self.numeric)
