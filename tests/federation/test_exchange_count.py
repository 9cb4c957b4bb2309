"""Exchanges counted from outside, where requests leave, against what results report."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fcfl import Difference, FCFLClassifier
from fcfl.errors import Interrupted
from fcfl.federation.federation import Federation
from fcfl.federation.loop import EXCHANGES, ExchangeCount, read_exchanges
from fcfl.federation.session import Session
from fcfl.models.linear import Linear
from fcfl.results import read_result
from fcfl.runs import Experiment
from fcfl.runs.many_runs import run_comparison, run_sweep
from fcfl.sites.transport import InProcessTransport
from fcfl.training.train import train
from helpers import simulated_clients
from hospital import stays
from in_one_process import hospitals, node_configs
from in_one_process import train as train_sites

PARITY = Difference("demographic_parity", "race", budget=0.05)
REQUESTS = ("introduce", "report", "count", "choose_thresholds", "vote")
PLAIN = {"l2": 0.01, "objective": 1.0, "confidence": 0, "starts": 1, "min_group_rows": 1}


@pytest.fixture
def asked(monkeypatch):
    """How often each request was made of any federation in this process."""
    counted = Counter()

    def counting(name):
        real = getattr(Federation, name)

        def request(self, *args, **kwargs):
            counted[name] += 1
            return real(self, *args, **kwargs)

        return request

    for name in REQUESTS:
        monkeypatch.setattr(Federation, name, counting(name))
    return counted


def federation(seed=0):
    return Federation.from_rows(simulated_clients(seed), simulated_clients(seed + 100))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {**PLAIN, "relative_budget": 0.5, "rules": (replace(PARITY, budget=None),)},
        {**PLAIN, "thresholds": "group", "confidence": 0.8},
        {**PLAIN, "starts": 3, "confidence": 0.9},
        {"method": "fedavg"},
    ],
)
def test_requests_counted_from_outside_are_those_of_the_result(asked, options):
    options = {"rules": (PARITY,), **options}
    trained = train(federation(), Linear(4), **options)
    assert sum(trained.exchanges.values()) == sum(asked.values())
    assert trained.exchanges["meet"] >= 2  # SQP's fit without budgets is among them
    assert all(count > 0 for count in trained.exchanges.values())


def test_every_run_has_its_own_count(asked):
    clients = federation()
    first = train(clients, Linear(4), (PARITY,), **PLAIN).exchanges
    assert train(clients, Linear(4), (PARITY,), **PLAIN).exchanges == first
    assert clients.exchanges.total == 0


def test_messages_to_a_site_are_the_exchanges_of_the_result(tmp_path):
    sent = Counter()

    class Counting(InProcessTransport):
        def send(self, node, content, seconds):
            sent[node] += 1
            return super().send(node, content, seconds)

    files = hospitals(tmp_path, stays(300))
    transport = Counting(node_configs(files, tmp_path))
    finished, told = train_sites(transport, tmp_path / "out", sorted(files), l2="auto")
    exchanges = finished.result.exchanges
    (expected,) = re.findall(r"Expect (\d+) to (\d+) exchanges", " ".join(told))
    assert int(expected[0]) <= exchanges.total <= int(expected[1])
    assert set(sent.values()) == {exchanges.total}
    assert exchanges.by_phase["choose"] > 3 and exchanges.by_phase["meet"] > 2


def test_a_comparison_has_the_exchanges_of_each_method(tmp_path, asked):
    comparison = run_comparison(experiment(tmp_path), ("afl",), [0], Session(tmp_path / "out"))
    assert sum(summary.exchanges.mean for summary in comparison.methods) == sum(asked.values())
    for run in comparison.runs:
        result = read_result(tmp_path / "out" / run.folder / "result.json")
        assert run.exchanges == result.exchanges.total > sum(result.rounds.values())


def test_a_sweep_has_the_exchanges_of_each_budget_and_of_all(tmp_path, asked):
    session, one = Session(tmp_path / "out"), replace(experiment(tmp_path), budget=None)
    points = run_sweep(one, [0.2, 0.02], session, relative=False).points
    for point in points:
        result = read_result(tmp_path / "out" / point.folder / "result.json")
        assert point.exchanges == result.exchanges.total > 0
    whole = read_result(tmp_path / "out" / "result.json").exchanges
    assert whole.total == sum(point.exchanges for point in points) == sum(asked.values())


def test_a_classifier_has_the_exchanges_of_its_fit(asked):
    rng = np.random.default_rng(0)
    X, site, sex = rng.normal(size=(300, 2)), rng.choice(["n", "s"], 300), rng.choice([0, 1], 300)
    y = X[:, 0] + sex + rng.logistic(size=300) > 0
    model = FCFLClassifier(budget=0.1).fit(X, y, clients=site, sensitive_features=sex)
    assert model.result_.exchanges.total == sum(asked.values())
    assert {"choose", "fit", "check", "tighten"} <= model.result_.exchanges.by_phase.keys()


def experiment(folder):
    hospitals(folder, stays(400))
    columns = {"client": "hospital", "label": "died", "sensitive": ("race",), "min_group_rows": 1}
    fixed = {"l2": 0.003, "objective": 1.0, "starts": 1, "confidence": 0.0, "budget": 0.1}
    return Experiment(table=str(folder / "joined.csv"), **columns, **fixed)


def test_rounds_have_the_exchanges_so_far_and_their_phase(tmp_path):
    session = Session(tmp_path)
    trained = train(federation(), Linear(4), (PARITY,), l2=0.01, min_group_rows=1, session=session)
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    numbers = [line["exchange"] for line in lines]
    assert numbers == sorted(set(numbers)) and numbers[-1] <= sum(trained.exchanges.values())
    phases = Counter(line["phase"] for line in lines)
    assert phases["fit"] == trained.exchanges["fit"]
    assert phases.keys() <= trained.exchanges.keys()


def test_a_run_that_is_stopped_while_choosing_continues_the_count(tmp_path, asked):
    def stop(info, share):
        if info.note.startswith("choosing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(federation(), Linear(4), (PARITY,), session=Session(tmp_path, on_round=stop))
    before = sum(asked.values())
    assert sum(read_exchanges(tmp_path).values()) == before
    trained = train(federation(), Linear(4), (PARITY,), session=Session(tmp_path, resume=True))
    assert sum(trained.exchanges.values()) == sum(asked.values()) > before
    assert sum(read_exchanges(tmp_path).values()) == sum(asked.values())


def test_a_run_that_is_stopped_in_a_round_continues_the_count(tmp_path, asked):
    def stop(info, share):
        if info.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        train(federation(), Linear(4), (PARITY,), **PLAIN, session=Session(tmp_path, on_round=stop))
    session = Session(tmp_path, resume=True)
    trained = train(federation(), Linear(4), (PARITY,), **PLAIN, session=session)
    assert sum(trained.exchanges.values()) == sum(asked.values())
    train(federation(), Linear(4), (PARITY,), **PLAIN, session=Session(tmp_path))  # starts again
    assert sum(read_exchanges(tmp_path).values()) < sum(trained.exchanges.values())


def test_phases_nest_and_end_where_their_block_ends():
    count = ExchangeCount()
    with count.in_phase("choose"):
        count.add()
        with count.in_phase("check"):
            count.add()
        count.add()
    count.add()
    assert count.by_phase == {"choose": 2, "check": 1, "meet": 1} and count.total == 4
    with pytest.raises(ZeroDivisionError), count.in_phase("fit"):
        _ = 1 / 0
    assert count.phase == "meet"
    assert count.take() == {"choose": 2, "check": 1, "meet": 1} and count.total == 0


@pytest.mark.parametrize("content", ["", "[1]", '{"fit": "many"}', "{"])
def test_a_count_that_cannot_be_read_is_none(tmp_path, content):
    (tmp_path / EXCHANGES).write_text(content)
    assert read_exchanges(tmp_path) == {}


def test_a_client_alone_counts_as_an_exchange(asked):
    clients = federation()
    alone = clients.only("client-0")
    alone.introduce()
    assert clients.exchanges.total == 1
