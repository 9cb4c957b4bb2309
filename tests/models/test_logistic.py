import numpy as np
from scipy.special import expit

from fcfl.models.loss import sigmoid, softplus

LOGITS = np.concatenate([np.linspace(-750, 750, 4001), np.linspace(-3, 3, 1001), [0.0, -0.0]])


def test_the_sigmoid_is_scipys_to_the_last_places():
    np.testing.assert_allclose(sigmoid(LOGITS), expit(LOGITS), rtol=1e-15, atol=1e-307)


def test_the_sigmoid_is_defined_at_infinity_and_keeps_nan():
    np.testing.assert_array_equal(sigmoid(np.array([-np.inf, np.inf, -1e300])), [0.0, 1.0, 0.0])
    assert np.isnan(sigmoid(np.array([np.nan])))


def test_the_softplus_is_numpys_logaddexp():
    np.testing.assert_allclose(softplus(LOGITS), np.logaddexp(0.0, LOGITS), rtol=1e-14, atol=3e-16)
