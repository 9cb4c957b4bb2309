"""What is true of every baseline, whatever it optimises."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from on_rows import BASELINES, RULES, finish, odd_clients, pose_for, short

from fcfl.federation.checkpoint import load_checkpoint, save_checkpoint
from fcfl.federation.loop import Progress, run
from fcfl.methods.registry import METHODS
from fcfl.rules import Difference
from helpers import RACE, TWO_ATTRIBUTES, identical, simulated_clients, train, zeros_for

LOCAL = {"batch_rows": 32, "local_epochs": 2}
VARIANTS = [
    *((name, {}) for name in BASELINES),
    *((name, LOCAL) for name in BASELINES if "batch_rows" in METHODS[name].options),
]
every_variant = pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=[f"{n}{'-local' if o else ''}" for n, o in VARIANTS]
)
every_baseline = pytest.mark.parametrize("name", BASELINES)


def test_every_method_but_three_is_a_baseline_whose_help_says_that_it_enforces_no_budget():
    assert set(METHODS) == {"sqp", "two-stage", "private", *BASELINES}
    for name, one in METHODS.items():
        assert ("not enforce budgets" in one.help) == (name in BASELINES)


@every_variant
def test_a_step_is_pure(name, options):
    method = short(name, **options)
    problem, runtime = pose_for(method, simulated_clients(0, n_rows=80, levels=RACE))
    state = method.init(zeros_for(runtime), problem)
    while state.status == "running":
        reports = runtime.evaluate(state.request)
        kept = copy.deepcopy((state, reports))
        first, second = method.step(state, reports), method.step(state, reports)
        assert identical(first, second)
        assert identical((state, reports), kept)
        state = first[0]
    assert np.isfinite(state.params).all()


@every_variant
def test_a_run_resumed_from_its_checkpoint_goes_on_bit_for_bit(name, options, tmp_path):
    method = short(name, **options)
    problem, runtime = pose_for(method, simulated_clients(1, n_rows=80, levels=RACE))
    whole = train(method, problem, runtime, zeros_for(runtime))
    half = whole[len(whole) // 2][0]
    save_checkpoint(tmp_path, half)
    loaded = load_checkpoint(tmp_path, method.state_class).progress
    assert identical(loaded, half)
    resumed = [progress for progress, _ in run(method, loaded, runtime)]
    assert identical(resumed[-1], whole[-1][0])


@every_variant
def test_the_order_of_the_clients_does_not_matter(name, options):
    datas = simulated_clients(2, levels=RACE)
    method = short(name, **options)
    problem, runtime = pose_for(method, datas)
    one = train(method, problem, runtime, zeros_for(runtime))[-1][0].state
    turned = dict(reversed(datas.items()))
    problem_turned, runtime = pose_for(method, turned)
    problem_turned = replace(problem_turned, references=problem.references)
    other = train(method, problem_turned, runtime, zeros_for(runtime))[-1][0].state
    assert one.problem.clients == tuple(reversed(other.problem.clients))
    np.testing.assert_allclose(one.params, other.params, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("what", ["one client", "one label", "one group", "one row", "no group"])
@every_baseline
def test_degenerate_clients_do_not_break_a_run(name, what):
    state, _ = finish(short(name), odd_clients(what))
    assert state.status in ("converged", "stopped")
    assert np.isfinite(state.params).all()


@every_baseline
def test_several_attributes_of_several_groups_end_in_finite_parameters(name):
    rules = [Difference("equalized_odds", "sex", 0.1), Difference("demographic_parity", "race")]
    state, _ = finish(short(name, rounds=60), simulated_clients(3, levels=TWO_ATTRIBUTES), rules)
    assert np.isfinite(state.params).all()
    assert state.params.any() or name == "fair-reg"  # zero has no disparity: its optimum here


@every_baseline
def test_budgets_do_not_change_the_result(name):
    rules = [replace(rule, budget=None) for rule in RULES]
    free, _ = finish(short(name), simulated_clients(4, levels=RACE), rules)
    bound, _ = finish(short(name), simulated_clients(4, levels=RACE))
    np.testing.assert_array_equal(free.params, bound.params)


@every_baseline
def test_it_stops_after_its_rounds_and_says_so(name):
    method = short(name, rounds=3, tolerance=0.0)
    problem, runtime = pose_for(method, simulated_clients(0, n_rows=80, levels=RACE))
    states = [p.state for p, _ in train(method, problem, runtime, zeros_for(runtime))]
    assert states[-1].status == "stopped" and states[-1].message == "All 3 rounds taken."
    assert states[-1].rounds == (3,)
    shares = [method.fraction_done(state) for state in states]
    assert shares[0] == 0.0 and shares[-1] == 1.0 and shares == sorted(shares)


@pytest.mark.parametrize("name", ["fedavg", "afl"])
def test_a_step_that_is_much_too_large_is_told(name):
    state, _ = finish(short(name, step_size=1e5), simulated_clients(0, levels=RACE), l2=0.0)
    assert state.status == "stopped" and np.isfinite(state.params).all()
    assert state.message.startswith("All 12 rounds taken. The mean loss is ")
    assert state.message.endswith(": try a smaller step size.")


@every_baseline
def test_bytes_are_those_of_the_arrays_sent(name):
    method = short(name, rounds=3, tolerance=0.0)
    problem, runtime = pose_for(method, simulated_clients(0, levels=RACE))
    progress = Progress(method.init(zeros_for(runtime), problem))
    asked = [progress.state.request]
    for reached, _ in run(method, progress, runtime):
        progress = reached
        asked.append(reached.state.request)
    sent = 0
    for request in asked[:-1]:
        for reports in runtime.evaluate(request).values():
            for report in reports:
                arrays = [getattr(report, name) for name in report.__dataclass_fields__]
                arrays += report.extras.values()
                sent += 16 + sum(8 * a.size for a in arrays if isinstance(a, np.ndarray))
    assert progress.tally.bytes_from_clients == sent


@pytest.mark.parametrize("name", [name for name, options in VARIANTS if options])
def test_another_batch_size_ends_elsewhere_and_the_same_one_in_the_same_place(name):
    datas = simulated_clients(0, n_rows=200, levels=RACE)
    ends = [
        finish(short(name, local_epochs=2, batch_rows=size), datas)[0].params
        for size in (32, 32, 64)
    ]
    np.testing.assert_array_equal(ends[0], ends[1])
    assert np.abs(ends[0] - ends[2]).max() > 1e-6


@every_baseline
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"step_size": 0}, r"^`step_size` must be a positive number, got 0\.$"),
        ({"rounds": 0}, r"^`rounds` must be a positive number, got 0\.$"),
        ({"rounds": 2.5}, r"^`rounds` must be a whole number, 0 or more, got 2\.5\.$"),
        ({"tolerance": -1}, r"^`tolerance` must be zero or a positive number, got -1\.$"),
    ],
)
def test_a_bad_option_is_refused(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        BASELINES[name](**options)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "fedavg",
            {"local_epochs": -1},
            "`local_epochs` must be a whole number, 0 or more",
        ),
        ("q-ffl", {"batch_rows": 0.5}, "`batch_rows` must be a whole number, 0 or more, got 0.5"),
        ("fedavg", {"batch_rows": 31}, "`batch_rows` must be 0 .* or at least 32, got 31"),
        ("q-ffl", {"q": -1}, "`q` must be zero or a positive number, got -1"),
        ("fair-reg", {"weight": -1}, "`weight` must be zero or a positive number, got -1"),
        ("afl", {"weight_step": 0}, "`weight_step` must be a positive number, got 0"),
    ],
)
def test_a_method_refuses_bad_options_of_its_own(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        BASELINES[name](**options)


@every_baseline
def test_parameters_that_are_no_finite_vector_are_refused(name):
    method = short(name)
    problem, _ = pose_for(method, simulated_clients(0, levels=RACE))
    for params in ([[0.0]], "zero", [0.0, np.inf]):
        with pytest.raises(ValueError, match=r"^`params` must be (a vector|finite)"):
            method.init(params, problem)
