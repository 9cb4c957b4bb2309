"""The parts of a report that some baselines ask for are checked on arrival, and can be absent."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl._checks import check_report, part_missing
from fcfl._types import Point, Report
from fcfl.errors import ReportError
from fcfl.extras import LocalTraining
from fcfl.federation.loop import Progress, run
from fcfl.federation.serialise import Serialiser
from fcfl.methods.baselines import FedAvg
from fcfl.models.influence import GradientSpread
from fcfl.models.linear_rows import linear_rows
from helpers import RACE, all_rates, identical, pose, simulated_clients, simulated_data, zeros_for

RATES = all_rates(RACE)
POINTS = {
    "local_params": Point(np.zeros(5), extras=(LocalTraining(1, 0.1),)),
    "gradient_spread": Point(np.zeros(5), extras=(GradientSpread(np.eye(5)),)),
}


def answer(point):
    return linear_rows("a", simulated_data(0), RATES).report(point)


@pytest.mark.parametrize("part", POINTS)
def test_a_requested_part_must_be_present_whole_and_finite(part):
    point = POINTS[part]
    report = answer(point)
    check_report("a", report, point, len(RATES))
    array = report.extras[part]
    wrong = [
        (None, f"Client 'a' sent no `{part}`, which was requested"),
        (array[..., :-1], f"Client 'a' sent `{part}` of shape"),
        (np.full_like(array, np.nan), f"Client 'a' sent a non-finite number in `{part}`"),
        (array.astype(str), f"Client 'a' sent `{part}` of type"),
        (array.tolist(), f"Client 'a' sent a list as `{part}`"),
    ]
    for value, sentence in wrong:
        with pytest.raises(ReportError, match=sentence):
            spoiled = replace(report, extras={**report.extras, part: value})
            check_report("a", spoiled, point, len(RATES))


@pytest.mark.parametrize("part", POINTS)
def test_a_missing_part_of_an_old_report_is_named(part):
    plain = answer(Point(np.zeros(5)))
    assert part_missing(answer(POINTS[part]), [POINTS[part]]) is None
    words = {
        "local_params": "local params",
        "gradient_spread": "gradient spread",
    }
    assert part_missing(plain, [Point(np.zeros(5)), POINTS[part]]) == words[part]


def test_an_absent_clients_last_local_model_stands_in():
    problem, runtime = pose(simulated_clients(0, levels=RACE), [])
    method = FedAvg(rounds=4, local_epochs=2)
    rounds = run(method, Progress(method.init(zeros_for(runtime), problem)), runtime, max_age=1)
    next(rounds)
    runtime.clients.pop("client-1")
    progress, _ = next(rounds)
    assert progress.memory["client-1"].age == 1


@pytest.mark.parametrize("part", POINTS)
def test_requests_and_reports_survive_the_codec(part):
    serialiser = Serialiser(Point | Report)
    for value in (POINTS[part], answer(POINTS[part])):
        assert identical(serialiser.load(serialiser.dump(value)), value)
