"""Levels and numbers of few rows are not named to the server."""

from hypothesis import given
from hypothesis import strategies as st

from fcfl.data import Schema, Statistics
from fcfl.data.schema import Category, CategorySummary, NumberSummary
from fcfl.sites.rows import told_features, withheld_statistics


@given(
    st.dictionaries(st.text(max_size=2), st.integers(1, 40), max_size=5),
    st.integers(0, 40),
    st.integers(1, 20),
)
def test_levels_of_a_column_are_named_if_enough_rows_have_them(counts, missing, least):
    column = CategorySummary(counts, missing)
    said = withheld_statistics(Statistics({"ward": column}), least).columns["ward"]
    assert said.counts == {level: n for level, n in counts.items() if n >= least}
    assert said.missing == (missing if missing >= least else 0)
    schema = Schema((Category("ward", (*counts, "never seen"), has_missing=True),))
    told = told_features(schema, Statistics({"ward": said}))
    assert told.tolist() == [n >= least for n in counts.values()] + [False, said.missing > 0]


def test_few_empty_cells_of_a_number_cannot_be_told_from_full_ones():
    said = withheld_statistics(Statistics({"age": NumberSummary(97, 60.0, 5.0, 3)}), 5)
    assert said.columns["age"] == NumberSummary(100, 60.0, 5.0, 0)
    said = withheld_statistics(Statistics({"age": NumberSummary(3, 60.0, 5.0, 97)}), 5)
    assert said.columns["age"] == NumberSummary(missing=100)
