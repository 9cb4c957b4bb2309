"""Reasons for exit code 3: which training budgets are exceeded, by whom and by how much."""

from html import unescape

import pytest

from fcfl.report.page import write_page
from fcfl.report.words import next_steps, standing, title_of, verdict_sentence
from fcfl.results import Disparity
from fcfl.results.findings import exceeded_budgets, findings_of, is_exceeded
from simulated import client, judged, parsed, result, write


def entry(value, budget, rule="difference", smooth=None):
    return Disparity("demographic_parity", "race", rule, value, smooth, budget=budget)


@pytest.mark.parametrize(
    ("found", "exceeded"),
    [
        (entry(0.05, 0.05), False),
        (entry(0.05 + 1e-12, 0.05), False),
        (entry(0.05 + 5e-7, 0.05), True),  # counts are exact
        (entry(None, 0.05, smooth=0.05 + 5e-7), False),  # within the tolerance of training
        (entry(None, 0.05, smooth=0.051), True),
        (entry(0.04, 0.05, smooth=0.06), False),
        (entry(0.8, 0.8, "ratio"), False),
        (entry(0.79, 0.8, "ratio"), True),
        (entry(0.9, 0.8, "ratio"), False),
        (entry(None, 0.05), False),
        (entry(0.9, None), False),
    ],
)
def test_a_difference_exceeds_from_above_and_a_ratio_from_below(found, exceeded):
    assert is_exceeded(found) is exceeded


def run(over, *, together=(), **more):
    """A run whose clients have the given training values; their held-out budgets are all met."""
    clients = {}
    for name, value in over.items():
        clients[name] = client(judged(0.01, 0.0, 0.04, 0.05, "met"))
        clients[name]["train"]["disparities"] = [judged(value, 0.0, 0.3, 0.05, "undetermined")]
    content = result(clients, **more)
    content["global"]["train"]["disparities"] = list(together)
    return content


OVER = {"north": 0.0612, "south": 0.05, "east": 0.0504, "west": 0.3, "centre": 0.07}


def test_exceeded_budgets_come_with_the_largest_excess_first():
    total = judged(0.79, 0.7, 0.9, 0.8, "undetermined", rule="ratio")
    found = exceeded_budgets(parsed(run(OVER, together=[total])))
    assert [one.client for one in found] == ["west", "centre", "north", None, "east"]
    assert [one.excess for one in found] == pytest.approx([0.25, 0.02, 0.0112, 0.01, 0.0004])


def test_the_headline_and_the_steps_of_exit_code_3_name_the_budgets(tmp_path):
    content = run(OVER)
    (finding,) = findings_of(parsed(content))
    assert title_of(parsed(content)) == (
        "4 of 5 budgets are exceeded on the training rows (exit code 3)."
    )
    assert finding.items == (
        "west by 0.25 (race difference 0.3, budget 0.05)",
        "centre by 0.02 (race difference 0.07, budget 0.05)",
        "north by 0.011 (race difference 0.0612, budget 0.05)",
        "1 more",
    )
    first = next_steps(parsed(content))[0]
    assert "; ".join(finding.items) in first
    assert "--budget" in first and "--thresholds group" in first and "--scope global" in first
    page = unescape(write_page(write(tmp_path, content)).read_text(encoding="utf-8"))
    assert "<h1>4 of 5 budgets are exceeded on the training rows (exit code 3).</h1>" in page
    assert f"<li>{finding.items[0]}</li>" in page and first in page
    assert verdict_sentence(parsed(content)) in page
    assert standing(parsed(content)).startswith("4 of 5 budgets are exceeded on the training rows")


def test_advice_names_only_options_that_apply():
    fedavg = findings_of(parsed(run({"north": 0.2}, method="fedavg")))[0].advice
    assert "--method sqp" in fedavg and "--scope" not in fedavg and "--thresholds" not in fedavg
    total = [judged(0.2, 0.1, 0.3, 0.05, "exceeded")]
    together = findings_of(parsed(run({"a": 0.0, "b": 0.0}, together=total)))[0].advice
    assert "--scope" not in together and "--thresholds" not in together


def test_without_exceeded_budgets_the_headline_is_the_verdict():
    content = parsed(run({"north": 0.05, "south": 0.0}))
    assert findings_of(content) == () and title_of(content) == verdict_sentence(content)


def test_an_audit_has_no_training_rows_to_exceed_a_budget_on():
    content = result({"a": client(judged(0.3, 0.2, 0.4, 0.1, "exceeded"))}, method="audit")
    content["clients"]["a"]["train"]["disparities"] = []
    assert findings_of(parsed(content)) == ()
