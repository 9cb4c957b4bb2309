"""Which claim comes first, which groups it is about, and what would decide it."""

from dataclasses import replace

import pytest
from test_wording import METHODS, compared

from fcfl.report.comparisons import best_sentence
from fcfl.report.page import write_page
from fcfl.report.words import (
    by_rule,
    claims_of,
    count_verdicts,
    distinct_shares,
    extremes,
    first_claim,
    interval,
    next_steps,
    people_needed,
    worst_first,
)
from fcfl.results import GroupCount, read_run
from simulated import client, judged, parsed, result, two_clients, write


def claim_of(entry):
    return claims_of(parsed(result({"north": client(entry)})))[0]


def test_claims_come_exceeded_first_and_those_not_compared_after_the_judged():
    clients = {
        "met": client(judged(0.01, 0.0, 0.04, 0.05, "met")),
        "wide": client(judged(0.1, 0.0, 0.6, 0.05, "undetermined")),
        "narrow": client(judged(0.1, 0.0, 0.2, 0.05, "undetermined")),
        "unknown": client(judged(None, None, None, 0.05, "undetermined")),
        "free": client(judged(0.9, 0.8, 1.0, None, "unconstrained")),
        "over": client(judged(0.3, 0.2, 0.4, 0.05, "exceeded")),
        "far over": client(judged(0.5, 0.4, 0.6, 0.05, "exceeded")),
    }
    claims = [claim for claim in claims_of(parsed(result(clients))) if claim.client != "all rows"]
    assert [claim.client for claim in worst_first(claims)] == [
        "far over", "over", "wide", "narrow", "met", "unknown", "free",
    ]  # fmt: skip
    assert count_verdicts(claims)["undetermined"] == 2
    assert count_verdicts(claims)["not compared"] == 1  # one group alone decides nothing


def test_a_small_ratio_is_worse_than_a_large_one():
    low, high = (judged(v, v - 0.1, v + 0.1, 0.95, "exceeded", rule="ratio") for v in (0.3, 0.6))
    claims = claims_of(parsed(result({"high": client(high), "low": client(low)})))
    assert [claim.client for claim in worst_first(claims)] == ["low", "high"]


def test_rules_are_kept_apart():
    both = client(
        judged(0.1, 0.0, 0.2, 0.3, "met"), judged(0.9, 0.8, 1.0, 0.7, "met", rule="ratio")
    )
    grouped = by_rule(claims_of(parsed(result({"a": both}))))
    assert [claim.entry.rule for claims in grouped.values() for claim in claims] == [
        "difference", "ratio",
    ]  # fmt: skip


def test_the_first_claim_is_not_about_the_client_with_the_fewest_people():
    few = judged(0.4, 0.0, 0.9, 0.05, "undetermined", groups=(("a", 5, 4), ("b", 5, 2)))
    more = judged(0.1, 0.0, 0.2, 0.05, "undetermined", groups=(("a", 60, 40), ("b", 60, 34)))
    both = parsed(result({"tiny": client(few), "north": client(more)}))
    assert first_claim(both).client == "north"
    over = judged(0.9, 0.6, 1.0, 0.05, "exceeded", groups=(("a", 5, 5), ("b", 5, 0)))
    assert (
        first_claim(parsed(result({"tiny": client(over), "north": client(more)}))).client == "tiny"
    )


def test_groups_too_small_to_compare_are_neither_smallest_nor_extreme():
    groups, tiny = (("a", 30, 10), ("b", 24, 1)), ("c", 3, 3)
    for listed, left_out, smallest, most in (
        ((*groups, tiny), (), "c", "c"),
        (groups, (tiny,), "b", "a"),
    ):
        claim = claim_of(judged(0.1, 0.0, 0.2, 0.3, "met", groups=listed, left_out=left_out))
        assert (claim.smallest.group, extremes(claim)[0].group) == (smallest, most)
    alone = claim_of(judged(None, None, None, 0.1, "undetermined", groups=(("a", 30, 10),)))
    assert extremes(alone) is None and alone.verdict == "not compared"


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        (((24, 18), (2000, 1801)), ("18 of 24", "90 of 100")),
        (((200, 1), (400, 3)), ("0.5 of 100", "0.8 of 100")),
        (((200, 20), (400, 40)), ("10 of 100", "10 of 100")),
        (((10**6, 1), (10**6, 2)), ("1 of 1,000,000", "2 of 1,000,000")),
        (((10**6, 10**6 - 1), (300, 300)), ("999,999 of 1,000,000", "300 of 300")),
    ],
)
def test_shares_differ_where_rates_do_and_nobody_is_rounded_away(counts, shown):
    assert distinct_shares(*(GroupCount("selection", "g", *one) for one in counts)) == shown


def test_a_value_near_its_budget_is_not_for_want_of_people():
    near = judged(0.046, 0.031, 0.059, 0.05, "undetermined", smallest=0.017)
    few = judged(0.15, 0.0, 0.38, 0.05, "undetermined", smallest=0.2)
    assert (claim_of(near).is_near, claim_of(few).is_near) == (True, False)


def test_rows_needed_grow_with_the_square_of_what_is_missing():
    base = {"groups": (("a", 100, 30), ("b", 400, 90))}
    half = judged(0.0, 0.0, 0.2, 0.1, "undetermined", smallest=0.2, **base)
    assert people_needed(claim_of(half)) == pytest.approx(400)
    ratio = judged(1.0, 0.7, 1.0, 0.9, "undetermined", rule="ratio", smallest=0.6, **base)
    assert people_needed(claim_of(ratio)) == pytest.approx(1600)
    enough = judged(0.09, 0.0, 0.12, 0.1, "undetermined", smallest=0.05, **base)
    assert people_needed(claim_of(enough)) is None


def test_without_anything_open_there_are_no_next_steps():
    fine = judged(0.0, 0.0, 0.05, 0.1, "met")
    assert next_steps(parsed(result({"a": client(fine), "b": client(fine)}))) == []


def test_what_is_expected_on_new_rows_is_shown_where_it_is_known(tmp_path):
    content = two_clients()
    page = write_page(write(tmp_path, content)).read_text(encoding="utf-8")
    assert "chance kept" not in page.split('id="glossary"')[0].lower()
    entry = content["clients"]["north"]["train"]["disparities"][0]
    entry["expected"] = {"value": 0.0712, "low": 0.0101, "high": 0.1523, "chance_kept": 0.37}
    page = write_page(write(tmp_path, content)).read_text(encoding="utf-8")
    assert "0.071 (0.010 to 0.152)" in page
    assert page.count("0.37") >= 2  # at the client, and in the table of training rows


def test_before_and_after_needs_plain_fedavg_on_the_same_rows(tmp_path):
    folder = write(tmp_path / "run", two_clients())
    assert read_run(folder).plain is None
    before = two_clients(method="fedavg")
    before["clients"]["north"]["test"]["disparities"][0]["value"] = 0.25
    write(folder / "fedavg", before)
    assert "0.250 → 0.100" in write_page(folder).read_text(encoding="utf-8")
    before["data"]["sha256"] = "other rows"
    write(folder / "fedavg", before)
    assert read_run(folder).plain is None


def test_the_majority_class_is_never_best_and_without_figures_nobody_is():
    assert "majority" not in best_sentence(compared(*METHODS))
    assert best_sentence(compared()) == best_sentence(compared(METHODS[-1])) == ""
    same = best_sentence(compared(METHODS[0], replace(METHODS[0], method="other")))
    assert "sqp and other" in same


def test_an_interval_with_one_end_is_none():
    assert interval((None, 0.3)) == "–"
