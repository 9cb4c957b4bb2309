"""Which method a run uses, which of its settings are left to choose, and what it may claim."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, get_type_hints

import msgspec
import numpy as np

from fcfl._checks import check_non_negative
from fcfl.methods.method import Traits, traits_of
from fcfl.methods.method import check_method as check_methods
from fcfl.methods.private import Private
from fcfl.methods.registry import METHODS, check_method
from fcfl.methods.sqp.sqp import SQP
from fcfl.models.model import Model

MAX_ACCURACY_LOSS = 0.02  # that margins may cost on training rows, by default
MAX_RATE_SHIFT = 0.05  # from the model without budgets, by default
L2_GRID = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)  # below, rates are overfitted for no more accuracy
MIDDLE_L2 = 1e-2
OBJECTIVES = (np.inf, 0.1)  # the mean, and near the maximum

Candidate = tuple[float, Any]


@dataclass(frozen=True)
class OpenSettings:
    """The L2 weight and the objective: ``"auto"``, or the value that is given."""

    l2: float | Literal["auto"]
    objective: float | Literal["max", "mean", "auto"]

    @property
    def is_open(self) -> bool:
        """Whether anything is left to choose."""
        return "auto" in (self.l2, self.objective)

    def candidates(self, n_clients: int) -> list[Candidate]:
        """Return every combination; with one client all objectives are the same."""
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
    """Return a method by its name with its default options, or the object that is given."""
    if not isinstance(method, str):
        return method
    return METHODS[check_method("method", method)].method()


def objective_of(method: Any) -> Any:
    """Return what a method minimises over clients, None where it is something of its own."""
    fixed = traits_of(method).objectives
    return getattr(method, "objective", fixed[0] if len(fixed) == 1 else None)


def with_objective(method: Any, objective: Any) -> Any:
    """Return the method with this objective, where it has a choice."""
    has_choice = is_dataclass(method) and "objective" in {field.name for field in fields(method)}
    return replace(method, objective=objective) if has_choice else method


def check_open_settings(
    method: Any,
    l2: float | Literal["auto"] | None,
    objective: float | Literal["max", "mean", "auto"] | None,
) -> None:
    """Raise `ValueError` for settings that the method does not have."""
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


def open_settings(
    method: Any,
    model: Model | None,
    l2: float | Literal["auto"] | None,
    objective: float | Literal["max", "mean", "auto"] | None,
) -> OpenSettings:
    """Return what is given, and what is left to choose; without a ``model``, for a linear one.

    A network has a default L2 weight: choosing needs the features of rows.
    """
    how = as_method(method)
    default_l2 = None if model is None else model.default_l2
    if default_l2 is not None and "auto" in (l2, objective):
        raise ValueError("`l2` and `objective` 'auto' need a linear model: give numbers.")
    check_open_settings(how, l2, objective)
    chooses = traits_of(how).is_cross_validated
    weight: Any = l2
    if weight is None:
        weight = ("auto" if default_l2 is None else default_l2) if chooses else 0.0
    target: Any = objective
    if target is None:
        is_left_open = chooses and isinstance(method, str) and default_l2 is None
        target = "auto" if is_left_open else getattr(how, "objective", None)
    return OpenSettings(weight, target)


def check_traits(method: Any) -> None:
    """Raise `TypeError` for a method that lacks what a method needs, or a trait states."""
    check_methods(method)
    traits, name = traits_of(method), method.name
    for trait, hint in get_type_hints(Traits).items():
        value = getattr(traits, trait)
        try:
            fits = msgspec.convert(value, hint) == value
        except msgspec.ValidationError:
            fits = False
        if not fits or (trait == "objectives" and not {*value} <= {"max", "mean", "temperature"}):
            raise TypeError(
                f"`{trait}` of method {name!r} must be a value as in fcfl.methods.method.Traits, "
                f"such as {getattr(Traits(), trait)!r}, got {value!r}."
            )
    options = [field.name for field in fields(method)] if is_dataclass(method) else []
    missing = {
        "objectives": len(traits.objectives) > 1
        and "objective" not in options
        and "to choose from needs an option `objective`",
        "is_cross_validated": traits.is_cross_validated
        and not isinstance(method, SQP)
        and "needs a class derived from `fcfl.SQP`, whose fits continue under other bounds; leave "
        "it out and give `l2` as a number",
        "is_private": traits.is_private
        and not isinstance(method, Private)
        and "needs a class derived from method 'private'",
    }
    for trait, needs in missing.items():
        if needs:
            raise TypeError(f"`{trait}` of method {name!r} {needs}.")
