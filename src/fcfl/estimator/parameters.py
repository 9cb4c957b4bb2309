"""The classifier's parameters as what training takes: a method, settings, rules."""

from collections.abc import Mapping
from typing import Any

from fcfl._checks import check_choice
from fcfl._types import ClientId
from fcfl.methods.private import Private
from fcfl.methods.registry import METHODS, check_method
from fcfl.policy import PrivacyBudget
from fcfl.rules import RATE_KINDS, Difference, Ratio, Rule
from fcfl.runs.budget_settings import BudgetSettings
from fcfl.runs.options import check_fields
from fcfl.runs.privacy_settings import check_left_out

NETWORK_OBJECTIVE = 1.0  # settings of a network are not chosen


def method_of(classifier: Any, seed: int) -> Any:
    """The method as an object, or its name where it has no option set."""
    privacy = privacy_of(classifier)
    if privacy is not None:
        return _private_method(classifier, privacy)
    if not isinstance(classifier.method, str):
        if classifier.rounds is not None:
            raise ValueError("`rounds` is an option of the method object: leave it out here.")
        return classifier.method
    registered = METHODS[check_method("method", classifier.method)]
    options: dict[str, object] = {"seed": seed} if "seed" in registered.options else {}
    if classifier.rounds is not None:
        counts = (
            (classifier.rounds,) if isinstance(classifier.rounds, int) else tuple(classifier.rounds)
        )
        options["rounds"] = registered.stage_rounds(counts)
    return registered.method(**options)


def privacy_of(classifier: Any) -> PrivacyBudget | None:
    """Epsilon and delta of each client, where noise is asked for."""
    given: Any = classifier.privacy
    if given is None or isinstance(given, PrivacyBudget):
        return given
    if not isinstance(given, Mapping) or set(given) != {"epsilon", "delta"}:
        raise ValueError(
            f"`privacy` must be {{'epsilon': E, 'delta': D}} or a PrivacyBudget, got {given!r}."
        )
    return PrivacyBudget(**given)


def _private_method(classifier: Any, privacy: PrivacyBudget) -> Private:
    if classifier.method not in ("sqp", "private"):
        raise ValueError(
            f"`method` must be left out or 'private' with `privacy`, got {classifier.method!r}."
        )
    check_left_out(classifier)
    least = {} if classifier.min_group_rows is None else {"least_rows": classifier.min_group_rows}
    rounds = {} if classifier.rounds is None else {"rounds": classifier.rounds}
    return Private(privacy.epsilon, privacy.delta, **least, **rounds)


def is_masked(classifier: Any) -> bool:
    """Whether sums are masked; refused where a method has none, or has noise instead."""
    if not isinstance(classifier.masked, bool):
        raise ValueError(f"`masked` must be True or False, got {classifier.masked!r}.")
    if classifier.masked and classifier.privacy is not None:
        raise ValueError(
            "`masked` must be left out with `privacy`: each client's sums have noise already."
        )
    if (
        classifier.masked
        and classifier.method != "sqp"
        and not hasattr(classifier.method, "curvature")
    ):
        raise ValueError(
            f"`masked` belongs to method 'sqp', got {classifier.method!r}, without curvature."
        )
    return bool(classifier.masked)


def open_settings_of(classifier: Any) -> tuple[Any, Any]:
    """``l2`` and ``objective``; by its name a method leaves what is not given open."""
    l2, objective = classifier.l2, classifier.objective
    if classifier.privacy is not None:
        return l2, objective
    by_name = isinstance(classifier.method, str)
    if classifier.model is not None:
        if "auto" in (l2, objective):
            raise ValueError(
                "`l2` and `objective` must be numbers (or 'max') for a torch module: they are "
                "not chosen for it."
            )
        if objective is None and by_name and METHODS[classifier.method].traits.is_cross_validated:
            objective = NETWORK_OBJECTIVE
    elif by_name and objective is None and not classifier.excess_loss:
        objective = "auto" if METHODS[classifier.method].traits.is_cross_validated else None
    return l2, objective


def rules_of(classifier: Any, attributes: list[str], clients: list[ClientId]) -> tuple[Rule, ...]:
    """What is compared, and how much may differ."""
    budget: Any = classifier.budget
    if budget is not None and not attributes:
        raise ValueError("`budget` needs `sensitive_features` in `fit`: the groups to compare.")
    check_choice("metric", classifier.metric, RATE_KINDS)
    if isinstance(budget, (Difference, Ratio)):
        return (budget,)
    if isinstance(budget, (list, tuple)):
        strange = [rule for rule in budget if not isinstance(rule, (Difference, Ratio))]
        if strange:
            raise ValueError(
                "`budget` must be a number, a mapping or rules such as Difference(...), got "
                f"{strange[0]!r} in a sequence."
            )
        return tuple(budget)
    settings = BudgetSettings(metric=classifier.metric, budget=budget, scope=classifier.scope)
    check_fields(settings)
    settings.check_budgets_fit()
    return settings.make_rules(attributes, clients)
