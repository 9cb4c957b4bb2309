"""Which method, and which of its settings are left to be chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

import numpy as np

from fcfl._checks import check_non_negative
from fcfl.methods.method import traits_of
from fcfl.methods.registry import METHODS, check_method
from fcfl.models.model import Model

MAX_ACCURACY_LOSS = 0.02  # that margins may cost on training rows, by default
MAX_RATE_SHIFT = 0.05  # from the model without budgets, by default
EXCESS_L2 = 1e-3  # held-out losses are compared, not what is lost beyond one's own best
L2_GRID = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)  # below, rates are overfitted for no more accuracy
MIDDLE_L2 = 1e-2
OBJECTIVES = (np.inf, 0.1)  # the mean, and near the maximum

Candidate = tuple[float, Any]


@dataclass(frozen=True)
class OpenSettings:
    """What is left to choose: ``"auto"``, or the value that is given."""

    l2: float | Literal["auto"]
    objective: float | Literal["max", "mean", "auto"]

    @property
    def is_open(self) -> bool:
        """Whether anything is left to choose."""
        return "auto" in (self.l2, self.objective)

    def candidates(self, n_clients: int) -> list[Candidate]:
        """Every combination; of one client alone all objectives are the same."""
        weights = L2_GRID if self.l2 == "auto" else (float(self.l2),)
        objectives: Sequence[Any] = (self.objective,)
        if self.objective == "auto":
            objectives = OBJECTIVES if n_clients > 1 else OBJECTIVES[:1]
        return [(l2, objective) for objective in objectives for l2 in weights]

    @property
    def first(self) -> Candidate:
        """Settings of the fit without budgets from which everything starts."""
        l2 = MIDDLE_L2 if self.l2 == "auto" else float(self.l2)
        return l2, np.inf if self.objective in ("auto", "max") else self.objective


def as_method(method: Any) -> Any:
    """A method by its name with its default options, or the object that is given."""
    if not isinstance(method, str):
        return method
    return METHODS[check_method("method", method)].method()


def has_objective(method: Any) -> bool:
    """Whether what is minimised over clients is an option of the method."""
    return is_dataclass(method) and any(field.name == "objective" for field in fields(method))


def objective_of(method: Any) -> Any:
    """What a method minimises over clients, None where it is something of its own."""
    fixed = traits_of(method).objectives
    return getattr(method, "objective", fixed[0] if len(fixed) == 1 else None)


def with_objective(method: Any, objective: Any) -> Any:
    """The method with this objective, where it has a choice."""
    return replace(method, objective=objective) if has_objective(method) else method


def check_open_settings(
    method: Any,
    l2: float | Literal["auto"] | None,
    objective: float | Literal["max", "mean", "auto"] | None,
    *,
    excess_loss: bool,
) -> None:
    """Refuse settings that the method does not know."""
    traits = traits_of(method)
    if isinstance(l2, str):
        if l2 != "auto":
            raise ValueError(f"`l2` must be a number or 'auto', got {l2!r}.")
        if not traits.is_cross_validated:
            raise ValueError(f"`l2` 'auto' belongs to method 'sqp', got {method.name!r}.")
    elif l2 is not None:
        check_non_negative("l2", l2)
    known = (*traits.objectives, *(("auto",) if traits.is_cross_validated else ()))
    kind = objective if isinstance(objective, str) else "temperature"
    if kind not in ("max", "mean", "auto", "temperature"):
        raise ValueError(
            f"`objective` must be 'max', 'mean', 'auto' or a positive number, got {objective!r}."
        )
    if objective is not None and kind not in known:
        raise ValueError(
            f"`objective` belongs to method 'sqp', got {objective!r} for {method.name!r}."
        )
    if excess_loss and not traits.takes_excess_loss:
        raise ValueError(
            f"`excess_loss` belongs to methods 'sqp' and 'two-stage', got {method.name!r}."
        )
    if excess_loss and "auto" in (l2, objective):
        raise ValueError(
            "`excess_loss` needs `l2` as a number and `objective` as 'max' or a number; "
            "choosing compares losses."
        )


def open_settings(
    method: Any,
    model: Model | None,
    l2: float | Literal["auto"] | None,
    objective: float | Literal["max", "mean", "auto"] | None,
    *,
    excess_loss: bool,
) -> OpenSettings:
    """Return what is given, and what is left to choose; without a ``model``, for a linear one.

    A network has a default L2 weight: choosing needs the features of rows.
    """
    how = as_method(method)
    default_l2 = None if model is None else model.default_l2
    if default_l2 is not None and "auto" in (l2, objective):
        raise ValueError("`l2` and `objective` 'auto' need a linear model: give numbers.")
    check_open_settings(how, l2, objective, excess_loss=excess_loss)
    chooses = traits_of(how).is_cross_validated and not excess_loss
    weight: Any = l2
    if weight is None:
        weight = EXCESS_L2 if excess_loss else "auto" if chooses else 0.0
        if traits_of(how).is_cross_validated and default_l2 is not None:
            weight = default_l2
    target: Any = objective
    if target is None:
        is_left_open = chooses and isinstance(method, str) and default_l2 is None
        target = "auto" if is_left_open else getattr(how, "objective", None)
    return OpenSettings(weight, target)
