"""No small count follows from what is shown: checked by the rank of everything shown."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcfl.audit.predictions import Cell, CellCounts
from fcfl.cards.rate_tables import Sum, hidden_sums, rate_tables

LEAST = 11


def shown_system(counts, tables):
    """Everything the tables show, as rows over (combination, selected or not)."""
    cells = {}
    for cell in counts.cells:
        n, k = cells.get(cell.groups, (0, 0))
        cells[cell.groups] = (n + cell.rows, k + cell.selected)
    atoms = [(groups, chosen) for groups in cells for chosen in (True, False)]
    people = np.array([cells[g][1] if c else cells[g][0] - cells[g][1] for g, c in atoms])

    def row(condition):
        return np.array([float(condition(groups, chosen)) for groups, chosen in atoms])

    rows, secrets = [], []

    def add(condition, shown):
        vector = row(condition)
        if shown is not None:
            assert vector @ people == shown  # what is shown is true
            rows.append(vector)
        if 0 < vector @ people < LEAST:
            assert shown is None
            secrets.append(vector)

    add(lambda groups, chosen: True, tables.total)
    for table in tables.tables:
        at = [counts.attributes.index(name) for name in table.attributes]
        for line in (*table.lines, *table.small):

            def inside(groups, at=at, line=line):
                return tuple(groups[i] for i in at) == line.groups

            add(lambda groups, chosen, inside=inside: inside(groups), line.rows)
            add(lambda groups, chosen, inside=inside: inside(groups) and chosen, line.selected)
            add(lambda groups, chosen, inside=inside: inside(groups) and not chosen, None)
            assert (line.rate is None) == (None in (line.rows, line.selected) or line.rows == 0)
            if line.rate is None:
                assert line.impact_ratio is None and line.interval is None
        add(lambda groups, chosen, at=at: None in [groups[i] for i in at], table.unknown)
    return np.array(rows).reshape(-1, len(atoms)), secrets


def assert_nothing_follows(counts):
    tables = rate_tables(counts, LEAST)
    shown, secrets = shown_system(counts, tables)
    rank = np.linalg.matrix_rank(shown) if len(shown) else 0
    for secret in secrets:
        assert np.linalg.matrix_rank(np.vstack([shown, secret])) == rank + 1


@st.composite
def crossed(draw):
    sexes = ["f", "m", None][: draw(st.integers(2, 3))]
    races = ["a", "b", "c", "d", None][: draw(st.integers(1, 5))]
    cells = []
    for sex in sexes:
        for race in races:
            rows = draw(st.integers(0, 60))
            cells.append(Cell("x", (sex, race), rows, draw(st.integers(0, rows))))
    return CellCounts(("sex", "race"), tuple(cells))


@settings(max_examples=60, deadline=None)
@given(crossed())
def test_no_small_count_follows_from_everything_shown(counts):
    assert_nothing_follows(counts)


def test_one_small_group_hides_a_second_one():
    counts = CellCounts(("sex",), (Cell("x", ("f",), 8, 4), Cell("x", ("m",), 500, 250)))
    table = rate_tables(counts, LEAST).tables[0]
    assert [line.rows for line in (*table.small, *table.lines)] == [None, None]
    assert rate_tables(counts, LEAST).total == 508
    assert_nothing_follows(counts)


def test_large_counts_are_all_shown():
    cells = tuple(
        Cell("x", (sex, race), 400, 100) for sex in ("f", "m") for race in ("a", "b", "c")
    )
    tables = rate_tables(CellCounts(("sex", "race"), cells), LEAST)
    assert all(None not in (line.rows, line.selected) for t in tables.tables for line in t.lines)
    assert tables.total == 2400


@pytest.mark.parametrize("values", [[5, 100, 100], [5, 5, 100], [0, 5, 100], [3]])
def test_totals_stay_where_they_can(values):
    sums = [Sum(i, (i,), value) for i, value in enumerate(values)]
    total = Sum("all", tuple(range(len(values))), sum(values), is_total=True)
    hidden = hidden_sums([*sums, total], LEAST)
    assert ("all" in hidden) == (sum(values) < LEAST)
    assert {i for i, value in enumerate(values) if 0 < value < LEAST} <= hidden
