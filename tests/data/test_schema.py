import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcfl.data import Category, Number, Schema, summarise
from fcfl.data.client_data import CodedFeatures
from fcfl.errors import DataError


def dense(X):
    return np.asarray(X)


def agree(frame, clients=None, **options):
    clients = np.zeros(len(frame)) if clients is None else np.asarray(clients)
    names = list(frame.columns)
    parts = {str(c): summarise(frame[clients == c], names) for c in np.unique(clients)}
    return Schema.from_statistics(parts, **options)


numbers = st.one_of(st.none(), st.floats(-1e6, 1e6).map(lambda v: round(v, 3)))
levels = st.sampled_from(["a", "b", "ü", "<script>", None])
rows = st.lists(st.tuples(numbers, levels, st.integers(0, 3)), min_size=2, max_size=40)


@settings(max_examples=30, deadline=None)
@given(rows, st.sampled_from([0.0, 1e9]))
def test_merged_statistics_equal_those_of_the_pooled_table(cells, offset):
    """Whatever the split into clients, the encoding is that of the pooled table."""
    frame = pd.DataFrame(
        {
            "number": pd.Series([row[0] for row in cells], dtype=float) + offset,
            "level": pd.Series([row[1] for row in cells], dtype=object),
        }
    )
    merged, pooled = agree(frame, [row[2] for row in cells]), agree(frame)
    assert merged.feature_names == pooled.feature_names
    assert merged.notes == pooled.notes
    for one, other in zip(merged.columns, pooled.columns, strict=True):
        if isinstance(one, Number):
            assert one.mean == pytest.approx(other.mean, rel=1e-12, abs=1e-9)
            assert one.scale == pytest.approx(other.scale, rel=1e-6, abs=1e-6)
        else:
            assert one == other


@settings(max_examples=30, deadline=None)
@given(rows, st.randoms())
def test_the_order_of_clients_does_not_matter(cells, random):
    frame = pd.DataFrame({"x": pd.Series([row[0] for row in cells], dtype=float)})
    clients = np.array([row[2] for row in cells])
    parts = {str(c): summarise(frame[clients == c], ["x"]) for c in np.unique(clients)}
    shuffled = list(parts.items())
    random.shuffle(shuffled)
    assert Schema.from_statistics(dict(shuffled)) == Schema.from_statistics(parts)


def test_scale_survives_a_large_mean():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": 1e9 + rng.normal(size=3000)})
    column = agree(frame, np.arange(3000) % 7).columns[0]
    assert column.scale == pytest.approx(frame["x"].std(ddof=0), rel=1e-6)


def test_standardised_and_one_hot():
    frame = pd.DataFrame({"x": [1.0, 3.0, np.nan], "c": ["b", None, "a"], "d": [True, False, True]})
    schema = agree(frame)
    names = ("x", "x missing", "c=a", "c=b", "c missing", "d=False", "d=True")
    assert schema.feature_names == names and schema.n_features == 7
    expected = [[-1, 0, 0, 1, 0, 0, 1], [1, 0, 0, 0, 1, 1, 0], [0, 1, 1, 0, 0, 0, 1]]
    assert dense(schema.transform(frame)).tolist() == expected


def test_mostly_zeros_are_codes():
    wide = Schema((Category("c", tuple("abcdef")), Number("x", 0.0, 1.0)))
    frame = pd.DataFrame({"c": ["f", "zzz", "a"], "x": [0.0, 2.0, 3.0]})
    X = wide.transform(frame)
    assert isinstance(X, CodedFeatures) and X.nbytes == 3 * (4 + 8)
    assert X.toarray()[:, [0, 5, 6]].tolist() == [[0, 1, 0], [0, 0, 2], [1, 0, 3]]
    assert isinstance(Schema((Number("x", 0.0, 1.0),)).transform(frame), np.ndarray)


@settings(max_examples=30, deadline=None)
@given(rows)
def test_json_round_trip_encodes_identically(cells):
    frame = pd.DataFrame(
        {
            "number": pd.Series([row[0] for row in cells], dtype=float) / 3,
            "level": pd.Series([row[1] for row in cells], dtype=object),
        }
    )
    schema = agree(frame)
    rebuilt = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert rebuilt == schema
    assert (dense(rebuilt.transform(frame)) == dense(schema.transform(frame))).all()


def test_constant_and_empty_columns_are_left_out_with_a_note():
    frame = pd.DataFrame(
        {"x": [0.1] * 3, "c": ["only"] * 3, "none": [None] * 3, "blank": [np.nan] * 3}
    )
    schema = agree(frame, [0, 1, 1])
    assert schema.columns == ()
    for note, name in zip(schema.notes, frame.columns, strict=True):
        assert repr(name) in note and "left out" in note
    assert schema.transform(frame).shape == (3, 0)


def test_a_flag_that_is_one_or_empty_keeps_its_information():
    frame = pd.DataFrame({"flag": [1, None, 1]})
    schema = agree(frame)
    assert schema.feature_names == ("flag=1", "flag missing")
    assert "is used as a category" in schema.notes[0]
    assert dense(schema.transform(frame)).tolist() == [[1, 0], [0, 1], [1, 0]]


def test_rare_levels_of_a_wide_column_count_as_unknown():
    frame = pd.DataFrame({"c": ["d", "d", "c", "b", "b", "a"]})
    schema = agree(frame, max_levels=3)
    assert schema.columns[0].levels == ("a", "b", "d")
    assert "Column 'c' has 4 levels; the 3 most frequent are used" in schema.notes[0]
    assert dense(schema.transform(frame))[2].tolist() == [0, 0, 0]


def test_number_here_text_there():
    parts = {
        "east": summarise(pd.DataFrame({"lab": [1, 2]}), ["lab"]),
        "west": summarise(pd.DataFrame({"lab": ["low", "high"]}), ["lab"]),
    }
    sentence = "Column 'lab' is a number at client 'east' and text at client 'west'"
    with pytest.raises(DataError, match=sentence):
        Schema.from_statistics(parts)


@pytest.mark.parametrize("values", [[1.0, 2.0], ["a", "b"]], ids=["number", "text"])
@pytest.mark.parametrize("dtype", [float, object, "string"])
def test_a_column_empty_at_one_client_takes_the_kind_of_the_others(values, dtype):
    parts = {
        "east": summarise(pd.DataFrame({"lab": pd.Series([None], dtype=dtype)}), ["lab"]),
        "west": summarise(pd.DataFrame({"lab": values}), ["lab"]),
    }
    assert Schema.from_statistics(parts).columns[0].has_missing


def test_clients_must_have_the_same_columns():
    frame = pd.DataFrame({"a": [1, 2], "b": [1, 2]})
    parts = {"east": summarise(frame, ["a", "b"]), "west": summarise(frame, ["a"])}
    with pytest.raises(DataError, match=r"Clients 'east' and 'west'.*only one of them has 'b'"):
        Schema.from_statistics(parts)
    with pytest.raises(ValueError, match="`statistics` must hold at least one client"):
        Schema.from_statistics({})


def test_cells_unlike_those_of_training():
    schema = Schema((Category("c", ("a", "b")), Category("d", ("a",), has_missing=True)))
    frame = pd.DataFrame({"c": ["b", "new", None], "d": ["a", "new", None]})
    expected = [[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert dense(schema.transform(frame)).tolist() == expected
    number = Schema((Number("x", 5.0, 2.0),))
    assert number.transform(pd.DataFrame({"x": [7, None]})).tolist() == [[1], [0]]
    for n_levels in (2, 9):  # dense, sparse
        schema = Schema((Category("c", tuple("abcdefghi"[:n_levels])),))
        assert schema.transform(pd.DataFrame({"c": []})).shape == (0, n_levels)


def test_columns_that_cannot_be_used():
    schema = Schema((Number("age", 0.0, 1.0), Category("ward", ("a", "b"))))
    dates = pd.to_datetime(["2020-01-01"])
    for frame, named in (
        ({"agee": [1], "ward": ["a"]}, "'age'. Did you mean 'agee'"),
        ({"age": ["old"], "ward": ["a"]}, "'age' must hold numbers, got 'old'"),
        ({"age": [np.inf], "ward": ["a"]}, "'age' has 1 infinite value"),
        ({"age": [1], "ward": dates}, "'ward' holds dates"),
    ):
        with pytest.raises(DataError, match=named):
            schema.transform(pd.DataFrame(frame))
    for values in ([1, np.inf], [-1e200, 1e200], [-1.7e308, 1.7e308], dates):
        with pytest.raises(DataError, match="'x'"):
            summarise(pd.DataFrame({"x": values}), ["x"])
