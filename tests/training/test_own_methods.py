"""A method of one's own: what is refused of it, and what a checkpoint knows of it."""

from dataclasses import dataclass, field, make_dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from fcfl import (
    SQP,
    Difference,
    Federation,
    Linear,
    Point,
    Request,
    Session,
    TwoStage,
    describe_round,
    evaluate_point,
    train,
)
from fcfl._types import Vector
from fcfl.errors import CheckpointError, Interrupted, MethodError
from fcfl.federation.checkpoint import checkpoint_path, load_checkpoint
from fcfl.federation.session import FREE, may_change
from fcfl.methods.method import Status, options_of
from fcfl.methods.private import Private
from fcfl.problem import Problem
from fcfl.runs import Experiment
from fcfl.runs.run import is_same_run
from helpers import identical, simulated_clients

RULE = Difference("demographic_parity", "race", 0.05)


class Colour(Enum):
    RED = 1
    BLUE = 2


class Plain:
    def __init__(self, value):
        self.value = value


@dataclass(frozen=True)
class DescentState:
    problem: Problem
    params: Vector
    request: Request
    rounds: tuple[int, ...] = (0,)
    status: Status = "running"
    message: str = ""


@dataclass(frozen=True)
class Descent:
    """Gradient descent; ``spoil`` has changes of its states from round 2 on."""

    rate: float = 0.5
    rounds: int = 6
    note: str = field(default="", compare=False)
    spoil: Any = None
    name: str = "descent"
    state_class: ClassVar[type] = DescentState

    def init(self, params, problem):
        return DescentState(problem, params, Request((Point(params, "gradients"),)))

    def step(self, state, reports):
        at = evaluate_point(state.problem, state.request.points[0].params, reports)
        onward = at.params - self.rate * at.loss_grads.mean(axis=0)
        taken = state.rounds[0] + 1
        state = replace(
            state,
            params=at.params,
            request=Request((Point(onward, "gradients"),)),
            rounds=(taken,),
            status="stopped" if taken >= self.rounds else "running",
        )
        if self.spoil is not None and taken == 2:
            return self.spoil(state, describe_round(at, round=taken, stage=1, step=1.0))
        return state, describe_round(at, round=taken, stage=1, step=1.0)

    def fraction_done(self, state):
        return state.rounds[0] / self.rounds


def clients(n_clients=3, seed=0, n_rows=60):
    return Federation.from_rows(simulated_clients(seed, n_clients=n_clients, n_rows=n_rows))


def trained_by(method, rules=(RULE,), federation=None, **options):
    plain = {"l2": 0.01, "min_group_rows": 1}
    return train(federation or clients(), Linear(4), rules, method=method, **plain | options)


# --- checkpoints know the method ---


def stopped(folder, method, after=3, **options):
    """A run that is stopped after a few rounds."""

    def stop(info, share):
        if info.round == after:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        trained_by(method, session=Session(folder, on_round=stop), **options)


def test_another_option_is_refused_by_its_name_and_both_values(tmp_path):
    stopped(tmp_path, Descent(rate=0.5))
    going_on = Session(tmp_path, resume=True)
    with pytest.raises(CheckpointError, match=r"`rate` was 0\.5 and is 0\.4"):
        trained_by(Descent(rate=0.4), session=going_on)
    with pytest.raises(CheckpointError, match="`name` was 'descent' and is 'other'"):
        trained_by(Descent(name="other"), session=going_on)
    resumed = trained_by(Descent(rate=np.float64(0.5), note="seen"), session=going_on)
    assert len(resumed.history) == 3
    assert identical(resumed.params, trained_by(Descent(rate=0.5)).params)
    anew = trained_by(Descent(rate=0.4), session=Session(tmp_path))
    assert identical(anew.params, trained_by(Descent(rate=0.4)).params)


def test_more_rounds_are_allowed(tmp_path):
    stopped(tmp_path, Descent())
    longer = trained_by(Descent(rounds=8), session=Session(tmp_path, resume=True))
    assert identical(longer.params, trained_by(Descent(rounds=8)).params)


def test_what_another_run_left_in_a_folder_is_gone_when_one_begins_there(tmp_path):
    for place in (tmp_path, tmp_path / "fit-2-tightened", tmp_path / FREE):
        place.mkdir(exist_ok=True)
        checkpoint_path(place).write_bytes(b"of another run")
    trained_by(Descent(rounds=2), session=Session(tmp_path))
    assert not checkpoint_path(tmp_path / "fit-2-tightened").exists()
    assert not checkpoint_path(tmp_path / FREE).exists()


def test_with_noise_the_rounds_may_not_change():
    """What is left of epsilon for a round depends on how many there are."""
    assert may_change(Descent()) == ("rounds",)
    assert may_change(Private()) == ()
    experiment = Experiment("adult-5", sensitive=("sex",), budget=0.05, rounds=(2, 2))
    assert is_same_run(experiment, replace(experiment, rounds=(7, 2)))
    noise = {"epsilon": 2.0, "delta": 1e-6}
    private = replace(experiment, method="private", privacy=noise, rounds=(2,))
    assert is_same_run(private, private)
    assert not is_same_run(private, replace(private, rounds=(7,)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Path("a"), Path("b")),
        (partial(max, 1), partial(max, 2)),
        (Fraction(1, 3), Fraction(2, 3)),
        (SimpleNamespace(a=1), SimpleNamespace(a=2)),
        (Colour.RED, Colour.BLUE),
        (Plain(1), Plain(2)),
    ],
)
def test_options_that_differ_have_different_texts(one, other):
    assert options_of(Descent(rate=one)) != options_of(Descent(rate=other))
    assert options_of(Descent(rate=Plain(1))) == options_of(Descent(rate=Plain(1)))


def test_an_option_of_ours_is_told_as_well(tmp_path):
    stopped(tmp_path, TwoStage(rounds=(9, 9)), rules=())
    with pytest.raises(CheckpointError, match=r"`decay` was .*`protects` was"):
        other = TwoStage(rounds=(9, 9), decay=0.4, protects="worst")
        trained_by(other, rules=(), session=Session(tmp_path, resume=True))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"l2": 0.02}, "L2"),
        ({"rules": (replace(RULE, budget=0.1),)}, "budgets"),
        ({"rules": ()}, "metrics"),
        ({"federation": clients(2)}, "clients"),
        ({"federation": clients(n_rows=61)}, "numbers of rows"),
    ],
)
def test_what_differs_from_the_checkpoint_is_named(changed, sentence, tmp_path):
    stopped(tmp_path, Descent())
    with pytest.raises(CheckpointError, match=sentence):
        trained_by(Descent(), **changed, session=Session(tmp_path, resume=True))


def test_other_rows_are_told_where_budgets_depend_on_them(tmp_path):
    rules = (replace(RULE, scope="global"),)
    stopped(tmp_path, Descent(), rules=rules)
    with pytest.raises(CheckpointError, match="rows"):
        going_on = Session(tmp_path, resume=True)
        trained_by(Descent(), rules, clients(seed=1), session=going_on)


def test_another_state_of_the_same_name_is_said_to_be_perhaps_ones_own(tmp_path):
    stopped(tmp_path, Descent())
    other = make_dataclass("DescentState", [("mood", float)], frozen=True)
    with pytest.raises(CheckpointError, match="version of fcfl, or of the method's own DescentSt"):
        load_checkpoint(tmp_path, other)


def test_options_are_the_same_text_in_every_process():
    def shape(x):
        return x

    @dataclass(frozen=True)
    class Many:
        values: Any
        name: str = "many"

    array = np.arange(3.0)
    given = (1.0, np.int64(2), [True, None, "a"], {"b": array}, {"y", "x"}, Descent(), shape, 0.1)
    text = options_of(Many(given))["values"]
    assert text == options_of(Many((1, 2, *given[2:])))["values"]
    assert text.startswith("(1, 2, (True, None, 'a'), {'b': array(3,) of float64, sha256 ")
    assert "{'x', 'y'}, Descent(rate=0.5, rounds=6, spoil=None, name='descent'), " in text
    assert " at 0x" not in text and text.endswith("shape, 0.1)")
    changed = (*given[:3], {"b": -array}, *given[4:])
    assert text != options_of(Many(changed))["values"]


# --- what is no method ---


def without(name):
    """A method that lacks something."""
    parts = {n: v for n, v in vars(Descent).items() if n != name and not n.startswith("__")}
    return type("Lacking", (), parts)()


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (Descent, r"`method` must be .*the class 'Descent'.*Descent\(\)"),
        (7, r"`method` must be .*`name` of 7"),
        (without("step"), "Method 'descent' must have the function `step`"),
        (without("init"), "must have the function `init`"),
        (without("fraction_done"), "must have the function `fraction_done`"),
        (without("state_class"), "Method 'descent' must have a `state_class`"),
    ],
)
def test_what_is_no_method_is_refused_before_anybody_is_asked(method, sentence):
    with pytest.raises(TypeError, match=sentence):
        trained_by(method)


def test_a_state_without_a_needed_field_is_refused():
    bare = make_dataclass("Bare", [("params", Vector), ("problem", Problem), ("request", Request)])
    stating = type("Stating", (Descent,), {"state_class": bare})
    with pytest.raises(TypeError, match=r"method 'descent', Bare, must have .*`rounds`"):
        trained_by(stating())


def asking(params, want="gradients"):
    return lambda state, info: (replace(state, request=Request((Point(params, want),))), info)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda state, info: state, "a state and a RoundInfo.*got a DescentState"),
        (lambda state, info: (state, None), "got a DescentState, None|a DescentState, None"),
        (lambda state, info: (info, info), "a DescentState, its `state_class`, got a Ro"),
        (lambda s, i: (replace(s, status="done"), i), "a status among 'running', .*got 'done'"),
        (lambda s, i: (replace(s, rounds=2), i), r"`rounds` as a tuple of counts, .*got 2"),
        (
            lambda s, i: (replace(s, rounds=(1,)), i),
            r"`rounds` by one, got \(1,\) after \(1,\)",
        ),
        (lambda s, i: (replace(s, request=Request(())), i), "`request` with points"),
        (lambda s, i: (replace(s, params=np.zeros(2)), i), r"`params` as .*\(5,\), got \(2,\)"),
        (asking(np.zeros(4)), r"a point of `request` as an array of shape \(5,\), got \(4,\)"),
        (asking([0.0] * 5), r"as an array of shape \(5,\), got \[0.0, "),
        (asking(np.array([0, 0, np.nan, 0, 0])), "finite numbers .*got nan at position 2"),
    ],
)
def test_what_a_step_leaves_is_refused_as_the_methods_own(spoil, sentence):
    with pytest.raises(MethodError, match=sentence) as caught:
        trained_by(Descent(spoil=spoil))
    assert "`step` of method 'descent'" in str(caught.value)


# --- traits ---


def test_a_method_of_ones_own_trains_with_the_plain_budgets_and_says_so():
    plain = trained_by(Descent(rounds=40))
    assert len(plain.turns) == 1
    assert plain.notes == (
        "Method 'descent' does not support margins, so `confidence` 0.9 has no effect: budgets may "
        "be exceeded on new rows.",
    )
    assert trained_by(Descent(), confidence=0).notes == ()


@pytest.mark.parametrize(
    ("base", "traits", "sentence"),
    [
        (Descent, {"is_cross_validated": True}, "`is_cross_validated` .*`restart`"),
        (Descent, {"is_private": True}, "`is_private`"),
        (Descent, {"objectives": ("max", "mean")}, "`objectives`"),
        (Descent, {"objectives": ("least",)}, "objectives"),
        (Descent, {"rate_kinds": ("selected",)}, "rate_kinds"),
        (Descent, {"n_stages": "two"}, "n_stages"),
    ],
)
def test_a_trait_that_cannot_be_lived_up_to_is_refused(base, traits, sentence):
    with pytest.raises(TypeError, match=sentence):
        trained_by(type("Stating", (base,), traits)())


def test_a_class_derived_from_ours_may_be_cross_validated():
    derived = type("Mine", (SQP,), {})
    trained = trained_by(derived(), confidence=0, starts=1, objective=1.0)
    assert trained.status == "converged"
