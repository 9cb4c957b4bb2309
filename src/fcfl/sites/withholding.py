"""What a site leaves out of its answers so that nothing is said of fewer than so many rows.

A group that is too small is not told, and so many rows of others are told of no group that its
size does not follow by subtraction. Counts of decisions are told only of models whose decisions
differ in so many rows from all others that were told.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fcfl._types import RateId, Vector
from fcfl.data import ClientData, Schema, Statistics
from fcfl.data.schema import Category, CategorySummary, NumberSummary, Summary
from fcfl.errors import DataError
from fcfl.federation.locked_file import append, locked

Codes = NDArray[np.int32]
Decisions = NDArray[np.bool_]
WITHHELD = "\x00withheld"  # a group that no row belongs to
_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.int64)


def without_small_groups(data: ClientData, least: int) -> ClientData:
    """The rows, those of small groups in no group, and with them as many others as hide them.

    Of each attribute, the rows in no group are none or at least ``least``; so are those with
    either label, where counts by label are told. Which rows are added is random, and always the
    same: they count for the loss, only not for the rates of their group.
    """
    if least == 1:
        return data
    groups = {
        name: _hidden(codes, data.y, len(data.levels[name]), least)
        for name, codes in data.groups.items()
    }
    return replace(data, groups=groups)


def _hidden(codes: Codes, y: Vector, n_levels: int, least: int) -> Codes:
    """Codes with small groups, and what would give away their sizes, set to -1."""
    codes, before = codes.copy(), codes.size + 1
    random = np.random.default_rng(0)
    while before != (before := int((codes >= 0).sum())):
        for label in (0.0, 1.0, None):
            told = _told_codes(codes, y, n_levels, least, by_label=label is not None)
            of_label = np.ones(y.size, dtype=np.bool_) if label is None else y == label
            rest = int((of_label & ~np.isin(codes, told)).sum())
            if not told.size or rest == 0 or rest >= least:
                continue
            sizes = [int((of_label & (codes == code)).sum()) for code in told]
            largest = told[int(np.argmax(sizes))]
            if max(sizes) < 2 * least - rest:  # it would be too small itself
                codes[codes == told[int(np.argmin(sizes))]] = -1
                break
            own = np.flatnonzero(of_label & (codes == largest))
            codes[random.permutation(own)[: least - rest]] = -1
        small = [code for code in range(n_levels) if (codes == code).sum() < least]
        codes[np.isin(codes, small)] = -1
    return codes


def _told_codes(
    codes: Codes, y: Vector, n_levels: int, least: int, *, by_label: bool
) -> NDArray[np.intp]:
    """Groups of at least ``least`` rows; by label only where either label has as many.

    Were one label's count told and the other's not, it would follow from the group's.
    """
    kinds = [y == 0.0, y == 1.0] if by_label else [np.ones(y.size, dtype=np.bool_)]
    large = [np.bincount(codes[rows & (codes >= 0)], minlength=n_levels) >= least for rows in kinds]
    return np.flatnonzero(np.logical_and.reduce(large))


def told_rates(data: ClientData, rates: Sequence[RateId], least: int) -> list[RateId]:
    """The rates, those of groups that are not told replaced by one that no row belongs to."""
    told: dict[tuple[str, bool], set[str]] = {}
    for attribute in {rate.attribute for rate in rates} & set(data.levels):
        names = data.levels[attribute]
        for by_label in (False, True):
            codes = _told_codes(
                data.groups[attribute], data.y, len(names), least, by_label=by_label
            )
            told[attribute, by_label] = {names[code] for code in codes}
    return [
        rate
        if rate.group in told.get((rate.attribute, rate.kind != "selection"), ())
        else replace(rate, group=WITHHELD)
        for rate in rates
    ]


def withheld_statistics(statistics: Statistics, least: int) -> Statistics:
    """The same without what fewer than ``least`` rows stand behind.

    Rarer levels are one rest, whose size follows, their names do not.
    """
    columns = {name: _withheld(part, least) for name, part in statistics.columns.items()}
    return Statistics(columns)


def _withheld(summary: Summary, least: int) -> Summary:
    if isinstance(summary, CategorySummary):
        kept = {level: count for level, count in summary.counts.items() if count >= least}
        return CategorySummary(kept, summary.missing if summary.missing >= least else 0)
    n_rows = summary.n + summary.missing
    if summary.n < least:
        return NumberSummary(missing=n_rows)
    if 0 < summary.missing < least:  # as if the empty cells held the mean
        return replace(summary, n=n_rows, missing=0)
    return summary


def told_features(schema: Schema, told: Statistics) -> NDArray[np.bool_]:
    """Which features of an encoding are of levels, numbers and empty cells that were told."""
    features: list[bool] = []
    for column in schema.columns:
        summary = told.columns.get(column.name)
        if summary is None:
            raise DataError(f"Column {column.name!r} is no feature here.")
        if summary.n and summary.kind != column.kind:
            raise DataError(
                f"Column {column.name!r} is a {summary.kind} here, not a {column.kind}."
            )
        if isinstance(column, Category):
            known = summary.counts if isinstance(summary, CategorySummary) else {}
            features += [level in known for level in column.levels]
        else:
            features.append(summary.n > 0)
        if column.has_missing:
            features.append(summary.missing > 0)
    return np.array(features, dtype=np.bool_)


class ToldDecisions:
    """Decisions on the same rows whose counts a site has told, on its disk.

    No two of them differ in fewer than ``least`` rows, nor from selecting nobody or everybody: a
    model that decides nearly as one before is counted as that one. So no count is of a few rows,
    and no two can be subtracted to read a few.
    """

    def __init__(self, path: Path, least: int) -> None:
        self._path, self._least = path, least

    def settle(self, decisions: Decisions) -> Decisions:
        """The decisions to count: these, or those before that differ in too few rows."""
        packed = np.packbits(decisions)
        with locked(self._path) as file:
            content = self._path.read_bytes()
            if packed.size == 0 or len(content) % packed.size:
                raise DataError(
                    f"The record of told decisions {str(self._path)!r} is torn; this site counts "
                    "nothing until its owner has removed it."
                )
            extremes = np.packbits([np.zeros_like(decisions), np.ones_like(decisions)], axis=1)
            told = np.frombuffer(content, dtype=np.uint8).reshape(-1, packed.size)
            known = np.vstack([extremes, told])
            apart = _ONES[known ^ packed].sum(axis=1)
            if apart.min() >= self._least:
                append(file, packed.tobytes())
                return decisions
            nearest = np.unpackbits(known[int(apart.argmin())], count=decisions.size)
            return nearest.astype(np.bool_)
