from dataclasses import replace

import numpy as np
import pytest
from benchmarks.in_process import InProcess

from fcfl._types import CurvatureWeights, Point, Request
from fcfl.errors import AbsentClientError, ReportError
from fcfl.federation.federation import check_reports
from fcfl.federation.loop import Progress, Tally, admit, run
from fcfl.methods.baselines import FedAvg, Iterate
from fcfl.methods.two_stage import TwoStage
from fcfl.rules import Difference
from helpers import RACE, identical, pose, simulated_clients, zeros_for

RULES = [Difference("demographic_parity", "race", 0.05)]
METHODS = {"two-stage": TwoStage(rounds=(6, 6)), "fedavg": FedAvg(rounds=8, tolerance=0.0)}


@pytest.fixture
def posed():
    return pose(simulated_clients(0, levels=RACE), RULES)


class Scripted:
    """A runtime in which clients are absent, or send changed reports, in given rounds.

    ``absent[r]`` lists the absent clients of round r; ``changed[r]`` maps a name to a function that
    changes its reports.
    """

    def __init__(self, runtime, absent=None, changed=None):
        self.runtime, self.absent, self.changed = runtime, absent or {}, changed or {}
        self.round = 0

    def evaluate(self, request):
        self.round += 1
        answers = dict(self.runtime.evaluate(request))
        for name in self.absent.get(self.round, ()):
            del answers[name]
        for name, change in self.changed.get(self.round, {}).items():
            answers[name] = change(answers.get(name))
            if name in self.runtime.clients:  # as a federation does, where answers arrive
                check_reports(name, answers[name], request.points, 2)
        return answers


def begin(method, problem, runtime):
    return Progress(method.init(zeros_for(runtime), problem))


def go(method, posed, *, max_age=0, **script):
    problem, runtime = posed
    progress = begin(method, problem, runtime)
    return list(run(method, progress, Scripted(runtime, **script), max_age=max_age))


def alter(**parts):
    """Change parts of every report."""
    return lambda reports: tuple(replace(report, **parts) for report in reports)


# --- the loop ---


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_loop_ends_when_the_method_is_done(method, posed):
    _, runtime = posed
    rounds = go(method, posed)
    assert all(p.state.status == "running" for p, _ in rounds[:-1])
    assert rounds[-1][0].state.status != "running"
    assert list(run(method, rounds[-1][0], runtime)) == []
    assert [info.round for _, info in rounds] == list(range(1, len(rounds) + 1))


def test_a_run_continues_from_any_round(posed):
    method = METHODS["two-stage"]
    whole = go(method, posed)
    for stop in (1, len(whole) // 2, len(whole) - 1):
        rest = list(run(method, whole[stop - 1][0], posed[1]))
        assert identical(tuple(rest), tuple(whole[stop:]))


def test_in_process_every_client_reports_on_every_point(posed):
    _, runtime = posed
    points = (Point(np.zeros(5)), Point(np.ones(5), "gradients"))
    reports = runtime.evaluate(Request(points))
    assert list(reports) == list(runtime.clients)
    for name, answers in reports.items():
        alone = tuple(runtime.clients[name].report(point) for point in points)
        assert identical(answers, alone)


# --- invalid reports ---

BAD_PARTS = {
    "loss": {"loss": np.nan},
    "n_rows": {"n_rows": np.nan},
    "no rows": {"n_rows": 0.0},
    "group_counts": {"group_counts": np.array([np.nan, 1.0])},
    "negative count": {"group_counts": np.array([-1.0, 1.0])},
    "rates": {"rates": np.array([0.5, np.nan])},
    "rate 1.7": {"rates": np.array([0.5, 1.7])},
    "negative rate": {"rates": np.array([-0.1, 0.5])},
    "rates shape": {"rates": np.zeros(3)},
    "loss_grad": {"loss_grad": np.full(5, np.nan)},
    "loss_grad shape": {"loss_grad": np.zeros(4)},
    "no loss_grad": {"loss_grad": None},
    "rate_grads": {"rate_grads": np.full((2, 5), np.inf)},
    "rate_grads shape": {"rate_grads": np.zeros((5, 2))},
    "no rate_grads": {"rate_grads": None},
    "loss of text": {"loss": "0.5"},
    "no loss": {"loss": None},
    "rates of text": {"rates": np.array(["0.5", "0.5"])},
    "objects": {"loss_grad": np.full(5, None)},
    "group larger than its client": {"group_counts": np.array([1.0, 1e6])},
    "age": {"age": 1},
    "negative age": {"age": -1},
    "age of another type": {"age": "0"},
}


@pytest.mark.parametrize("parts", BAD_PARTS.values(), ids=BAD_PARTS)
def test_a_bad_report_stops_the_run_and_names_the_client(parts, posed):
    with pytest.raises(ReportError, match=r"^Client 'client-1' sent .*\.$|between 0 and 1\.$"):
        go(METHODS["two-stage"], posed, changed={3: {"client-1": alter(**parts)}})


def test_a_missing_curvature_is_rejected(posed):
    problem, runtime = posed
    weights = {name: CurvatureWeights(1.0, np.zeros(2)) for name in problem.clients}
    request = Request((Point(np.zeros(5), "curvature", weights),))
    answers = runtime.evaluate(request)["client-2"]
    check_reports("client-2", answers, request.points, 2)
    with pytest.raises(ReportError, match=r"'client-2' sent no `curvature`, which was requested"):
        check_reports("client-2", alter(curvature=None)(answers), request.points, 2)


@pytest.mark.parametrize("wrong", [None, "report", (), (None,), ("report",), "twice"])
def test_an_answer_other_than_one_report_per_point_is_rejected(wrong, posed):
    changed = {2: {"client-0": lambda reports: reports * 2 if wrong == "twice" else wrong}}
    with pytest.raises(ReportError, match="'client-0' sent"):
        go(METHODS["two-stage"], posed, changed=changed)


def test_an_unknown_client_is_rejected(posed):
    answer = posed[1].evaluate(Request((Point(np.zeros(5), "gradients"),)))["client-0"]
    changed = {2: {"mallory": lambda _: answer}}
    with pytest.raises(ReportError, match=r"Client 'mallory' answered but is not part of this run"):
        go(METHODS["two-stage"], posed, changed=changed)


def test_a_bad_report_changes_nothing_that_was_yielded(posed):
    """The rounds before the bad one stand, so that the run can be taken up from there."""
    problem, runtime = posed
    method = METHODS["two-stage"]
    bad = Scripted(runtime, changed={4: {"client-1": alter(loss=np.nan)}})
    rounds = run(method, begin(method, problem, runtime), bad)
    seen = []
    for _ in range(3):
        seen.append(next(rounds))
    with pytest.raises(ReportError):
        next(rounds)
    rest = list(run(method, seen[-1][0], runtime))
    assert identical(tuple(seen + rest), tuple(go(method, posed)))


# --- absent clients ---


@pytest.mark.parametrize(
    ("max_age", "absent", "reason"),
    [
        (0, [1], "has not reported before"),
        (2, [1], "has not reported before"),
        (0, [3], "`max_age` 0"),
        (2, [3, 4, 5], "3 rounds old"),
    ],
)
def test_an_absent_client_without_a_valid_report_stops_the_run(posed, max_age, absent, reason):
    gone = {number: ["client-1"] for number in absent}
    with pytest.raises(AbsentClientError, match=f"Client 'client-1'.*{reason}"):
        go(METHODS["fedavg"], posed, max_age=max_age, absent=gone)


def test_a_run_resumed_with_a_smaller_max_age_uses_it(posed):
    problem, runtime = posed
    method = METHODS["fedavg"]
    progress = next(iter(run(method, begin(method, problem, runtime), runtime, max_age=1)))[0]
    gone = Scripted(runtime, absent={1: ["client-1"]})
    with pytest.raises(AbsentClientError, match="`max_age` is 0"):
        next(iter(run(method, progress, gone)))


@pytest.mark.parametrize("max_age", [-1, 1.5, True, "2", None, float("inf")], ids=repr)
def test_max_age_is_a_whole_number(max_age, posed):
    problem, runtime = posed
    method = METHODS["fedavg"]
    with pytest.raises(ValueError, match="`max_age`"):
        run(method, begin(method, problem, runtime), runtime, max_age=max_age)


def test_a_stand_in_has_its_age_in_rounds(posed):
    seen = []

    class Watching:
        name, state_class = "watching", Iterate
        inner = METHODS["fedavg"]

        def init(self, params, problem):
            return self.inner.init(params, problem)

        def step(self, state, reports):
            seen.append({name: answers[0].age for name, answers in reports.items()})
            return self.inner.step(state, reports)

    go(Watching(), posed, max_age=2, absent={3: ["client-1"], 4: ["client-1", "client-2"]})
    assert [ages["client-1"] for ages in seen] == [0, 0, 1, 2, 0, 0, 0, 0]
    assert [ages["client-2"] for ages in seen] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert all(ages["client-0"] == 0 for ages in seen)


def test_the_age_of_a_report_is_not_sent_and_costs_no_bytes(posed):
    report = posed[1].evaluate(Request((Point(np.zeros(5)),)))["client-0"][0]
    assert replace(report, age=3).nbytes == report.nbytes


def test_a_client_that_returns_may_be_absent_for_as_long_again(posed):
    gone = {r: ["client-1"] for r in (2, 3, 5, 6)}
    assert len(go(METHODS["fedavg"], posed, max_age=2, absent=gone)) == 8


def test_the_stand_in_is_the_last_report(posed):
    """An absent client is equivalent to one that repeats its last report."""
    _, runtime = posed
    method = METHODS["fedavg"]
    absent = go(method, posed, max_age=1, absent={3: ["client-1"]})
    second = runtime.evaluate(absent[0][0].state.request)["client-1"]
    repeats = go(method, posed, max_age=1, changed={3: {"client-1": lambda _: second}})
    left, right = ([(p.state, info) for p, info in rounds] for rounds in (absent, repeats))
    assert identical(tuple(left), tuple(right))


def test_max_age_changes_nothing_without_absent_clients(posed):
    method = METHODS["two-stage"]
    left, right = (go(method, posed, max_age=age) for age in (0, 3))
    assert all(
        identical((a.state, a.tally, i), (b.state, b.tally, j))
        for (a, i), (b, j) in zip(left, right, strict=True)
    )
    assert all(progress.memory == {} for progress, _ in left)


def test_a_report_without_gradients_does_not_stand_in_where_they_are_needed(posed):
    problem, runtime = posed
    values, gradients = (Request((Point(np.zeros(5), want),)) for want in ("values", "gradients"))
    progress = begin(METHODS["fedavg"], problem, runtime)

    def after(request, progress, absent=()):
        answers = {k: v for k, v in runtime.evaluate(request).items() if k not in absent}
        reports, memory = admit(request, answers, progress, 2)
        return reports, replace(progress, memory=memory)

    _, knows_values = after(values, progress)
    sentence = "'client-0' did not answer, and its last report has no gradients, which this round"
    with pytest.raises(AbsentClientError, match=sentence):
        after(gradients, knows_values, ["client-0"])
    _, knows_more = after(gradients, progress)
    _, knows_more = after(values, knows_more)  # a poorer report does not replace a richer one
    reports, _ = after(gradients, knows_more, ["client-0"])
    assert reports["client-0"][0].loss_grad is not None


def test_a_report_without_curvature_does_not_stand_in_where_it_is_needed(posed):
    problem, runtime = posed
    weights = {name: CurvatureWeights(1.0, np.zeros(2)) for name in problem.clients}
    gradients, curvature = (
        Request((Point(np.zeros(5), want, weights),)) for want in ("gradients", "curvature")
    )
    progress = begin(METHODS["fedavg"], problem, runtime)
    _, memory = admit(gradients, runtime.evaluate(gradients), progress, 1)
    some = {k: v for k, v in runtime.evaluate(curvature).items() if k != "client-0"}
    with pytest.raises(AbsentClientError, match=r"'client-0' .* its last report has no curv"):
        admit(curvature, some, replace(progress, memory=memory), 1)


def test_the_report_with_most_parts_is_stored(posed):
    problem, runtime = posed
    points = tuple(
        Point(np.full(5, x), w) for x, w in ((0, "values"), (1, "gradients"), (2, "values"))
    )
    request = Request(points)
    answers = runtime.evaluate(request)
    progress = begin(METHODS["fedavg"], problem, runtime)
    _, memory = admit(request, answers, progress, 1)
    assert identical(memory["client-0"], answers["client-0"][1])


# --- cost ---


def test_the_tally_counts_points_by_kind_and_the_bytes_that_arrived(posed):
    problem, runtime = posed
    weights = {name: CurvatureWeights(1.0, np.zeros(2)) for name in problem.clients}
    wants = ("values", "values", "gradients", "curvature")
    request = Request(tuple(Point(np.zeros(5), want, weights) for want in wants))
    answers = runtime.evaluate(request)
    tally = Tally().plus(request, answers).plus(request, answers)
    n_bytes = sum(report.nbytes for reports in answers.values() for report in reports)
    assert tally == Tally(values=4, gradients=2, curvatures=2, bytes_from_clients=2 * n_bytes)


def test_a_run_tallies_every_round(posed):
    rounds = go(METHODS["two-stage"], posed)
    per_round = 3 * 8 * (2 + 2 * 2 + 5 + 2 * 5)
    for count, (progress, _) in enumerate(rounds, start=1):
        assert progress.tally == Tally(0, count, 0, count * per_round)


def test_an_absent_client_sends_no_bytes(posed):
    whole, partly = (
        go(METHODS["fedavg"], posed, max_age=1, absent=absent)[-1][0].tally
        for absent in ({}, {3: ["client-1"]})
    )
    assert whole.gradients == partly.gradients
    one = whole.bytes_from_clients // (8 * 3)
    assert whole.bytes_from_clients - partly.bytes_from_clients == one


def test_a_runtime_is_anything_that_evaluates(posed):
    problem, runtime = posed
    method = METHODS["fedavg"]
    progress = begin(method, problem, runtime)
    backwards = InProcess(dict(reversed(runtime.clients.items())))
    left, right = (list(run(method, progress, r)) for r in (runtime, backwards))
    assert identical(tuple(left), tuple(right))
