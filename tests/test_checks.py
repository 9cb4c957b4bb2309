import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl._checks import (
    check_budget,
    check_choice,
    check_clients_known,
    check_confidence,
    check_count,
    check_curvature_weights,
    check_fraction,
    check_non_negative,
    check_pair,
    check_params,
    check_positive,
    check_report,
    check_share,
    check_stage_rounds,
    did_you_mean,
)
from fcfl._types import CurvatureWeights, Point, Report
from fcfl.errors import ReportError

numbers = st.floats(allow_nan=True, allow_infinity=True)
RANGES = {
    check_budget: lambda value: 0 <= value <= 1,
    check_share: lambda value: 0 <= value <= 1,
    check_positive: lambda value: 0 < value < math.inf,
    check_non_negative: lambda value: 0 <= value < math.inf,
    check_fraction: lambda value: 0 < value < 1,
    check_confidence: lambda value: 0 <= value < 1,
}


@given(numbers)
def test_each_check_accepts_exactly_its_range(value):
    for check, fits in RANGES.items():
        if fits(value):
            assert check("size", value) == value and type(check("size", value)) is float
        else:
            with pytest.raises(ValueError, match="`size`.*" + re.escape(repr(value))):
                check("size", value)


@pytest.mark.parametrize(
    "value", [True, np.True_, "1", None, [0.1], 1j, 10**400, np.zeros(1)], ids=repr
)
@pytest.mark.parametrize("check", RANGES)
def test_other_values_are_rejected_by_name(check, value):
    with pytest.raises(ValueError, match="`step_size`"):
        check("step_size", value)


@pytest.mark.parametrize("number", [np.int64(1), np.uint8(1), np.float32(0.5), np.float16(0.5)])
def test_numbers_of_numpy_are_numbers(number):
    assert check_budget("budget", number) == check_positive("x", number) == number
    with pytest.raises(ValueError, match="`budget`"):
        check_budget("budget", np.float32("nan"))


def test_counts_and_pairs():
    for value in (0, 7, np.int64(3), 10**400):
        assert check_count("max_age", value) == value
    for value in (-1, 1.0, 0.5, True, "3", None, np.float64(3), np.nan):
        with pytest.raises(ValueError, match="`max_age`"):
            check_count("max_age", value)
        with pytest.raises(ValueError, match="`rounds`"):
            check_stage_rounds("rounds", (value, 3))
    check_pair("temperatures", [0.1, np.float32(0.2)])
    check_stage_rounds("rounds", [np.int64(0), 3])
    for pair in (5, None, "12", (1,), (1, 2, 3), ("a", "b"), (1, None), {1, 2}, np.ones((2, 2))):
        with pytest.raises(ValueError, match="`temperatures`"):
            check_pair("temperatures", pair)
        with pytest.raises(ValueError, match="`rounds`"):
            check_stage_rounds("rounds", pair)


def test_parameters_are_a_vector_of_finite_numbers():
    for params in ([1, 2], (0.5,), [], np.arange(3), np.ones(2, dtype=np.float32)):
        vector = check_params(params)
        assert vector.dtype == np.float64 and vector.tolist() == list(params)
    no_vectors = ["abc", None, 3.0, [[1.0, 2.0]], [[1], [2, 3]], ["1", "2"], [1j], [None], [True]]
    for params in (*no_vectors, np.zeros((2, 2)), np.zeros(()), [0.0, np.nan], [np.inf]):
        with pytest.raises(ValueError, match="`params`"):
            check_params(params)


def test_curvature_needs_the_weights_of_the_client():
    weights = CurvatureWeights(1.0, np.zeros(2))
    point = Point(np.zeros(3), "curvature", {"south": weights})
    assert check_curvature_weights("south", point) is weights
    for other in (point, Point(np.zeros(3), "curvature")):
        with pytest.raises(ValueError, match=r"`curvature_weights` .* 'north'"):
            check_curvature_weights("north", other)


def test_names_are_checked_with_a_hint():
    assert check_choice("scope", "global", ("client", "global")) == "global"
    with pytest.raises(ValueError, match=r"`scope` .* client, global, got 'site'"):
        check_choice("scope", "site", ("client", "global"))
    assert "'non-phd'" in did_you_mean("non-pdh", ["phd", "non-phd"])
    assert did_you_mean("zebra", ["phd", "md"]) == "Known: 'phd', 'md'."
    assert did_you_mean("zebra", [str(k) for k in range(99)]).endswith("'11', ….")
    check_clients_known("budget", {"phd": 0.1}, ["phd", "md"])
    with pytest.raises(ValueError, match=r"`budget` .* 'pdh'.* 'phd'"):
        check_clients_known("budget", {"pdh": 0.1}, ["phd", "md"])


N_PARAMS, N_RATES = 3, 2


def whole_report():
    return Report(
        n_rows=10.0,
        loss=0.5,
        group_counts=np.array([4.0, 6.0]),
        rates=np.array([0.0, 1.0]),
        loss_grad=np.ones(N_PARAMS),
        rate_grads=np.ones((N_RATES, N_PARAMS)),
        curvature=np.eye(N_PARAMS),
    )


def refuse(want="curvature", **changed):
    """The sentence with which a report that was changed in one part is refused."""
    report = replace(whole_report(), **changed)
    with pytest.raises(ReportError, match="Client 'north'") as caught:
        check_report("north", report, Point(np.zeros(N_PARAMS), want), N_RATES)
    return str(caught.value)


ARRAYS = ("group_counts", "rates", "loss_grad", "rate_grads", "curvature")
NEEDED = {"values": ARRAYS[:2], "gradients": ARRAYS[:4], "curvature": ARRAYS}


@pytest.mark.parametrize("want", NEEDED)
def test_a_whole_report_is_accepted_and_needs_no_more_than_was_asked(want):
    missing = {part: None for part in ARRAYS if part not in NEEDED[want]}
    point = Point(np.zeros(N_PARAMS), want)
    for report in (whole_report(), replace(whole_report(), **missing)):
        check_report("north", report, point, N_RATES)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ARRAYS)
def test_a_non_finite_number_is_refused_in_every_part(part, bad):
    array = getattr(whole_report(), part).copy()
    array.flat[-1] = bad
    assert refuse(**{part: array}).endswith(f"sent a non-finite number in `{part}`.")


@pytest.mark.parametrize("part", ARRAYS)
def test_a_wrong_shape_is_refused_in_every_part(part):
    right = getattr(whole_report(), part)
    for wrong in (right[:-1], right[None], right.ravel()[:1], np.ones(())):
        sentence = refuse(**{part: wrong})
        assert f"`{part}` of shape {wrong.shape}, expected {right.shape}" in sentence


@pytest.mark.parametrize(("want", "part"), [(w, p) for w in NEEDED for p in NEEDED[w]])
def test_a_missing_part_is_refused_when_it_was_asked_for(want, part):
    assert f"sent no `{part}`, which was requested" in refuse(want, **{part: None})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_non_finite_loss_is_refused(bad):
    assert "non-finite loss" in refuse(loss=bad)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0, -3.0])
def test_a_row_count_must_be_positive(bad):
    assert f"row count of {bad!r}" in refuse(n_rows=bad)


def test_a_negative_group_count_is_refused():
    assert "negative group count" in refuse(group_counts=np.array([-1.0, 6.0]))


@pytest.mark.parametrize("rate", [1.7, -0.1, np.nextafter(1, 2)])
def test_a_rate_outside_its_range_is_refused(rate):
    assert f"a rate of {float(rate)!r}; rates lie between 0 and 1" in refuse(
        rates=np.array([0, rate])
    )


@pytest.mark.parametrize(
    ("sent", "told"), [(None, "nothing"), ({}, "a dict"), (0.5, "a float"), ((), "a tuple")]
)
def test_what_is_no_report_is_refused(sent, told):
    with pytest.raises(ReportError, match=rf"^Client 'north' sent {told} instead of a report\.$"):
        check_report("north", sent, Point(np.zeros(N_PARAMS)), N_RATES)


@pytest.mark.parametrize(
    ("loss", "told"),
    [(None, "nothing"), ("0.5", "a str"), (True, "a bool"), (1j, "a complex"), ([0.5], "a list")],
)
def test_a_loss_is_a_number(loss, told):
    assert refuse(loss=loss) == f"Client 'north' sent {told} as `loss`, expected a number."


@pytest.mark.parametrize("n_rows", [None, "10", True, 1j, 10**400])
def test_a_row_count_is_a_number(n_rows):
    assert refuse(n_rows=n_rows) == f"Client 'north' sent a row count of {n_rows!r}."


@pytest.mark.parametrize("number", [1, np.float32(1), np.int64(1), 1.0], ids=repr)
def test_numbers_of_any_kind_make_a_report(number):
    report = replace(whole_report(), loss=number, n_rows=10 * number)
    report = replace(report, group_counts=np.array([4, 6]), loss_grad=np.ones(N_PARAMS, np.float32))
    check_report("north", report, Point(np.zeros(N_PARAMS), "curvature"), N_RATES)


@pytest.mark.parametrize("dtype", [object, str, complex, bool, "datetime64[s]"], ids=str)
@pytest.mark.parametrize("part", ARRAYS)
def test_an_array_of_anything_but_real_numbers_is_refused(part, dtype):
    array = getattr(whole_report(), part).astype(np.int64).astype(dtype)
    sentence = refuse(**{part: array})
    assert sentence.endswith(f"sent `{part}` of type {array.dtype}, expected real numbers.")


@pytest.mark.parametrize("part", ARRAYS)
def test_a_list_is_no_array(part):
    array = getattr(whole_report(), part).tolist()
    assert refuse(**{part: array}).endswith(f"sent a list as `{part}`, expected an array.")


def test_a_group_has_no_more_rows_than_its_client():
    sentence = refuse(group_counts=np.array([4.0, 10.5]))
    assert sentence.endswith("sent a group count of 10.5, more than its 10.0 rows.")
    rounded = replace(whole_report(), group_counts=np.array([0.0, np.nextafter(10.0, 11.0)]))
    check_report("north", rounded, Point(np.zeros(N_PARAMS), "curvature"), N_RATES)


@pytest.mark.parametrize("part", ["loss_grad", "rate_grads", "curvature", "group_counts"])
def test_a_number_no_solver_could_use_is_refused_in_every_part(part):
    array = getattr(whole_report(), part) * 1e300
    assert f"magnitude 1e+300 in `{part}`" in refuse(**{part: array}).replace("6e+300", "1e+300")


@pytest.mark.parametrize("loss", [1e300, -1e300, 10**60])
def test_a_loss_no_solver_could_use_is_refused(loss):
    assert f"sent a loss of {loss!r}; it must lie between -1e+50 and 1e+50" in refuse(loss=loss)


def test_a_loss_of_rows_is_not_negative_but_one_of_a_formula_may_be():
    report, point = replace(whole_report(), loss=-5.0), Point(np.zeros(N_PARAMS), "curvature")
    check_report("north", report, point, N_RATES)
    with pytest.raises(ReportError, match=r"a loss of -5.0; it must lie between 0 and 1e\+50"):
        check_report("north", report, point, N_RATES, of_rows=True)


def test_a_curvature_is_symmetric_up_to_rounding():
    skew = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert "`curvature` that is not symmetric: it differs from its transpose by 0.002" in refuse(
        curvature=np.eye(3) + 1e-3 * skew
    )
    rounded = replace(whole_report(), curvature=1e6 * (np.eye(3) + 1e-12 * skew))
    check_report("north", rounded, Point(np.zeros(N_PARAMS), "curvature"), N_RATES)
