import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fcfl._types import CurvatureWeights, Point, Report
from fcfl.federation.codec import decode, encode, same
from helpers import identical

CLASSES = {cls.__name__: cls for cls in (CurvatureWeights, Point, Report)}

floats = st.one_of(st.floats(), st.sampled_from([-0.0, 0.0, 5e-324, float("nan"), float("-inf")]))
vectors = npst.arrays(np.float64, npst.array_shapes(min_dims=0, max_dims=2, max_side=3))
arrays = st.one_of(
    vectors,
    npst.arrays(np.int64, st.integers(0, 3)),
    npst.arrays(np.bool_, 2),
    npst.arrays(np.float32, 2),
)
plain = st.one_of(st.none(), st.booleans(), st.integers(), floats, st.text(), arrays)
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(), inner, max_size=3),
        st.builds(CurvatureWeights, floats, vectors),
        st.builds(Point, vectors, st.just("values"), inner),
        st.builds(Report, floats, floats, vectors, vectors, inner, inner),
    ),
    max_leaves=12,
)


def written_and_read(value):
    """The value after the way it takes through a checkpoint's JSON."""
    tree, stored = encode(value)
    return decode(json.loads(json.dumps(tree)), stored, CLASSES)


@given(values)
def test_every_value_comes_back_bit_for_bit(value):
    assert identical(written_and_read(value), value)


@given(values)
def test_a_value_is_the_same_as_itself_read_back(value):
    assert same(written_and_read(value), value)


@given(values, values)
def test_same_means_identical(left, right):
    assert same(left, right) == identical(left, right)


DIFFERENT = [
    (0.0, -0.0),
    (1, True),
    (1, 1.0),
    (float("inf"), float("-inf")),
    ((1,), (1, 2)),
    ({"a": 1}, {"b": 1}),
    (np.zeros(2), np.zeros(3)),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (np.zeros(2), -np.zeros(2)),
    (np.zeros(2), np.zeros(2, dtype=np.int64)),
    (np.zeros(0), None),
    (np.zeros(()), np.zeros(1)),
    (np.zeros(()), 0.0),
    (np.array([1.0]), np.array([1.0 + 2**-52])),
]


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=str)
def test_what_differs_in_one_bit_is_not_the_same(left, right):
    for wrap in (lambda v: v, lambda v: (v,), lambda v: {"k": v}):
        assert not same(wrap(left), wrap(right))
        assert same(wrap(left), wrap(left))


def test_the_same_bits_in_another_memory_order_are_the_same():
    array = np.arange(6.0).reshape(2, 3)
    assert same(array, np.asfortranarray(array))


def test_numpy_scalars_become_numbers():
    tree, stored = encode((np.float64(0.1), np.int64(3), np.bool_(True)))
    assert stored == {} and identical(decode(tree, stored, {}), (0.1, 3, True))


@dataclass(frozen=True)
class Stranger:
    x: int = 0


def test_an_unknown_class_is_never_built():
    tree, stored = encode((1, Stranger()))
    with pytest.raises(KeyError, match="Stranger"):
        decode(tree, stored, CLASSES)


@pytest.mark.parametrize("value", [object(), {1, 2}, [1, 2], b"x", 1j, len, Stranger])
def test_what_cannot_be_written_is_refused_by_its_kind(value):
    with pytest.raises(
        TypeError, match=rf"Cannot write a {type(value).__name__} into a checkpoint"
    ):
        encode({"k": (value,)})


OBJECTS = [
    np.array([None, 1.0]),
    np.array(["a"], dtype=object),
    np.array(None),
    np.array([], dtype=object),
    np.zeros(1, dtype=[("x", object)]),
]


@pytest.mark.parametrize("array", OBJECTS, ids=repr)
def test_an_array_of_objects_is_refused(array):
    with pytest.raises(TypeError, match="Cannot write an array of objects into a checkpoint"):
        encode({"k": (array,)})


@pytest.mark.parametrize("key", [1, 1.0, None, True, ("a",), b"a"], ids=repr)
def test_a_map_with_a_key_that_is_no_text_is_refused(key):
    with pytest.raises(TypeError, match=r"Cannot write a map with the key .*; use text"):
        encode(({key: 1},))


@pytest.mark.parametrize("scalar", [np.complex128(1j), np.datetime64("2020-01-01")], ids=repr)
def test_a_scalar_that_is_no_number_is_refused(scalar):
    with pytest.raises(TypeError, match=r"Cannot write a (complex|date) into a checkpoint"):
        encode((scalar,))


def test_a_class_that_could_not_be_read_back_is_not_written():
    encode((1, Stranger()), {"Stranger": Stranger})
    for classes in (CLASSES, {"Stranger": Report}):
        with pytest.raises(
            TypeError,
            match="Cannot write a Stranger: its class is not among those",
        ):
            encode((1, Stranger()), classes)
