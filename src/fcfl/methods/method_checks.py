"""What a method must have, and what each of its rounds must leave: checked where it is called.

So that a slip in a method of one's own is told of that method, not of a client or of our code.
"""

import reprlib
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args

import numpy as np

from fcfl._checks import is_count
from fcfl._types import Point, Reports, Request, Vector
from fcfl.errors import MethodError
from fcfl.methods.method import Method, RoundInfo, State, Status
from fcfl.problem.evaluation import Problem

_FUNCTIONS = ("init", "step", "fraction_done")
_STATE_PARTS = ("problem", "params", "request", "rounds", "status", "message")
_STATUSES = get_args(Status)

S = TypeVar("S", bound=State)


def check_method(method: Any) -> None:
    """Refuse what is no method, before anybody is asked anything."""
    if isinstance(method, type):
        raise TypeError(
            f"`method` must be a method as an object, got the class {method.__name__!r}: write "
            f"{method.__name__}()."
        )
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        raise TypeError(
            f"`method` must be a name, or an object with a text `name`; {_short(method)} has "
            f"{'none' if name is None else _short(name)}."
        )
    missing = [part for part in _FUNCTIONS if not callable(getattr(method, part, None))]
    if missing:
        raise TypeError(f"Method {name!r} must have the function `{missing[0]}`, and has none.")
    state_class: Any = getattr(method, "state_class", None)
    if not (isinstance(state_class, type) and is_dataclass(state_class)):
        got = "has none" if state_class is None else f"has {_short(state_class)}"
        raise TypeError(
            f"Method {name!r} must have a `state_class`, the dataclass of its states, and {got}. "
            "Example: state_class: ClassVar[type] = PenaltyState"
        )
    known = {field.name for field in fields(state_class)}
    lacking = [p for p in _STATE_PARTS if p not in known and not hasattr(state_class, p)]
    if lacking:
        raise TypeError(
            f"The state of method {name!r}, {state_class.__name__}, must have the field "
            f"`{lacking[0]}`, and has none."
        )


def first_state(method: Method[S], params: Vector, problem: Problem) -> S:
    """What ``init`` gives, if a run can begin with it."""
    state = method.init(params, problem)
    _check_state(method, "init", state, params.shape)
    return state


def next_state(method: Method[S], state: S, reports: Reports) -> tuple[S, RoundInfo]:
    """What ``step`` gives, if a run can go on with it."""
    given: Any = method.step(state, reports)
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], RoundInfo)):
        got = [_short(part) for part in given] if isinstance(given, tuple) else [_short(given)]
        raise MethodError(
            f"`step` of method {method.name!r} must return a state and a RoundInfo, such as "
            f"`describe_round` makes, got {', '.join(got)}."
        )
    after, info = given
    _check_state(method, "step", after, state.params.shape)
    if sum(after.rounds) != sum(state.rounds) + 1:
        raise MethodError(
            f"`step` of method {method.name!r} must count the round in `rounds`, which were "
            f"{state.rounds} and are {after.rounds}."
        )
    return after, info


def _check_state(method: Any, by: str, state: Any, shape: tuple[int, ...]) -> None:
    """Refuse a state that nobody could be asked about, or that no checkpoint could hold."""
    what = f"`{by}` of method {method.name!r}"
    if not isinstance(state, method.state_class):
        raise MethodError(
            f"{what} must give a {method.state_class.__name__}, its `state_class`, got "
            f"{_short(state)}."
        )
    if state.status not in _STATUSES:
        known = ", ".join(map(repr, _STATUSES))
        raise MethodError(f"{what} gives the status {state.status!r}; it must be one of {known}.")
    if not isinstance(state.rounds, tuple) or not all(map(is_count, state.rounds)):
        raise MethodError(
            f"{what} must give `rounds` as a tuple of counts, such as (3,), got "
            f"{_short(state.rounds)}."
        )
    _check_params(what, "`params`", state.params, shape)
    if state.status != "running":
        return
    points = state.request.points if isinstance(state.request, Request) else None
    if not points or not all(isinstance(point, Point) for point in points):
        raise MethodError(
            f"{what} must give a `request` with points, such as "
            f'Request((Point(params, "gradients"),)), got {_short(state.request)}.'
        )
    for point in points:
        _check_params(what, "a point of `request`", point.params, shape)


def _check_params(what: str, where: str, params: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(params, np.ndarray) or params.shape != shape:
        got = f"{params.shape}" if isinstance(params, np.ndarray) else _short(params)
        raise MethodError(f"{what} must give {where} as an array of shape {shape}, got {got}.")
    wrong = np.flatnonzero(~np.isfinite(params))
    if wrong.size:
        raise MethodError(
            f"{what} gives {where} with a number that is not finite, {params[wrong[0]]} at "
            f"position {wrong[0]}. All that clients sent was finite; shorter steps may help."
        )


def _short(value: Any) -> str:
    """What something is, in few words."""
    if value is None or isinstance(value, (bool, int, float, str, tuple, list)):
        return reprlib.repr(value)
    return repr(value.__name__) if isinstance(value, type) else f"a {type(value).__name__}"
