"""Thresholds of a client's groups: the scan against brute force, and their precision."""

from itertools import product

import numpy as np
import pytest

from fcfl.client.thresholds import RateWindow, best_thresholds

GROUPS = ("a", "b", "c")
LABEL = {"selection": None, "true_positive": 1, "false_positive": 0}
DIFFERENCE, RATIO = (1.0, 0.08), (0.8, 0.0)


def table(seed, n_rows=36, n_groups=2, decimals=1):
    """Scores with ties, labels that go with them, and groups that are scored differently."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_groups, n_rows)
    scores = np.round(rng.normal(0.8 * codes - 0.3, 1.0), decimals)
    labels = (scores + rng.logistic(size=n_rows) > 0.2).astype(np.float64)
    return scores, labels, {g: codes == i for i, g in enumerate(GROUPS[:n_groups])}


def windows(kinds, weight, bound, groups):
    return [RateWindow(kind, groups, weight, bound) for kind in kinds]


def rate(selected, labels, inside, kind):
    among = inside if LABEL[kind] is None else inside & (labels == LABEL[kind])
    return selected[among].mean() if among.any() else 0.0


def decide(scores, members, thresholds):
    cuts = np.zeros(scores.size)
    for group, inside in members.items():
        cuts[inside] = thresholds.get(group, 0.0)
    return scores >= cuts


def is_kept(selected, labels, members, asked):
    for window in asked:
        rates = [rate(selected, labels, members[g], window.kind) for g in window.groups]
        if window.weight * max(rates) - min(rates) > window.bound + 1e-9:
            return False
    return True


def correct(selected, labels):
    return int((selected == (labels == 1)).sum())


def by_brute_force(scores, labels, members, asked):
    """The most correct decisions within the windows over all thresholds of all groups."""
    every = [np.append(np.unique(scores[inside]), np.inf) for inside in members.values()]
    best = -1
    for cuts in product(*every):
        selected = decide(scores, members, dict(zip(members, cuts, strict=True)))
        if is_kept(selected, labels, members, asked):
            best = max(best, correct(selected, labels))
    return best


@pytest.mark.parametrize("rule", [DIFFERENCE, RATIO, (1.0, 0.0), (1.0, 0.3), (0.8, -0.03)])
@pytest.mark.parametrize(
    "kinds", [("selection",), ("true_positive",), ("true_positive", "false_positive")]
)
@pytest.mark.parametrize("seed", range(4))
def test_thresholds_are_the_best_by_brute_force(rule, kinds, seed):
    scores, labels, members = table(seed)
    asked = windows(kinds, *rule, ("a", "b"))
    chosen = best_thresholds(scores, labels, members, asked)
    selected = decide(scores, members, chosen)
    assert is_kept(selected, labels, members, asked)
    assert correct(selected, labels) == by_brute_force(scores, labels, members, asked)


@pytest.mark.parametrize("kinds", [("selection",), ("true_positive", "false_positive")])
def test_three_groups_and_two_rules_at_once_are_exact_too(kinds):
    scores, labels, members = table(5, n_rows=30, n_groups=3)
    both = [*windows(kinds, *DIFFERENCE, GROUPS), *windows(kinds, 0.7, 0.0, GROUPS)]
    chosen = best_thresholds(scores, labels, members, both)
    selected = decide(scores, members, chosen)
    assert is_kept(selected, labels, members, both)
    assert correct(selected, labels) == by_brute_force(scores, labels, members, both)


def test_windows_of_two_kinds_may_be_about_different_groups():
    """A group with too few rows of one label is compared by the other rate only."""
    scores, labels, members = table(6, n_rows=30, n_groups=3)
    asked = [
        RateWindow("true_positive", GROUPS, *DIFFERENCE),
        RateWindow("false_positive", ("a", "c"), *DIFFERENCE),
    ]
    selected = decide(scores, members, best_thresholds(scores, labels, members, asked))
    assert is_kept(selected, labels, members, asked)
    assert correct(selected, labels) == by_brute_force(scores, labels, members, asked)


def test_a_lower_bound_never_decides_more_rows_rightly():
    for seed in range(5):
        scores, labels, members = table(seed, n_rows=400, decimals=3)
        found = []
        for bound in (0.3, 0.1, 0.05, 0.02, 0.0):
            asked = windows(("selection",), 1.0, bound, ("a", "b"))
            chosen = best_thresholds(scores, labels, members, asked)
            found.append(correct(decide(scores, members, chosen), labels))
        assert found == sorted(found, reverse=True)


@pytest.mark.thorough
def test_two_kinds_of_rates_are_scanned_finely_enough_on_many_rows():
    """Thinned thresholds: within the windows, and nearly as good as each rate on its own allows."""
    scores, labels, members = table(0, n_rows=20_000, decimals=9)
    asked = windows(("true_positive", "false_positive"), 1.0, 0.05, ("a", "b"))
    selected = decide(scores, members, best_thresholds(scores, labels, members, asked))
    assert is_kept(selected, labels, members, asked)
    finer = [
        (t, s)
        for t, s in product(np.linspace(-1.5, 1.5, 61), repeat=2)
        if is_kept(decide(scores, members, {"a": t, "b": s}), labels, members, asked)
    ]
    best = max(correct(decide(scores, members, {"a": t, "b": s}), labels) for t, s in finer)
    assert correct(selected, labels) >= best


def test_a_score_that_keeps_the_windows_best_is_left_as_it_is():
    """Of equal choices the nearest to 0 is taken: the common threshold where nothing is gained."""
    scores = np.array([-2.0, -1.0, 1.0, 2.0, -2.0, -1.0, 1.0, 2.0])
    labels = (scores > 0).astype(np.float64)
    members = {"a": np.arange(8) < 4, "b": np.arange(8) >= 4}
    asked = windows(("selection",), *DIFFERENCE, ("a", "b"))
    assert best_thresholds(scores, labels, members, asked) == {"a": 0.0, "b": 0.0}


def test_rows_count_by_their_weight_when_decisions_are_compared():
    scores, labels = np.array([1.0, 2.0]), np.array([0.0, 1.0])
    members = {"a": np.array([True, True])}
    asked = [RateWindow("selection", ("a",), 1.0, 1.0)]
    plain = best_thresholds(scores, labels, members, asked)
    assert plain["a"] > 1.0
    scores = np.array([1.0, 1.0, 2.0])
    members = {"a": np.ones(3, dtype=bool)}
    labels = np.array([0.0, 1.0, 1.0])
    light = best_thresholds(scores, labels, members, asked, np.array([0.5, 2.0, 1.0]))
    heavy = best_thresholds(scores, labels, members, asked, np.array([2.0, 0.5, 1.0]))
    assert light["a"] <= 1.0 < heavy["a"]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_thresholds_are_rounded_to_a_thousandth_of_the_spread(scale):
    scores, labels, members = table(2, n_rows=5000, decimals=12)
    asked = windows(("selection",), *DIFFERENCE, ("a", "b"))
    chosen = best_thresholds(scale * scores, labels, members, asked)
    step = scale * 1e-3
    for threshold in chosen.values():
        assert threshold / step == pytest.approx(round(threshold / step), abs=1e-6)
    selected = decide(scale * scores, members, chosen)
    assert is_kept(selected, labels, members, asked)


@pytest.mark.parametrize("scores", [np.zeros(6), np.full(6, 1e9), np.full(6, -3.0)])
def test_equal_scores_select_all_or_nobody(scores):
    labels = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 0.0])
    members = {"a": np.arange(6) < 3, "b": np.arange(6) >= 3}
    for kinds in (("selection",), ("true_positive", "false_positive")):
        asked = windows(kinds, 1.0, 0.0, ("a", "b"))
        assert decide(scores, members, best_thresholds(scores, labels, members, asked)).all()
        assert not decide(
            scores, members, best_thresholds(scores, 1.0 - labels, members, asked)
        ).any()


def test_one_score_far_out_does_not_make_thresholds_coarse():
    scores, labels, members = table(3, n_rows=400, decimals=6)
    asked = windows(("selection",), 1.0, 0.02, ("a", "b"))
    expected = best_thresholds(scores, labels, members, asked)
    scores[scores.argmax()] = 1e9
    assert best_thresholds(scores, labels, members, asked) == pytest.approx(expected)


def test_without_windows_nothing_is_chosen_and_three_kinds_are_rejected():
    scores, labels, members = table(0)
    assert best_thresholds(scores, labels, members, []) == {}
    with pytest.raises(ValueError, match="at most 2 kinds"):
        best_thresholds(scores, labels, members, windows(LABEL, *DIFFERENCE, ("a", "b")))
