"""A federation asks all clients one question, and checks every answer where it arrives."""

from dataclasses import replace

import numpy as np
import pytest

from fcfl._types import CurvatureWeights, Point, Request, curvature_sum, reports_on
from fcfl.client.client import LocalClient, Setup
from fcfl.errors import DataError, ReportError
from fcfl.federation.federation import Federation
from fcfl.federation.loop import Tally
from fcfl.models.linear import Linear
from fcfl.rules import Difference, rates_needed
from helpers import RACE, identical, simulated_clients

RULES = (Difference("demographic_parity", "race", 0.05),)
SETUP = Setup(Linear(4), rates_needed(RULES, RACE), RULES)
ONE = Request((Point(np.zeros(5), "gradients"),))


class Spoiled:
    """A client whose answers are changed on the way."""

    def __init__(self, client, change):
        self.client, self.change = client, change

    def introduce(self):
        return self.change(self.client.introduce())

    def report(self, setup, points):
        return self.change(self.client.report(setup, points))

    def count(self, setup, params):
        return self.change(self.client.count(setup, params))


def clients(change=None, **options):
    datas = simulated_clients(0, levels=RACE)
    found = {name: LocalClient(name, data, **options) for name, data in datas.items()}
    if change is not None:
        found["client-1"] = Spoiled(found["client-1"], change)
    return found


def test_reports_are_those_of_the_rows():
    found = clients()
    federation = Federation(found)
    whole = federation.bind(SETUP).evaluate(ONE)
    for name, client in found.items():
        alone = Linear(4).rows(name, client.train, SETUP.rates).report(ONE.points[0])
        assert identical(whole[name][0], alone)


def test_a_federation_of_one_client_reports_alone():
    federation = Federation(clients())
    alone = federation.only("client-2")
    assert alone.names == ("client-2",)
    (name,) = alone.report(SETUP, ONE)
    assert name == "client-2"


def test_a_federation_needs_a_client():
    with pytest.raises(ValueError, match="`clients` must name at least one client, got none"):
        Federation({})


BAD_REPORTS = {
    "nothing": lambda _: None,
    "too many": lambda reports: reports * 2,
    "nan": lambda reports: (replace(reports[0], loss=np.nan),),
    "1e300 rows": lambda reports: (replace(reports[0], group_counts=np.full(2, 1e300)),),
    "wrong shape": lambda reports: (replace(reports[0], loss_grad=np.zeros(4)),),
    "not asked for": lambda reports: (replace(reports[0], extras={"rows": np.zeros((3, 4))}),),
    "curvature not asked for": lambda reports: (replace(reports[0], curvature="x"),),
    "old": lambda reports: (replace(reports[0], age=2),),
}


@pytest.mark.parametrize("change", BAD_REPORTS.values(), ids=BAD_REPORTS)
def test_a_bad_report_is_rejected_by_name(change):
    with pytest.raises(ReportError, match=r"^Client 'client-1' sent"):
        Federation(clients(change)).report(SETUP, ONE)


BAD_COUNTS = {
    "nothing": lambda _: None,
    "more selected than rows": lambda said: replace(
        said, train=replace(said.train, group_selected=said.train.group_counts + 1)
    ),
    "negative": lambda said: replace(said, test=replace(said.test, true_positive=-1)),
    "half a row": lambda said: replace(
        said, train=replace(said.train, group_counts=said.train.group_counts + 0.5)
    ),
    "loss of nan": lambda said: replace(said, train=replace(said.train, loss_sum=np.nan)),
    "rates of 1.7": lambda said: replace(said, decided=np.full(said.report.rates.shape, 1.7)),
    "no report": lambda said: replace(said, report=None),
}


@pytest.mark.parametrize("change", BAD_COUNTS.values(), ids=BAD_COUNTS)
def test_bad_counts_are_rejected_by_name(change):
    with pytest.raises(ReportError, match=r"^Client 'client-1' sent"):
        Federation(clients(change)).count(SETUP, np.zeros(5))


def test_a_bad_introduction_is_rejected_by_name():
    with pytest.raises(ReportError, match=r"^Client 'client-1' sent"):
        Federation(clients(lambda said: replace(said, min_group_rows=0))).introduce()
    with pytest.raises(ReportError, match=r"^Client 'client-1' sent the introduction of 'other'"):
        Federation(clients(lambda said: replace(said, name="other"))).introduce()
    with pytest.raises(ReportError, match=r"^Client 'client-1' sent no introduction"):
        Federation(clients(lambda _: "client-1")).introduce()


def test_a_client_rejects_rules_looser_than_its_own():
    """It answers nothing under looser ones, in one process as at a site."""
    strict = (Difference("demographic_parity", "race", 0.01),)
    federation = Federation(clients(rules=strict))
    with pytest.raises(DataError, match="must be at least as strict as this client's policy"):
        federation.report(SETUP, ONE)
    assert federation.report(replace(SETUP, rules=strict), ONE)


def test_a_client_reports_no_group_below_its_min_group_rows():
    shown = Federation(clients()).count(SETUP, np.zeros(5))
    least = int(max(said.train.group_counts.min() for said in shown.values())) + 1
    hidden = Federation(clients(min_group_rows=least)).count(SETUP, np.zeros(5))
    for name, said in hidden.items():
        for counts in (said.report.group_counts, said.train.group_counts):
            whole = shown[name].train.group_counts
            np.testing.assert_array_equal(counts, np.where(whole >= least, whole, 0.0))


# --- curvatures are added up as they come ---


def curved(n_clients):
    rng = np.random.default_rng(5)
    weights = {
        f"client-{k}": CurvatureWeights(rng.random(), rng.standard_normal(len(SETUP.rates)))
        for k in range(n_clients)
    }
    params = 0.2 * rng.standard_normal((2, 5))
    return Request(
        (Point(params[0]), Point(params[0], "curvature", weights), Point(params[1], "gradients"))
    )


@pytest.mark.parametrize("changed", [None, lambda said: said])
def test_curvatures_of_clients_in_one_process_arrive_as_their_sum(changed):
    found = clients(changed)
    request = curved(len(found))
    reports = Federation(found).report(SETUP, request)
    alone = {name: client.report(SETUP, request.points) for name, client in clients().items()}
    own = [answers[1].curvature for answers in alone.values()]
    assert reports.curvature_sums[0] is None is reports.curvature_sums[2]
    np.testing.assert_allclose(curvature_sum(reports, 1), sum(own), rtol=1e-12, atol=1e-14)
    for name, answers in alone.items():
        stripped = (answers[0], replace(answers[1], curvature=None), answers[2])
        assert identical(reports[name], stripped)
    assert curvature_sum(alone, 1) is None
    assert Tally().plus(request, reports) == Tally().plus(request, alone)
    part = reports_on(reports, slice(1, 3))
    assert part["client-0"] == reports["client-0"][1:]
    assert part.curvature_sums == (reports.curvature_sums[1], None)


def test_an_invalid_curvature_of_one_client_is_rejected_by_name():
    def skewed(answers):
        matrix = answers[1].curvature.copy()
        matrix[0, 1] += 1.0
        return (answers[0], replace(answers[1], curvature=matrix), answers[2])

    with pytest.raises(ReportError, match="'client-1' sent a `curvature` that is not symmetric"):
        Federation(clients(skewed)).report(SETUP, curved(3))


def test_an_invalid_curvature_sum_is_rejected():
    found, request = clients(), curved(3)
    found["client-0"].train.X[0, 0] = 1e30
    at_zero = Request((replace(request.points[1], params=np.zeros(5)),))
    with pytest.raises(ReportError, match=r"curvatures have .* not finite or above 1e\+50"):
        Federation(found).report(SETUP, at_zero)
