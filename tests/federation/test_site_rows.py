"""Features of levels and numbers that the site has not named are recognised."""

from hypothesis import given
from hypothesis import strategies as st

from fcfl.data import Schema, Statistics
from fcfl.data.schema import Category, CategorySummary, withhold
from fcfl.sites.rows import named_features


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
