"""Agree on columns, labels and groups from the introductions of all sites."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fcfl._types import ClientId
from fcfl.client.client import Introduction
from fcfl.data import Schema
from fcfl.data.cells import alike_notes, look_alikes
from fcfl.data.roles import label_pair
from fcfl.data.schema import EMPTY
from fcfl.errors import DataError
from fcfl.sites.messages import Agreement, Terms

_TOO_RARE = f"{EMPTY}, or all its values are too rare for the sites to name (`withhold-below`),"


def agree(terms: Terms, introductions: Mapping[ClientId, Introduction]) -> Agreement:
    """Return one encoding for all rows, and the groups that any site named."""
    declared = {name: said for name, said in introductions.items() if said.schema is not None}
    if declared:
        return _declared(terms, introductions, declared)
    statistics = {n: s.statistics for n, s in introductions.items() if s.statistics is not None}
    schema = Schema.from_statistics(statistics)
    levels = _levels(terms, introductions.values())
    notes = list(schema.notes)
    if any(said.withhold_below > 1 for said in introductions.values()):
        notes = [note.replace(EMPTY, _TOO_RARE) for note in notes]
    for attribute, groups in levels.items():
        notes += alike_notes(f"Column {attribute!r}: groups", groups)
    if not schema.columns:
        raise DataError("The sites must share at least one feature column that varies, got none.")
    return Agreement(
        terms=terms,
        labels=_labels(terms, introductions),
        levels=levels,
        schema=replace(schema, notes=tuple(notes)),
        checksums={name: said.checksum for name, said in introductions.items()},
    )


def _declared(
    terms: Terms,
    introductions: Mapping[ClientId, Introduction],
    declared: Mapping[ClientId, Introduction],
) -> Agreement:
    """Return the agreement that sites with a privacy budget have declared alike."""
    first = next(iter(declared.values()))
    for name, said in introductions.items():
        same = (said.schema, said.labels, said.levels) == (
            first.schema,
            first.labels,
            first.levels,
        )
        if said.schema is None or not same:
            raise DataError(
                f"Sites {first.name!r} and {name!r} must declare the same labels, groups and "
                "columns, and all sites must where one has a privacy budget."
            )
    checksums = {name: said.checksum for name, said in introductions.items()}
    negative, positive = first.labels
    schema = first.schema or Schema(())
    return Agreement(terms, (negative, positive), first.levels, schema, checksums)


def _labels(terms: Terms, introductions: Mapping[ClientId, Introduction]) -> tuple[str, str]:
    values = sorted({value for said in introductions.values() for value in said.labels})
    if len(values) > 2:
        by_site = ", ".join(
            f"{name!r} {' and '.join(map(repr, said.labels))}"
            for name, said in introductions.items()
        )
        alike = look_alikes(values)
        raise DataError(
            f"Label column {terms.label!r} must have the same two values at all sites, got "
            f"{by_site}." + (f" {alike}." if alike else "")
        )
    return label_pair(tuple(values), terms.columns)


def _levels(terms: Terms, said: Iterable[Introduction]) -> dict[str, tuple[str, ...]]:
    """Groups of each sensitive column, sorted as text."""
    named: dict[str, set[str]] = {attribute: set() for attribute in terms.sensitive}
    for introduction in said:
        for attribute, groups in named.items():
            groups.update(introduction.levels.get(attribute, ()))
    for attribute, groups in named.items():
        if not groups:
            raise DataError(
                f"No site named a group of {attribute!r}: the column is empty, or every group has "
                "fewer rows than the sites' `withhold-below`."
            )
    return {attribute: tuple(sorted(groups)) for attribute, groups in named.items()}
