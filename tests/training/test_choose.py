"""Choosing the L2 weight and the objective: the rule under known truth, and a whole choice."""

import numpy as np
import pytest
from binding import PARITY, binding, trained_on

from fcfl import SQP
from fcfl.training.choose import L2_GRID, OBJECTIVES, HeldOut, decide
from helpers import identical

MEAN, NEAR_MAX = OBJECTIVES
TWO = [(0.01, MEAN), (0.01, NEAR_MAX)]


def summed(losses):
    """What a client sends of these losses, a column for each candidate."""
    return HeldOut(float(len(losses)), losses.sum(axis=0), losses.T @ losses)


def noisy(means, sd, n_rows=100, seed=0):
    """Losses with exactly these means."""
    noise = np.random.default_rng(seed).standard_normal((n_rows, len(means)))
    return summed(np.array(means) + sd * (noise - noise.mean(axis=0)))


def test_sums_give_means_and_variances_of_means():
    losses = np.random.default_rng(1).gamma(2.0, 0.3, (40, 3))
    sums = summed(losses)
    assert sums.means == pytest.approx(losses.mean(axis=0))
    for i in range(3):
        assert sums.variance(i) == pytest.approx(losses[:, i].var() / 39)
        for j in range(3):
            expected = (losses[:, i] - losses[:, j]).var() / 39
            assert sums.variance(i, j) == pytest.approx(expected, abs=1e-12)


def test_the_l2_weight_is_the_largest_within_a_standard_error_of_the_lowest_mean_of_all_rows():
    """Neither a small client nor another objective decides on it."""
    candidates = [(0.1, MEAN), (0.03, MEAN), (0.01, MEAN), (0.01, NEAR_MAX)]
    error = np.sqrt(2) * 0.05 / np.sqrt(1000)  # of a difference over all rows
    for above, expected in ((0.5, 0.1), (2.0, 0.03)):
        means = [0.3 + above * error, 0.3 + 0.5 * error, 0.3, 0.1]
        found = {
            "large": noisy(means, 0.05, 900, seed=1),
            "small": noisy([0.3, 0.3, 0.3, 0.3], 0.05, 100, seed=2),
        }
        chosen = decide(candidates[:3], {k: summed_of(v, 3) for k, v in found.items()})
        assert chosen.l2 == expected and chosen.objective == "mean"
        overall = 0.9 * np.array(means[:3]) + 0.1 * 0.3
        assert [line.mean_loss for line in chosen.table] == pytest.approx(overall)


def summed_of(sums, n):
    """The sums of the first candidates."""
    return HeldOut(sums.n_rows, sums.sums[:n], sums.products[:n, :n])


def test_an_objective_must_lower_the_worst_clients_loss_by_a_paired_standard_error():
    """The noise of the difference on the same rows counts, not that of either mean."""
    rng = np.random.default_rng(0)
    common, noise = rng.gamma(2.0, 0.5, 40_000), rng.standard_normal(40_000)
    noise = (noise - noise.mean()) / noise.std()
    error = 0.2 / np.sqrt(40_000)
    for drop, expected in ((0.95, "mean"), (1.05, NEAR_MAX), (-3.0, "mean")):
        other = common + 0.2 * noise - drop * error
        found = {
            "a": summed(np.column_stack([common, other])),
            "b": noisy([0.1, 0.1], 0.01, 40_000),
        }
        assert decide(TWO, found).objective == expected


def test_what_another_client_then_loses_counts():
    found = {"a": noisy([0.50, 0.30], 0.01), "b": noisy([0.30, 0.55], 0.01)}
    assert decide(TWO, found).objective == "mean"
    found["b"] = noisy([0.30, 0.45], 0.01)
    assert decide(TWO, found).objective == NEAR_MAX


def chosen_share(draw, runs=150):
    rng = np.random.default_rng(0)
    return np.mean([decide(TWO, draw(rng)).objective == NEAR_MAX for _ in range(runs)])


def some(rng, means, n_rows, sd=0.5):
    """Losses whose differences between candidates are noisy, too."""
    losses = np.array(means) + sd * rng.standard_normal((n_rows, 1))
    return summed(losses + 0.4 * sd * rng.standard_normal((n_rows, 2)))


def test_one_tiny_client_never_decides():
    """All of one law; the one of nine rows is served worst by chance in many of the runs."""

    def draw(rng):
        large = {f"c{k}": some(rng, [0.50, 0.51], 2000) for k in range(6)}
        return large | {"tiny": some(rng, [0.50, 0.50], 9)}

    assert chosen_share(draw) <= 0.02


def test_a_large_client_of_another_law_is_found():
    def draw(rng):
        large = {f"c{k}": some(rng, [0.45, 0.47], 1500) for k in range(5)}
        return large | {"other": some(rng, [0.75, 0.66], 1500)}

    assert chosen_share(draw) >= 0.98


def test_a_client_alone_counts_as_it_is():
    assert decide(TWO, {"a": noisy([0.5, 0.4], 0.01)}).objective == NEAR_MAX


# --- a whole choice -------------------------------------------------------------------------------


def test_all_candidates_are_compared_and_the_choice_is_trained():
    clients = binding(1)
    trained = trained_on(clients, l2="auto", objective="auto")
    selection = trained.selection
    tried = {(line.l2, line.objective) for line in selection.table}
    assert tried == {(l2, name) for l2 in L2_GRID for name in ("mean", NEAR_MAX)}
    assert (trained.l2, trained.objective) == (
        selection.l2,
        np.inf if selection.objective == "mean" else selection.objective,
    )
    assert trained.exchanges["choose"] <= 12 + 2  # rounds, curvature and sums, for all together
    at = {(line.l2, line.objective): line for line in selection.table}
    assert selection.chosen == at[selection.l2, selection.objective]
    assert trained.status == "converged"


def test_what_is_given_is_not_tried():
    only = trained_on(binding(1), l2="auto", objective=0.5).selection
    assert [line.l2 for line in only.table] == [*L2_GRID]
    assert {line.objective for line in only.table} == {0.5}
    other = trained_on(binding(1), l2=0.02, objective="auto").selection
    assert [(line.l2, line.objective) for line in other.table] == [(0.02, "mean"), (0.02, 0.1)]
    alone = trained_on(binding(1, sizes=(900,)), l2=0.02, objective="auto").selection
    assert alone.l2 == 0.02 and alone.objective == "mean" and not alone.table


def test_the_losses_of_a_choice_are_near_those_of_new_rows():
    """Leave-one-out losses stand for new rows, which training losses do not."""
    trained = trained_on(binding(3, sizes=(150, 200, 250)), l2="auto", objective="auto")
    line = trained.selection.chosen
    rows = sum(c.n_rows for c in trained.counts.values())
    training = sum(trained.losses[n] * c.n_rows for n, c in trained.counts.items()) / rows
    assert training < line.mean_loss < training + 0.05


def test_without_exact_curvature_a_middle_value_is_taken_and_said():
    trained = trained_on(binding(1), l2="auto", method=SQP(objective=1.0, curvature="lbfgs"))
    assert trained.l2 == 0.01 and trained.selection.table == ()
    assert "curvature" in trained.selection.sentence
    given = trained_on(binding(1), l2="auto", method=SQP(curvature="lbfgs"), objective="max")
    assert given.objective == given.selection.objective == "max"


@pytest.mark.parametrize("objective", ["max", "mean", 0.1])
def test_an_objective_that_is_given_is_the_one_that_is_trained(objective):
    one, other = (trained_on(binding(1), objective=objective) for _ in range(2))
    assert one.method.objective == one.objective == objective
    assert identical(one.params, other.params)
    plain = one.turns[1].progress.state
    assert (plain.rounds[1] > 0) == (objective == "max")  # only the maximum has two stages


def test_a_choice_is_the_same_twice():
    one, two = (trained_on(binding(1), l2="auto", objective="auto") for _ in range(2))
    assert one.selection == two.selection and identical(one.params, two.params)
    assert one.rules == (PARITY,)


def test_of_clients_alike_none_is_named_as_served_worst():
    found = {f"c{k}": noisy([0.5, 0.6], 0.5, seed=k) for k in range(3)}
    candidates = [(0.01, MEAN), (0.1, MEAN)]
    assert "'c0'" not in decide(candidates, found).sentence
    found["c0"] = noisy([0.9, 0.9], 0.1)
    assert "'c0'" in decide(candidates, found).sentence


def test_what_was_given_is_not_said_to_be_a_middle_value():
    """One client has one objective, so that nothing is compared."""
    trained = trained_on(binding(1, sizes=(300,)), l2=0.1, objective="auto")
    assert trained.l2 == 0.1 and trained.selection.objective == "mean"
    assert "middle value" not in trained.selection.sentence
