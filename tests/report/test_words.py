"""What is said of a verdict, and in which order."""

import pytest

from fcfl.report.claims import by_rule, claims_of, count_verdicts, worst_first
from fcfl.report.words import (
    claim_sentence,
    detail_sentences,
    interval,
    prices_sentence,
    served_sentence,
    verdict_sentence,
)
from simulated import client, judged, parsed, result, two_clients


def test_every_budget_is_counted_under_its_verdict():
    assert verdict_sentence(parsed(two_clients())) == (
        "1 of 2 budgets shown to be met on held-out rows, 1 has too few people to tell."
    )


def test_the_sentence_that_matters_most_has_rows_interval_and_what_could_be_verified():
    assert detail_sentences(parsed(two_clients()))[1] == (
        "north: budget 0.05 undetermined on 54 rows (smallest group 24): demographic parity "
        "difference by race is 0.100, interval 0.000 to 0.190. These rows cannot verify a budget "
        "below 0.190."
    )


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            judged(0.01, 0.0, 0.04, 0.05, "met"),
            "a: budget 0.05 met on 54 rows (smallest group 24): demographic parity difference by "
            "race is 0.010, interval 0.000 to 0.040.",
        ),
        (
            judged(0.9, 0.7, 0.95, 0.8, "undetermined", rule="ratio", smallest=0.75),
            "a: budget 0.8 undetermined on 54 rows (smallest group 24): demographic parity ratio "
            "by race is 0.900, interval 0.700 to 0.950. These rows cannot verify a budget above "
            "0.750.",
        ),
        (
            judged(0.2, 0.1, 0.3, None, "unconstrained"),
            "a: demographic parity difference by race is 0.200, interval 0.100 to 0.300 on 54 "
            "rows (smallest group 24); no budget.",
        ),
        (
            judged(None, None, None, 0.1, "undetermined", smallest=None),
            "a: demographic parity difference by race cannot be measured, fewer than two groups "
            "have enough rows.",
        ),
    ],
)
def test_a_claim_in_one_sentence(entry, told):
    (claim,) = claims_of(parsed(result({"a": client(entry)})))
    assert claim_sentence(claim) == told


def test_without_budgets_or_verdicts_nothing_is_called_met():
    bare = parsed(result({"a": client(judged(0.2, 0.1, 0.3, None, "unconstrained"))}))
    assert verdict_sentence(bare) == "No budget was set: disparities are measured, not judged."
    old = result({"a": client(judged(0.2, None, None, 0.3, "unconstrained"))})
    assert verdict_sentence(parsed(old)) == "1 budget set, not judged on held-out rows."


def test_rows_are_called_what_they_are():
    audited = parsed(two_clients(method="audit"))
    assert "shown to be met on audited rows" in verdict_sentence(audited)
    assert served_sentence(audited) == (
        "Worst served: north, training loss 0.5000, accuracy 0.7500."
    )
    trained = two_clients()
    for who in trained["clients"].values():
        who["rows"]["test"] = 0
    assert "shown to be met on training rows" in verdict_sentence(parsed(trained))


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
    assert list(grouped) == [
        "demographic parity difference, race", "demographic parity ratio, race",
    ]  # fmt: skip


def test_a_price_is_told_for_one_hundredth_of_the_budget():
    tilted = prices_sentence(parsed(two_clients(objective=10.0)), 2)
    assert "the soft maximum" in tilted and "north 0.004" in tilted
    assert "the worst client's training loss" in prices_sentence(parsed(two_clients()), 2)


def test_groups_too_small_to_compare_are_not_the_smallest_group():
    groups, tiny = (("a", 30, 1), ("b", 24, 1)), ("c", 3, 1)
    for compared, left_out, smallest in (((*groups, tiny), (), 3), (groups, (tiny,), 24)):
        entry = judged(0.1, 0.0, 0.2, 0.3, "met", groups=compared, left_out=left_out)
        assert claims_of(parsed(result({"a": client(entry)})))[0].smallest.rows == smallest


def test_small_words():
    assert interval((None, 0.3)) == "–"


@pytest.mark.parametrize("word", ["fair", "unbiased", "debias"])
def test_nothing_is_ever_called_more_than_met(word):
    content = parsed(two_clients())
    told = f"{verdict_sentence(content)} {detail_sentences(content)} {served_sentence(content)}"
    assert word not in told.lower()
