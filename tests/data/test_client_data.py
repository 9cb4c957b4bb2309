import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fcfl._types import client_seed
from fcfl.data.client_data import ClientData, stratified_split
from fcfl.errors import DataError


def make(**changes):
    parts = {
        "X": np.arange(8.0).reshape(4, 2),
        "y": [0, 1, 1, 0],
        "groups": {"sex": [0, 1, -1, 1]},
        "levels": {"sex": ("f", "m")},
    }
    return ClientData(**{**parts, **changes})


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_rows_are_coerced_once(container):
    data = make(X=container(np.eye(4, 2)))
    assert (data.n_rows, data.n_features) == (4, 2)
    assert data.X.dtype == np.float64 and data.y.dtype == np.float64
    assert data.groups["sex"].dtype == np.int32
    assert isinstance(data.X, (np.ndarray, sparse.csr_array))


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_take_selects_rows_everywhere(container):
    data = make(X=container(np.arange(8.0).reshape(4, 2))).take([3, 0])
    X = data.X.toarray() if sparse.issparse(data.X) else data.X
    assert X.tolist() == [[6, 7], [0, 1]]
    assert data.y.tolist() == [0, 0]
    assert data.groups["sex"].tolist() == [1, 0]
    assert data.weights is None
    assert make(weights=[1, 2, 3, 4]).take([3, 0]).weights.tolist() == [4, 1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"X": np.zeros(4)}, "`X` must have two dimensions, got 1"),
        ({"X": np.full((4, 2), np.nan)}, "`X` must hold finite numbers"),
        ({"X": sparse.csr_array(np.full((4, 2), np.inf))}, "`X` must hold finite numbers"),
        ({"y": [0, 1]}, "`y` must have one value for each of the 4 rows of `X`, got shape"),
        ({"y": [0, 1, 2, 0]}, "`y` must hold 0 and 1, got 2"),
        ({"y": [0, 1, np.nan, 0]}, "`y` must hold 0 and 1, got nan"),
        ({"y": ["no", "yes", "no", "yes"]}, "`y` must hold numbers"),
        ({"groups": {"sex": [0, 1]}}, r"`groups\['sex'\]` must have one value"),
        ({"groups": {"sex": [0, 1, 2, 0]}}, "codes from -1 to 1, got 2"),
        ({"groups": {"sex": [0, 1, -2, 0]}}, "codes from -1 to 1, got -2"),
        ({"weights": [1, 2]}, "`weights` must have one value for each of the 4 rows"),
        ({"weights": [1, 2, -1, 0]}, "`weights` must be zero or positive numbers, got -1"),
        ({"weights": [1, 2, np.nan, 0]}, "`weights` must be zero or positive numbers, got nan"),
        ({"weights": [0, 0, 0, 0]}, "`weights` must not all be zero"),
        ({"groups": {"race": [0, 0, 0, 0]}}, "`groups` and `levels` must name the same"),
    ],
)
def test_bad_parts_are_named(changes, sentence):
    with pytest.raises(DataError, match=sentence):
        make(**changes)


strata_lists = st.lists(st.integers(0, 6), min_size=1, max_size=80)
shares = st.floats(0, 0.99)


@given(strata_lists, shares, st.integers(0, 100))
def test_split_is_a_partition(strata, test_size, seed):
    train, test = stratified_split(strata, test_size, seed)
    assert sorted([*train, *test]) == list(range(len(strata)))
    assert (np.diff(train) > 0).all() and (np.diff(test) > 0).all()


@given(strata_lists, shares, st.integers(0, 100))
def test_every_stratum_gets_its_share_up_to_rounding(strata, test_size, seed):
    strata = np.array(strata)
    train, test = stratified_split(strata, test_size, seed)
    for value in np.unique(strata):
        size = (strata == value).sum()
        held_out = (strata[test] == value).sum()
        assert abs(held_out - size * test_size) < 1 + 1e-6
        assert (strata[train] == value).any()


@given(st.lists(st.integers(10, 30), min_size=1, max_size=5), st.floats(0, 0.9))
def test_total_is_right_when_no_stratum_is_tiny(sizes, test_size):
    strata = np.repeat(np.arange(len(sizes)), sizes)
    _, test = stratified_split(strata, test_size, 0)
    assert abs(test.size - strata.size * test_size) <= 0.5 + 1e-6


def test_split_is_deterministic_and_depends_on_seed():
    strata = np.arange(100) % 3
    first, again, other = (stratified_split(strata, 0.3, seed)[1] for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


def test_single_rows_stay_in_training():
    assert stratified_split([5], 0.9, 0)[1].size == 0
    assert stratified_split([1, 2, 3, 4], 0.5, 0)[1].size == 0
    assert stratified_split([0] * 10, 0, 0)[1].size == 0


def test_odd_rows_are_taken_from_the_strata_with_the_largest_remainders():
    strata = np.repeat([0, 1, 2], [11, 12, 19])  # shares of 3.3, 3.6 and 5.7 rows, 13 in all
    _, test = stratified_split(strata, 0.3, 0)
    assert np.bincount(strata[test]).tolist() == [3, 4, 6]


def test_odd_rows_are_not_always_taken_from_the_first_stratum():
    """Ties are broken at random, so that small clients do not all test the same label."""
    strata = [0, 0, 1, 1]
    tested = {stratified_split(strata, 0.25, seed)[1][0] // 2 for seed in range(20)}
    assert tested == {0, 1}


@pytest.mark.parametrize("test_size", [-0.1, 1, 1.5, float("nan")])
def test_bad_share_is_rejected(test_size):
    with pytest.raises(ValueError, match="`test_size` must be at least 0 and below 1"):
        stratified_split([0, 1], test_size, 0)


def test_client_seed_is_stable_between_runs():
    state = client_seed(3, "Zürich <script>").generate_state(1)[0]
    assert state == client_seed(3, "Zürich <script>").generate_state(1)[0]
    assert state != client_seed(3, "zürich").generate_state(1)[0]
    assert client_seed(0, "a").entropy == [0, 3904355907]
