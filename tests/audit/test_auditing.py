import numpy as np
import pytest

from fcfl.audit import Selections, audit_clients, gate, judge
from fcfl.audit.auditing import MAX_LINES
from fcfl.audit.intervals import balanced_accuracy_interval, proportion_interval
from fcfl.client.counts import Counts
from fcfl.rules import Difference, Ratio, rates_needed, without_budgets

LEVELS = {"race": ("a", "b")}
PARITY = Difference("demographic_parity", "race", 0.05)
RATES = rates_needed([PARITY], LEVELS)


def counts(rows, selected, confusion=(40, 10, 20, 30)):
    return Counts(*confusion, 1.0, np.array(rows, float), np.array(selected, float))


def clients():
    return {
        "large": counts([5000, 5000], [1500, 1505]),
        "far": counts([5000, 5000], [1500, 2500]),
        "small": counts([20, 30], [10, 14]),
        "alone": counts([50, 0], [10, 0]),
    }


def verdicts(audit):
    return {name: part.disparities[0].verdict for name, part in audit.clients.items()}


def test_every_client_gets_its_verdict():
    audit = audit_clients([PARITY], RATES, clients())
    assert verdicts(audit) == {
        "large": "met",
        "far": "exceeded",
        "small": "undetermined",
        "alone": "undetermined",
    }
    assert audit.overall.disparities[0].verdict == "unconstrained"
    assert audit.overall.disparities[0].value == pytest.approx(4019 / 10030 - 3020 / 10070)


def test_intervals_are_simultaneous_over_clients_and_rules():
    rules = [PARITY, Ratio("demographic_parity", "race", 0.8)]
    audit = audit_clients(rules, RATES, clients())
    assert audit.alpha == pytest.approx(0.05 / 6)  # 'alone' has nothing to compare
    small = clients()["small"]
    for rule, found in zip(rules, audit.clients["small"].disparities, strict=True):
        budget = rule.budget
        alone = judge(rule, RATES, small.group_counts, small.group_selected, budget, audit.alpha)
        assert found == alone
    assert "6" in audit.statement and "99.1667" in audit.statement


def test_each_on_its_own():
    audit = audit_clients([PARITY], RATES, clients(), simultaneous="none", confidence=0.9)
    assert audit.alpha == pytest.approx(0.1)
    assert "90 %" in audit.statement
    one = audit_clients([PARITY], RATES, {"small": clients()["small"]}, confidence=0.9)
    found = audit.clients["small"].disparities[0]
    assert one.clients["small"].disparities[0].high == pytest.approx(found.high)


def test_order_of_clients_does_not_matter():
    forwards = audit_clients([PARITY], RATES, clients())
    backwards = audit_clients([PARITY], RATES, dict(reversed(clients().items())))
    assert dict(forwards.clients) == dict(backwards.clients)
    assert forwards.overall == backwards.overall


def test_scopes():
    both = [PARITY, Difference("demographic_parity", "race", 0.2, scope="global")]
    audit = audit_clients(both, RATES, clients())
    assert audit.client_rules == (PARITY,) and audit.global_rules == (both[1],)
    assert audit.overall.disparities[0].verdict == "met"
    audit = audit_clients(both[1:], RATES, clients())
    assert set(verdicts(audit).values()) == {"unconstrained"}


def test_budgets_of_single_clients():
    rule = Difference("demographic_parity", "race", {"far": 0.5})
    assert verdicts(audit_clients([rule], RATES, clients()))["far"] == "met"
    assert verdicts(audit_clients([rule], RATES, clients()))["large"] == "unconstrained"
    rule = Difference("demographic_parity", "race", {"fra": 0.5})
    with pytest.raises(ValueError, match=r"names client 'fra'.*Did you mean 'far'"):
        audit_clients([rule], RATES, clients())


def test_accuracies_have_intervals():
    part = audit_clients([PARITY], RATES, clients()).clients["small"]
    assert part.accuracy == pytest.approx(0.7)
    assert part.accuracy_interval == proportion_interval(70, 100)
    assert part.balanced_accuracy == pytest.approx((30 / 50 + 40 / 50) / 2)
    assert part.balanced_accuracy_interval == balanced_accuracy_interval(30, 50, 40, 50, 0.05)


def test_a_client_without_rows_has_no_accuracy():
    empty = counts([0, 0], [0, 0], (0, 0, 0, 0))
    part = audit_clients([PARITY], RATES, {"empty": empty}).clients["empty"]
    assert (part.selected, part.accuracy, part.balanced_accuracy) == (None, None, None)
    one_class = counts([5, 5], [1, 1], (8, 2, 0, 0))
    part = audit_clients([PARITY], RATES, {"one": one_class}).clients["one"]
    assert part.balanced_accuracy == pytest.approx(0.8)


def test_rows_without_labels_have_no_accuracy():
    found = {"a": Selections(50, 24, np.array([20.0, 30]), np.array([10.0, 14]))}
    audit = audit_clients([PARITY], RATES, found)
    assert audit.clients["a"].accuracy is None and audit.overall.balanced_accuracy is None
    assert audit.overall.selected == 24
    with pytest.raises(ValueError, match="`metric` must be 'demographic_parity' where rows have"):
        audit_clients([Difference("equal_opportunity", "race")], RATES, found)
    with pytest.raises(ValueError, match=r"one that was counted, got 'rice'. Did you mean 'race'"):
        audit_clients([Difference("demographic_parity", "rice")], RATES, found)


def test_small_groups_are_named_with_their_client():
    audit = audit_clients([PARITY], RATES, clients(), min_group_rows=25)
    first, second = audit.notes()
    assert "'small'" in first and "'a'" in first and "25" in first
    assert "'alone'" in second and "'b'" in second


def test_gate():
    audit = audit_clients([PARITY], RATES, clients())
    exceeded = gate(audit, "exceeded")
    assert len(exceeded) == 1 and "'far'" in exceeded[0] and "0.200" in exceeded[0]
    for line, name in zip(gate(audit, "undetermined"), ("far", "small", "alone"), strict=True):
        assert repr(name) in line
    assert gate(audit_clients([PARITY], RATES, {"l": clients()["large"]}), "undetermined") == ()
    unbounded = audit_clients([Difference("demographic_parity", "race")], RATES, clients())
    assert gate(unbounded, "undetermined") == ()


def test_a_global_budget_is_gated_too():
    rule = Ratio("demographic_parity", "race", 0.9, scope="global")
    (line,) = gate(audit_clients([rule], RATES, clients()), "exceeded")
    assert "All clients" in line and "ratio" in line and "0.9" in line


@pytest.mark.parametrize(
    ("options", "named"),
    [({"confidence": 1.0}, "confidence"), ({"simultaneous": "holm"}, "holm")],
)
def test_bad_options(options, named):
    with pytest.raises(ValueError, match=named):
        audit_clients([PARITY], RATES, clients(), **options)


def test_bad_gate_and_no_clients():
    with pytest.raises(ValueError, match="`fail_on`"):
        gate(audit_clients([PARITY], RATES, clients()), "met")
    with pytest.raises(ValueError, match="`counts`"):
        audit_clients([PARITY], RATES, {})


# --- as a notebook shows it -----------------------------------------------------------------------

OVERALL = Difference("demographic_parity", "race", 0.2, scope="global")


def test_the_rows_of_an_only_client_are_shown_once():
    assert len(str(audit_clients([PARITY], RATES, {"one": clients()["large"]})).split("\n")) == 2
    both = repr(audit_clients([PARITY, OVERALL], RATES, {"one": clients()["large"]}))
    assert both.startswith("Audit: 2 of 2 budgets met") and "All clients together" in both


def test_without_budgets_nothing_is_counted_as_met():
    shown = str(audit_clients(without_budgets([PARITY]), RATES, {"one": clients()["large"]}))
    assert shown.startswith("Audit: no budget was set")


def test_a_long_audit_is_cut_and_says_so():
    shown = str(
        audit_clients([PARITY], RATES, {f"c{i}": clients()["large"] for i in range(MAX_LINES + 4)})
    )
    assert shown.endswith("  … and 5 more, see `disparities()`.")
    assert shown.count("\n") == MAX_LINES + 1
    assert shown.startswith(f"Audit: {MAX_LINES + 4} of {MAX_LINES + 4} budgets met")


def test_no_comparison_is_not_called_one():
    statement = audit_clients([PARITY], RATES, {"alone": clients()["alone"]}).statement
    assert statement.endswith("95 % confidence; no client has groups to compare.")
