"""The one way to train: whose rules are in force, and every stage before the last one."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from fcfl import SQP, Difference, Ratio
from fcfl.client.client import LocalClient
from fcfl.errors import AbsentClientError, CheckpointError, DataError
from fcfl.federation.checkpoint import checkpoint_path
from fcfl.federation.federation import Federation
from fcfl.federation.session import FREE, Session
from fcfl.methods.baselines import FedAvg
from fcfl.models.linear import Linear
from fcfl.results.result import objective_setting
from fcfl.training.train import train
from helpers import RACE, TWO_ATTRIBUTES, identical, simulated_clients

PARITY = Difference("demographic_parity", "race")
TOLERANCE = 1e-6
EXACT = 1e-9  # decisions are counts
NAMES = ("client-0", "client-1", "client-2")


def federation(seed=0, own=None, **options):
    """Three clients with held-out rows; ``own`` has the rules that a client insists on."""
    insisted = own or {}
    test = simulated_clients(seed + 100, **options)
    return Federation(
        {
            name: LocalClient(name, data, test[name], rules=insisted.get(name, ()))
            for name, data in simulated_clients(seed, **options).items()
        }
    )


def leaning(n_rows):
    """Clients whose first feature tells the group, so that budgets bind."""
    found = {}
    for seed in (0, 100):
        for name, data in simulated_clients(seed, n_rows=n_rows).items():
            X = data.X.copy()
            X[:, 0] += 1.5 * data.groups["race"]
            found.setdefault(name, []).append(replace(data, X=X, y=(X[:, 0] > 0.7) * 1.0))
    return Federation({name: LocalClient(name, *parts) for name, parts in found.items()})


def trained_on(clients, *rules, **options):
    """Plain budgets, one start, all groups, nothing left to choose, unless that is asked for."""
    plain = {"l2": 0.01, "objective": 1.0, "confidence": 0, "starts": 1, "min_group_rows": 1}
    return train(clients, Linear(4), rules, **plain | options)


def decided(trained, rule=PARITY):
    """Disparities of decisions on training rows: of shares of each group that are selected."""
    found = {}
    for name, counts in trained.counts.items():
        rates = [
            selected / n_rows
            for rate, selected, n_rows in zip(
                trained.rates, counts.group_selected, counts.group_counts, strict=True
            )
            if rate.kind in rule.kinds and rate.attribute == rule.attribute
        ]
        found[name] = max(rates) - min(rates)
    return found


class Met(Exception):
    """Clients were met and their groups can be compared."""


def check_rules(clients, model, rules, relative=False, **options):
    """What the command line does before anything is trained."""

    def check(run):
        run.check_comparable(relative=relative)
        raise Met

    with suppress(Met):
        train(clients, model, rules, session=Session(on_met=check), **options)


def bounds_of(trained):
    return trained.state.problem.constraints.bounds


# --- what training leaves -------------------------------------------------------------------------


def test_a_model_is_trained_within_the_budget_and_no_better_one_is_near():
    clients = federation()
    trained = trained_on(clients, replace(PARITY, budget=0.05))
    assert trained.status == "converged" and trained.budgets_met
    assert max(decided(trained).values()) <= 0.05 + EXACT
    assert max(decided(trained_on(clients, PARITY)).values()) > 0.1
    assert (trained.l2, trained.objective, trained.selection) == (0.01, 1.0, None)
    assert trained.at.problem.l2 == 0.01 and trained.method.objective == 1.0
    for name, client in {name: clients._clients[name] for name in NAMES}.items():
        p = 1 / (1 + np.exp(-Linear(4).logits(trained.params, client.train.X)))
        losses = -np.where(client.train.y == 1, np.log(p), np.log(1 - p))
        assert trained.losses[name] == pytest.approx(losses.mean())
        assert trained.counts[name].n_rows == client.train.n_rows
        assert trained.evaluations.test[name].n_rows == client.test.n_rows
    assert len(trained.history) == sum(trained.rounds)


def test_options_of_the_call_reach_the_method():
    clients, rule = federation(), replace(PARITY, budget=0.05)
    worst = trained_on(clients, rule, objective="max")
    mean = trained_on(clients, rule, objective="mean")
    assert max(worst.losses.values()) < max(mean.losses.values())
    assert np.mean([*mean.losses.values()]) < np.mean([*worst.losses.values()])
    strong = trained_on(clients, rule, l2=1.0)
    assert np.abs(strong.params).sum() < np.abs(mean.params).sum()
    method = SQP(objective=0.5, rounds=(2, 2))
    given = train(clients, Linear(4), (rule,), method=method, l2=0.01)
    assert given.objective == 0.5
    assert max(sum(turn.progress.state.rounds) for turn in given.turns[:2]) <= 4
    assert trained_on(clients, rule, method=method).objective == 1.0
    start = np.full(5, 0.3)
    short = replace(method, rounds=(1, 0))
    here, there = (trained_on(clients, rule, method=short, start=s) for s in (None, start))
    assert not identical(here.params, there.params)


def test_groups_may_be_named_and_small_ones_left_out():
    clients = federation(levels=TWO_ATTRIBUTES, n_rows=90)
    rule = replace(PARITY, budget=0.02)
    whole = trained_on(clients, rule)
    assert [rate.group for rate in whole.rates] == ["black", "white", "other"]
    two = trained_on(clients, rule, groups={"race": ("black", "white")})
    assert [rate.group for rate in two.rates] == ["black", "white"]
    assert bounds_of(two).size < bounds_of(whole).size
    counts = [c for found in whole.counts.values() for c in found.group_counts]
    least = sorted(counts)[1]
    told = []
    session = Session(on_message=told.append)
    fewer = trained_on(clients, rule, min_group_rows=least, session=session)
    assert bounds_of(fewer).size < bounds_of(whole).size
    assert len(told) == 1 and told[0] == fewer.notes[0]


# --- rules that clients insist on -----------------------------------------------------------------


def test_a_stricter_rule_of_a_client_wins_and_a_looser_one_does_not():
    for own, expected in ((0.01, 0.01), (0.5, 0.1)):
        clients = federation(own={"client-1": (replace(PARITY, budget=own),)})
        trained = trained_on(clients, replace(PARITY, budget=0.1))
        (rule,) = trained.rules
        budgets = {name: rule.budget_of(name) for name in NAMES}
        assert budgets == {"client-0": 0.1, "client-1": expected, "client-2": 0.1}
        found = decided(trained)
        assert trained.budgets_met
        assert found["client-1"] <= expected + EXACT
        assert 0.01 + EXACT < max(found.values()) <= 0.1 + EXACT


def test_a_rule_that_only_a_client_has_binds_that_client():
    own = Difference("equal_opportunity", "race", 0.02)
    clients = federation(own={"client-2": (own,)}, n_rows=400)
    trained = trained_on(clients, replace(PARITY, budget=0.1))
    assert trained.rules == (replace(PARITY, budget=0.1), replace(own, budget={"client-2": 0.02}))
    assert {rate.kind for rate in trained.rates} == {"selection", "true_positive"}
    assert trained.budgets_met and decided(trained, own)["client-2"] <= 0.02 + EXACT
    alone = trained_on(federation(own={"client-2": (own,)}))
    assert alone.rules == (replace(own, budget={"client-2": 0.02}),)


def test_a_rule_for_all_rows_that_a_client_insists_on_is_everybodys():
    own = replace(PARITY, budget=0.03, scope="global")
    trained = trained_on(federation(own={"client-0": (own,)}), replace(PARITY, budget=0.5))
    assert trained.rules == (replace(PARITY, budget=0.5), own)


def test_rules_of_strangers_and_on_other_columns_are_refused():
    other = Difference("demographic_parity", "age", 0.05)
    with pytest.raises(DataError, match=r"Client 'client-1' has a policy on 'age'.*got 'race'"):
        trained_on(federation(own={"client-1": (other,)}))
    with pytest.raises(ValueError, match="'nobody'"):
        trained_on(federation(), replace(PARITY, budget={"nobody": 0.1}))


# --- budgets that nothing would be held to --------------------------------------------------------


def one_group():
    datas = simulated_clients(0, levels=RACE)
    for data in datas.values():
        data.groups["race"][:] = 1
    return Federation.from_rows(datas)


def apart():
    """Two groups, but at no client both."""
    datas = simulated_clients(0, levels=RACE)
    for code, data in enumerate(datas.values()):
        data.groups["race"][:] = code % 2
    return Federation.from_rows(datas)


@pytest.mark.parametrize(
    ("clients", "scope", "options", "sentence"),
    [
        (one_group, "client", {}, "'race' .* groups are 'white'.*`--sensitive`"),
        (one_group, "global", {}, "'race' .* groups are 'white'.*`--sensitive`"),
        (apart, "client", {}, "'race' .*`--scope global`"),
        (federation, "client", {"min_group_rows": 1000}, "`--min-group-rows`"),
        (federation, "global", {"min_group_rows": 1000}, "`--min-group-rows`"),
    ],
)
def test_budgets_that_bind_nobody_are_refused_and_noted_by_train(clients, scope, options, sentence):
    rule = replace(PARITY, budget=0.1, scope=scope)
    with pytest.raises(DataError, match=sentence):
        check_rules(clients(), Linear(4), [rule], **options)
    trained = trained_on(clients(), rule, **options)  # as in a fold that lacks a group
    assert trained.notes and all("left out of the comparison" in note for note in trained.notes)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"confidence": 2}, "`confidence` must be 0 or lie between 0 and 1, got 2"),
        ({"max_accuracy_loss": 1.5}, "`max_accuracy_loss` must lie between 0 and 1, got 1.5"),
        ({"max_rate_shift": -1}, "`max_rate_shift` must lie between 0 and 1, got -1"),
        ({"pooling": "all"}, "`pooling` must be"),
        ({"new_rows": 0}, "`new_rows` must be a positive number, got 0"),
        ({"starts": 0}, "`starts` must be"),
        ({"relative_budget": -1}, "`relative_budget` must be a positive number, got -1"),
        ({"min_group_rows": -3}, "`min_group_rows` must be zero or a positive number, got -3"),
        ({"objective": "foo"}, "`objective` must be 'max', 'mean', 'auto' or a positive number"),
        ({"start": [0.0, 1.0]}, "`start` must have the model's 5 parameters, got 2"),
    ],
)
def test_bad_arguments_are_refused_before_any_round(options, sentence):
    rounds = []
    session = Session(on_round=lambda info, share: rounds.append(info))
    with pytest.raises(ValueError, match=sentence):
        trained_on(federation(), replace(PARITY, budget=0.1), session=session, **options)
    assert not rounds


def test_a_folder_may_be_new_and_given_as_text(tmp_path):
    place = tmp_path / "new" / "run"
    trained_on(federation(), PARITY, session=Session(str(place)))
    assert (place / "history.jsonl").exists()


def test_rules_without_budgets_need_nothing_to_compare():
    check_rules(one_group(), Linear(4), [PARITY])
    assert trained_on(one_group(), PARITY).status == "converged"
    check_rules(apart(), Linear(4), [replace(PARITY, budget=0.1, scope="global")])
    with pytest.raises(DataError, match="`--sensitive`"):
        check_rules(one_group(), Linear(4), [PARITY], relative=True)


# --- relative budgets -----------------------------------------------------------------------------


def test_relative_budgets_are_shares_of_what_a_free_model_does(tmp_path):
    clients, told = federation(n_rows=1000), []
    free = trained_on(clients, PARITY)
    session = Session(tmp_path, on_message=told.append)
    trained = trained_on(clients, PARITY, relative_budget=0.5, session=session)
    (rule,) = trained.rules
    assert rule.budget == pytest.approx({n: v / 2 for n, v in decided(free).items()})
    for name, value in decided(trained).items():
        assert value <= rule.budget[name] + EXACT
    assert trained.budgets_met
    assert told[0].startswith("Budgets are 0.5 of the disparity without budgets: 'client-0'")
    assert len(told) == 1
    assert checkpoint_path(tmp_path / FREE).exists()
    loose = trained_on(clients, PARITY, relative_budget=1.0)
    for name, value in decided(loose).items():
        assert value <= decided(free)[name] + EXACT


def test_budgets_that_are_given_are_not_measured():
    clients = federation(levels=TWO_ATTRIBUTES, n_rows=90)
    sex = Difference("demographic_parity", "sex")
    given, ratio = replace(sex, budget=0.5), Ratio("demographic_parity", "sex", 0.1)
    told = []
    session = Session(on_message=told.append)
    trained = trained_on(clients, PARITY, given, ratio, relative_budget=0.5, session=session)
    assert trained.rules[1:] == (given, ratio)
    assert set(trained.rules[0].budget) == set(NAMES)
    about = [sentence for sentence in told if sentence.startswith("Budgets for race are 0.5")]
    assert len(about) == 1
    assert not [sentence for sentence in told if sentence.startswith("Budgets for sex")]


def test_relative_budgets_and_a_clients_own_rule_are_merged():
    """Its own budget does not spare the others theirs, nor count while they are measured."""
    free = decided(trained_on(federation(seed=2, n_rows=400), PARITY))
    clients = federation(seed=2, own={"client-0": (replace(PARITY, budget=0.02),)}, n_rows=400)
    trained = trained_on(clients, PARITY, relative_budget=0.5)
    (rule,) = trained.rules
    relative = {name: value / 2 for name, value in free.items()}
    assert relative["client-0"] > 0.03
    assert rule.budget == pytest.approx(relative | {"client-0": 0.02})
    assert trained.budgets_met and decided(trained)["client-0"] <= 0.02 + EXACT
    loose = federation(seed=2, own={"client-0": (replace(PARITY, budget=0.9),)}, n_rows=400)
    (rule,) = trained_on(loose, PARITY, relative_budget=0.5).rules
    assert rule.budget == pytest.approx(relative)


# --- excess loss ----------------------------------------------------------------------------------


# --- what is left to cross-validation -------------------------------------------------------------


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """A run that chose its objective, its folder, and what was told."""
    folder, told = tmp_path_factory.mktemp("chosen"), []
    session = Session(folder, on_message=told.append)
    rule = replace(PARITY, budget=0.05)
    return trained_on(federation(), rule, objective="auto", session=session), folder, told


def test_what_is_chosen_is_trained_and_reported(chosen):
    trained, _, told = chosen
    assert told[0] == trained.selection.sentence
    setting = objective_setting(trained.selection.objective)
    assert (trained.l2, trained.objective) == (0.01, setting)
    assert trained.method.objective == trained.objective


def test_a_finished_run_is_resumed_to_the_same_bits_and_not_with_other_budgets(chosen):
    trained, folder, _ = chosen
    rule = replace(PARITY, budget=0.05)
    session = Session(folder, resume=True)
    again = trained_on(federation(), rule, objective="auto", session=session)
    assert identical(again.params, trained.params) and again.selection == trained.selection
    assert again.history == () and again.rounds == trained.rounds
    with pytest.raises(CheckpointError, match="budgets"):
        trained_on(federation(), replace(rule, budget=0.04), objective="auto", session=session)


def test_a_run_stopped_in_any_stage_goes_on_to_the_same_bits(tmp_path):
    class Killed(Exception):
        """As a kill: nothing in the package catches it."""

    clients, options = leaning(n_rows=200), {"relative_budget": 0.5, "confidence": 0.6}
    rounds = []
    session = Session(on_round=lambda info, share: rounds.append(info.round))
    whole = trained_on(clients, PARITY, session=session, **options)
    begins = [at + 1 for at, number in enumerate(rounds) if number == 1]
    folders = [turn.folder for turn in whole.turns]
    assert folders[:2] == [FREE, ""] and len(folders) > 2
    assert len(begins) >= len(folders) - 1
    for number in (*begins, begins[1] + 1, len(rounds)):
        calls = []

        def on_round(info, share, calls=calls, number=number):
            calls.append(info)
            if len(calls) == number:
                raise Killed

        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(Killed):
            trained_on(clients, PARITY, session=Session(folder, on_round=on_round), **options)
        resumed = trained_on(clients, PARITY, session=Session(folder, resume=True), **options)
        assert identical(resumed.params, whole.params)
        assert resumed.rules == whole.rules


# --- sentences ------------------------------------------------------------------------------------


def test_every_sentence_is_told_once_however_many_stages_there_are():
    clients = federation(levels=TWO_ATTRIBUTES, n_rows=90)
    plain = trained_on(clients, PARITY)
    counts = [c for found in plain.counts.values() for c in found.group_counts]
    told = []
    session = Session(on_message=told.append)
    trained = trained_on(
        clients,
        PARITY,
        min_group_rows=sorted(counts)[1],
        relative_budget=0.9,
        confidence=0.9,
        session=session,
    )
    assert len(told) == len(set(told))
    assert len(set(trained.notes)) == len(trained.notes)
    findings = [note for note in trained.notes if note not in told]  # told by whoever prints a run
    assert all("exceed" in note or "selects" in note for note in findings)
    left_out = [sentence for sentence in told if "rows" in sentence and "race" in sentence]
    assert left_out and trained.notes[0] in left_out


def test_a_method_that_enforces_no_budgets_says_so():
    told = []
    session = Session(on_message=told.append)
    rule = replace(PARITY, budget=0.01)
    method = FedAvg(rounds=2)
    options = {"method": method, "min_group_rows": 1}
    trained = train(federation(), Linear(4), (rule,), session=session, **options)
    said = "Method 'fedavg' does not enforce budgets; the model is only compared with them."
    assert told == [said] and trained.notes == (said,)
    assert train(federation(), Linear(4), (PARITY,), method=method).notes == ()


# --- absence --------------------------------------------------------------------------------------


class Leaving(Federation):
    """`client-1` is away from its n-th answer on, or from the first question of a kind on."""

    def __init__(self, clients, answers):
        super().__init__(clients)
        self.left, self.away = answers, {}
        self.left_alone = np.inf
        self.leaves_at = ()

    @property
    def failures(self):
        return self.away

    def _ask(self, question, check):
        answers = super()._ask(question, check)
        self.left = -1 if isinstance(question, self.leaves_at) else self.left - 1
        if self.left < 0:
            answers.pop("client-1", None)
            self.away = {name: "it is offline." for name in self.names if name == "client-1"}
        return answers

    def _evaluate(self, question, check):
        return self._ask(question, check)  # one by one, also where curvatures would be added up

    def only(self, name):
        return Leaving({name: self._clients[name]}, self.left_alone)


def leaving(answers):
    return Leaving(federation()._clients, answers)


def test_who_is_absent_is_named_with_the_reason_once():
    with pytest.raises(AbsentClientError) as begun:
        trained_on(leaving(0), PARITY)
    assert str(begun.value) == (
        "All clients must respond when a run starts or resumes. Client 'client-1': it is offline."
    )
    with pytest.raises(AbsentClientError) as begun:
        check_rules(leaving(0), Linear(4), [PARITY])
    assert str(begun.value).endswith("starts or resumes. Client 'client-1': it is offline.")
    with pytest.raises(AbsentClientError) as under_way:
        trained_on(leaving(3), PARITY)
    assert str(under_way.value).startswith("Client 'client-1' did not answer")
    assert str(under_way.value).endswith("Client 'client-1': it is offline.")
    rounds = sum(trained_on(federation(), PARITY).rounds)
    with pytest.raises(AbsentClientError) as at_the_end:
        trained_on(leaving(1 + rounds), PARITY)
    assert str(at_the_end.value) == (
        "Client 'client-1' did not report how the model does on its rows: it is offline. "
        "Resume when it is back."
    )


def test_nobody_is_left_out_of_choosing():
    said = []
    for answers in range(5, 30):
        with pytest.raises(AbsentClientError) as raised:
            trained_on(leaving(answers), replace(PARITY, budget=0.05), objective="auto")
        said.append(str(raised.value))
        if "choosing l2 and objective" in said[-1]:
            break
    assert "Client 'client-1' did not report" in said[-1] and "it is offline." in said[-1]


def test_max_age_is_that_of_the_session():
    class Once(Leaving):
        def _ask(self, question, check):
            answers = super()._ask(question, check)
            if self.left < -1:
                self.away = {}
                return Federation._ask(self, question, check)
            return answers

    session = Session(max_age=1)
    trained = trained_on(Once(federation()._clients, 3), PARITY, session=session)
    assert trained.status == "converged"
    with pytest.raises(AbsentClientError):
        trained_on(Once(federation()._clients, 3), PARITY)
