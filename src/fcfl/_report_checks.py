"""Check a report, whatever its source; errors name the client and the part."""

from collections.abc import Iterable, Mapping

import numpy as np

from fcfl._checks import NUMERIC, is_count, is_finite, is_number
from fcfl._types import ClientId, Matrix, Point, Report
from fcfl.errors import ReportError

_ROUNDING = 1e-9  # share by which a count may exceed another that it is part of
_SYMMETRY = 1e-6  # share of its largest entry by which a curvature may be off its transpose
LARGEST = 1e50  # magnitude of any number in a report: products of three of them stay finite


def check_report(
    client: ClientId, report: Report, point: Point, n_rates: int, *, of_rows: bool = False
) -> None:
    """Reject a report with a missing part, a wrong shape, or an impossible number or rate.

    A loss ``of_rows`` is not negative; one that a client makes up by a formula may be.
    """
    if not isinstance(report, Report):
        raise ReportError(f"Client {client!r} sent {_a(report)} instead of a report.")
    wanted, n_params = _parts_wanted(point, n_rates), point.params.size
    for part, shape in wanted.items():
        _check_part(client, part, getattr(report, part), shape)
    fuller = {"loss_grad": (n_params,), "rate_grads": (n_rates, n_params)}
    for part, shape in {**fuller, "curvature": (n_params, n_params)}.items():
        unasked = None if part in wanted else getattr(report, part)
        if unasked is not None:  # it may be kept, and is counted
            _check_part(client, part, unasked, shape)
    if report.confusion is not None:
        _check_part(client, "confusion", report.confusion, (4,))
        if (report.confusion < 0).any() or report.confusion.sum() > report.n_rows * (1 + _ROUNDING):
            raise ReportError(f"Client {client!r} sent a `confusion` that its rows cannot have.")
    _check_extras(client, report, _extras_wanted(point, n_rates))
    if not is_number(report.loss):
        raise ReportError(f"Client {client!r} sent a loss that is {_a(report.loss)}, no number.")
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
    """The arrays a report on ``point`` must have, and their shapes."""
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
    """Return the first part that a point requests and the report lacks, in words."""
    words = {"loss_grad": "gradients", "rate_grads": "gradients", "curvature": "curvature"}
    n_rates, asked = report.rates.size, list(points)
    wanted = {part for point in asked for part in _parts_wanted(point, n_rates)}
    lacking = [words[p] for p in words if p in wanted and getattr(report, p) is None]
    extras = [key for point in asked for key in _extras_wanted(point, n_rates)]
    lacking += [key.replace("_", " ") for key in extras if key not in report.extras]
    return lacking[0] if lacking else None


def _check_part(client: ClientId, part: str, array: object, shape: tuple[int, ...]) -> None:
    """Refuse what is not an array of finite numbers of this shape."""
    if array is None:
        raise ReportError(f"Client {client!r} sent no `{part}`, which was asked for.")
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
            f"Client {client!r} sent a number of magnitude {largest:g} in `{part}`; at most "
            f"{LARGEST:g} can be used."
        )


def _fits(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a shape is as wanted; -1 stands for any size."""
    sizes = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(want in (-1, size) for size, want in sizes)


def check_curvature_sum(matrix: Matrix) -> None:
    """Refuse a curvature of one client, or the sum of all, in which some part cannot be."""
    if not (np.abs(matrix) <= LARGEST).all():
        raise ReportError(
            "The clients' curvatures have a number that is not finite or above "
            f"{LARGEST:g}; look for rows with very large features."
        )
    if _asymmetry(matrix):
        raise ReportError("The clients' curvatures are not symmetric.")


def _check_symmetric(client: ClientId, curvature: Matrix | None) -> None:
    """Refuse second derivatives that depend on their order by more than rounding does."""
    if curvature is None:
        return
    off = _asymmetry(curvature)
    if off:
        raise ReportError(
            f"Client {client!r} sent a `curvature` that is not symmetric: entries differ by "
            f"{off:g} from those across the diagonal."
        )


def _asymmetry(matrix: Matrix) -> float:
    """How far entries are from those across the diagonal; 0 where that is rounding."""
    off = float(np.abs(matrix - matrix.T).max(initial=0.0))
    return off if off > _SYMMETRY * np.abs(matrix).max(initial=0.0) else 0.0


def _check_extras(client: ClientId, report: Report, wanted: Mapping[str, tuple[int, ...]]) -> None:
    """Reject parts that were not requested, and requested parts of another shape."""
    if not isinstance(report.extras, Mapping):
        raise ReportError(f"Client {client!r} sent {_a(report.extras)} as `extras`.")
    for part in report.extras:
        if part not in wanted:
            raise ReportError(f"Client {client!r} sent `{part}`, which was not asked for.")
    for part, shape in wanted.items():
        _check_part(client, part, report.extras.get(part), shape)


def _check_shares(client: ClientId, report: Report) -> None:
    """Refuse groups of fewer rows than none or more than all, and rates outside [0, 1]."""
    if (report.group_counts < 0).any():
        raise ReportError(f"Client {client!r} sent a negative group count.")
    most = float(report.group_counts.max(initial=0.0))
    if most > report.n_rows * (1 + _ROUNDING):
        raise ReportError(
            f"Client {client!r} sent a group count of {most!r}, more than its {report.n_rows!r} "
            "rows."
        )
    outside = (report.rates < 0) | (report.rates > 1)
    if outside.any():
        rate = float(report.rates[outside][0])
        raise ReportError(f"Client {client!r} sent a rate of {rate!r}; rates lie between 0 and 1.")


def _a(value: object) -> str:
    """Return the kind of a value, with its article."""
    kind = type(value).__name__
    return "nothing" if value is None else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
