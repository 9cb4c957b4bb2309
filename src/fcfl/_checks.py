"""Argument checks: one function per question, one wording."""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fcfl._types import ClientId, Point, Report
from fcfl.errors import ReportError


def check_budget(name: str, value: float) -> float:
    """Return ``value`` when it can bound a disparity, which lies between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(
            f"`{name}` must be a number from 0 to 1, got {value!r}. "
            "A disparity never exceeds 1, so 1 leaves a client unconstrained."
        )
    return float(value)


def check_positive(name: str, value: float) -> float:
    """Return ``value`` when it is a positive, finite number."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"`{name}` must be a positive number, got {value!r}.")
    return float(value)


def check_non_negative(name: str, value: float) -> float:
    """Return ``value`` when it is zero or a positive, finite number."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"`{name}` must be zero or a positive number, got {value!r}.")
    return float(value)


def check_fraction(name: str, value: float) -> float:
    """Return ``value`` when it lies strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"`{name}` must lie between 0 and 1, got {value!r}.")
    return float(value)


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Return ``value`` when it is one of ``choices``."""
    options = list(choices)
    if value not in options:
        raise ValueError(f"`{name}` must be one of {', '.join(options)}, got {value!r}.")
    return value


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A way out for a misspelt name: the nearest known ones, or all of them when few."""
    names = [str(name) for name in known]
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    shown = ", ".join(repr(name) for name in names[:12])
    return f"Known: {shown}{', …' if len(names) > 12 else ''}."


def check_clients_known(name: str, given: Mapping[ClientId, object], known: Sequence[str]) -> None:
    """Refuse a mapping that names a client nobody has heard of."""
    for client in given:
        if client not in known:
            raise ValueError(
                f"`{name}` names client {client!r}, which is not in the data. "
                f"{did_you_mean(client, known)}"
            )


def check_report(client: ClientId, report: Report, point: Point, n_rates: int) -> None:
    """Refuse a report with a missing part, a wrong shape, a non-finite number or a false rate."""
    n_params = point.params.size
    parts: dict[str, tuple[object, tuple[int, ...]]] = {
        "group_rows": (report.group_rows, (n_rates,)),
        "rates": (report.rates, (n_rates,)),
    }
    if point.want != "values":
        parts["loss_grad"] = (report.loss_grad, (n_params,))
        parts["rate_grads"] = (report.rate_grads, (n_rates, n_params))
    if point.want == "curvature":
        parts["curvature"] = (report.curvature, (n_params, n_params))
    for part, (array, shape) in parts.items():
        if not isinstance(array, np.ndarray):
            raise ReportError(f"Client {client!r} sent no `{part}`, which was asked for.")
        if array.shape != shape:
            raise ReportError(
                f"Client {client!r} sent `{part}` of shape {array.shape}, expected {shape}."
            )
        if not np.isfinite(array).all():
            raise ReportError(f"Client {client!r} sent a non-finite number in `{part}`.")
    if not math.isfinite(report.loss):
        raise ReportError(f"Client {client!r} sent a non-finite loss, {report.loss!r}.")
    if not (math.isfinite(report.n_rows) and report.n_rows > 0):
        raise ReportError(f"Client {client!r} sent a row count of {report.n_rows!r}.")
    if (report.group_rows < 0).any():
        raise ReportError(f"Client {client!r} sent a negative group count.")
    outside = (report.rates < 0) | (report.rates > 1)
    if outside.any():
        rate = float(report.rates[outside][0])
        raise ReportError(f"Client {client!r} sent a rate of {rate!r}; rates lie between 0 and 1.")
