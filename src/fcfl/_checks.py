"""Checks of arguments and reports, which raise `ValueError` or `ReportError`."""

import difflib
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from fcfl._types import ClientId, CurvatureWeights, Matrix, Point, Report, Vector
from fcfl.errors import ReportError

NUMERIC = "iuf"  # numpy's kinds of real numbers


def is_number(value: object) -> TypeGuard[float]:
    """Return whether ``value`` is a real number of Python or numpy, and not a truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[float]:
    """Return whether ``value`` is a finite number in the range of float64."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:  # an integer of more than 308 digits
        return False


def is_count(value: object) -> TypeGuard[int]:
    """Return whether ``value`` is a whole number, 0 or more."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def check_budget(name: str, value: float) -> float:
    """Return ``value`` if it is a bound on a disparity, between 0 and 1."""
    if not (is_number(value) and 0 <= value <= 1):
        raise ValueError(
            f"`{name}` must be a number from 0 to 1, got {value!r}. "
            "A disparity is at most 1, so a budget of 1 has no effect."
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
    """Raise `ValueError` unless ``value`` is a pair of numbers."""
    if not (isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_number, value))):
        raise ValueError(f"`{name}` must be a pair of numbers, got {value!r}.")


def check_stage_rounds(name: str, value: Sequence[int]) -> None:
    """Raise `ValueError` unless ``value`` is a pair of counts."""
    if not (isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_count, value))):
        raise ValueError(f"`{name}` must be two counts, one per stage, got {value!r}.")


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
        raise ValueError(f"`params` must be finite, got a value of {float(strange[0])!r}.")
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
    """Raise ``error`` if a key is unknown; ``where`` is the file of the key."""
    names = list(known)
    for key in given:
        if key not in names:
            raise error(f"Unknown key `{key}` in {where}. {did_you_mean(key, names)}")


def first_of(items: Iterable[str], shown: int = 8) -> str:
    """Return the first items, separated by commas, and the number of other items."""
    items = list(items)
    more = f" and {len(items) - shown:,} more" if len(items) > shown else ""
    return ", ".join(items[:shown]) + more


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the most similar known name, or all known names."""
    names = [str(name) for name in known]
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    shown = ", ".join(repr(name) for name in names[:12])
    return f"Known: {shown}{', …' if len(names) > 12 else ''}."


def check_clients_known(name: str, given: Mapping[ClientId, object], known: Sequence[str]) -> None:
    """Raise `ValueError` if a mapping names an unknown client."""
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


_COUNT_ROUNDING = 1e-9  # relative tolerance of a count that must not exceed another count
_SYMMETRY = 1e-6  # tolerated asymmetry of a curvature, relative to its largest entry
LARGEST = 1e50  # largest magnitude in a report, so that products of three numbers are finite


def check_report(
    client: ClientId, report: Report, point: Point, n_rates: int, *, of_rows: bool = False
) -> None:
    """Raise `ReportError` for a missing part, a wrong shape, or an impossible number or rate.

    A negative loss is rejected only if the report is ``of_rows`` rather than of a formula.
    """
    if not isinstance(report, Report):
        raise ReportError(f"Client {client!r} sent {_a(report)} instead of a report.")
    wanted, n_params = _parts_wanted(point, n_rates), point.params.size
    for part, shape in wanted.items():
        _check_part(client, part, getattr(report, part), shape)
    fuller = {"loss_grad": (n_params,), "rate_grads": (n_rates, n_params)}
    for part, shape in {**fuller, "curvature": (n_params, n_params)}.items():
        unasked = None if part in wanted else getattr(report, part)
        if unasked is not None:  # parts that were not requested may be stored
            _check_part(client, part, unasked, shape)
    if report.confusion is not None:
        _check_part(client, "confusion", report.confusion, (4,))
        if (report.confusion < 0).any() or report.confusion.sum() > report.n_rows * (
            1 + _COUNT_ROUNDING
        ):
            raise ReportError(f"Client {client!r} sent a `confusion` that its rows cannot have.")
    _check_extras(client, report, _extras_wanted(point, n_rates))
    if not is_number(report.loss):
        raise ReportError(f"Client {client!r} sent {_a(report.loss)} as `loss`, expected a number.")
    if not is_finite(report.loss):
        raise ReportError(f"Client {client!r} sent a non-finite loss, {report.loss!r}.")
    if abs(float(report.loss)) > LARGEST or (of_rows and report.loss < 0):
        limits = "0" if of_rows else f"{-LARGEST:g}"
        raise ReportError(
            f"Client {client!r} sent a loss of {report.loss!r}; it must lie between {limits} and "
            f"{LARGEST:g}."
        )
    if not (is_finite(report.n_rows) and report.n_rows > 0):
        raise ReportError(f"Client {client!r} sent a row count of {report.n_rows!r}.")
    if not (is_count(report.age) and report.age == 0):
        raise ReportError(
            f"Client {client!r} sent a report of age {report.age!r}; only the server sets `age`."
        )
    _check_shares(client, report)
    _check_symmetric(client, report.curvature)


def _parts_wanted(point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that a report on ``point`` requires."""
    n_params = point.params.size
    parts: dict[str, tuple[int, ...]] = {"group_counts": (n_rates,), "rates": (n_rates,)}
    if point.wants_gradients:
        parts |= {"loss_grad": (n_params,), "rate_grads": (n_rates, n_params)}
    if point.want == "curvature":
        parts |= {"curvature": (n_params, n_params)}
    return parts


def _extras_wanted(point: Point, n_rates: int) -> dict[str, tuple[int, ...]]:
    return {k: s for extra in point.extras for k, s in extra.shapes(point, n_rates).items()}


def part_missing(report: Report, points: Iterable[Point]) -> str | None:
    """Return a description of the first requested part that a report does not have, or None."""
    words = {"loss_grad": "gradients", "rate_grads": "gradients", "curvature": "curvature"}
    n_rates, asked = report.rates.size, list(points)
    wanted = {part for point in asked for part in _parts_wanted(point, n_rates)}
    lacking = [words[p] for p in words if p in wanted and getattr(report, p) is None]
    extras = [key for point in asked for key in _extras_wanted(point, n_rates)]
    lacking += [key.replace("_", " ") for key in extras if key not in report.extras]
    return lacking[0] if lacking else None


def _check_part(client: ClientId, part: str, array: object, shape: tuple[int, ...]) -> None:
    """Raise `ReportError` unless a part is an array of finite numbers of this shape."""
    if array is None:
        raise ReportError(f"Client {client!r} sent no `{part}`, which was requested.")
    if not isinstance(array, np.ndarray):
        raise ReportError(f"Client {client!r} sent {_a(array)} as `{part}`, expected an array.")
    if array.dtype.kind not in NUMERIC:
        raise ReportError(
            f"Client {client!r} sent `{part}` of type {array.dtype}, expected real numbers."
        )
    if array.shape != shape and not _fits(array.shape, shape):
        raise ReportError(
            f"Client {client!r} sent `{part}` of shape {array.shape}, expected {shape}."
        )
    largest = float(np.abs(np.asarray(array)).max(initial=0.0))
    if not np.isfinite(largest):
        raise ReportError(f"Client {client!r} sent a non-finite number in `{part}`.")
    if largest > LARGEST:
        raise ReportError(
            f"Client {client!r} sent a number of magnitude {largest:g} in `{part}`; the largest "
            f"allowed is {LARGEST:g}."
        )


def _fits(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether a shape is the wanted shape, in which -1 stands for any size."""
    sizes = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(want in (-1, size) for size, want in sizes)


def check_curvature_sum(matrix: Matrix) -> None:
    """Raise `ReportError` if a sum of curvatures is not finite or not symmetric."""
    if not (np.abs(matrix) <= LARGEST).all():
        raise ReportError(
            f"The clients' curvatures have a number that is not finite or above {LARGEST:g}. Check "
            "for rows with very large features."
        )
    if _asymmetry(matrix):
        raise ReportError("The clients' curvatures are not symmetric.")


def _check_symmetric(client: ClientId, curvature: Matrix | None) -> None:
    """Raise `ReportError` if a curvature is asymmetric beyond rounding errors."""
    if curvature is None:
        return
    off = _asymmetry(curvature)
    if off:
        raise ReportError(
            f"Client {client!r} sent a `curvature` that is not symmetric: it differs from its "
            f"transpose by {off:g}."
        )


def _asymmetry(matrix: Matrix) -> float:
    """Return the largest difference of a matrix from its transpose, or 0 within rounding errors."""
    off = float(np.abs(matrix - matrix.T).max(initial=0.0))
    return off if off > _SYMMETRY * np.abs(matrix).max(initial=0.0) else 0.0


def _check_extras(client: ClientId, report: Report, wanted: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `ReportError` for extras that were not requested or have a wrong shape."""
    if not isinstance(report.extras, Mapping):
        raise ReportError(f"Client {client!r} sent {_a(report.extras)} as `extras`.")
    for part in report.extras:
        if part not in wanted:
            raise ReportError(f"Client {client!r} sent `{part}`, which was not requested.")
    for part, shape in wanted.items():
        _check_part(client, part, report.extras.get(part), shape)


def _check_shares(client: ClientId, report: Report) -> None:
    """Raise `ReportError` for impossible group counts or rates outside [0, 1]."""
    if (report.group_counts < 0).any():
        raise ReportError(f"Client {client!r} sent a negative group count.")
    most = float(report.group_counts.max(initial=0.0))
    if most > report.n_rows * (1 + _COUNT_ROUNDING):
        raise ReportError(
            f"Client {client!r} sent a group count of {most!r}, more than its {report.n_rows!r} "
            "rows."
        )
    outside = (report.rates < 0) | (report.rates > 1)
    if outside.any():
        rate = float(report.rates[outside][0])
        raise ReportError(f"Client {client!r} sent a rate of {rate!r}; rates lie between 0 and 1.")


def _a(value: object) -> str:
    """Return the name of a value's type with an article."""
    kind = type(value).__name__
    return "nothing" if value is None else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
