r"""Train against tighter budgets, so that the held-out disparity keeps the one that was asked for.

A disparity measured on new rows differs from the one trained on by chance: its variance is
:math:`\sum_g p_g (1 - p_g) (2/n_g + 1/m_g)` over the two groups compared, with :math:`n_g`
training and :math:`m_g` held-out rows; training rows count twice, because the fit has adapted to
them. The budget is lowered by as many standard deviations as the confidence asks for, and by what
the hard disparity exceeds the smooth one on the training rows. `python -m benchmarks.confidence`
measures how often it then holds.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from fcfl._types import ClientId
from fcfl.errors import FCFLError
from fcfl.results.evaluations import Evaluations, smooth_disparities
from fcfl.rules import Difference, Rule


def tighten(
    rules: Sequence[Rule], found: Evaluations, confidence: float
) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
    """The rules with every client's budget lowered by its margin; one that has no room stays.

    ``found`` is what a model trained with the plain budgets does. Also a sentence per client whose
    rows do not allow it.
    """
    tightened: list[Rule] = []
    notes: list[str] = []
    check_rules_to_tighten(rules)
    for rule in rules:
        smooth = smooth_disparities(found, rule)
        budgets: dict[ClientId, float] = {}
        for client in found.train:
            budget = rule.budget_of(client)
            if budget is None or client not in smooth:
                continue
            margin = margin_of(found, rule, client, smooth[client], confidence)
            budgets[client] = budget - margin if margin < budget else budget
            if margin >= budget:
                notes.append(
                    f"Client {client!r} has too few rows for {confidence:g} confidence in a "
                    f"{rule.attribute} budget of {budget:g}: its margin is {margin:.3f}. "
                    "It is trained with the budget as it is."
                )
        tightened.append(replace(rule, budget=budgets))
    return tuple(tightened), tuple(notes)


def check_rules_to_tighten(rules: Sequence[Rule]) -> None:
    """Refuse rules whose margins are not known."""
    if not all(isinstance(rule, Difference) and rule.scope == "client" for rule in rules):
        raise FCFLError("`confidence` needs difference budgets of scope 'client'.")


def margin_of(
    found: Evaluations, rule: Rule, client: ClientId, smooth: float, confidence: float
) -> float:
    """By how much a held-out disparity may exceed the smooth one trained on."""
    train, test = found.train[client], found.test[client]
    rates = found.reports[client].rates
    variance, hard = 0.0, 0.0
    for kind in rule.kinds:
        groups = [
            i
            for i, rate in enumerate(found.rates)
            if rate.kind == kind and rate.attribute == rule.attribute and train.group_counts[i] > 0
        ]
        if len(groups) < 2:
            continue
        selected = train.group_selected[groups] / train.group_counts[groups]
        hard = max(hard, float(np.ptp(selected)))
        most, least = groups[int(np.argmax(rates[groups]))], groups[int(np.argmin(rates[groups]))]
        spread = sum(
            rates[g]
            * (1 - rates[g])
            * (2 / train.group_counts[g] + 1 / max(test.group_counts[g], 1.0))
            for g in (most, least)
        )
        variance = max(variance, float(spread))
    deviations = NormalDist().inv_cdf(confidence)
    return deviations * float(np.sqrt(variance)) + max(hard - smooth, 0.0)
