"""The interface of methods: ``init`` returns a state, ``step`` returns the next one.

User-defined methods are checked at each call, so that an error names the method and not a client.
"""

import hashlib
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, TypeVar, get_args

import msgspec
import numpy as np

from fcfl._checks import is_count
from fcfl._types import ClientId, Point, RateKind, Reports, Request, Vector
from fcfl.errors import MethodError
from fcfl.problem import Evaluation, Problem

Status = Literal["running", "converged", "stopped", "infeasible", "failed"]

_FUNCTIONS = ("init", "step", "fraction_done")
_STATE_PARTS = ("problem", "params", "request", "rounds", "status", "message")
_STATUSES = get_args(Status)
_WHOLE = 2.0**53  # integers below it are exact as floats


class State(Protocol):
    """The data that the next round requires; a checkpoint is a state written to a file.

    A state is a frozen dataclass of numbers, text, arrays, tuples, mappings with text keys, and
    other such dataclasses. The type hints of its fields must name every dataclass that they may
    contain, because a checkpoint can only restore these classes.

    ``params`` is the current result, ``request`` the next request to all clients, and ``rounds``
    the number of exchanges so far, by stage. The loop continues while ``status`` is "running". The
    final ``message`` states the reason for ending, in one sentence.
    """

    @property
    def problem(self) -> Problem: ...  # noqa: D102
    @property
    def params(self) -> Vector: ...  # noqa: D102
    @property
    def request(self) -> Request: ...  # noqa: D102
    @property
    def rounds(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def status(self) -> Status: ...  # noqa: D102
    @property
    def message(self) -> str: ...  # noqa: D102


S = TypeVar("S", bound=State)


@dataclass(frozen=True, slots=True)
class RoundInfo:
    """The summary of a round for logs; methods do not read it.

    ``round`` counts from 1 over both stages. The losses and ``largest_violation`` (smooth, minus
    infinity without budgets) are those of the evaluated point, on training rows. ``step`` is the
    step length or step size, 0 if no step was accepted. ``note`` is the outcome in one word, such
    as "refused". ``loss_gap`` and ``violation_gap`` are the differences between smooth maxima and
    maxima, for methods that use smooth maxima. ``exchange`` is the number of exchanges of the run
    so far and ``phase`` is their purpose; training sets both.
    """

    round: int
    stage: int
    worst_client: ClientId
    worst_loss: float
    mean_loss: float
    largest_violation: float
    step: float
    note: str = ""
    loss_gap: float | None = None
    violation_gap: float | None = None
    exchange: int | None = None
    phase: str | None = None


class Method(Protocol[S]):
    """A training method: two pure functions, and the progress of a state.

    ``init`` returns the first state, with the first request. ``step`` returns the next state, given
    a state and the reports on its request. Equal arguments must give equal results, so that a run
    can be replayed and resumed. ``fraction_done`` is between 0 and 1, for progress bars.

    ``state_class`` is the class of the states, which is used to read checkpoints. A report with an
    ``age`` above 0 is stale: its client did not reply, and the report describes an earlier point.
    Further properties are optional; see `Traits`.
    """

    state_class: ClassVar[type[Any]]

    @property
    def name(self) -> str: ...  # noqa: D102
    def init(self, params: Vector, problem: Problem) -> S: ...  # noqa: D102
    def step(self, state: S, reports: Reports) -> tuple[S, RoundInfo]: ...  # noqa: D102
    def fraction_done(self, state: S) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of a method that determine how the rest of the package uses it.

    A method defines class attributes of the same names for values that differ from the defaults. It
    does not require a base class. Use `traits_of` to read the traits.

    Parameters
    ----------
    enforces_budgets
        Whether training enforces the budgets. If not, a run notes that they are only measured.
    objectives
        Supported functions of the clients' losses: ``"max"``, ``"mean"``, and ``"temperature"`` for
        the smooth maximum at any positive temperature. Empty for a method with another objective.
    is_cross_validated
        Whether ``l2`` and ``objective`` are chosen by leave-one-out losses unless given. Requires a
        fast method that can start from any parameters.
    n_stages
        Number of entries of the option ``rounds``. With one stage, ``rounds`` is a single number.
    rate_kinds
        Kinds of rates required in addition to those that the rules compare.
    n_references
        Number of rows that clients disclose to the server as reference points.
    over_sites
        Whether clients that run as remote sites support all requests of the method.
    is_private
        Whether it requests only noisy sums. No other request is then sent before or after training.
    """

    enforces_budgets: bool = True
    objectives: tuple[Literal["max", "mean", "temperature"], ...] = ()
    is_cross_validated: bool = False
    n_stages: int = 1
    rate_kinds: tuple[RateKind, ...] = ()
    n_references: int = 0
    over_sites: bool = True
    is_private: bool = False


def traits_of(method: Any) -> Traits:
    """Return the traits of a method or of its class, with defaults for missing attributes.

    All optional attributes of a method must be read by this function.
    """
    names = Traits.__dataclass_fields__
    defined = {name: getattr(method, name) for name in names if hasattr(method, name)}
    return Traits(**defined)


def describe_round(
    evaluation: Evaluation, *, round: int, stage: int, step: float, note: str = ""
) -> RoundInfo:
    """Return the `RoundInfo` of a round that is described by the losses of ``evaluation``."""
    losses = evaluation.losses
    worst = int(np.argmax(losses))
    return RoundInfo(
        round=round,
        stage=stage,
        worst_client=evaluation.problem.clients[worst],
        worst_loss=float(losses[worst]),
        mean_loss=float(losses.mean()),
        largest_violation=evaluation.largest_violation,
        step=step,
        note=note,
    )


# --- checks ---------------------------------------------------------------------------------------


def check_method(method: Any) -> None:
    """Raise `TypeError` unless ``method`` has the interface of a method; sends no request."""
    if isinstance(method, type):
        raise TypeError(
            f"`method` must be a method object, got the class {method.__name__!r}. Use "
            f"{method.__name__}()."
        )
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        raise TypeError(
            f"`method` must be a name or an object with a text `name`, but `name` of "
            f"{_short(method)} is {'missing' if name is None else _short(name)}."
        )
    missing = [part for part in _FUNCTIONS if not callable(getattr(method, part, None))]
    if missing:
        raise TypeError(f"Method {name!r} must have the function `{missing[0]}`.")
    state_class: Any = getattr(method, "state_class", None)
    if not (isinstance(state_class, type) and is_dataclass(state_class)):
        got = "nothing" if state_class is None else _short(state_class)
        raise TypeError(
            f"Method {name!r} must have a `state_class`, the dataclass of its states, got {got}. "
            "Example: state_class: ClassVar[type] = PenaltyState"
        )
    known = {field.name for field in fields(state_class)}
    lacking = [p for p in _STATE_PARTS if p not in known and not hasattr(state_class, p)]
    if lacking:
        raise TypeError(
            f"The state of method {name!r}, {state_class.__name__}, must have the field "
            f"`{lacking[0]}`."
        )
    traits = traits_of(method)
    try:
        msgspec.convert(asdict(traits), Traits)
    except msgspec.ValidationError as error:
        raise TypeError(f"A trait of method {name!r} does not fit `Traits`: {error}.") from None
    for trait, stated, part in (
        ("objectives", len(traits.objectives) > 1, "objective"),
        ("is_cross_validated", traits.is_cross_validated, "restart"),  # of SQP
        ("is_private", traits.is_private, "releases"),  # of method "private"
    ):
        if stated and not hasattr(method, part):
            raise TypeError(
                f"`{trait}` of method {name!r} requires `{part}`: derive from a built-in method."
            )


def first_state(method: Method[S], params: Vector, problem: Problem) -> S:
    """Return the first state of a method, checked."""
    state = method.init(params, problem)
    _check_state(method, "init", state, params.shape)
    return state


def next_state(method: Method[S], state: S, reports: Reports) -> tuple[S, RoundInfo]:
    """Return the next state and the `RoundInfo` of a method, checked."""
    given: Any = method.step(state, reports)
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], RoundInfo)):
        got = [_short(part) for part in given] if isinstance(given, tuple) else [_short(given)]
        raise MethodError(
            f"`step` of method {method.name!r} must return a state and a RoundInfo (see "
            f"`describe_round`), got {', '.join(got)}."
        )
    after, info = given
    _check_state(method, "step", after, state.params.shape)
    if sum(after.rounds) != sum(state.rounds) + 1:
        raise MethodError(
            f"`step` of method {method.name!r} must increase the sum of `rounds` by one, got "
            f"{after.rounds} after {state.rounds}."
        )
    return after, info


def _check_state(method: Any, by: str, state: Any, shape: tuple[int, ...]) -> None:
    """Raise `MethodError` for a state with an invalid field."""
    what = f"`{by}` of method {method.name!r}"
    if not isinstance(state, method.state_class):
        raise MethodError(
            f"{what} must return a {method.state_class.__name__}, its `state_class`, got "
            f"{_short(state)}."
        )
    if state.status not in _STATUSES:
        known = ", ".join(map(repr, _STATUSES))
        raise MethodError(f"{what} must return a status among {known}, got {state.status!r}.")
    if not isinstance(state.rounds, tuple) or not all(map(is_count, state.rounds)):
        raise MethodError(
            f"{what} must return `rounds` as a tuple of counts, such as (3,), got "
            f"{_short(state.rounds)}."
        )
    _check_params(what, "`params`", state.params, shape)
    if state.status != "running":
        return
    points = state.request.points if isinstance(state.request, Request) else None
    if not points or not all(isinstance(point, Point) for point in points):
        raise MethodError(
            f"{what} must return a `request` with points, such as "
            f'Request((Point(params, "gradients"),)), got {_short(state.request)}.'
        )
    for point in points:
        _check_params(what, "a point of `request`", point.params, shape)


def _check_params(what: str, where: str, params: Any, shape: tuple[int, ...]) -> None:
    """Raise `MethodError` unless ``params`` is a finite array of this shape."""
    if not isinstance(params, np.ndarray) or params.shape != shape:
        got = f"{params.shape}" if isinstance(params, np.ndarray) else _short(params)
        raise MethodError(f"{what} must return {where} as an array of shape {shape}, got {got}.")
    wrong = np.flatnonzero(~np.isfinite(params))
    if wrong.size:
        raise MethodError(
            f"{what} must return finite numbers in {where}, got {params[wrong[0]]} at position "
            f"{wrong[0]}. All reports of clients were finite; shorter steps may help."
        )


def _short(value: Any) -> str:
    """Return a short description of a value."""
    if value is None or isinstance(value, (bool, int, float, str, tuple, list)):
        return reprlib.repr(value)
    return repr(value.__name__) if isinstance(value, type) else f"a {type(value).__name__}"


# --- options as text ------------------------------------------------------------------------------


def options_of(method: Any) -> dict[str, str]:
    """Return a method's name and options, each as text that is equal for equal options.

    The options are the fields of a dataclass or the public attributes of another class. Fields with
    ``compare=False`` are excluded; use this for options that do not affect results.
    """
    options = {"name": str(method.name)}
    if is_dataclass(method):
        names = [field.name for field in fields(method) if field.compare]
    else:
        names = [name for name in getattr(method, "__dict__", {}) if not name.startswith("_")]
    return options | {name: _text(getattr(method, name)) for name in names}


def _text(value: Any) -> str:
    """Return a value as text that is short, exact, and the same in every process."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        whole = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array{value.shape} of {value.dtype}, sha256 {whole[:16]}"
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE:
        value = int(value)  # 1 and 1.0 are one option
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, Mapping):
        parts = [f"{_text(key)}: {_text(item)}" for key, item in value.items()]
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if is_dataclass(value) and not isinstance(value, type):
        inner = [f"{f.name}={_text(getattr(value, f.name))}" for f in fields(value) if f.compare]
        return f"{type(value).__name__}({', '.join(inner)})"
    if isinstance(value, partial):
        given = [_text(value.func), *map(_text, value.args), _text(value.keywords)]
        return f"partial({', '.join(given)})"
    if hasattr(value, "__qualname__"):  # a function or class, whose repr has an address
        return f"{value.__module__}.{value.__qualname__}"
    if "__repr__" in {name for kind in type(value).__mro__[:-1] for name in vars(kind)}:
        return repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}({_text(vars(value))})"
