"""Levels and numbers of few rows are not named to the server."""

from hypothesis import given
from hypothesis import strategies as st

from fcfl.data import Schema, Statistics
from fcfl.data.cells import Category, CategorySummary, NumberSummary
from fcfl.sites.rows import named_features, withhold


@given(
    st.dictionaries(st.text(max_size=2), st.integers(1, 40), max_size=5),
    st.integers(0, 40),
    st.integers(1, 20),
)
def test_features_are_named_if_enough_rows_have_their_level(counts, missing, least):
    said = withhold(Statistics({"ward": CategorySummary(counts, missing)}), least)
    schema = Schema((Category("ward", (*counts, "never seen"), has_missing=True),))
    expected = [*(n >= least for n in counts.values()), False, 0 < missing >= least]
    assert named_features(schema, said).tolist() == expected


def test_few_empty_cells_of_a_number_cannot_be_told_from_full_ones():
    said = withhold(Statistics({"age": NumberSummary(97, 60.0, 5.0, 3)}), 5)
    assert said.columns["age"] == NumberSummary(100, 60.0, 5.0, 0)
    said = withhold(Statistics({"age": NumberSummary(3, 60.0, 5.0, 97)}), 5)
    assert said.columns["age"] == NumberSummary(missing=100)
