"""Options, problems and rows of the paper's baselines; what every baseline keeps, core tests."""

from dataclasses import replace

import numpy as np
import pytest
from on_rows import BASELINES, finish, pose_for, short

from fcfl import Federation, Linear, train
from fcfl.errors import AbsentClientError
from fcfl.federation.loop import Progress, run
from fcfl.rules import Difference
from fcfl.runs.site_config import FOR_SITES
from fcfl_paper.baselines import __all__ as NAMES
from helpers import RACE, simulated_clients, zeros_for

PARITY = Difference("demographic_parity", "race", 0.05)


def federation():
    return Federation.from_rows(simulated_clients(0), simulated_clients(100))


def test_all_are_registered_by_name():
    ours = {m.__name__ for m in BASELINES.values() if m.__module__.startswith("fcfl_paper")}
    assert ours == set(NAMES)


@pytest.mark.parametrize("name", ["fairfed", "fedfb", "agnostic-fair"])
def test_a_step_that_is_much_too_large_is_reported(name):
    state, _ = finish(short(name, step_size=1e5), simulated_clients(0, levels=RACE), l2=0.0)
    assert state.status == "stopped" and np.isfinite(state.params).all()
    assert "try a smaller step size" in state.message


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("fairfed", "local_epochs", 0),
        ("fedfb", "batch_rows", 0.5),
        ("mmpf", "step_size", 1.0),
        ("mmpf", "patience", 0),
        ("fedmgda", "freedom", -0.1),
        ("agnostic-fair", "largest_weight", 0),
    ],
)
def test_a_bad_option_raises(name, option, value):
    with pytest.raises(ValueError, match=f"`{option}` must"):
        BASELINES[name](**{option: value})


@pytest.mark.parametrize("name", ["fairfed", "fedfb"])
def test_a_problem_without_the_rates_it_needs_raises(name):
    problem, runtime = pose_for(BASELINES["fedavg"](), simulated_clients(0, levels=RACE))
    with pytest.raises(ValueError, match="`rate_kinds`"):
        BASELINES[name]().init(zeros_for(runtime), problem)


def test_agnostic_fair_needs_reference_rows():
    method = BASELINES["agnostic-fair"]()
    problem, runtime = pose_for(method, simulated_clients(0, levels=RACE))
    with pytest.raises(ValueError, match=r"`problem\.references`"):
        method.init(zeros_for(runtime), replace(problem, references=None))


def test_disclosed_rows_are_noted():
    trained = train(federation(), Linear(4), (PARITY,), method="agnostic-fair")
    count = trained.at.problem.references.shape[0]
    assert f"{count} training rows are disclosed to the server." in trained.notes


def test_only_methods_that_request_what_sites_send_run_over_sites():
    names = {"mmpf", "fedmgda", "fairfed", "fedfb", "agnostic-fair"}
    assert names & set(FOR_SITES) == {"mmpf", "fedmgda"}


def test_a_client_that_leaves_before_its_first_local_model_stops_the_run():
    datas = simulated_clients(0, levels=RACE)
    method = BASELINES["fairfed"](rounds=5)
    problem, runtime = pose_for(method, datas)
    rounds = run(method, Progress(method.init(zeros_for(runtime), problem)), runtime, max_age=9)
    next(rounds)
    gone = runtime.clients.pop("client-1")
    assert gone.name == "client-1"
    with pytest.raises(AbsentClientError, match=r"'client-1' did not answer.* has no local params"):
        next(rounds)
