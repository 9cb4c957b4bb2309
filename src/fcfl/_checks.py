"""Argument checks: each returns a valid value or raises `ValueError` with its name."""

import difflib
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from fcfl._types import ClientId, CurvatureWeights, Point, Vector

NUMERIC = "iuf"  # numpy's kinds of real numbers


def is_number(value: object) -> TypeGuard[float]:
    """Return whether ``value`` is a real number, Python's or numpy's; a truth value is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[float]:
    """Return whether ``value`` is a number that float64 can hold."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:  # an integer of more than 308 digits
        return False


def is_count(value: object) -> TypeGuard[int]:
    """Return whether ``value`` is a whole number, 0 or more."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def check_budget(name: str, value: float) -> float:
    """Return ``value`` if it can bound a disparity, which lies between 0 and 1."""
    if not (is_number(value) and 0 <= value <= 1):
        raise ValueError(
            f"`{name}` must be a number from 0 to 1, got {value!r}. "
            "A disparity never exceeds 1, so 1 leaves a client unconstrained."
        )
    return float(value)


def _number_check(rule: str, fits: Callable[[float], bool]) -> Callable[[str, float], float]:
    def check(name: str, value: float) -> float:
        if not (is_finite(value) and fits(value)):
            raise ValueError(f"`{name}` must {rule}, got {value!r}.")
        return float(value)

    return check


check_positive = _number_check("be a positive number", lambda value: value > 0)
check_non_negative = _number_check("be zero or a positive number", lambda value: value >= 0)
check_fraction = _number_check("lie between 0 and 1", lambda value: 0 < value < 1)
check_share = _number_check("lie between 0 and 1", lambda value: 0 <= value <= 1)
check_confidence = _number_check("be 0 or lie between 0 and 1", lambda value: 0 <= value < 1)


def check_at_least_one(name: str, value: int) -> int:
    """Return ``value`` if it is a whole number, 1 or more."""
    if not is_count(value) or value < 1:
        raise ValueError(f"`{name}` must be a whole number of at least 1, got {value!r}.")
    return value


def check_count(name: str, value: int) -> int:
    """Return ``value`` if it is a whole number, 0 or more."""
    if not is_count(value):
        raise ValueError(f"`{name}` must be a whole number, 0 or more, got {value!r}.")
    return int(value)


def check_pair(name: str, value: Sequence[float]) -> None:
    """Raise unless ``value`` is a pair of numbers."""
    if not (isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_number, value))):
        raise ValueError(f"`{name}` must be a pair of numbers, got {value!r}.")


def check_stage_rounds(name: str, value: Sequence[int]) -> None:
    """Raise unless ``value`` is a pair of counts."""
    if not (isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_count, value))):
        raise ValueError(f"`{name}` must be two counts, one a stage, got {value!r}.")


def check_params(params: ArrayLike) -> Vector:
    """Return ``params`` as a vector of finite numbers."""
    try:
        vector = np.asarray(params)
    except ValueError:  # rows of unequal length
        vector = np.array(None)
    if vector.dtype.kind not in NUMERIC or vector.ndim != 1:
        raise ValueError(f"`params` must be a vector of numbers, got {reprlib.repr(params)}.")
    strange = vector[~np.isfinite(vector)]
    if strange.size:
        raise ValueError(f"`params` must be finite, got {float(strange[0])!r} in it.")
    return vector.astype(np.float64, copy=False)


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    options = list(choices)
    if value not in options:
        raise ValueError(f"`{name}` must be one of {', '.join(options)}, got {value!r}.")
    return value


def check_keys(
    given: Iterable[str], known: Iterable[str], where: str, error: type[ValueError] = ValueError
) -> None:
    """Raise ``error`` if a key is unknown; ``where`` is the file that has it."""
    names = list(known)
    for key in given:
        if key not in names:
            raise error(f"Unknown key `{key}` in {where}. {did_you_mean(key, names)}")


def first_of(items: Iterable[str], shown: int = 8) -> str:
    """Return the first items after commas, and how many more there are."""
    items = list(items)
    more = f" and {len(items) - shown:,} more" if len(items) > shown else ""
    return ", ".join(items[:shown]) + more


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the nearest known one, or the first of all."""
    names = [str(name) for name in known]
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    shown = ", ".join(repr(name) for name in names[:12])
    return f"Known: {shown}{', …' if len(names) > 12 else ''}."


def check_clients_known(name: str, given: Mapping[ClientId, object], known: Sequence[str]) -> None:
    """Raise if a mapping names an unknown client."""
    for client in given:
        if client not in known:
            raise ValueError(
                f"`{name}` names client {client!r}, which is not in the data. "
                f"{did_you_mean(client, known)}"
            )


def check_curvature_weights(client: ClientId, point: Point) -> CurvatureWeights:
    """Return the client's weights in the Lagrangian; raise if the point has none for it."""
    given = point.curvature_weights or {}
    if client not in given:
        names = ", ".join(map(repr, list(given)[:12])) or "none"
        raise ValueError(
            f"`curvature_weights` must name client {client!r} when a point wants curvature, "
            f"got {names}."
        )
    return given[client]
