"""Which traits a method may state: those for which it has what the package will ask of it."""

from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import msgspec

from fcfl.methods.method import Traits, traits_of
from fcfl.methods.private import Private
from fcfl.methods.sqp.sqp import SQP

_OBJECTIVES = ("max", "mean", "temperature")


def check_traits(method: Any) -> None:
    """Refuse a trait that the method could not live up to, before training begins."""
    traits, name = traits_of(method), method.name
    for trait, hint in get_type_hints(Traits).items():
        value = getattr(traits, trait)
        known = _fits(value, hint) and (trait != "objectives" or {*value} <= {*_OBJECTIVES})
        if not known:
            raise TypeError(
                f"`{trait}` of method {name!r} must be a value as in fcfl.methods.method.Traits, "
                f"such as {getattr(Traits(), trait)!r}, got {value!r}."
            )
    options = [field.name for field in fields(method)] if is_dataclass(method) else []
    if len(traits.objectives) > 1 and "objective" not in options:
        _refuse(name, "objectives", "to choose from needs an option `objective`")
    if traits.is_cross_validated and not isinstance(method, SQP):
        _refuse(
            name,
            "is_cross_validated",
            "needs a class derived from `fcfl.SQP`, whose fits go on under other bounds; leave it "
            "out and give `l2` as a number",
        )
    if traits.is_private and not isinstance(method, Private):
        _refuse(name, "is_private", "needs a class derived from method 'private'")


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value has a type; a list is no tuple."""
    try:
        return bool(msgspec.convert(value, hint) == value)
    except msgspec.ValidationError:
        return False


def _refuse(name: str, trait: str, needs: str) -> None:
    raise TypeError(f"`{trait}` of method {name!r} {needs}.")
