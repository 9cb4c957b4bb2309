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
    check_fraction,
    check_non_negative,
    check_positive,
    check_report,
    did_you_mean,
)
from fcfl._types import Point, Report
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
        group_rows=np.array([4.0, 6.0]),
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


ARRAYS = ("group_rows", "rates", "loss_grad", "rate_grads", "curvature")
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
    assert "negative group count" in refuse(group_rows=np.array([-1.0, 6.0]))


@pytest.mark.parametrize("rate", [1.7, -0.1, np.nextafter(1, 2)])
def test_a_rate_outside_its_range_is_refused(rate):
    assert f"a rate of {float(rate)!r}; rates lie between 0 and 1" in refuse(
        rates=np.array([0, rate])
    )
