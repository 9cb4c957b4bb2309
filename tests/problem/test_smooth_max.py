import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl.problem import smooth_max
from helpers import assert_derivative

SCALES = [1e-8, 1e-4, 1.0, 1e4, 1e8]
values = st.lists(st.floats(-10, 10), min_size=1, max_size=12)
temperatures = st.floats(1e-4, 10)


def rounding(v, temperature):
    """What a few operations of float64 may cost at this size."""
    return 1e-14 * (np.abs(v).max() + temperature * np.log(len(v) + 1))


def assert_bounds_the_maximum(v, temperature):
    """max v <= m <= max v + δ log n."""
    m, _ = smooth_max(v, temperature)
    slack = rounding(v, temperature)
    assert max(v) <= m <= max(v) + temperature * np.log(len(v)) + slack


def assert_on_the_simplex(weights):
    """Non-negative and summing to one."""
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-14)


@given(values, temperatures)
def test_it_bounds_the_maximum_and_its_gradient_is_on_the_simplex(v, temperature):
    assert_bounds_the_maximum(v, temperature)
    assert_on_the_simplex(smooth_max(v, temperature)[1])


@given(values, temperatures, temperatures)
def test_it_rises_with_the_temperature(v, one, other):
    """Lemma 1 (S.3b): cooling never raises the smooth maximum."""
    cool, hot = sorted([one, other])
    assert smooth_max(v, cool)[0] <= smooth_max(v, hot)[0] + rounding(v, hot)


@given(values, temperatures, st.floats(-5, 5))
def test_adding_a_number_to_all_adds_it_to_the_maximum(v, temperature, shift):
    m, weights = smooth_max(v, temperature)
    moved, moved_weights = smooth_max(np.array(v) + shift, temperature)
    assert moved == pytest.approx(m + shift, abs=1e-12)
    np.testing.assert_allclose(moved_weights, weights, atol=1e-9)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("n", [1, 2, 30])
def test_values_and_temperature_scale_together(n, scale):
    v = np.random.default_rng(n).standard_normal(n)
    m, weights = smooth_max(v, 0.3)
    scaled, scaled_weights = smooth_max(scale * v, scale * 0.3)
    assert scaled == pytest.approx(scale * m, rel=1e-12)
    np.testing.assert_allclose(scaled_weights, weights, rtol=1e-12)


@pytest.mark.parametrize("temperature", SCALES)
@pytest.mark.parametrize("scale", SCALES)
def test_large_values_and_small_temperatures_do_not_overflow(scale, temperature):
    v = scale * np.linspace(-1, 1, 7)
    assert_bounds_the_maximum(v, temperature)
    assert_on_the_simplex(smooth_max(v, temperature)[1])


@pytest.mark.parametrize("temperature", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("n", [1, 2, 9])
def test_the_weights_are_its_gradient(n, temperature):
    v = np.random.default_rng(n).standard_normal(n)
    step = 1e-2 * temperature
    assert_derivative(
        smooth_max(v, temperature)[1], lambda x: smooth_max(x, temperature)[0], v, step=step
    )


@pytest.mark.parametrize("temperature", SCALES)
def test_the_maximum_of_one_value_is_that_value(temperature):
    for value in (-3.7, 0.0, 1e300):
        m, weights = smooth_max([value], temperature)
        assert m == value and weights.tolist() == [1.0]


def test_the_maximum_of_nothing_is_minus_infinity():
    m, weights = smooth_max([], 0.5)
    assert m == -np.inf and weights.shape == (0,)


def test_equal_values_share_alike():
    m, weights = smooth_max([0.2] * 4, 0.5)
    assert m == pytest.approx(0.2 + 0.5 * np.log(4))
    assert weights.tolist() == [0.25] * 4


def test_at_a_low_temperature_it_is_the_maximum():
    m, weights = smooth_max([0.1, 0.3, 0.2], 1e-4)
    assert m == 0.3
    np.testing.assert_allclose(weights, [0, 1, 0], atol=1e-15)
