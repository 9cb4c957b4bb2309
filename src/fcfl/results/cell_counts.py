"""Rows of an audit by client and combination of groups: the dataclasses of ``cells.json``."""

from dataclasses import dataclass

from fcfl.audit.predictions import Cell

CELLS = "cells.json"


@dataclass(frozen=True)
class CellCounts:
    """Every combination that occurs; ``attributes`` says what each entry of ``groups`` is of.

    Two cells may have the same groups, where these are not known or not compared.
    """

    attributes: tuple[str, ...]
    cells: tuple[Cell, ...]
