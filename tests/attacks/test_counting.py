"""What a curious server tried with unmodified site code, and what it reads now: nothing."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from curious_server import TERMS, CuriousServer, patients

from fcfl._types import Point, Request
from fcfl.client.questions import Counted, Evaluate
from fcfl.sites.messages import (
    Ask,
    Introduce,
    Refusal,
)

LEAST = 20
MANY = "counts-per-run = 9999\ncounts-per-table = 9999\n"
GUARDED = "[limits]\n" + MANY  # what it does not say is closed
CLOSED_SPLIT_OPEN = GUARDED + 'seed = "any"\ntest-size = "any"\n'
OPEN = 'min-group-rows = 1\nwithhold-below = 1\n[limits]\nseed = "any"\ntest-size = "any"\n' + MANY


def rows_read(server, ages):
    """(age, label) of rows, from how counts change between thresholds around each age.

    Of an age the server knows that one row has it; it claims to have read the row where exactly
    one more or less is selected. Also what it was told last.
    """
    middles = (ages[:-1] + ages[1:]) / 2
    thresholds = [2 * ages[0] - middles[0], *middles, 2 * ages[-1] - middles[-1]]
    told = [server.count(server.older_than(threshold)) for threshold in thresholds]
    if not isinstance(told[-1], Counted):
        return {}, told
    read = {}
    for age, (below, above) in zip(ages, pairwise(told), strict=True):
        parts = [(getattr(below, part), getattr(above, part)) for part in ("train", "test")]
        died = sum(one.true_positive - other.true_positive for one, other in parts)
        survived = sum(one.false_positive - other.false_positive for one, other in parts)
        if abs(died) + abs(survived) == 1:
            read[age] = "yes" if died else "no"
    return read, told


def truth(frame):
    return dict(zip(frame["age"], frame["died"], strict=True))


def test_count_questions_read_every_row_of_a_site_without_a_threshold(tmp_path):
    """The attack itself works, so that what stops it below is not a mistake in it."""
    server = CuriousServer(tmp_path, OPEN)
    ages = np.sort(server.frame["age"].to_numpy())[100:160]
    read, _ = rows_read(server, ages)
    assert len(read) == 60 and read.items() <= truth(server.frame).items()


@pytest.mark.parametrize("policy", [GUARDED, CLOSED_SPLIT_OPEN], ids=["closed", "split open"])
def test_count_questions_read_no_row_of_a_site_with_a_threshold(tmp_path, policy):
    """Not even where the numeric limits are out of the way."""
    server = CuriousServer(tmp_path, policy)
    read, told = rows_read(server, np.sort(server.frame["age"].to_numpy()))
    assert read == {} and all(isinstance(one, Counted) for one in told)
    selected = {one.train.true_positive + one.train.false_positive for one in told}
    assert len(selected) > 4
    assert min(b - a for a, b in pairwise(sorted(selected))) >= LEAST


def test_count_questions_read_no_row_of_a_site_without_any_policy(tmp_path):
    """All 373 of them: a site is closed by default, and stops answering by itself."""
    server = CuriousServer(tmp_path)
    assert "policy" not in server.config
    read, told = rows_read(server, np.linspace(20.0, 94.75, 372))
    assert len(told) == 373 and read == {}
    answered = [isinstance(one, Counted) for one in told]
    assert answered == [True] * 200 + [False] * 173
    assert "This site's limit `counts-per-run` of 200 is reached" in told[-1].sentence
    ages = np.sort(server.frame["age"].to_numpy())
    server.agreement = replace(server.agreement, levels={"race": ("black", "white")})
    assert rows_read(server, ages[:60])[0] == {}


def test_decisions_at_points_read_no_more_than_counts_do(tmp_path):
    """All rows are of told groups here, so that their counts are those of all rows."""
    frame = patients().assign(race=np.where(np.arange(300) < 150, "black", "white"))
    server = CuriousServer(tmp_path, GUARDED, frame)
    setup, told = server.setup("selection"), set()
    for threshold in np.sort(frame["age"].to_numpy())[::4] + 0.1:
        point = Point(server.older_than(threshold), "decisions")
        (report,) = server.ask(Ask(server.agreement, Evaluate(setup, Request((point,)))))
        told.add(round(float(report.rates @ report.group_counts)))
    assert len(told) > 5 and min(b - a for a, b in pairwise(sorted(told))) >= LEAST


def test_counting_ends_at_the_limit_and_a_new_run_does_not_help(tmp_path):
    server = CuriousServer(tmp_path, "[limits]\ncounts-per-run = 8\ncounts-per-table = 12\n")
    ages = np.sort(server.frame["age"].to_numpy())
    _, told = rows_read(server, ages[:10])
    assert [isinstance(one, Counted) for one in told] == [True] * 8 + [False] * 3
    assert "This site's limit `counts-per-run` of 8 is reached" in told[-1].sentence
    server.agreement = replace(server.agreement, levels={"race": ("black", "white")})
    _, told = rows_read(server, ages[20:30])
    assert [isinstance(one, Counted) for one in told] == [True] * 4 + [False] * 7
    assert "This site's limit `counts-per-table` of 12 is reached" in told[-1].sentence


@pytest.mark.parametrize("policy", [None, GUARDED], ids=["no policy", "policy"])
@pytest.mark.parametrize("kinds", [("selection",), ("true_positive", "false_positive")], ids=str)
def test_the_size_of_a_withheld_group_does_not_follow_by_subtraction(tmp_path, kinds, policy):
    """A few rows are of group "rare": with the others told, they would be the rest."""
    server = CuriousServer(tmp_path, policy)
    setup, start = server.setup(*kinds), np.zeros(2)
    (report,) = server.ask(Ask(server.agreement, Evaluate(setup, Request((Point(start),)))))
    counted = server.count(start, kinds)
    for counts in (report.group_counts, counted.train.group_counts):
        per_kind = counts.reshape(len(kinds), 3)
        assert (per_kind[:, 1] == 0).all() and (per_kind[:, [0, 2]] >= LEAST).all()
        totals = [210.0]
        if len(kinds) == 2:
            positive = counted.train.true_positive + counted.train.false_negative
            totals = [positive, 210 - positive]
        for told, total in zip(per_kind, totals, strict=True):
            rest = total - told.sum()
            assert rest == 0 or rest >= LEAST


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"test_size": 0.5}, {"seed": 2, "test_size": 0.1}], ids=str
)
def test_a_server_cannot_choose_splits_to_take_rows_apart(tmp_path, change):
    server = CuriousServer(tmp_path)
    told = server.ask(Introduce(replace(TERMS, **change)))
    assert isinstance(told, Refusal) and "This site's policy fixes `" in told.sentence
    server = CuriousServer(tmp_path, CLOSED_SPLIT_OPEN)
    for seed in range(3, 6):
        assert not isinstance(server.ask(Introduce(replace(TERMS, seed=seed))), Refusal)
    told = server.ask(Introduce(replace(TERMS, **change)))
    assert "`splits-per-table` of 4 is reached" in told.sentence


def test_a_parameter_beyond_the_limit_is_refused(tmp_path):
    server = CuriousServer(tmp_path, GUARDED)
    told = server.count(np.array([1e5, 0.0]))
    assert told == Refusal("This site's policy has a largest parameter of 10000, got 100000.")
    sharp = Point(np.zeros(2), sharpness=1e6)
    told = server.ask(Ask(server.agreement, Evaluate(server.setup("selection"), Request((sharp,)))))
    assert "`sharpness` must lie between 0 and 100" in told.sentence
