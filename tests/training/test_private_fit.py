"""Training by noisy sums, from clients to a result."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl import Difference, Federation, Linear, Ratio, train
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError
from fcfl.federation.session import Session
from fcfl.methods.private import Private, held_rows, unsure_budgets, violation_noise
from fcfl.policy import PrivacyBudget

SEX = {"sex": ("f", "m")}
RULE = Difference("demographic_parity", "sex", 0.05)
BUDGET = PrivacyBudget(2.0, 1e-6)


def rows(seed, n_rows, n_features=4):
    """Return rows of which men are selected more often, by features and by labels."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, n_rows)
    X = rng.standard_normal((n_rows, n_features))
    X[:, 0] += sex
    y = (X @ np.array([1.0, 0.7, -0.5, 0.2]) + rng.logistic(size=n_rows) > 0.8).astype(float)
    return ClientData(X, y, {"sex": sex}, SEX)


def private_federation(sizes=(6000, 4000), privacy=BUDGET, seed=0):
    parts = {f"c{i}": rows(10 * seed + i, size) for i, size in enumerate(sizes)}
    test = {f"c{i}": rows(100 + i, size // 2) for i, size in enumerate(sizes)}
    return Federation.from_rows(parts, test, privacy=privacy), parts, test


def disparity(params, data):
    selected = data.X @ params[:-1] + params[-1] >= 0
    return abs(selected[data.groups["sex"] == 0].mean() - selected[data.groups["sex"] == 1].mean())


@pytest.mark.parametrize("sizes", [(6000, 4000), (20_000, 15_000)])
def test_decisions_keep_the_budgets_at_the_requested_privacy_loss(sizes):
    federation, parts, test = private_federation(sizes)
    trained = train(federation, Linear(4), [RULE], method=Private(epsilon=2.0))
    assert trained.status == "converged" and trained.rounds == (8,)
    assert max(disparity(trained.params, data) for data in parts.values()) < 0.05
    right = [
        (data.X @ trained.params[:-1] + trained.params[-1] >= 0) == data.y for data in test.values()
    ]
    assert np.mean(np.concatenate(right)) > 0.6
    for client in federation._clients.values():
        assert client.spent.epsilon(1e-6) == pytest.approx(2.0, rel=1e-6)
    with pytest.raises(DataError, match=r"privacy budget of epsilon 2 .* would be exceeded"):
        train(federation, Linear(4), [RULE], method=Private(epsilon=0.1))


@pytest.mark.parametrize("given", [{"confidence": 0.9}, {"starts": 2}])
def test_options_without_effect_are_rejected(given):
    federation, _, _ = private_federation((200, 200))
    with pytest.raises(ValueError, match="method 'private'"):
        train(federation, Linear(4), [RULE], method=Private(epsilon=2.0), **given)


def test_result_has_noisy_counts_wider_intervals_and_the_privacy_loss():
    federation, _, test = private_federation()
    trained = train(federation, Linear(4), [RULE], method=Private(epsilon=2.0))
    result = trained.result(seed=0, start="zero", settings={}, data=None)
    assert result.privacy.clients["c0"].epsilon == 2.0
    assert result.privacy.neighbours == "add-remove" and result.privacy.not_covered
    assert result.worst_client.name is None
    entry = result.clients["c0"].test.disparities[0]
    assert result.clients["c0"].test.loss is None and entry.smooth is None
    assert entry.value == pytest.approx(disparity(trained.params, test["c0"]), abs=0.03)
    assert abs(result.clients["c0"].rows.test - 3000) < 100
    without = replace(trained.evaluations.terms, noise_sd={})
    plain = replace(trained.evaluations, terms=without).audits["train"].clients["c0"]
    (narrow,), (wide,) = (
        plain.disparities,
        trained.evaluations.audits["train"].clients["c0"].disparities,
    )
    assert wide.value == narrow.value and wide.high > narrow.high


def test_noisy_counts_reveal_a_model_that_selects_everybody_or_nobody():
    data = rows(0, 20_000)
    labels = (np.random.default_rng(0).random(20_000) < 0.9) * 1.0  # beyond the limits by the noise
    for y, whom in ((labels, ["everybody"]), (1 - labels, ["nobody"]), (data.y, [])):
        clients = Federation.from_rows({"a": replace(data, y=y)}, privacy=BUDGET)
        trained = train(clients, Linear(4), [RULE], method=Private(epsilon=2.0))
        said = [note for note in trained.notes if note.startswith("The model selects ")]
        assert len(said) == len(whom) and all(who in said[0] for who in whom)
        assert all("training rows at a" in note for note in said)


def test_a_client_that_is_too_small_is_named_with_the_rows_it_needs():
    federation, _, _ = private_federation((6000, 300), PrivacyBudget(0.5, 1e-6))
    trained = train(federation, Linear(4), [RULE], method=Private(epsilon=0.5))
    (note,) = (note for note in trained.notes if note.startswith("Client 'c1' has about "))
    assert "is not enforced" in note and "rows with the same groups would suffice" in note
    wanted = int(note.rpartition("About ")[2].split()[0])
    larger, _, _ = private_federation((6000, int(1.3 * wanted)), PrivacyBudget(0.5, 1e-6))
    again = train(larger, Linear(4), [RULE], method=Private(epsilon=0.5))
    assert held_rows(again.method, again.state).all()
    assert violation_noise(again.method, again.state)[2:].max() < 0.025


def test_a_client_is_named_if_its_chance_of_keeping_the_budget_is_below_nine_in_ten():
    federation, _, _ = private_federation((20_000, 550))
    trained = train(federation, Linear(4), [RULE], method=Private(epsilon=2.0))
    method, state = trained.method, trained.state
    assert held_rows(method, state).all() and len(state.violations) == 4

    def named(over, sd, other=-0.09):
        """What is said where c1's rows are over its budget by so much, one way and the other."""
        values, sds = np.array([-0.02, -0.08, over, other]), np.array([0.001, 0.001, sd, sd])
        return unsure_budgets(method, replace(state, violations=values, variances=sds**2))

    assert named(-0.0130, 0.01) == [] and named(0.001, 0.01) != []
    assert named(-0.0150, 0.01) == [] and named(-0.0150, 0.01, other=-0.0150) != []
    assert named(-0.09, 0.01, other=-0.0126) != []  # whichever comparison it is
    (note,) = named(-0.0126, 0.01)
    assert note.startswith("Client 'c1' has about ")
    assert "is enforced, but the probability that training rows satisfy it is 0.89" in note
    wanted = [int(named(0.0, sd)[0].rpartition("About ")[2].split()[0]) for sd in (0.02, 0.05)]
    assert 550 < wanted[0] < wanted[1]


@pytest.mark.parametrize(
    "rule", [replace(RULE, budget=0.0), Ratio("demographic_parity", "sex", 1.0)]
)
def test_a_budget_that_no_number_of_rows_keeps_is_noted(rule):
    federation, _, _ = private_federation((3000, 800))
    trained = train(federation, Linear(4), [rule], method=Private(epsilon=2.0))
    assert len(trained.notes) == 2
    assert all(
        "A larger budget is required; more rows are not sufficient." in note
        for note in trained.notes
    )


def exact_violations(trained, parts):
    """Return violations by the decisions on all rows, which the server never receives."""
    rates = []
    for data in parts.values():
        selected = data.X @ trained.params[:-1] + trained.params[-1] >= 0
        rates += [selected[data.groups["sex"] == code].mean() for code in (0, 1)]
    return trained.state.problem.constraints.violations(np.array(rates))


def test_errors_of_the_final_violations_match_their_variances():
    off = []
    for seed in range(6):
        federation, parts, _ = private_federation((6000, 1500), seed=seed)
        trained = train(federation, Linear(4), [RULE], method=Private(epsilon=2.0))
        known = trained.state.violations - exact_violations(trained, parts)
        off.append(known / np.sqrt(trained.state.variances))
    assert 0.2 < np.std(off) < 2.5 and np.abs(off).max() < 6


def test_the_final_counts_outweigh_the_prediction_of_a_long_step():
    """Two rounds: the last step is the first one under budgets; at epsilon 20 noise is small."""
    federation, parts, _ = private_federation((20_000, 8000), PrivacyBudget(20.0, 1e-6))
    trained = train(federation, Linear(4), [RULE], method=Private(epsilon=20.0, rounds=2))
    exact = exact_violations(trained, parts)
    assert trained.state.violations == pytest.approx(exact, abs=0.005)
    assert np.sqrt(trained.state.variances).max() < 0.01


def test_noise_of_a_difference_includes_that_of_counts():
    federation, _, _ = private_federation((6000,))
    trained = train(federation, Linear(4), [RULE], method=Private(epsilon=2.0))
    state = trained.state
    counts = Private(epsilon=2.0).releases(0)[0]
    sd = counts.noise_sd(state.problem.rates)
    assert state.count_sd == pytest.approx([sd, sd])
    known = violation_noise(trained.method, state)
    without = violation_noise(trained.method, replace(state, count_sd=np.zeros(2)))
    off = (trained.evaluations.reports["c0"].rates - 0.5) * sd / state.group_counts[0]
    assert known**2 - without**2 == pytest.approx(np.full(2, (off**2).sum()))


def test_a_resumed_run_requests_nothing_twice(tmp_path):
    federation, _, _ = private_federation((3000,))
    stopped = []

    def stop(info, share):
        stopped.append(info.round)
        if info.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(Exception, match="Stopped after round 3"):
        train(federation, Linear(4), [RULE], method=Private(epsilon=2.0),
              session=Session(tmp_path, on_round=stop))  # fmt: skip
    trained = train(federation, Linear(4), [RULE], method=Private(epsilon=2.0),
                    session=Session(tmp_path, resume=True))  # fmt: skip
    assert trained.rounds == (8,)
    (client,) = federation._clients.values()
    assert client.spent.epsilon(1e-6) == pytest.approx(2.0, rel=1e-6)


def test_clients_without_a_budget_and_other_settings_are_rejected_before_any_release():
    plain = Federation.from_rows({"a": rows(0, 50)})
    with pytest.raises(DataError, match="'a' has no privacy budget"):
        train(plain, Linear(4), [RULE], method=Private())
    federation, _, _ = private_federation((300,))
    with pytest.raises(DataError, match="`scope` must be 'client'"):
        train(federation, Linear(4), [replace(RULE, scope="global")], method=Private())
    with pytest.raises(ValueError, match="`relative_budget`"):
        train(federation, Linear(4), [replace(RULE, budget=None)], method=Private(),
              relative_budget=0.5)  # fmt: skip
    with pytest.raises(DataError, match="only noisy sums"):
        train(federation, Linear(4), [RULE])
    assert all(client.spent.mu == 0 for client in federation._clients.values())
