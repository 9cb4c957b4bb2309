"""An audit as a notebook shows it, and what it says where there is nothing to compare."""

import numpy as np

from fcfl.audit import audit_clients
from fcfl.audit.auditing import MOST_SHOWN
from fcfl.client.counts import Counts
from fcfl.rules import Difference, rates_needed, without_budgets

PARITY = Difference("demographic_parity", "race", 0.05)
OVERALL = Difference("demographic_parity", "race", 0.2, scope="global")
RATES = rates_needed([PARITY], {"race": ("a", "b")})


def counts(rows, selected):
    return Counts(40, 10, 20, 30, 1.0, np.array(rows, float), np.array(selected, float))


LARGE, ALONE = counts([5000, 5000], [1500, 1505]), counts([50, 0], [10, 0])


def test_an_audit_prints_its_counts_and_a_line_for_each_claim():
    first, *lines = str(audit_clients([PARITY], RATES, {"large": LARGE, "alone": ALONE})).split(
        "\n"
    )
    assert first == "Audit: 1 of 2 budgets met, 0 exceeded, 1 undetermined."
    assert len(lines) == 3
    assert lines[0].startswith("  Client 'large': demographic_parity difference by race is 0.001 [")
    assert lines[0].endswith("], budget at most 0.05: met.")
    assert lines[1].endswith("cannot be measured, budget at most 0.05: undetermined.")
    assert lines[2].startswith("  All clients together: ") and lines[2].endswith(", no budget.")


def test_the_rows_of_an_only_client_are_told_once():
    assert len(str(audit_clients([PARITY], RATES, {"one": LARGE})).split("\n")) == 2
    both = repr(audit_clients([PARITY, OVERALL], RATES, {"one": LARGE}))
    assert both.startswith("Audit: 2 of 2 budgets met") and "All clients together" in both


def test_without_budgets_nothing_is_counted_as_met():
    told = str(audit_clients(without_budgets([PARITY]), RATES, {"one": LARGE}))
    assert told.startswith("Audit: no budget was set")


def test_a_long_audit_is_cut_and_says_so():
    told = str(audit_clients([PARITY], RATES, {f"c{i}": LARGE for i in range(MOST_SHOWN + 4)}))
    assert told.endswith("  … and 5 more, see `evidence()`.")
    assert told.count("\n") == MOST_SHOWN + 1
    assert told.startswith(f"Audit: {MOST_SHOWN + 4} of {MOST_SHOWN + 4} budgets met")


def test_no_comparison_is_not_called_one():
    statement = audit_clients([PARITY], RATES, {"alone": ALONE}).statement
    assert statement.endswith("95 % confidence; no client has groups to compare.")
