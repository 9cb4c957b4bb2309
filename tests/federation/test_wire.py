"""Messages cross the wire to the last bit, and no bytes can do more than be refused."""

import json
from dataclasses import dataclass, is_dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fcfl import _types
from fcfl._types import CurvatureWeights, Point, Report, Request
from fcfl.federation.codec import same
from fcfl.federation.wire import MAGIC, WireError, pack, unpack
from fcfl.sites.messages import _ANSWERS, _QUESTIONS

CLASSES = {cls.__name__: cls for cls in (Request, Point, CurvatureWeights, Report)}
ANY_FLOATS = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    elements=st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True),
)


@dataclass(frozen=True)
class Unregistered:
    x: int


def a_request():
    weights = {"north": CurvatureWeights(0.25, np.array([0.1, -0.0, 3e-310]))}
    return Request((Point(np.arange(4.0), "curvature", weights), Point(np.ones(4))))


@given(ANY_FLOATS, st.floats(), st.text())
def test_what_is_sent_arrives_to_the_last_bit(array, number, text):
    value = (Point(array), {text: (number, None, True, 7)})
    assert same(unpack(pack(value, CLASSES), CLASSES), value)


def test_a_request_and_a_report_arrive_whole():
    report = Report(
        n_rows=3.0,
        loss=0.1 + 0.2,
        group_counts=np.array([1.0, 2.0]),
        rates=np.array([0.5, 1 / 3]),
        loss_grad=np.full(3, 1e-300),
        rate_grads=np.ones((2, 3)),
        curvature=np.eye(3)[:, ::-1],
    )
    for value in (a_request(), report):
        assert same(unpack(pack(value, CLASSES), CLASSES), value)


def test_every_kind_of_array_arrives_with_its_type():
    arrays = tuple(
        np.array([1, 0, 1]).astype(kind) for kind in ("f8", "i8", "i4", "u1", "?", ">f8")
    )
    arrived = unpack(pack(arrays, {}), {})
    assert [a.dtype for a in arrived[:5]] == [a.dtype for a in arrays[:5]]
    assert arrived[5].tolist() == [1.0, 0.0, 1.0]


def test_arrays_arrive_as_own_writable_memory():
    arrived = unpack(pack(Point(np.arange(3.0)), CLASSES), CLASSES)
    arrived.params[0] = 5.0
    assert arrived.params.flags.owndata or arrived.params.base.flags.owndata


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([1j]), np.float16([1])], ids=str)
def test_arrays_of_other_types_are_not_sent(array):
    with pytest.raises(TypeError, match="Cannot send an array of type"):
        pack((array,), {})


def test_a_class_nobody_registered_is_neither_sent_nor_built():
    with pytest.raises(TypeError, match="its class is not among those that may be read"):
        pack(Unregistered(1), CLASSES)
    message = pack(Unregistered(1), {"Unregistered": Unregistered})
    with pytest.raises(WireError, match="unknown 'Unregistered'"):
        unpack(message, CLASSES)


@given(st.data())
def test_a_message_cut_or_changed_anywhere_is_read_or_refused_and_nothing_else(data):
    message = bytearray(pack(a_request(), CLASSES))
    position = data.draw(st.integers(0, len(message) - 1))
    if data.draw(st.booleans()):
        del message[position:]
    else:
        message[position] = data.draw(st.integers(0, 255))
    try:
        unpack(bytes(message), CLASSES)
    except WireError as error:
        assert str(error)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(message):
    with pytest.raises(WireError):
        unpack(message, CLASSES)
    with pytest.raises(WireError):
        unpack(MAGIC + b" 9\n" + message, CLASSES)


def forged(shapes, body=b"", tree=None):
    head = json.dumps({"tree": tree, "arrays": shapes}).encode()
    return MAGIC + b" %d\n" % len(head) + head + body


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({"a0": ["<f8", [10**9, 10**9, 10**9], "C"]}, "cut short"),
        ({"a0": ["<f8", [2**32, 2**32], "C"]}, "cut short"),
        ({"a0": ["<f8", [-1], "C"]}, "shape"),
        ({"a0": ["<f8", [True], "C"]}, "shape"),
        ({"a0": ["|O", [1], "C"]}, "type '|O'".replace("|", r"\|")),
        ({"a0": ["<U9", [1], "C"]}, "type '<U9'"),
        ({"a0": ["<f8", [0], "C"]}, "too long"),
    ],
)
def test_no_message_asks_for_more_memory_than_it_brings(shapes, reason):
    with pytest.raises(WireError, match=reason):
        unpack(forged(shapes, b"12345678"), {})


@pytest.mark.parametrize(
    ("depth", "reason"), [(5000, "cannot be read"), (100, "more than 64 values inside each other")]
)
def test_a_tree_too_deep_is_refused(depth, reason):
    head = b'{"arrays":{},"tree":' + b'{"tuple":[' * depth + b"]}" * depth + b"}"
    with pytest.raises(WireError, match=reason):
        unpack(MAGIC + b" %d\n" % len(head) + head, {})


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({"map": [[1, 2]]}, "keys are no different texts"),
        ({"map": [["a", 1], ["a", 2]]}, "keys are no different texts"),
        ({"tuple": [{"array": "a0"}, {"array": "a0"}]}, "unknown 'a0'"),
        ([1], "a list where a value must be"),
        ({"type": "Point", "fields": {"params": 5}}, "`params` of a Point is 5"),
        ({"type": "Report", "fields": {"n_rows": 10**400}}, "`n_rows` of a Report"),
        ({"type": "Report", "fields": {"age": True}}, "`age` of a Report is True"),
        ({"type": "Report", "fields": {"loss": "low"}}, "`loss` of a Report is 'low'"),
        ({"type": "Point", "fields": {"want": "rows"}}, "`want` of a Point is 'rows'"),
        ({"type": "Request", "fields": {"points": {"tuple": [3]}}}, "`points` of a Request"),
    ],
    ids=str,
)
def test_what_pack_never_writes_is_refused_by_its_place(tree, reason):
    shapes = {"a0": ["<f8", [1], "C"]} if "tuple" in str(tree) and "a0" in str(tree) else {}
    with pytest.raises(WireError, match=reason):
        unpack(forged(shapes, bytes(8) if shapes else b"", tree), CLASSES, strict=True)


def test_a_message_of_somebody_else_has_a_largest_size():
    long = MAGIC + b" 9999999\n" + bytes(9_999_999)
    with pytest.raises(WireError, match="it is too long"):
        unpack(long, {}, strict=True)


def test_memory_order_decides_how_sums_round_and_arrives():
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    arrived = unpack(pack((array, array.copy("C")), {}), {})
    assert arrived[0].flags.f_contiguous and not arrived[0].flags.c_contiguous
    assert arrived[1].flags.c_contiguous
    assert same(arrived, (array, array))


def test_another_version_is_told_with_the_way_out():
    message = pack(a_request(), CLASSES).replace(MAGIC, b"fcfl-wire-9", 1)
    with pytest.raises(WireError, match=r"fcfl-wire-9.*Install the same version"):
        unpack(message, CLASSES)


def test_every_value_of_the_boundary_can_cross_whatever_fields_it_will_have():
    values = [v for v in vars(_types).values() if isinstance(v, type) and is_dataclass(v)]
    assert Point in values
    assert set(values) <= set(_QUESTIONS.values()) & set(_ANSWERS.values())
