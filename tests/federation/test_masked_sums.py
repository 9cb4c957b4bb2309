"""Masked sums between clients and a server: who learns what, who may drop out, what is refused."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from fcfl._types import CurvatureWeights
from fcfl.errors import AbsentClientError, DataError, FCFLError, ReportError

pytest.importorskip("cryptography")

from mask_table import Table, answered, curvature, holder, question, terms_of

from fcfl.federation.masks.arithmetic import (
    PRIME,
    SHARE_BYTES,
    decode_numbers,
    join_shares,
    upper_triangle,
    weights_at_zero,
)
from fcfl.federation.masks.holder import WEIGHT_RANGE, public_of
from fcfl.federation.masks.messages import MaskedAnswer, MaskedAsk, PrepareMasks, Unmask
from fcfl.federation.masks.sums import level_weights, usual_threshold
from fcfl.policy import MaskPolicy

NAMES = ("a", "b", "c", "d", "e")


def no_check(name, answer, points=None):
    pass


def expected(names, asked, index):
    point = asked.request.points[index]
    return sum(curvature(name, point, point.curvature_weights[name]) for name in names)


def assert_sum(opened, names, asked):
    for index, point in enumerate(asked.request.points):
        if point.want == "curvature":
            off = np.abs(opened.curvature_sums[index] - expected(names, asked, index)).max()
            assert off < len(names) * 2.0**-36
        else:
            assert opened.curvature_sums[index] is None


def test_sums_of_many_questions_are_those_of_the_curvatures():
    table = Table.of(*NAMES)
    sums = table.sums()
    for at in range(4):
        asked = question(NAMES, at, n_points=1 + at % 2)
        opened = sums.report(asked, no_check)
        assert_sum(opened, NAMES, asked)
        assert all(r.curvature is None for said in opened.values() for r in said)
    kinds = [type(asked).__name__ for name, asked, _ in table.heard if name == "a"]
    assert kinds == ["PrepareMasks", *["MaskedAsk", "Unmask"] * 4]  # one exchange more each


def test_what_a_client_sends_is_uniform_whatever_its_curvature_is():
    """The words of one client are far from its curvature, and bits of many are balanced."""
    table = Table.of(*NAMES)
    sums, words = table.sums(), []
    for at in range(15):
        sums.report(question(NAMES, 0.01 * at), no_check)
    for name, asked, said in table.heard:
        if isinstance(said, MaskedAnswer):
            point = asked.curved[0]
            own = upper_triangle(curvature(name, point, point.curvature_weights[name]))
            assert np.abs(decode_numbers(said.words) - own).max() > 1.0
            words.append(said.words)
    bits = np.unpackbits(np.concatenate(words).view(np.uint8)).reshape(-1, 64)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(bits))


@pytest.mark.parametrize("away", list(combinations(NAMES, 2)), ids="".join)
@pytest.mark.parametrize("step", ["MaskedAsk", "Unmask"])
def test_two_of_five_may_be_killed_where_three_can_open(step, away):
    table = Table.of(*NAMES)
    sums = table.sums(threshold=3)
    assert_sum(sums.report(question(NAMES, 0.5), no_check), NAMES, question(NAMES, 0.5))
    table.killed = {step: away}
    left = [n for n in NAMES if n not in away] if step == "MaskedAsk" else NAMES
    asked = question(NAMES, 1.0)
    assert_sum(sums.report(asked, no_check), left, asked)
    table.killed = {}
    asked = question(NAMES, 2.0)
    assert_sum(sums.report(asked, no_check), left, asked)  # who is back brings keys for the next
    asked = question(NAMES, 3.0)
    assert_sum(sums.report(asked, no_check), NAMES, asked)


@pytest.mark.parametrize("step", ["PrepareMasks", "MaskedAsk", "Unmask"])
def test_two_of_five_are_missed_by_name_where_four_must_open(step):
    table = Table.of(*NAMES, killed={step: ("b", "d")})
    assert usual_threshold(5) == 4
    with pytest.raises(AbsentClientError, match=r"'b'.*'d'\. Resume when they are back"):
        table.sums().report(question(NAMES), no_check)


def test_a_sum_that_needs_all_is_not_opened_without_one():
    table = Table.of(*NAMES, killed={"MaskedAsk": ("c",)})
    sums = table.sums(3, needs_all=True)
    opened = sums.report(question(NAMES), no_check)
    assert opened.curvature_sums == (None, None) and set(opened) == set(NAMES) - {"c"}
    assert not any(isinstance(asked, Unmask) for _, asked, _ in table.heard)
    table.killed = {}
    assert_sum(sums.report(question(NAMES), no_check), NAMES, question(NAMES))


def test_after_a_refusal_the_next_sum_has_new_keys():
    table = Table.of(*NAMES)
    sums, whole = table.sums(), table.holders["c"].mask

    def refuse(asked, reports):
        raise DataError("Not now.")

    table.holders["c"].mask = refuse
    with pytest.raises(DataError, match="Not now"):
        sums.report(question(NAMES), no_check)  # others have used their keys
    table.holders["c"].mask = whole
    asked = question(NAMES, 1.0)
    assert_sum(sums.report(asked, no_check), NAMES, asked)


def test_a_late_answer_of_a_client_that_was_given_up_stays_masked():
    """Its key is opened, its own mask is not: nobody reveals shares of both kinds."""
    table = Table.of(*NAMES, killed={"MaskedAsk": ("e",)})
    table.sums(3).report(question(NAMES), no_check)
    asked = next(a for n, a, _ in table.heard if isinstance(a, Unmask) and n == "a")
    own = next(a for n, a, _ in table.heard if isinstance(a, MaskedAsk) and n == "a")
    keys = next(s for n, a, s in table.heard if isinstance(a, PrepareMasks) and n == "e")
    late = replace(
        own,
        question=question(NAMES).for_client("e"),
        sum_keys={n: prepared(table, n).for_client("e") for n in NAMES},
    )
    assert late.sum_digest == own.sum_digest and keys.public == late.sum_keys["e"].public
    said = answered(table.holders["e"], late)
    shares = {n: s.self_shares for n, _, s in table.heard if isinstance(s, MaskedAnswer)}
    both = replace(asked, self_shares={**shares, "e": said.self_shares}, sum_keys={})
    for name in ("a", "b", "c", "d"):
        with pytest.raises(DataError, match="revealed its shares of this sum for another list"):
            table.holders[name].unmask(both.for_client(name))
    with pytest.raises(DataError, match="answered or dropped out, not both"):
        swapped = replace(both, sum_keys={"e": keys})
        table.holders["a"].unmask(swapped.for_client("a"))


def prepared(table, name):
    return next(s for n, a, s in table.heard if isinstance(a, PrepareMasks) and n == name)


def first_question(table, name="a"):
    table.sums(3).report(question(NAMES), no_check)
    return next(a for n, a, _ in table.heard if isinstance(a, MaskedAsk) and n == name)


def test_a_key_is_used_for_one_question_and_the_same_one_is_answered_alike():
    table = Table.of(*NAMES)
    own = first_question(table)
    said = next(s for n, a, s in table.heard if a is own)
    again = answered(table.holders["a"], own)
    assert again.words.tobytes() == said.words.tobytes()
    elsewhere = replace(own, question=question(NAMES, 7.0).for_client("a"))
    weights = replace(
        own, question=question(NAMES, weights=CurvatureWeights(0.1, np.zeros(1))).for_client("a")
    )
    for replayed in (elsewhere, weights):
        with pytest.raises(DataError, match="was used before, for another question"):
            table.holders["a"].check(replayed)


def test_shares_of_another_question_are_refused():
    table = Table.of(*NAMES)
    sums = table.sums(3)
    for at in (0.0, 1.0):
        sums.report(question(NAMES, at), no_check)
    first, second = [a for n, a, _ in table.heard if isinstance(a, Unmask) and n == "b"]
    assert answered(table.holders["b"], first).shares.keys() == set(NAMES)  # it may ask twice
    wrong = replace(first, self_shares=second.self_shares)
    with pytest.raises(DataError, match="not what the other client sealed for this sum"):
        table.holders["b"].unmask(wrong)
    with pytest.raises(DataError, match="masked nothing for the sum"):
        table.holders["b"].unmask(replace(first, sum_digest="0" * 64))


def test_a_second_sum_over_other_clients_at_the_same_point_is_not_opened():
    table = Table.of(*NAMES)
    sums = table.sums(3)
    sums.report(question(NAMES), no_check)
    table.killed = {"MaskedAsk": ("e",)}
    with pytest.raises(DataError, match="over other clients at the same parameters"):
        sums.report(question(NAMES), no_check)


def test_a_key_of_an_earlier_sum_is_not_opened_as_that_of_a_dropped_client():
    """The self-mask of d in the first sum is known; with its key of then, its matrix would be."""
    table = Table.of(*NAMES)
    sums = table.sums()
    for at in (0.0, 1.0):
        sums.report(question(NAMES, at), no_check)
    for name in ("a", "b", "c", "e"):
        _, second = [a for n, a, _ in table.heard if isinstance(a, Unmask) and n == name]
        shares = {n: sealed for n, sealed in second.self_shares.items() if n != "d"}
        old = {"d": prepared(table, "d").for_client(name)}
        with pytest.raises(DataError, match="key of 'd' that is to be opened is not the one"):
            table.holders[name].unmask(replace(second, self_shares=shares, sum_keys=old))


@pytest.mark.parametrize("killed", [(), ("d",)], ids=["self-mask opened", "key opened"])
def test_a_key_of_an_earlier_sum_is_refused_in_the_next(killed, tmp_path):
    """One sum would give the key of d, the other its self-mask."""
    table = Table.of(*NAMES, killed={"MaskedAsk": killed})
    table.holders["a"] = holder("a", path=tmp_path / "journal.sqlite")
    sums = table.sums()
    sums.report(question(NAMES), no_check)
    table.killed = {}
    keys = {name: key for name, key in sums._keys.items() if name != "d"}
    sums._keys = {**keys, "d": prepared(table, "d")}
    second = sums._question(question(NAMES, 1.0))
    for name in ("a", "b", "c", "e"):
        with pytest.raises(DataError, match="key given for 'd' was in another masked sum before"):
            table.holders[name].check(second.for_client(name))
    honest = replace(second, sum_keys=keys)
    for name in keys:  # what was refused is not on record
        table.holders[name].check(honest.for_client(name))


def test_keys_that_the_server_made_up_are_refused():
    """A share that does not open shows that the peer did not make the key."""
    table, other = Table.of(*NAMES), Table.of(*NAMES)
    own = first_question(table)
    other.sums(3).report(question(NAMES), no_check)
    forged = {**own.sum_keys, "b": prepared(other, "b").for_client("a")}
    forged["b"] = replace(forged["b"], public=prepared(other, "c").public)
    with pytest.raises(DataError, match="not what the other client sealed"):
        table.holders["a"].check(replace(own, sum_keys=forged))
    forged = {**own.sum_keys, "a": prepared(other, "a").for_client("a")}
    with pytest.raises(DataError, match="was not made by this client"):
        table.holders["a"].check(replace(own, sum_keys=forged))


def test_pinned_keys_refuse_a_server_in_the_middle():
    holders = {name: holder(name) for name in NAMES}
    pins = {name: one.public for name, one in holders.items() if name != "a"}
    pinned = holder("a", MaskPolicy(peers=pins))
    assert pinned.prepare(terms_of(holders)).public
    forged = {**holders, "b": holder("mallory")}
    with pytest.raises(DataError, match="The key given for 'b' is not the one"):
        pinned.prepare(terms_of(forged))
    with pytest.raises(DataError, match=r"no key of 'f' under masks.peers"):
        pinned.prepare(terms_of({**holders, "f": holder("f")}))


@pytest.mark.parametrize(
    ("names", "threshold", "policy", "sentence"),
    [
        ("ab", 2, MaskPolicy(), "at least 3 clients, got 2"),
        ("abcd", 3, MaskPolicy(least=5), "at least 5 clients, got 4"),
        ("abcd", 2, MaskPolicy(), "more than half of them"),
        ("abcd", 5, MaskPolicy(), "at most all, got 5"),
    ],
)
def test_terms_that_would_tell_too_much_are_refused(names, threshold, policy, sentence):
    holders = {name: holder(name, policy) for name in names}
    with pytest.raises(DataError, match=sentence):
        holders["a"].prepare(terms_of(holders, threshold))


@pytest.mark.parametrize(
    ("loss", "rate", "least"),
    [
        (0.0, 0.0, 0.2),
        (0.19, 0.0, 0.2),
        (1.62, 0.0, 0.2),
        (0.0, 0.5, 0.2),  # a rate that does not bend would leave the others alone in the sum
        (-0.5, 0.5, 0.2),
        (0.5, -1.62, 0.2),
        (0.0, 0.0, 0.0),
        (0.5, 0.0, float("nan")),
    ],
)
def test_a_client_whose_weights_stand_apart_refuses(loss, rate, least):
    table = Table.of(*NAMES)
    own = first_question(table)
    asked = question(NAMES, 1.0, CurvatureWeights(loss, np.array([rate])))
    alone = replace(own, question=asked.for_client("a"), least_weights=(least,))
    with pytest.raises(DataError, match=r"Client 'a' has weights of .* stand apart"):
        table.holders["a"].check(alone)


def test_the_server_levels_weights_so_that_nobody_stands_apart():
    weights = {
        "a": CurvatureWeights(1.0, np.array([0.5, -1.5])),
        "b": CurvatureWeights(0.0, np.zeros(2)),
        "c": CurvatureWeights(0.1, np.array([0.3, 0.0])),
    }
    levelled, least = level_weights(weights)
    assert levelled["a"] == weights["a"] and least == pytest.approx(2.0 / WEIGHT_RANGE)
    assert levelled["b"].loss == levelled["c"].loss == least
    assert all(np.array_equal(levelled[n].rates, weights[n].rates) for n in weights)
    for name, one in levelled.items():
        holder(name)._check_weights(one, least)
    asked = question(NAMES).request.points[1].curvature_weights
    alike, bound = level_weights(asked)
    assert alike == asked and bound < 0.2


def test_a_wrong_share_is_found_out():
    table = Table.of(*NAMES)
    unmask = table.holders["b"].unmask

    def lie(asked):
        said = unmask(asked)
        said.shares["c"][-1] ^= 1
        return said

    table.holders["b"].unmask = lie
    with pytest.raises(FCFLError, match="shares for client 'c' of a masked sum do not fit"):
        table.sums(3).report(question(NAMES), no_check)


def test_an_answer_without_masks_is_refused():
    table = Table.of(*NAMES)
    mask = table.holders["b"].mask

    def bare(asked, reports):
        return replace(mask(asked, reports), answer=reports)

    table.holders["b"].mask = bare
    with pytest.raises(ReportError, match="Client 'b' sent its curvature without masks"):
        table.sums(3).report(question(NAMES), no_check)


def test_a_journal_on_disk_outlasts_its_process(tmp_path):
    table = Table.of(*NAMES)
    path = tmp_path / "journal.sqlite"
    table.holders["a"] = holder("a", path=path)
    own = first_question(table)
    said = next(s for n, a, s in table.heard if a is own)
    back = holder("a", path=path)
    assert answered(back, own).words.tobytes() == said.words.tobytes()
    with pytest.raises(DataError, match="was used before"):
        back.check(replace(own, question=question(NAMES, 7.0).for_client("a")))
    path.unlink()
    with pytest.raises(DataError, match="or its journal is new"):
        holder("a", path=path).check(own)


def test_t_minus_one_clients_and_the_server_cannot_open_the_key_of_another():
    """Three of four shares of a key that was given up fit every key; the fourth decides."""
    table = Table.of(*NAMES, killed={"MaskedAsk": ("e",)})
    table.sums(4).report(question(NAMES), no_check)
    held = {n: s.shares["e"].tobytes() for n, a, s in table.heard if isinstance(a, Unmask)}
    numbers = {name: i for i, name in enumerate(NAMES, start=1)}
    opened = join_shares({numbers[name]: share for name, share in held.items()})
    assert public_of(opened) == prepared(table, "e").public
    colluding = {numbers[name]: held[name] for name in ("a", "b", "c")}
    weights = weights_at_zero((1, 2, 3, 4))
    known = sum(
        w * int.from_bytes(s, "big") for w, s in zip(weights, colluding.values(), strict=False)
    )
    for candidate in (bytes(32), b"any other key of 32 bytes is ok!"):
        fourth = (int.from_bytes(candidate, "big") - known) * pow(weights[3], -1, PRIME) % PRIME
        shares = {**colluding, 4: fourth.to_bytes(SHARE_BYTES, "big")}
        assert join_shares(shares) == candidate
