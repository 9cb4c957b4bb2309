"""What exact counts tell a curious server, as SECURITY.md says, and what noise leaves of it."""

from itertools import pairwise

import numpy as np
import pytest
from curious_server import CuriousServer

from fcfl._types import Point, Request
from fcfl.client.client import Counted, Evaluate
from fcfl.sites.messages import Ask, Introduce, Refusal, Terms, decode_answer, encode_message
from fcfl.sites.site import reply_to

PRIVATE = """[privacy]
epsilon = 1.0
delta = 1e-6
schema = "{folder}/schema.toml"
"""
DECLARED = """label = ["no", "yes"]
[groups]
race = ["black", "rare", "white"]
[numbers]
age = [57, 22]
"""


def rows_read(server, ages):
    """(age, label) of rows, from how counts change between thresholds around each age."""
    middles = (ages[:-1] + ages[1:]) / 2
    thresholds = [2 * ages[0] - middles[0], *middles, 2 * ages[-1] - middles[-1]]
    told = [server.count(server.older_than(threshold)) for threshold in thresholds]
    assert all(isinstance(one, Counted) for one in told)
    read = {}
    for age, (below, above) in zip(ages, pairwise(told), strict=True):
        parts = [(getattr(below, part), getattr(above, part)) for part in ("train", "test")]
        died = sum(one.true_positive - other.true_positive for one, other in parts)
        survived = sum(one.false_positive - other.false_positive for one, other in parts)
        if abs(died) + abs(survived) == 1:
            read[age] = "yes" if died else "no"
    return read


def test_exact_counts_give_single_rows_to_a_lying_server(tmp_path):
    """A closed site without noise: this is why only noise is called a protection."""
    server = CuriousServer(tmp_path)
    assert "policy" not in server.config
    ages = np.sort(server.frame["age"].to_numpy())[100:160]
    read = rows_read(server, ages)
    truth = dict(zip(server.frame["age"], server.frame["died"], strict=True))
    assert len(read) == 60 and read.items() <= truth.items()


def test_a_site_with_a_privacy_budget_gives_no_exact_count_and_no_report(tmp_path):
    server = CuriousServer(tmp_path)
    (tmp_path / "schema.toml").write_text(DECLARED)
    (tmp_path / "private.toml").write_text(PRIVATE.format(folder=tmp_path))
    ledger = str(tmp_path / "private-ledger")
    server.config |= {"policy": str(tmp_path / "private.toml"), "ledger": ledger}
    said = server.ask(Introduce(server.agreement.terms))
    assert said.statistics is None
    for median in (30.0, 60.0):
        told = server.count(server.older_than(median))
        assert isinstance(told, Refusal)
    for want in ("values", "decisions", "gradients"):
        point = Point(np.zeros(2), want)
        question = Evaluate(server.setup("selection"), Request((point,)))
        assert isinstance(server.ask(Ask(server.agreement, question)), Refusal)


@pytest.mark.parametrize("kinds", [("selection",), ("true_positive", "false_positive")], ids=str)
def test_a_small_group_is_neither_named_nor_compared(tmp_path, kinds):
    """Fewer than `min-group-rows` rows are of group "rare"; nothing is said of these by name."""
    server = CuriousServer(tmp_path)
    assert server.said.levels == {"race": ("black", "white")}
    guessed = {"race": ("black", "rare", "white")}  # a name that another site may have given
    server.agreement = type(server.agreement)(
        server.agreement.terms,
        server.agreement.labels,
        guessed,
        server.agreement.schema,
        server.agreement.checksums,
    )
    setup, start = server.setup(*kinds), np.zeros(2)
    points = tuple(Point(start, want) for want in ("gradients", "decisions"))
    reports = server.ask(Ask(server.agreement, Evaluate(setup, Request(points))))
    counted = server.count(start, kinds)
    for counts in (*(one.group_counts for one in reports), counted.train.group_counts):
        per_kind = counts.reshape(len(kinds), 3)
        assert (per_kind[:, 1] == 0).all() and (per_kind[:, [0, 2]] >= 20).all()
    assert not reports[0].rate_grads.reshape(len(kinds), 3, 2)[:, 1].any()


def test_no_message_has_the_name_of_a_small_group(tmp_path):
    server = CuriousServer(tmp_path)
    message = reply_to(encode_message(Introduce(Terms("died", ("race",)))), server.config)
    assert decode_answer(message).name == "north" and b"rare" not in message
