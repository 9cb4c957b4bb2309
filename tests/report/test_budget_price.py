"""What budgets cost: on the screen, on the page, in the first line and in the exit code."""

import re
from html import unescape

import pytest

from fcfl.report.page import write_page
from fcfl.report.terminal import leading_sentences, summary_sentences
from fcfl.report.words import (
    kept_by,
    rows_needed,
    steps_sentence,
    title_of,
    trained_sentence,
)
from fcfl.results.findings import exceeded_budgets, findings_of, warnings_of
from simulated import client, judged, parsed, result, write

NAMES = ("north", "south")
PRICES = [
    {"client": "south", "rule": "difference", "metric": "demographic_parity",
     "attribute": "race", "value": 0.4},
    {"client": "north", "rule": "difference", "metric": "demographic_parity",
     "attribute": "race", "value": 0.1},
]  # fmt: skip


def step(accuracy, selected):
    share = {"accuracy": accuracy, "selected": selected}
    return share | {"clients": dict.fromkeys(NAMES, share)}


def run(*steps, confidence=0.9, short=None, pooling=None, **more):
    names = ("without_budgets", "with_budgets", "with_margins")
    margins = {"confidence": confidence, "cut_to": None, "rows_short": short or {}}
    clients = {name: client(judged(0.01, 0.0, 0.04, 0.05, "met")) for name in NAMES}
    price = {name: step(*one) for name, one in zip(names, steps, strict=True)}
    price["lost"] = steps[0][0] - steps[-1][0]
    known = {"price": price, "margins": margins if confidence else None, "pooling": pooling}
    return result(clients, **{"exceeded": {}, "prices": PRICES, **known, **more})


POOLING = {
    "spread": {"race: a - b (selection)": 0.02}, "weights": {"north": 0.3, "south": 0.95},
    "own_rows_decide": ["south"], "exceed_on_own_rows": ["north"], "odd": ["north"],
}  # fmt: skip
DEAR = (0.84, 0.3), (0.80, 0.28), (0.78, 0.26)


@pytest.mark.parametrize(("end", "warned"), [(0.789, True), (0.791, False)])
def test_a_run_that_costs_over_five_points_is_warned_of_first(tmp_path, end, warned):
    content = run((0.84, 0.3), (0.80, 0.28), (end, 0.26))
    found = parsed(content)
    assert findings_of(found) == ()  # exit code 0
    assert bool(warnings_of(found)) is warned
    assert any(line.startswith("Warning: ") for line in leading_sentences(found)) is warned
    page = unescape(write_page(write(tmp_path, content)).read_text(encoding="utf-8"))
    assert ("<h1>Budgets and margins cost 5.1 points" in page) is warned
    assert ("5.1 points" in title_of(found)) is warned


def test_ways_out_have_their_price_where_it_is_known():
    (warning,) = warnings_of(parsed(run(*DEAR, short={"north": 3.2, "south": 1.5})))
    assert "0.01 more for south, race" in warning.advice and "about 0.004" in warning.advice
    assert "--confidence (0 regains 2.0 points" in warning.advice
    assert "3.2 times as many for north" in warning.advice
    assert "--scope global" in warning.advice
    (plain,) = warnings_of(parsed(run(*DEAR, confidence=0, prices=[])))
    assert "--confidence" not in plain.advice and "0.01" not in plain.advice
    ratio = [price | {"rule": "ratio"} for price in PRICES]
    (other,) = warnings_of(parsed(run(*DEAR, prices=ratio)))
    assert "--ratio (0.01 less for south" in other.advice and "--budget" not in other.advice


def test_global_scope_is_advised_only_without_global_budgets():
    content = run(*DEAR)
    content["global"]["train"]["disparities"] = [judged(0.01, 0.0, 0.04, 0.05, "met")]
    (warning,) = warnings_of(parsed(content))
    assert "--scope" not in warning.advice


@pytest.mark.parametrize(("selected", "code"), [(0.149, 3), (0.151, 0)])
def test_selecting_fewer_than_half_as_many_ends_with_exit_code_3(selected, code):
    found = parsed(run((0.84, 0.3), (0.83, 0.2), (0.82, selected)))
    assert bool(findings_of(found)) is (code == 3)
    assert exceeded_budgets(found) == ()
    assert title_of(found).endswith("(exit code 3).") is (code == 3)
    if code:
        (line,) = leading_sentences(found)
        assert line.startswith("Exit code 3: ") and "30.0% without budgets" in line
        assert "Ways to lower the cost" in line


def test_a_collapse_is_not_warned_of_twice():
    found = parsed(run((0.84, 0.3), (0.75, 0.2), (0.70, 0.01)))
    assert len(findings_of(found)) == 1 and warnings_of(found) == ()


def test_three_steps_are_on_the_screen_and_two_without_margins():
    found = parsed(run(*DEAR))
    assert "0.840 → 0.800 → 0.780, selected 0.300 → 0.280 → 0.260" in steps_sentence(found)
    assert steps_sentence(found) in summary_sentences(found)
    assert "0.780" not in steps_sentence(parsed(run(*DEAR, confidence=0)))
    assert steps_sentence(parsed(run(*DEAR, price=None))) == ""


def test_the_page_has_a_line_for_each_client(tmp_path):
    content = run(*DEAR, short={"north": 3.2}, pooling=POOLING)
    found = parsed(content)
    assert (rows_needed(found, "north"), rows_needed(found, "south")) == ("3.2 times", "")
    assert kept_by(found, "south") == "own rows" and kept_by(found, "all rows") == ""
    assert "0.30" in kept_by(found, "north") and "differs" in kept_by(found, "north")
    page = unescape(write_page(write(tmp_path, content)).read_text(encoding="utf-8"))
    assert "What budgets cost" in page and "differs from the others" in page
    assert (
        len(re.findall(r'<tr><th scope="row">(?:north|south|all rows)</th><td class="n">0.8', page))
        == 3
    )
    assert trained_sentence(found) in page and "0.9 confidence" in page


def test_without_margins_the_page_names_none(tmp_path):
    shown = {
        confidence: write_page(write(tmp_path / str(confidence), run(*DEAR, confidence=confidence)))
        for confidence in (0, 0.9)
    }
    assert "with margins" in shown[0.9].read_text("utf-8")
    assert "with margins" not in shown[0].read_text("utf-8")


def test_a_client_for_which_no_number_of_rows_suffices_is_named_without_a_number(tmp_path):
    content = run(*DEAR, short={"north": None, "south": 3.2})
    (warning,) = warnings_of(parsed(content))
    assert "3.2 times as many for south" in warning.advice
    assert rows_needed(parsed(content), "north") == "no number suffices"
    (warning,) = warnings_of(parsed(run(*DEAR, short={"north": None})))
    assert "more rows" not in warning.advice


def test_pages_without_a_price_have_no_such_table(tmp_path):
    content = run(*DEAR, price=None)
    assert "What budgets cost" not in write_page(write(tmp_path, content)).read_text("utf-8")


# --- what is exceeded ---


def over(name, value=0.2, **more):
    """A run in which a client's own training rows exceed its budget."""
    content = run(*DEAR, **more)
    content["clients"][name]["train"]["disparities"] = [judged(value, 0.0, 0.4, 0.05, "exceeded")]
    return parsed(content)


def test_own_rows_that_cannot_tell_exceed_nothing():
    found = over("north", pooling=POOLING)
    assert exceeded_budgets(found) == () and findings_of(found) == ()
    assert "2 of 2 budgets met" in trained_sentence(found) and "north" in trained_sentence(found)


def test_what_training_states_is_exceeded_by_own_rows_or_by_the_estimate():
    south = "'south' (demographic_parity, race)"
    (own,) = exceeded_budgets(over("south", pooling=POOLING, exceeded={south: 0.1}))
    assert (own.client, own.is_estimate, own.excess) == ("south", False, pytest.approx(0.15))
    north = "'north' (demographic_parity, race)"
    (estimated,) = exceeded_budgets(over("north", pooling=POOLING, exceeded={north: 0.02}))
    assert (estimated.client, estimated.is_estimate, estimated.excess) == ("north", True, 0.02)
    (finding,) = findings_of(over("north", pooling=POOLING, exceeded={north: 0.02}))
    assert "1 of 2 budgets is exceeded" in finding.headline and "estimate" in finding.items[0]


def test_a_rate_that_shifts_too_far_is_a_finding_of_its_own():
    found = parsed(run(*DEAR, exceeded={"all clients together (rate shift, race)": 0.03}))
    (finding,) = findings_of(found)
    assert "rate" in finding.headline and "--max-rate-shift" in finding.advice
    assert "2 of 2 budgets met" in trained_sentence(found)
