"""One score and thresholds by group: budgets kept by decisions, margins, refusals, smooth rates."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from fcfl import Difference, Linear, LocalClient, Ratio, train
from fcfl.client.counts import count_rows
from fcfl.errors import FCFLError, ReportError
from fcfl.federation.federation import Federation
from fcfl.models.model import GroupThresholds
from helpers import TWO_ATTRIBUTES, simulated_clients

PARITY = Difference("demographic_parity", "race", 0.05)


def leaning(n_rows=300, **options):
    """Clients whose first feature tells the group, so that budgets bind; held-out rows too."""
    parts = {}
    for seed in (0, 100):
        for name, data in simulated_clients(seed, n_rows=n_rows, **options).items():
            X = data.X + 0.1 * np.random.default_rng(seed).standard_normal(data.X.shape)
            X[:, 0] += data.groups["race"]
            parts.setdefault(name, []).append(replace(data, X=X))
    return Federation({name: LocalClient(name, *both) for name, both in parts.items()})


def trained_on(clients, *rules, **options):
    given = {"l2": 0.01, "objective": 1.0, "confidence": 0.0, "thresholds": "group", **options}
    return train(clients, Linear(4), rules, **given)


def rates_of(counts):
    return counts.group_selected / np.maximum(counts.group_counts, 1)


def differences(trained):
    """Of hard rates on training rows, by client and kind."""
    kinds = [rate.kind for rate in trained.rates]
    return {
        client: [
            np.ptp(rates_of(counts)[[k == kind for k in kinds]]) for kind in dict.fromkeys(kinds)
        ]
        for client, counts in trained.counts.items()
    }


def accuracy(trained):
    right = sum(c.true_negative + c.true_positive for c in trained.counts.values())
    return right / sum(c.n_rows for c in trained.counts.values())


@pytest.mark.parametrize(
    "rule",
    [
        PARITY,
        replace(PARITY, metric="equal_opportunity"),
        replace(PARITY, metric="equalized_odds"),
        replace(PARITY, budget={"client-0": 0.02, "client-2": 0.1}),
    ],
)
@pytest.mark.parametrize("confidence", [0.0, 0.9])
def test_decisions_on_training_rows_keep_the_budgets_exactly(rule, confidence):
    trained = trained_on(leaning(), rule, confidence=confidence)
    assert trained.budgets_met and not trained.exceeded
    for client, found in differences(trained).items():
        budget = rule.budget_of(client)
        assert budget is None or max(found) <= budget + 1e-9
    free = trained_on(leaning(), replace(rule, budget=None), thresholds="common")
    np.testing.assert_allclose(trained.params, free.params)  # the score knows no budgets
    assert max(max(found) for found in differences(free).values()) > 0.1


def test_a_ratio_and_a_difference_are_kept_together():
    ratio = Ratio("demographic_parity", "race", 0.9)
    trained = trained_on(leaning(), PARITY, ratio)
    for counts in trained.counts.values():
        found = rates_of(counts)
        assert np.ptp(found) <= 0.05 + 1e-9 and found.min() / found.max() >= 0.9 - 1e-9
    assert trained.budgets_met


def test_thresholds_decide_more_rows_rightly_than_a_score_with_budgets():
    clients = leaning()
    by_group = trained_on(clients, PARITY)
    assert accuracy(by_group) > accuracy(trained_on(clients, PARITY, thresholds="common"))


def test_margins_tighten_the_windows_and_never_widen_with_confidence():
    clients, limits = leaning(3000), {"max_rate_shift": 1.0, "max_accuracy_loss": 1.0}
    found = [
        max(d[0] for d in differences(trained_on(clients, PARITY, confidence=c, **limits)).values())
        for c in (0.0, 0.6, 0.8, 0.9, 0.99)
    ]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.7 * found[0]
    trained = trained_on(clients, PARITY, confidence=0.9, **limits)
    plain = trained_on(clients, PARITY)
    for client, counts in trained.counts.items():
        base = plain.counts[client]
        p = base.group_selected.sum() / base.group_counts.sum()
        s = np.sqrt(p * (1 - p) * (1 / base.group_counts).sum())
        assert 2 * s < 0.05  # so that the other tail is far away, and the margin the quantile
        assert np.ptp(rates_of(counts)) <= 0.05 - NormalDist().inv_cdf(0.9) * s + 1e-3


def test_a_client_that_selects_far_more_or_less_for_a_margin_keeps_its_thresholds():
    clients = leaning(60)
    plain = trained_on(clients, PARITY)
    for most in (0.0, 0.01, 0.05):
        careful = trained_on(clients, PARITY, confidence=0.99, max_rate_shift=most)
        for client, counts in careful.counts.items():
            before = plain.counts[client]
            together = counts.group_selected.sum() / counts.group_counts.sum()
            shift = abs(together - before.group_selected.sum() / before.group_counts.sum())
            assert shift <= most + 1e-9 or shift == 0 or n_can_tell(before) is False
        assert careful.budgets_met


def n_can_tell(counts):
    """Whether parity stays within the budget by a client's rows, in nine of ten samples."""
    p = counts.group_selected.sum() / counts.group_counts.sum()
    s = np.sqrt(p * (1 - p) * (1 / counts.group_counts).sum())
    return 2 * NormalDist().cdf(0.05 / s) - 1 >= 0.9


def test_margins_that_cost_too_much_accuracy_are_made_smaller_and_said():
    clients = leaning(1500)
    options = {"max_rate_shift": 1.0}
    plain = trained_on(clients, PARITY)
    whole = trained_on(clients, PARITY, confidence=0.99, max_accuracy_loss=1.0, **options)
    lost = accuracy(plain) - accuracy(whole)
    assert lost > 0 and not any("Margins" in note for note in whole.notes)
    part = trained_on(clients, PARITY, confidence=0.99, max_accuracy_loss=lost / 2, **options)
    assert accuracy(plain) - lost / 2 <= accuracy(part) + 1e-9
    assert any("instead of 0.99" in note for note in part.notes)


def test_small_groups_keep_the_common_threshold_and_are_named():
    clients = leaning(300, levels=TWO_ATTRIBUTES)
    for client in clients._clients.values():
        codes = client.train.groups["race"]
        codes[np.flatnonzero(codes == 2)[5:]] = -1
    trained = trained_on(clients, PARITY)
    for own in trained.thresholds.by_client.values():
        assert set(own) == {"black", "white"}
    assert any("5 rows of race = 'other'" in note for note in trained.notes)
    assert trained.budgets_met
    every = trained_on(clients, PARITY, min_group_rows=1)
    assert set(every.thresholds.by_client["client-0"]) == {"black", "white", "other"}


def test_counting_by_hand_finds_the_same_decisions_and_losses_know_no_threshold():
    clients = leaning()
    trained = trained_on(clients, PARITY)
    common = trained_on(clients, replace(PARITY, budget=None), thresholds="common")
    for name, client in clients._clients.items():
        for part, told in (("train", trained.counts), ("test", trained.evaluations.test)):
            data = getattr(client, part)
            logits = Linear(4).logits(trained.params, data.X)
            own = trained.thresholds.by_client[name]
            cuts = np.array([own["black"], own["white"], 0.0])[data.groups["race"]]
            selected = logits >= cuts
            assert told[name].true_positive == (selected & (data.y == 1)).sum()
            by_hand = [selected[data.groups["race"] == code].sum() for code in (0, 1)]
            np.testing.assert_array_equal(told[name].group_selected, by_hand)
            plain = count_rows(logits, data, trained.rates, 0.0)
            assert told[name].loss_sum == plain.loss_sum
        smooth = 1 / (1 + np.exp(-10 * (Linear(4).logits(trained.params, client.train.X) - np.array(
            [own["black"], own["white"], 0.0])[client.train.groups["race"]])))  # fmt: skip
        expected = [smooth[client.train.groups["race"] == code].mean() for code in (0, 1)]
        np.testing.assert_allclose(trained.evaluations.reports[name].rates, expected)
    assert trained.losses == pytest.approx(common.losses)


def test_settings_are_chosen_for_the_score_that_is_trained():
    """Without budgets, as the score is: the same choice as where nothing is bounded."""
    clients = leaning(80)
    options = {"l2": "auto", "objective": "auto", "confidence": 0.0}
    chosen = train(clients, Linear(4), [PARITY], thresholds="group", **options)
    free = train(clients, Linear(4), [replace(PARITY, budget=None)], **options)
    assert chosen.selection == free.selection


def test_relative_budgets_are_kept_too():
    trained = trained_on(leaning(), replace(PARITY, budget=None), relative_budget=0.3)
    assert trained.budgets_met and trained.thresholds is not None
    for client, found in differences(trained).items():
        assert found[0] <= trained.rules[0].budget_of(client) + 1e-9


def test_a_client_may_insist_on_a_budget_of_its_own():
    clients = leaning()._clients
    strict = replace(PARITY, budget=0.01)
    first = clients["client-0"]
    own = {**clients, "client-0": LocalClient("client-0", first.train, first.test, rules=[strict])}
    trained = trained_on(Federation(own), PARITY)
    assert differences(trained)["client-0"][0] <= 0.01 + 1e-9 and trained.budgets_met


def test_what_thresholds_cannot_keep_is_refused_before_training():
    clients = leaning(60, levels=TWO_ATTRIBUTES)
    sex = replace(PARITY, attribute="sex")
    refused = {
        "needs a budget": [replace(PARITY, budget=None)],
        "not 'global'": [replace(PARITY, scope="global")],
        "one attribute, got 'race', 'sex'": [PARITY, sex],
        "at most 2 kinds of rates": [PARITY, replace(PARITY, metric="equalized_odds")],
    }
    for sentence, rules in refused.items():
        with pytest.raises(ValueError, match=sentence):
            trained_on(clients, *rules)
    with pytest.raises(ValueError, match="`thresholds` must be"):
        trained_on(clients, PARITY, thresholds="mine")
    measured = trained_on(clients, PARITY, replace(sex, budget=None))
    assert measured.budgets_met  # what is only measured may be on other attributes


class Without:
    """A client that answers all but thresholds."""

    def __init__(self, client):
        self._client = client
        for name in ("introduce", "report", "count"):
            setattr(self, name, getattr(client, name))


class Strange(LocalClient):
    """A client whose thresholds are none."""

    def choose_thresholds(self, *question):
        return {"black": float("nan"), "white": 0.0}


def test_clients_without_thresholds_are_refused_and_strange_ones_named():
    clients = leaning(60)._clients
    with pytest.raises(FCFLError, match="'client-0' has no `choose_thresholds`"):
        trained_on(Federation({n: Without(c) for n, c in clients.items()}), PARITY)
    strange = Strange("client-0", clients["client-0"].train)
    with pytest.raises(ReportError, match="Client 'client-0' sent invalid thresholds"):
        trained_on(Federation({**clients, "client-0": strange}), PARITY)


def test_a_client_is_told_its_own_thresholds_only():
    every = GroupThresholds("race", {"north": {"a": 1.0}, "south": {"a": 2.0}})
    assert every.for_client("south").by_client == {"south": {"a": 2.0}}
    assert every.for_client("west").by_client == {}
    cuts, unknown = every.of_rows(["north", "west", None, "south"], ["a", "a", "a", None])
    assert cuts.tolist() == [1.0, 0.0, 0.0, 0.0] and unknown.tolist() == [False, True, True, True]


def test_the_note_says_that_the_attribute_decides_and_where_that_may_be_unlawful():
    trained = trained_on(leaning(60), PARITY)
    (note,) = [note for note in trained.notes if "Thresholds by group" in note]
    for word in ("'race'", "unlawful", "employment", "credit"):
        assert word in note
