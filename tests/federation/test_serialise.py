"""Values are read back to the last bit, and no bytes can do more than raise `WireError`."""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, make_dataclass
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fcfl import _types
from fcfl._types import CurvatureWeights, Extra, Point, Report, Request
from fcfl.federation.serialise import TAG, WIRE, Serialiser, WireError, peek, plain, same
from fcfl.sites.messages import _ANSWERS, _QUESTIONS
from helpers import identical

ANY = Serialiser(Any, also=(CurvatureWeights, Point, Report))
REQUEST = Serialiser(Request)
HEAD = b"fcfl-%d\n" % WIRE

floats = st.one_of(st.floats(), st.sampled_from([-0.0, 0.0, 5e-324, float("nan"), float("-inf")]))
integers = st.integers(-(2**63), 2**63 - 1)
vectors = npst.arrays(np.float64, npst.array_shapes(min_dims=1, max_dims=1, max_side=3))
arrays = st.one_of(
    npst.arrays(np.float64, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)),
    npst.arrays(np.int64, st.integers(0, 3)),
    npst.arrays(np.bool_, 2),
    npst.arrays(np.float32, 2),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), integers, floats, st.text(), arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(), inner, max_size=3),
        st.builds(CurvatureWeights, floats, vectors),
        st.builds(Report, floats, floats, vectors, vectors, st.none() | vectors),
    ),
    max_leaves=12,
)


@dataclass(frozen=True)
class Stranger:
    x: int = 0


def a_request():
    weights = {"north": CurvatureWeights(0.25, np.array([0.1, -0.0, 3e-310]))}
    return Request((Point(np.arange(4.0), "curvature", weights), Point(np.ones(4))))


@given(values)
def test_every_value_comes_back_bit_for_bit(value):
    assert identical(ANY.load(ANY.dump(value)), value)


@given(values, values)
def test_same_means_identical(left, right):
    assert same(left, right) == identical(left, right)
    assert same(left, left)


DIFFERENT = [
    (0.0, -0.0),
    (1, True),
    (1, 1.0),
    ((1,), (1, 2)),
    ({"a": 1}, {"b": 1}),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (np.zeros(2), -np.zeros(2)),
    (np.zeros(2), np.zeros(2, dtype=np.int64)),
    (np.zeros(()), np.zeros(1)),
    (np.zeros(()), 0.0),
    (np.array([1.0]), np.array([1.0 + 2**-52])),
]


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=str)
def test_what_differs_in_one_bit_is_not_the_same(left, right):
    for wrap in (lambda v: v, lambda v: (v,), lambda v: {"k": v}):
        assert not same(wrap(left), wrap(right))


def test_typed_values_keep_integers_memory_order_and_own_memory():
    params = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    point = REQUEST.load(REQUEST.dump(Request((Point(params, sharpness=7),)))).points[0]
    assert type(point.sharpness) is int
    assert point.params.flags.f_contiguous and not point.params.flags.c_contiguous
    assert point.params.flags.aligned and point.params.flags.writeable
    assert identical(point.params, params)


def test_numpy_scalars_and_other_byte_orders_become_plain_numbers():
    value = (np.float64(0.1), np.int64(3), np.bool_(True))
    assert identical(ANY.load(ANY.dump(value)), (0.1, 3, True))
    assert ANY.load(ANY.dump(np.array([1.0, 2.0], dtype=">f8"))).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "value",
    [
        *(object(), {1, 2}, [1, 2], b"x", 1j, len, Stranger, np.complex128(1j)),
        *(np.datetime64("2020-01-01"), {1: 2}, {None: 1}, {("a",): 1}, Stranger()),
        *(np.array([None, 1.0]), np.array(["text"]), np.array([1j]), np.float16([1])),
        np.zeros(1, dtype=[("x", object)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unreadable_values_are_not_written(value):
    for wrapped in (value, (value,), {"k": value}):
        with pytest.raises(TypeError, match="Cannot write"):
            ANY.dump(wrapped)


# --- hostile bytes ---


@given(st.data())
def test_a_changed_message_is_read_or_rejected_and_nothing_else(data):
    message = bytearray(REQUEST.dump(a_request()))
    position = data.draw(st.integers(0, len(message) - 1))
    if data.draw(st.booleans()):
        del message[position:]
    else:
        message[position] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(REQUEST.load(bytes(message)), Request)
    except WireError as error:
        assert str(error)


@given(st.binary(max_size=200))
def test_random_bytes_are_rejected(message):
    for content in (message, HEAD + message):
        with pytest.raises(WireError):
            REQUEST.load(content)


def forged(tree):
    return HEAD + msgspec.msgpack.encode(tree)


def an_array(kind="<f8", shape=(1,), order="C", numbers=bytes(8)):
    return msgspec.msgpack.Ext(1, msgspec.msgpack.encode((kind, shape, order, numbers)))


@pytest.mark.parametrize(
    "array",
    [
        an_array(shape=(10**9, 10**9, 10**9)),
        an_array(shape=(2,)),
        an_array(shape=(0,)),
        an_array(shape=(True,)),
        an_array(kind="|O"),
        an_array(kind="<U2"),
        an_array(order="K"),
        an_array(numbers=bytes(7)),
        an_array(kind="<i8"),
        msgspec.msgpack.Ext(1, b""),
        5,
        [0.0],
    ],
)
def test_an_array_must_have_its_bytes_and_its_type(array):
    point = plain(Point(np.zeros(1)))
    assert REQUEST.load(forged({TAG: "Request", "points": [point]}))
    with pytest.raises(WireError):
        REQUEST.load(forged({TAG: "Request", "points": [{**point, "params": array}]}))


@pytest.mark.parametrize(
    "claim", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 10**5]
)
def test_a_message_cannot_claim_more_memory_or_depth_than_it_has(claim):
    for serialiser in (ANY, REQUEST):
        with pytest.raises(WireError):
            serialiser.load(HEAD + claim)
    with pytest.raises(WireError, match="bytes"):
        ANY.load(bytes(2**29 + 1))


@pytest.mark.parametrize(
    ("key", "value"),
    [("sharpness", True), ("sharpness", "10"), ("want", "rows"), ("extras", 3), ("unknown", 1)],
)
def test_a_field_of_another_type_is_rejected_with_its_place(key, value):
    point = {**plain(Point(np.zeros(1))), key: value}
    with pytest.raises(WireError, match=rf"(?s){key}|points\[0\]"):
        REQUEST.load(forged({TAG: "Request", "points": [point]}))


@pytest.mark.parametrize("tree", [None, [], {}, {TAG: "Point"}, {TAG: "Stranger", "x": 1}])
def test_only_the_root_of_a_serialiser_is_read(tree):
    with pytest.raises(WireError):
        REQUEST.load(forged(tree))


def test_a_class_that_is_not_registered_is_never_built():
    with pytest.raises(WireError, match="Stranger"):
        ANY.load(forged([{TAG: "Stranger", "x": 1}]))


def test_another_format_is_rejected_with_both_numbers():
    message = REQUEST.dump(a_request()).replace(HEAD, b"fcfl-9\n", 1)
    with pytest.raises(WireError, match=rf"9.*{WIRE}"):
        REQUEST.load(message)


def test_peek_reads_one_text_and_nothing_else():
    message = ANY.dump({"a": {"b": "c", "d": 1}})
    assert peek(message, "a", "b") == "c"
    assert [peek(message, *keys) for keys in (("a",), ("a", "d"), ("x",))] == [None] * 3
    assert peek(b"anything", "a") is None


# --- which classes ---


def test_every_value_of_the_boundary_can_cross():
    values = {v for v in vars(_types).values() if isinstance(v, type) and is_dataclass(v)}
    known = {*_QUESTIONS.classes.values(), *_ANSWERS.classes.values()}
    assert {Point, Report} <= values <= known


def test_type_hints_are_followed_through_aliases_generics_and_recursion():
    T = TypeVar("T", bound=Stranger)

    @dataclass(frozen=True)
    class Box(Generic[T]):
        content: T

    Node = make_dataclass("Node", [("next", "Node | None"), ("box", Box[Stranger])], frozen=True)
    Node.__module__ = __name__
    globals()["Node"] = Node
    try:
        serialiser = Serialiser(Annotated[Mapping[str, tuple[Node, ...]], "some"])
        assert set(serialiser.classes) == {"Node", "Box", "Stranger"}
        value = {"k": (Node(Node(None, Box(Stranger(1))), Box(Stranger(2))),)}
        assert serialiser.load(serialiser.dump(value)) == value
    finally:
        del globals()["Node"]


def test_two_classes_of_one_name_are_rejected():
    other = make_dataclass("Stranger", [("lengths", tuple[int, ...])], frozen=True)
    both = make_dataclass("Both", [("one", Stranger), ("two", other)], frozen=True)
    with pytest.raises(TypeError, match="Stranger"):
        Serialiser(both)


def test_a_type_hint_that_cannot_be_resolved_is_named():
    hidden = make_dataclass("Hidden", [("part", "Nowhere")], frozen=True)
    with pytest.raises(TypeError, match="Nowhere"):
        Serialiser(hidden)


def test_an_extra_with_slots_is_registered_once():
    """`slots=True` leaves two classes of one name behind."""

    @dataclass(frozen=True, slots=True)
    class WithSlots(Extra):
        number: int = 0

        def answer(self, rows, point):
            return {}

        def shapes(self, point, n_rates):
            return {}

    assert Serialiser(Point).classes["WithSlots"] is WithSlots
