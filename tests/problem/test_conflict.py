"""What is said of budgets that cannot be met together."""

import numpy as np
import pytest

from fcfl._types import Report
from fcfl.problem import build_problem, conflict_sentence, evaluate_point, holding_against, to_relax
from fcfl.rules import Difference, rates_needed
from helpers import RACE


def at_rates(by_client, scope="client", budget=0.05):
    rules = [Difference("demographic_parity", "race", budget, scope)]
    reports = {
        name: (Report(100.0, 0.5, np.full(2, 50.0), np.array(rates)),)
        for name, rates in by_client.items()
    }
    problem, _ = build_problem(rules, rates_needed(rules, RACE), reports)
    return evaluate_point(problem, np.zeros(1), reports)


def test_exceeded_rows_are_listed_with_what_is_missing_the_largest_first():
    at = at_rates({"a": [0.5, 0.4], "b": [0.2, 0.5], "c": [0.3, 0.3]})
    relax = to_relax(at)
    assert [row.client for row, _ in relax] == ["b", "a"]
    assert [row.group_a for row, _ in relax] == ["white", "black"]
    assert [amount for _, amount in relax] == pytest.approx([0.25, 0.05])


def test_a_violation_within_the_tolerance_is_met():
    assert to_relax(at_rates({"a": [0.5 + 9e-7, 0.45]})) == []
    assert len(to_relax(at_rates({"a": [0.5 + 2e-6, 0.45]}))) == 1


def test_rows_that_are_met_but_press_are_what_the_others_conflict_with():
    at = at_rates({"a": [0.6, 0.4], "b": [0.45, 0.40], "c": [0.3, 0.3]})
    weights = np.array([1e6, 0.0, 3.0, 0.0, 1e-9, 0.0])
    (against,) = holding_against(at, weights)
    assert (against.client, against.group_a) == ("b", "black")


def test_the_sentence_names_who_by_how_much_and_against_whom():
    at = at_rates({"a": [0.6, 0.4], "b": [0.45, 0.40], "c": [0.3, 0.3]})
    said = conflict_sentence(at, np.array([1e6, 0.0, 3.0, 0.0, 0.0, 0.0]))
    assert said == (
        "The budgets cannot be met together near this model. Relax 'a' "
        "(demographic_parity, race) by 0.15. Conflicting budgets: 'b' (demographic_parity, race)."
    )


def test_without_anyone_pressing_nobody_is_blamed():
    said = conflict_sentence(at_rates({"a": [0.6, 0.4], "b": [0.3, 0.3]}), np.zeros(4))
    assert "conflicts" not in said
    assert "'b'" not in said


def test_a_budget_over_all_clients_is_named_as_such():
    said = conflict_sentence(at_rates({"a": [0.6, 0.4], "b": [0.6, 0.4]}, "global"), np.zeros(2))
    assert "Relax all clients together (demographic_parity, race) by 0.15." in said


def test_a_long_list_is_cut_to_five_and_names_nobody_twice():
    at = at_rates({f"c{k}": [0.5 + k / 100, 0.3] for k in range(9)})
    assert conflict_sentence(at, np.zeros(18)).count("demographic_parity") == 5
    met = at_rates({"a": [0.35, 0.3], "b": [0.9, 0.1]})
    both_signs = conflict_sentence(met, np.array([1.0, 1.0, 0.0, 0.0]))
    assert both_signs.count("'a'") == 1
