"""What is said to people: counts, who is selected more often, what would decide."""

import pytest

from fcfl.report.claims import claims_of
from fcfl.report.page import write_page
from fcfl.report.words import (
    detail_sentences,
    next_steps,
    people_needed,
    people_sentence,
    title_of,
)
from fcfl.results import read_run
from simulated import client, judged, parsed, result, two_clients, write


def claim_of(*entries, **more):
    return claims_of(parsed(result({"north": client(*entries, **more)})))[0]


def test_the_first_sentence_counts_people_and_says_who_is_selected_more_often():
    groups = (("White", 2000, 1801), ("Black", 24, 18))
    entry = judged(0.15, 0.0, 0.3, 0.05, "undetermined", smallest=0.2, groups=groups)
    assert people_sentence(claim_of(entry)) == (
        "At north, 90 of 100 White people and 18 of 24 Black people are selected: White people are "
        "selected more often. 24 people are too few to tell whether the difference is at most "
        "0.05."
    )


def test_a_group_too_small_to_be_compared_is_not_what_the_sentence_is_about():
    groups = (("White", 200, 20), ("Asian", 40, 2))
    entry = judged(0.05, 0.0, 0.2, 0.1, "undetermined", smallest=0.3, groups=groups,
                   left_out=(("Other", 5, 0),))  # fmt: skip
    told = people_sentence(claim_of(entry))
    assert "2 of 40 Asian people" in told and "40 people are too few" in told
    assert "Other" not in told


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("met", " The ratio is shown to be at least 0.8."),
        ("exceeded", " The ratio is shown not to be at least 0.8."),
        ("unconstrained", "selected more often."),
    ],
)
def test_the_sentence_ends_with_what_is_shown(verdict, told):
    budget = None if verdict == "unconstrained" else 0.8
    entry = judged(0.9, 0.85, 0.95, budget, verdict, rule="ratio")
    assert people_sentence(claim_of(entry)).endswith(told)


def test_the_first_sentence_is_not_about_the_client_with_the_fewest_people():
    few = judged(0.4, 0.0, 0.9, 0.05, "undetermined", groups=(("a", 5, 4), ("b", 5, 2)))
    more = judged(0.1, 0.0, 0.2, 0.05, "undetermined", groups=(("a", 60, 40), ("b", 60, 34)))
    both = parsed(result({"tiny": client(few), "north": client(more)}))
    assert detail_sentences(both)[0].startswith("At north, 40 of 60 a people")
    over = judged(0.9, 0.6, 1.0, 0.05, "exceeded", groups=(("a", 5, 5), ("b", 5, 0)))
    both = parsed(result({"tiny": client(over), "north": client(more)}))
    assert detail_sentences(both)[0].startswith("At tiny, 5 of 5 a people")


def test_equal_rates_favour_nobody_and_one_group_gives_no_sentence():
    same = judged(0.0, 0.0, 0.1, 0.2, "met", groups=(("a", 30, 10), ("b", 60, 20)))
    assert "as often as each other" in people_sentence(claim_of(same))
    named = people_sentence(claim_of(same))
    assert all(f"{group.group} people" in named for group in claim_of(same).groups)
    alone = judged(None, None, None, 0.1, "undetermined", groups=(("a", 30, 10),))
    assert people_sentence(claim_of(alone)) == ""


def test_one_group_alone_is_not_undetermined():
    alone = judged(None, None, None, 0.1, "undetermined", groups=(("a", 30, 10),))
    other = judged(0.0, 0.0, 0.1, 0.2, "met")
    found = parsed(result({"a": client(alone), "b": client(other)}))
    assert [claim.verdict for claim in claims_of(found)[:2]] == ["not compared", "met"]
    assert title_of(found) == (
        "1 of 2 budgets shown to be met on held-out rows, 1 has no two groups to compare."
    )


def test_a_value_near_its_budget_is_not_called_too_few_people():
    near = judged(0.046, 0.031, 0.059, 0.05, "undetermined", smallest=0.017)
    few = judged(0.15, 0.0, 0.38, 0.05, "undetermined", smallest=0.2)
    found = parsed(result({"near": client(near), "few": client(few)}))
    assert title_of(found) == (
        "0 of 2 budgets shown to be met on held-out rows, 1 is too near the budget to tell, 1 has "
        "too few people to tell."
    )
    assert people_sentence(claim_of(near)).endswith(
        " That is too near 0.05 to tell whether the difference is at most 0.05."
    )


def test_rows_needed_grow_with_the_square_of_what_is_missing():
    base = {"groups": (("a", 100, 30), ("b", 400, 90))}
    half = judged(0.0, 0.0, 0.2, 0.1, "undetermined", smallest=0.2, **base)
    assert people_needed(claim_of(half)) == pytest.approx(400)
    ratio = judged(1.0, 0.7, 1.0, 0.9, "undetermined", rule="ratio", smallest=0.6, **base)
    assert people_needed(claim_of(ratio)) == pytest.approx(1600)
    enough = judged(0.09, 0.0, 0.12, 0.1, "undetermined", smallest=0.05, **base)
    assert people_needed(claim_of(enough)) is None


def test_next_steps_say_what_would_decide():
    steps = " ".join(next_steps(parsed(two_clients())))
    assert "north: about 350 people in the smallest group would be needed" in steps
    assert "--scope global" in steps
    near = judged(0.09, 0.05, 0.12, 0.1, "undetermined", smallest=0.05)
    steps = next_steps(parsed(result({"a": client(near)})))
    assert steps == ["a: 0.090 is too near its budget of 0.1 to tell; one of 0.120 would be shown "
                     "to be met."]  # fmt: skip
    over = judged(0.3, 0.2, 0.4, 0.1, "exceeded")
    assert "--confidence" in next_steps(parsed(result({"a": client(over)})))[0]
    fine = judged(0.0, 0.0, 0.05, 0.1, "met")
    assert next_steps(parsed(result({"a": client(fine), "b": client(fine)}))) == []


def test_what_is_expected_on_new_rows_is_shown_where_it_is_known(tmp_path):
    content = two_clients()
    assert "chance kept" not in write_page(write(tmp_path, content)).read_text().lower().split(
        "words on this page")[0]  # fmt: skip
    entry = content["clients"]["north"]["train"]["disparities"][0]
    entry["expected"] = {"value": 0.0712, "low": 0.0101, "high": 0.1523, "chance_kept": 0.37}
    page = write_page(write(tmp_path, content)).read_text(encoding="utf-8")
    assert "expected on new rows 0.071 (0.010 to 0.152), chance kept 0.37" in page
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


def test_the_word_smooth_is_not_on_the_page(tmp_path):
    page = write_page(write(tmp_path, two_clients())).read_text(encoding="utf-8")
    assert "smooth" not in page.split("</style>")[1].lower()
