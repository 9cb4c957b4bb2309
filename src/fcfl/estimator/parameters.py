"""The classifier's parameters as what training takes: a method, settings, rules."""

from typing import Any

from fcfl._checks import check_choice
from fcfl._types import ClientId
from fcfl.rules import RATE_KINDS, Difference, Ratio, Rule
from fcfl.runs.budget_settings import BudgetSettings
from fcfl.runs.option_fields import check_fields
from fcfl.server.registry import METHODS

NETWORK_OBJECTIVE = 1.0  # a network is not cross-validated


def method_of(classifier: Any, seed: int) -> Any:
    """The method as an object, or its name where it has no option set."""
    if not isinstance(classifier.method, str):
        if classifier.rounds is not None:
            raise ValueError("`rounds` is an option of the method object: leave it out here.")
        return classifier.method
    registered = METHODS[check_choice("method", classifier.method, METHODS)]
    options: dict[str, Any] = {"seed": seed} if "seed" in registered.options else {}
    if classifier.rounds is not None:
        counts = (
            (classifier.rounds,) if isinstance(classifier.rounds, int) else tuple(classifier.rounds)
        )
        options["rounds"] = registered.stage_rounds(counts)
    return registered.method(**options)


def open_settings_of(classifier: Any) -> tuple[Any, Any]:
    """``l2`` and ``objective``; by its name a method leaves what is not given open."""
    l2, objective = classifier.l2, classifier.objective
    by_name = isinstance(classifier.method, str)
    if classifier.model is not None:
        if "auto" in (l2, objective):
            raise ValueError(
                "`l2` and `objective` must be numbers (or 'max') for a torch module; it is "
                "not cross-validated."
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
