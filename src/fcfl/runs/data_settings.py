"""Settings of a run that say which rows it is about."""

from dataclasses import dataclass, field
from typing import Any

from fcfl._checks import check_count, is_number
from fcfl.data import BUILTIN
from fcfl.runs.option_fields import (
    Option,
    check_fields,
    check_words,
    number,
    option,
    whole_number,
    words,
)

DATA = "Data"  # heading in --help


def _option(help: str, **details: Any) -> dict[str, Option]:
    return option(help, group=DATA, **details)


def _check_test_size(name: str, value: float) -> None:
    if not (is_number(value) and 0 <= value < 1):
        raise ValueError(f"`{name}` must be at least 0 and below 1, got {value!r}.")


@dataclass(frozen=True)
class DataSettings:
    """The table, which of its columns say what, and how its rows are split."""

    table: str = field(
        metadata=_option(
            f"CSV or Parquet file, or a built-in set: {', '.join([*BUILTIN, 'synthetic'])}.",
            argument=True,
        )
    )
    client: str | None = field(
        default=None,
        metadata=_option("Column that names the client a row belongs to.", metavar="COLUMN"),
    )
    label: str | None = field(
        default=None,
        metadata=_option(
            "Column to predict; it has two values.", metavar="COLUMN", over_sites=True
        ),
    )
    sensitive: tuple[str, ...] = field(
        default=(),
        metadata=_option(
            "Columns whose groups are compared, separated by commas.",
            metavar="COLUMN,…",
            parse=words,
            check=check_words,
            over_sites=True,
        ),
    )
    positive: str | None = field(
        default=None,
        metadata=_option(
            "Label value that counts as 1. Default: the larger number or last text.",
            metavar="VALUE",
            over_sites=True,
        ),
    )
    drop: tuple[str, ...] = field(
        default=(),
        metadata=_option(
            "Columns to leave out, separated by commas.",
            metavar="COLUMN,…",
            parse=words,
            check=check_words,
            over_sites=True,
        ),
    )
    seed: int = field(
        default=0,
        metadata=_option(
            "Seed of the split and of a random start.",
            metavar="N",
            parse=whole_number,
            check=check_count,
            over_sites=True,
        ),
    )
    test_size: float = field(
        default=0.3,
        metadata=_option(
            "Share of each client's rows to hold out.",
            metavar="SHARE",
            parse=number,
            check=_check_test_size,
            over_sites=True,
        ),
    )

    def __post_init__(self) -> None:
        check_fields(self)
