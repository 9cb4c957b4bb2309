"""Where rows are does not matter: the same model, to the last bit, and the same result."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fcfl._files import to_json
from fcfl.results import RowCounts
from fcfl.sites.transport import InProcessTransport
from hospital import stays, written
from in_one_process import hospitals, node_configs, train, train_joined

NAMES = ("north", "south", "west")
DIFFERENT = {"seconds", "settings", "data", "deployment"}
QUICK = {"confidence": 0.0, "starts": 1}  # margins and starts are compared once


def without_scores(told):
    """What a result says, without the counts by score, which sites do not tell."""
    if isinstance(told, dict):
        return {key: without_scores(value) for key, value in told.items() if key != "scores"}
    return told


def one_label_in_the_west(frame):
    return frame[(frame["hospital"] != "west") | (frame["died"] == "no")]


def empty_columns_in_the_west(frame):
    west = frame["hospital"] == "west"
    return frame.assign(age=frame["age"].mask(west), ward=frame["ward"].mask(west))


def labels_as_numbers(frame):
    return frame.assign(died=(frame["died"] == "yes") * 10 - 1)


def a_group_only_in_the_north(frame):
    rows = (frame["hospital"] == "north") & (np.arange(len(frame)) % 4 == 0)
    return frame.assign(race=frame["race"].mask(rows, "asian"))


MARGINS_OF = (labels_as_numbers,)  # the others without: margins and starts are the same everywhere


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        one_label_in_the_west,
        empty_columns_in_the_west,
        labels_as_numbers,
        a_group_only_in_the_north,
    ],
)
def test_model_and_result_equal_those_in_process(tmp_path, change):
    files = hospitals(tmp_path, change(stays(600)))
    transport = InProcessTransport(node_configs(files, tmp_path))
    quick = {} if change in MARGINS_OF else QUICK
    apart, _ = train(transport, tmp_path / "apart", NAMES, **quick)
    joined = train_joined(files, tmp_path / "joined", **quick)
    assert np.array_equal(apart.params, joined.params)
    assert apart.budgets_met == joined.budgets_met
    told, expected = (json.loads(to_json(one.result)) for one in (apart, joined))
    for key in expected.keys() - DIFFERENT:
        if key != "notes":
            assert without_scores(told[key]) == without_scores(expected[key]), key
    assert (tmp_path / "apart" / "history.jsonl").read_bytes() == (
        tmp_path / "joined" / "history.jsonl"
    ).read_bytes()
    assert (tmp_path / "apart" / "model.json").read_bytes() == (
        tmp_path / "joined" / "model.json"
    ).read_bytes()


def thorough(*values):
    return pytest.param(*values, marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        ({"budget": "0.1,west=0.02"}, {"budget": {"*": 0.1, "west": 0.02}}),
        ({"loss": "squared"}, {"loss": "squared"}),
        (
            {"sensitive": "race, sex", "positive": "no"},
            {"sensitive": ("race", "sex"), "positive": "no"},
        ),
        thorough({"objective": "max", "l2": 0.01}, {"objective": "max", "l2": 0.01}),
        thorough({"curvature": "lbfgs"}, {"curvature": "lbfgs"}),
        thorough({"threshold": 0.1}, {"threshold": 0.1}),
        thorough({"test-size": 0.0, "seed": 3}, {"test_size": 0.0, "seed": 3}),
        thorough({"ratio": "0.8", "budget": ""}, {"ratio": 0.8, "budget": None}),
        thorough(
            {"scope": "both", "metric": "equalized_odds"},
            {"scope": "both", "metric": "equalized_odds"},
        ),
        thorough({"drop": "age"}, {"drop": ("age",)}),
        thorough({"loss": "hinge"}, {"loss": "hinge"}),
    ],
    ids=str,
)
def test_every_setting_gives_the_same_result_as_in_process(tmp_path, config, settings):
    files = hospitals(tmp_path)
    transport = InProcessTransport(node_configs(files, tmp_path))
    apart, _ = train(transport, tmp_path / "apart", NAMES, **config, **QUICK)
    joined = train_joined(files, tmp_path / "joined", **settings, **QUICK)
    assert np.array_equal(apart.params, joined.params)
    assert apart.result.clients == joined.result.clients
    for part in ("train", "test"):
        told, expected = (getattr(one.result.overall, part) for one in (apart, joined))
        assert told.scores == () and told == replace(expected, scores=())


def test_a_policy_at_the_server_gives_the_same_result_as_in_process(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'min-group-rows = 5\n[groups]\nrace = ["black", "white"]\n[[rule]]\n'
        'metric = "demographic_parity"\nattribute = "race"\nbudget = 0.1\n'
        "[rule.clients]\nnorth = 0.03\n"
    )
    files = hospitals(tmp_path, a_group_only_in_the_north(stays(600)))
    transport = InProcessTransport(node_configs(files, tmp_path))
    apart, _ = train(transport, tmp_path / "apart", NAMES, budget="", policy=str(policy), **QUICK)
    joined = train_joined(files, tmp_path / "joined", budget=None, policy=str(policy), **QUICK)
    assert np.array_equal(apart.params, joined.params)
    assert apart.result.clients == joined.result.clients
    assert len(apart.result.data.policy_sha256) == 64


def test_held_out_rows_may_be_in_a_second_file(tmp_path):
    frame = stays(300, hospitals=("north",)).drop(columns="hospital")
    train_file = written(frame[:200], tmp_path / "train.csv")
    test_file = written(frame[200:], tmp_path / "test.csv")
    configs = node_configs({"north": train_file}, tmp_path, north={"test-table": str(test_file)})
    finished, _ = train(InProcessTransport(configs), tmp_path / "out", ["north"], **QUICK)
    assert finished.result.clients["north"].rows == RowCounts(200, 100)


def test_the_result_has_the_bytes_that_were_sent(tmp_path):
    files = hospitals(tmp_path)
    sizes = {}

    class Weighing(InProcessTransport):
        def send(self, node, content, seconds):
            message_id = super().send(node, content, seconds)
            name = self.configs[node]["name"]
            to, back = sizes.get(name, (0, 0))
            sizes[name] = to + len(content), back + len(self._replies[message_id].content)
            return message_id

    finished, _ = train(Weighing(node_configs(files, tmp_path)), tmp_path / "out", NAMES, **QUICK)
    section = finished.result.deployment
    rounds = sum(finished.result.rounds.values())
    exchanges = finished.result.exchanges.total
    assert exchanges >= rounds + 3  # introductions, counts of groups, evaluation
    assert all(site.messages == exchanges for site in section.sites.values())
    assert {n: (s.bytes_to, s.bytes_from) for n, s in section.sites.items()} == sizes
    assert section.bytes_from_sites >= finished.result.bytes_from_clients


@pytest.mark.thorough
def test_fifty_sites(tmp_path):
    names = tuple(f"site {number:02d}" for number in range(50))
    files = hospitals(tmp_path, stays(5000, hospitals=names))
    transport = InProcessTransport(node_configs(files, tmp_path))
    apart, _ = train(transport, tmp_path / "apart", names, budget="0.1", rounds="6,2", **QUICK)
    joined = train_joined(files, tmp_path / "joined", budget=0.1, rounds=(6, 2), **QUICK)
    assert np.array_equal(apart.params, joined.params)
    assert set(apart.result.clients) == set(names)
