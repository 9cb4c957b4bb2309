"""Columns that are declared, not read off the rows: what a private run may know beforehand.

::

    label = ["no", "yes"]            # the negative and the positive value

    [groups]                         # of each sensitive column; others belong to no group
    sex = ["Female", "Male"]

    [numbers]                        # centre and scale, from a codebook or from experience
    age = [40, 15]

    [categories]                     # levels, from a codebook; others count as unknown
    workclass = ["Private", "State-gov"]
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fcfl._checks import check_keys, is_number
from fcfl.errors import DataError

from .client_data import ClientData
from .coded_features import row_blocks
from .encoding import Category, Number, Schema

_KEYS = ("label", "groups", "numbers", "categories")
_BLOCK = 8192


@dataclass(frozen=True)
class Declared:
    """Labels, groups and the encoding of features, known without looking at a row."""

    labels: tuple[str, str]
    levels: Mapping[str, tuple[str, ...]]
    schema: Schema


def read_declared(path: str | os.PathLike[str]) -> Declared:
    """Read and check a file that declares columns."""
    where = f"schema {str(path)!r}"
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"Cannot read the {where}: {error.strerror}. Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"The {where} is not TOML: {error}.") from None
    check_keys(table, _KEYS, where, DataError)
    labels = table.get("label", [])
    if not _are_texts(labels) or len(labels) != 2:
        raise DataError(f"`label` in {where} must be its two values, got {labels!r}.")
    groups, numbers, categories = (_table(table, key, where) for key in _KEYS[1:])
    for kind, given, least in (("groups", groups, 2), ("categories", categories, 1)):
        for name, levels in given.items():
            if not _are_texts(levels) or len(set(levels)) != len(levels) or len(levels) < least:
                raise DataError(
                    f"`{kind}.{name}` in {where} must be a list of different texts, got {levels!r}."
                )
    columns: list[Number | Category] = [_number(name, n, where) for name, n in numbers.items()]
    columns += [Category(name, tuple(levels)) for name, levels in categories.items()]
    if not columns or not groups:
        raise DataError(f"The {where} must declare `groups`, and `numbers` or `categories`.")
    named = {name: tuple(own) for name, own in groups.items()}
    return Declared((labels[0], labels[1]), named, Schema(tuple(columns)))


def _table(table: Mapping[str, object], key: str, where: str) -> dict[str, list[str]]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise DataError(f"`{key}` in {where} must be a [{key}] table, got {found!r}.")
    return found


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _number(name: str, given: object, where: str) -> Number:
    fits = isinstance(given, list) and len(given) == 2 and all(is_number(one) for one in given)
    if not fits or not given[1] > 0:  # type: ignore[index]
        raise DataError(
            f"`numbers.{name}` in {where} must be a centre and a positive scale, got {given!r}."
        )
    return Number(name, float(given[0]), float(given[1]))  # type: ignore[index]


def split_by_content(
    data: ClientData, test_size: float, seed: int
) -> tuple[ClientData, ClientData]:
    """Training and held-out rows; where a row goes depends on that row alone, and on the seed.

    Else one row more would move others between the parts. Rows that are alike go together.
    """
    key = hashlib.sha256(f"split {seed}".encode()).hexdigest()[:16]
    hashed = np.zeros(data.n_rows, dtype=np.uint64)
    for rows in row_blocks(data.n_rows, _BLOCK):
        X = data.X[rows]
        dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        codes = [codes[rows] for _, codes in sorted(data.groups.items())]
        lines = np.column_stack([dense, data.y[rows], *codes]) + 0.0  # no negative zero
        texts = np.ascontiguousarray(lines).view(f"V{8 * lines.shape[1]}").ravel()
        content = np.array([one.tobytes() for one in texts], dtype=object)
        hashed[rows] = pd.util.hash_array(content, hash_key=key, categorize=False)
    in_test = hashed < np.uint64(min(int(test_size * 2.0**64), 2**64 - 1))
    return data.take(np.flatnonzero(~in_test)), data.take(np.flatnonzero(in_test))
