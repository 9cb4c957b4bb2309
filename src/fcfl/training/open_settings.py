"""Which method, and which of its settings are left to cross-validation."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal

from fcfl._checks import check_choice, check_non_negative
from fcfl.models.model import Model
from fcfl.server.method import traits_of
from fcfl.server.registry import METHODS
from fcfl.training.selection import OpenSettings

EXCESS_L2 = 1e-3  # cross-validation compares losses, not what is lost beyond one's own best


def as_method(method: Any) -> Any:
    """A method by its name with its default options, or the object that is given."""
    if not isinstance(method, str):
        return method
    return METHODS[check_choice("method", method, METHODS)].method()


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
            "cross-validation compares losses."
        )


def open_settings(
    method: Any,
    model: Model,
    l2: float | Literal["auto"] | None,
    objective: float | Literal["max", "mean", "auto"] | None,
    *,
    excess_loss: bool,
) -> OpenSettings:
    """What is given, and what is left to choose.

    A model with a default L2 weight is not cross-validated unless that is asked for: a network's
    fits cost too much.
    """
    how = as_method(method)
    check_open_settings(how, l2, objective, excess_loss=excess_loss)
    chooses = traits_of(how).is_cross_validated and not excess_loss
    weight: Any = l2
    if weight is None:
        weight = EXCESS_L2 if excess_loss else "auto" if chooses else 0.0
        if traits_of(how).is_cross_validated and model.default_l2 is not None:
            weight = model.default_l2
    target: Any = objective
    if target is None:
        is_left_open = chooses and isinstance(method, str) and model.default_l2 is None
        target = "auto" if is_left_open else getattr(how, "objective", None)
    return OpenSettings(weight, target)
