"""What a run over sites reports of its cost before it starts."""

import re
from dataclasses import replace

import pytest

from fcfl import SQP
from fcfl.methods.two_stage import TwoStage
from fcfl.models.linear import Linear
from fcfl.runs import Experiment
from fcfl.runs.site_run import cost_sentence, typical_exchanges
from fcfl.sites.named_module import NamedModule
from fcfl.sites.transport import InProcessTransport
from hospital import stays
from in_one_process import hospitals, node_configs
from in_one_process import train as train_sites

LINEAR = Linear(9)
DEFAULT = Experiment("adult", sensitive=("sex",), budget=0.05)
GIVEN = replace(DEFAULT, l2=0.003, objective=10.0)
EXPECTED = re.compile(r"Expect (?:about )?([\d,]+)(?: to ([\d,]+))? exchanges with all sites")


def typical(experiment, method=None, model=LINEAR):
    return typical_exchanges(experiment, method or SQP(), model)


@pytest.mark.parametrize(
    ("more", "fewer"),
    [
        (DEFAULT, GIVEN),
        (DEFAULT, replace(DEFAULT, confidence=0.0)),
        (GIVEN, replace(GIVEN, confidence=0.0)),
        (replace(GIVEN, confidence=0.0), replace(GIVEN, budget=None)),
        (replace(GIVEN, objective="max"), GIVEN),
    ],
)
def test_settings_that_ask_less_are_expected_to_take_less(more, fewer):
    (low, high), (least, most) = typical(more), typical(fewer)
    assert least < low and most < 2 * high and least < most and low < high


def test_budgets_of_a_policy_count_as_budgets():
    policy = replace(GIVEN, budget=None, policy="/srv/policy.toml")
    assert typical(policy) == typical(GIVEN) != typical(replace(GIVEN, budget=None))


def test_settings_that_were_not_measured_have_no_expectation():
    for other in (
        replace(GIVEN, starts=3),
        replace(DEFAULT, objective="max"),  # the L2 weight alone is chosen
    ):
        assert typical(other) is None
    assert typical(GIVEN, SQP(curvature="lbfgs")) is None
    network = NamedModule("small_networks:mlp", 9, seed=0, threshold=0.5)
    assert typical(GIVEN, model=network) is None
    assert cost_sentence(GIVEN, SQP(), network, 1.0) is None


@pytest.mark.parametrize(
    ("seconds", "lasting"),
    [(0.01, "0.16 s to 0.56 s"), (6.0, "2 min to 6 min"), (600.0, "2.7 h to 9.3 h")],
)
def test_the_time_is_that_of_so_many_introductions(seconds, lasting):
    assert lasting in cost_sentence(GIVEN, SQP(), LINEAR, seconds)


def test_another_method_takes_what_all_its_rounds_are_expected_to(tmp_path):
    files = hospitals(tmp_path, stays(300))
    transport = InProcessTransport(node_configs(files, tmp_path))
    options = {"method": "fedavg", "rounds": "4"}
    finished, told = train_sites(transport, tmp_path / "out", sorted(files), **options)
    (expected,) = [found[1] for one in told if (found := EXPECTED.match(one))]
    assert int(expected) == finished.result.exchanges.total == 7
    one = replace(GIVEN, method="two-stage", l2=None, objective=None)
    assert cost_sentence(one, TwoStage(rounds=(4, 4)), LINEAR, 1.0) is None


def test_a_run_over_sites_begins_with_it_and_a_resumed_one_does_not(tmp_path):
    files = hospitals(tmp_path, stays(400))
    transport = InProcessTransport(node_configs(files, tmp_path))
    finished, told = train_sites(transport, tmp_path / "out", sorted(files))
    (sentence,) = [one for one in told if EXPECTED.match(one)]
    assert told.index(sentence) < 4 and finished.result.exchanges.total > 5
    _, told = train_sites(transport, tmp_path / "out", sorted(files), resume=True)
    assert not [one for one in told if EXPECTED.match(one)]
