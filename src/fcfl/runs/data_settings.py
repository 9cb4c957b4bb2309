"""Settings of a run that say which rows it is about."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

from fcfl._checks import check_count, is_count, is_number
from fcfl.data import BUILTIN, Choices
from fcfl.runs.options import Written, check_fields

Column = Annotated[str, Written("COLUMN")]
Columns = Annotated[tuple[str, ...], Written("COLUMN,…")]

DATA = "Data"  # heading in --help
MAX_CLIENTS = 1000


def _check_test_size(name: str, value: float) -> None:
    if not (is_number(value) and 0 <= value < 1):
        raise ValueError(f"`{name}` must be at least 0 and below 1, got {value!r}.")


def _check_at_least_one(name: str, value: int) -> None:
    if not (is_count(value) and value):
        raise ValueError(f"`{name}` must be a whole number, 1 or more, got {value!r}.")


@dataclass(frozen=True)
class DataSettings:
    """The table, which of its columns say what, and how its rows are split."""

    GROUP: ClassVar = DATA

    table: Annotated[
        str,
        Written(
            help="CSV, Parquet or xlsx file, several of them, a folder with one for each client, "
            f"or a built-in set: {', '.join([*BUILTIN, 'synthetic'])}."
        ),
    ]
    """The table."""
    _: KW_ONLY
    client: Column | None = None
    """Column that names the client of a row. Default for several files: their names."""
    label: Column | None = None
    """Column to predict; it has two values."""
    sensitive: Columns = ()
    """Columns whose groups are compared, separated by commas."""
    positive: Annotated[str | None, Written("VALUE")] = None
    """Label value that counts as 1. Default: that which means yes, larger number or last text."""
    drop: Columns = ()
    """Columns to leave out, separated by commas."""
    features: Columns = ()
    """The only columns to use as features. Default: all without another role."""
    keep: Columns = ()
    """Columns to use although they look like an identifier, a date or the label itself."""
    categorical: Columns = ()
    """Columns whose numbers are codes: one feature for each value."""
    numeric: Columns = ()
    """Columns to use as numbers."""
    missing: Annotated[tuple[str, ...] | None, Written("TEXT,…")] = None
    """Cells that count as empty, separated by commas. Default: ?, -, . and other usual marks."""
    drop_unlabelled: bool = False
    """Leave out rows without a label."""
    max_levels: Annotated[int | None, _check_at_least_one] = None
    """Levels of a column that are used, the most frequent ones. Default: 100."""
    max_clients: Annotated[int | None, _check_at_least_one] = None
    """Largest number of clients that needs no confirmation. Default: 1,000."""
    resplit: bool = False
    """Split the rows of adult again, by --seed and --test-size, not as they were published."""
    schema: Annotated[str | None, Written("FILE")] = None
    """File that declares labels, groups and columns; for --privacy, which reads none off rows."""
    seed: Annotated[int, check_count] = 0
    """Seed of the split and of a random start."""
    test_size: Annotated[float, Written("SHARE"), _check_test_size] = 0.3
    """Share of each client's rows to hold out."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def choices(self) -> Choices:
        """What is said about single columns."""
        return Choices(self.features, self.keep, self.categorical, self.numeric)
