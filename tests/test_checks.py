import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl._checks import (
    check_budget,
    check_choice,
    check_clients_known,
    check_count,
    check_curvature_weights,
    check_fraction,
    check_non_negative,
    check_pair,
    check_params,
    check_positive,
    check_stage_rounds,
    did_you_mean,
)
from fcfl._report_checks import check_report
from fcfl._types import CurvatureWeights, Point, Report
from fcfl.errors import ReportError

numbers = st.floats(allow_nan=True, allow_infinity=True)


def accepted(check, value):
    """Whether the check returns the value; a refusal names the argument and the value."""
    try:
        result = check("size", value)
    except ValueError as error:
        assert str(error).startswith("`size` must ") and repr(value) in str(error)
        return False
    assert result == value and type(result) is float
    return True


@given(numbers)
def test_each_check_accepts_exactly_its_range(value):
    assert accepted(check_budget, value) == (0 <= value <= 1)
    assert accepted(check_positive, value) == (0 < value < math.inf)
    assert accepted(check_non_negative, value) == (0 <= value < math.inf)
    assert accepted(check_fraction, value) == (0 < value < 1)


@pytest.mark.parametrize("value", [True, False, "x", None, [0.1], 1j])
def test_a_budget_is_a_number(value):
    with pytest.raises(ValueError, match=r"`budget` must be a number from 0 to 1, got .*\."):
        check_budget("budget", value)


@pytest.mark.parametrize(
    "value", [True, np.True_, "1", None, [0.1], 1j, 10**400, np.zeros(1)], ids=repr
)
@pytest.mark.parametrize("check", [check_positive, check_non_negative, check_fraction])
def test_what_is_no_number_is_refused_by_name(check, value):
    with pytest.raises(ValueError, match=r"^`step_size` must .*, got .*\.$"):
        check("step_size", value)


@pytest.mark.parametrize(
    "number",
    [np.int64(1), np.uint8(1), np.float32(0.5), np.float64(0.5), np.float16(0.5)],
    ids=repr,
)
def test_numbers_of_numpy_are_numbers(number):
    for check in (check_budget, check_positive, check_non_negative):
        assert accepted(check, number)
    assert check_budget("budget", np.int64(0)) == 0.0
    with pytest.raises(ValueError, match="`budget` must be a number from 0 to 1"):
        check_budget("budget", np.float32("nan"))


@pytest.mark.parametrize("value", [0, 7, np.int64(3), 10**400], ids=repr)
def test_a_count_is_a_whole_number(value):
    assert check_count("max_age", value) == value


@pytest.mark.parametrize("value", [-1, 1.0, 0.5, True, "3", None, np.float64(3), np.nan], ids=repr)
def test_what_is_no_count_is_refused(value):
    with pytest.raises(
        ValueError, match=r"^`max_age` must be a whole number, 0 or more, got .*\.$"
    ):
        check_count("max_age", value)
    with pytest.raises(ValueError, match=r"^`rounds` must be two counts, one a stage, got \("):
        check_stage_rounds("rounds", (value, 3))


NO_PAIRS = [5, None, "12", (1,), (1, 2, 3), ("a", "b"), (1, None), {1, 2}, np.ones((2, 2))]


@pytest.mark.parametrize("value", NO_PAIRS, ids=repr)
def test_a_pair_has_two_numbers(value):
    check_pair("temperatures", [0.1, np.float32(0.2)])
    check_stage_rounds("rounds", [np.int64(0), 3])
    with pytest.raises(ValueError, match=r"^`temperatures` must be a pair of numbers, got"):
        check_pair("temperatures", value)
    with pytest.raises(ValueError, match=r"^`rounds` must be two counts, one a stage, got"):
        check_stage_rounds("rounds", value)


@pytest.mark.parametrize(
    "params", [[1, 2], (0.5,), [], np.arange(3), np.ones(2, dtype=np.float32)], ids=repr
)
def test_parameters_become_a_vector(params):
    vector = check_params(params)
    assert vector.dtype == np.float64 and vector.tolist() == list(params)


NO_VECTORS = ["abc", None, 3.0, [[1.0, 2.0]], [[1], [2, 3]], ["1", "2"], [1j], [None], [True]]


@pytest.mark.parametrize("params", [*NO_VECTORS, np.zeros((2, 2)), np.zeros(())], ids=repr)
def test_parameters_that_are_no_vector_are_refused(params):
    with pytest.raises(ValueError, match=r"^`params` must be a vector of numbers, got .*\.$"):
        check_params(params)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_parameters_are_finite(bad):
    with pytest.raises(ValueError, match=rf"^`params` must be finite, got {bad} in it\.$"):
        check_params([0.0, bad, 1.0])


def test_curvature_needs_the_weights_of_the_client():
    weights = CurvatureWeights(1.0, np.zeros(2))
    point = Point(np.zeros(3), "curvature", {"south": weights})
    assert check_curvature_weights("south", point) is weights
    sentence = r"^`curvature_weights` must name client 'north' when a point wants curvature, got "
    with pytest.raises(ValueError, match=sentence + r"'south'\.$"):
        check_curvature_weights("north", point)
    with pytest.raises(ValueError, match=sentence + r"none\.$"):
        check_curvature_weights("north", Point(np.zeros(3), "curvature"))


def test_a_choice_lists_its_options():
    assert check_choice("scope", "global", ("client", "global")) == "global"
    with pytest.raises(ValueError, match=r"`scope` must be one of client, global, got 'site'\."):
        check_choice("scope", "site", ("client", "global"))


def test_a_misspelt_name_is_met_with_the_nearest_or_with_all():
    assert did_you_mean("non-pdh", ["phd", "non-phd"]) == "Did you mean 'non-phd'?"
    assert did_you_mean("zebra", ["phd", "md"]) == "Known: 'phd', 'md'."
    assert did_you_mean("zebra", [str(k) for k in range(99)]).endswith("'11', ….")


def test_an_unknown_client_is_named():
    check_clients_known("budget", {"phd": 0.1}, ["phd", "md"])
    with pytest.raises(ValueError, match=r"`budget` names client 'pdh', .* Did you mean 'phd'\?"):
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
    assert f"sent no `{part}`, which was asked for" in refuse(want, **{part: None})


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
    assert refuse(loss=loss) == f"Client 'north' sent a loss that is {told}, no number."


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
    assert "`curvature` that is not symmetric: entries differ by 0.002" in refuse(
        curvature=np.eye(3) + 1e-3 * skew
    )
    rounded = replace(whole_report(), curvature=1e6 * (np.eye(3) + 1e-12 * skew))
    check_report("north", rounded, Point(np.zeros(N_PARAMS), "curvature"), N_RATES)
