"""The registry of methods, and what the package may ask of a method it has never seen."""

import sys
from dataclasses import is_dataclass
from types import SimpleNamespace

import pytest

from fcfl.federation.serialise import Serialiser
from fcfl.methods import registry
from fcfl.methods.baselines import FedAvg
from fcfl.methods.method import Traits, traits_of
from fcfl.methods.registry import METHODS

every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_a_method_is_registered_under_its_own_name_with_its_state_class(name):
    method = METHODS[name].method()
    assert method.name == name == METHODS[name].name
    assert METHODS[name].method is type(method)
    assert is_dataclass(method.state_class)
    assert method.state_class.__name__ in Serialiser(method.state_class).classes


@every_method
def test_help_is_one_line_without_a_full_stop(name):
    assert METHODS[name].help and "\n" not in METHODS[name].help
    assert not METHODS[name].help.endswith(".")


@every_method
def test_traits_agree_with_the_options(name):
    one = METHODS[name]
    assert set(one.own_options) <= set(one.options)
    assert {"name", "rounds", "step_size", "seed"}.isdisjoint(one.own_options)
    assert ("temperature" in one.traits.objectives) == ("objective" in one.options)
    rounds = one.method(rounds=(3,) * one.traits.n_stages if one.traits.n_stages > 1 else 3).rounds
    assert rounds in (3, (3, 3))


def test_budgets_are_enforced_by_three_methods_only():
    enforcing = [name for name, one in METHODS.items() if one.traits.enforces_budgets]
    assert enforcing == ["sqp", "two-stage", "private"]
    assert METHODS["sqp"].traits.objectives == ("max", "mean", "temperature")
    assert [name for name, one in METHODS.items() if one.traits.is_cross_validated] == ["sqp"]


def test_a_method_of_ones_own_needs_no_base_class_and_states_only_what_differs():
    class Plain:
        """States nothing."""

    class Own:
        """States one trait for the class and one for the object."""

        enforces_budgets = False

        def __init__(self, n_references):
            self.n_references = n_references

    assert traits_of(Plain()) == traits_of(Plain) == Traits()
    assert traits_of(Own(7)) == Traits(enforces_budgets=False, n_references=7)


def test_the_registry_cannot_be_changed():
    with pytest.raises(TypeError):
        METHODS["mine"] = METHODS["sqp"]


def test_a_method_of_the_paper_that_is_not_installed_names_its_distribution(monkeypatch):
    monkeypatch.setattr(registry, "METHODS", {"sqp": METHODS["sqp"]})
    with pytest.raises(ValueError, match=r"`method` 'mmpf'.*fcfl-paper"):
        registry.check_method("method", "mmpf")
    with pytest.raises(ValueError, match="`method` must be one of sqp, got 'none'"):
        registry.check_method("method", "none")


def test_an_entry_point_adds_a_method(monkeypatch):
    class Own(FedAvg):
        name = "own"
        help = "a method of another distribution"

    monkeypatch.setattr(sys.modules[__name__], "Own", Own, raising=False)
    entry = SimpleNamespace(name="own", value=f"{__name__}:Own")
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    (added,) = registry._installed()
    assert (added.name, added.method, added.help) == ("own", Own, Own.help)
