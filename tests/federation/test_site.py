"""What a site says of its rows, and what it does not."""

import os
import stat
from dataclasses import replace

import numpy as np
import pytest

from fcfl._types import CurvatureWeights, Point, RateId, Report, Request
from fcfl.client.client import Count, Counted, Evaluate, Introduction, LocalClient, Setup
from fcfl.data import Schema
from fcfl.data.cells import Category
from fcfl.errors import DataError
from fcfl.extras import DisclosedRows, LocalTraining
from fcfl.federation.serialise import Serialiser, same
from fcfl.models.influence import GradientSpread, LeaveOneOut
from fcfl.models.linear import Linear
from fcfl.models.loss import Hinge
from fcfl.models.model import Opaque
from fcfl.policy import Limits, check_rules_kept
from fcfl.rules import Difference, Ratio
from fcfl.sites import site
from fcfl.sites.guards import answer_size, check_question
from fcfl.sites.messages import (
    _QUESTIONS,
    Agreement,
    Answer,
    Ask,
    Introduce,
    Refusal,
    Terms,
    decode_answer,
    encode_message,
)
from fcfl.sites.named_module import NamedModule
from fcfl.sites.remote import agree
from fcfl.sites.rows import open_rows
from fcfl.sites.settings import SiteSettings
from fcfl.sites.site import (
    reply_to,
    without_cells,
)
from fcfl.sites.transport import InProcessTransport
from hospital import stays, written
from in_one_process import hospitals, node_configs, open_policy, train

TERMS = Terms("died", ("race",))
POLICY = """
withhold-below = {withhold}
min-group-rows = {least}
[[rule]]
metric = "demographic_parity"
attribute = "race"
budget = {budget}
"""


def a_table(tmp_path, frame=None, name="north.csv"):
    frame = stays(200, hospitals=("north",)).drop(columns="hospital") if frame is None else frame
    return written(frame, tmp_path / name)


def a_policy(tmp_path, withhold=1, least=1, budget=0.05):
    path = tmp_path / "policy.toml"
    path.write_text(POLICY.format(withhold=withhold, least=least, budget=budget))
    return path


def config_of(path, tmp_path, **config):
    own = {"policy": open_policy(tmp_path), "cache": str(tmp_path / "cache")}
    return {"name": "north", "table": str(path), **own, **config}


def ask(question, path, tmp_path, **config):
    """What the site of the north says, under its name."""
    message = question if isinstance(question, bytes) else encode_message(question)
    answer = decode_answer(reply_to(message, config_of(path, tmp_path, **config)))
    assert answer.name == "north"
    return answer.content


def ask_anew(*question):
    """The same of a process that was just started, as Flower does for every message."""
    site._KEPT.clear()
    return ask(*question)


def are_reports(content):
    return isinstance(content, tuple) and all(isinstance(one, Report) for one in content)


def agreed(said, **changes):
    """An agreement of one site with itself."""
    agreement = Agreement(
        TERMS,
        ("no", "yes"),
        said.levels,
        Schema.from_statistics({said.name: said.statistics}),
        {said.name: said.checksum},
    )
    return replace(agreement, **changes)


def setup_of(agreement, **changes):
    """What an honest server would ask about."""
    setup = Setup(
        Linear(agreement.schema.n_features),
        tuple(RateId("selection", "race", group) for group in agreement.levels["race"]),
        (Difference("demographic_parity", "race", 0.05),),
    )
    return replace(setup, **changes)


def start_of(agreement):
    return np.zeros(agreement.schema.n_features + 1)


def evaluate(agreement, *points, **changes):
    """A question for reports; ``changes`` are those of its setup."""
    request = Request(points or (Point(start_of(agreement)),))
    return Ask(agreement, Evaluate(setup_of(agreement, **changes), request))


def count(agreement, params, **changes):
    return Ask(agreement, Count(setup_of(agreement, **changes), params))


# --- the introduction -----------------------------------------------------------------------------


def test_an_introduction_has_statistics_without_rare_levels(tmp_path):
    frame = stays(200, hospitals=("north",)).drop(columns="hospital")
    frame.loc[:2, "ward"] = "secret ward"
    frame.loc[:3, "race"] = "secret race"
    path = a_table(tmp_path, frame)
    open_said = ask(Introduce(TERMS), path, tmp_path)
    assert "secret race" in open_said.levels["race"]
    policy = str(a_policy(tmp_path, withhold=5))
    message = reply_to(encode_message(Introduce(TERMS)), config_of(path, tmp_path, policy=policy))
    assert b"secret" not in message
    answer = decode_answer(message)
    said = answer.content
    assert answer.name == "north" and isinstance(said, Introduction)
    assert said.levels == said.present == {"race": ("black", "white")}
    assert set(said.statistics.columns) == {"sex", "age", "ward"}
    assert set(said.statistics.columns["ward"].counts) == {"07", "er", "icu"}
    assert said.withhold_below == 5 and len(said.policy_sha256) == 64


def test_unsuitable_columns_are_named_in_the_sites_log_only(tmp_path, caplog):
    frame = stays(200, hospitals=("north",)).drop(columns="hospital")
    path = a_table(tmp_path, frame.assign(stay=range(200), outcome=frame["died"] + "!"))
    said = ask(Introduce(TERMS), path, tmp_path)
    assert {"stay", "outcome"} <= set(said.statistics.columns)
    assert "identifiers, with another value in every row: 'stay'" in caplog.text
    assert "give the label 'died' away in every row: 'outcome'" in caplog.text
    caplog.clear()
    ask(Introduce(replace(TERMS, drop=("stay", "outcome"))), path, tmp_path)
    assert not caplog.text


def test_a_guessed_rare_level_or_group_is_not_confirmed(tmp_path):
    """Its feature is zero in every row, and its group has none, as if nobody had it."""
    frame = stays(200, hospitals=("north",)).drop(columns="hospital")
    frame["ward"] = np.where(np.arange(200) < 8, "secret ward", "er")
    frame.loc[:7, "race"] = "secret race"
    path, policy = a_table(tmp_path, frame), str(a_policy(tmp_path, withhold=20))
    said = ask(Introduce(TERMS), path, tmp_path, policy=policy)
    guessed = Category("ward", ("er", "secret ward"), has_missing=True)
    agreement = agreed(said, schema=Schema((guessed,)), levels={"race": ("secret race", "white")})
    point = Point(np.full(4, 0.1), "gradients")
    for least, told in ((20, [True, False, False]), (1, [True, True, False])):
        given = str(a_policy(tmp_path, withhold=least))
        (report,) = ask(evaluate(agreement, point), path, tmp_path, policy=given)
        assert (report.loss_grad[:-1] != 0).tolist() == told
        assert (report.group_counts[0] > 0) == (least == 1)
    as_text = agreed(said, schema=Schema((Category("age", ("60.0", "61.0")),)))
    answer = ask(evaluate(as_text, Point(np.zeros(3))), path, tmp_path, policy=policy)
    assert answer == Refusal("Column 'age' is a number at this site, not a category.")


def test_a_number_known_in_few_rows_is_withheld(tmp_path):
    frame = stays(200, hospitals=("north",)).drop(columns="hospital")
    frame["rare"] = np.where(np.arange(200) < 4, 123456.5, np.nan)
    path = a_table(tmp_path, frame)
    policy = str(a_policy(tmp_path, withhold=5))
    rare = ask(Introduce(TERMS), path, tmp_path, policy=policy).statistics.columns["rare"]
    assert (rare.n, rare.mean, rare.m2) == (0, 0.0, 0.0)
    assert ask(Introduce(TERMS), path, tmp_path).statistics.columns["rare"].mean == 123456.5


def test_rows_of_a_withheld_group_count_for_the_loss_only(tmp_path):
    frame = stays(400, hospitals=("north", "south"))
    frame.loc[:6, "race"] = "rare"
    files = hospitals(tmp_path, frame)
    policy = {"policy": str(a_policy(tmp_path, withhold=50))}
    configs = node_configs(files, tmp_path, north=policy, south=policy)
    finished, _ = train(InProcessTransport(configs), tmp_path / "out", ["north", "south"])
    for client in ("north", "south"):
        found = finished.result.clients[client]
        groups = found.train.disparities[0].groups
        assert [group.group for group in groups] == ["black", "white"]
        assert sum(group.rows for group in groups) < found.rows.train
        assert found.rows.train + found.rows.test == 200


def test_statistics_are_those_of_training_rows_only(tmp_path):
    path = a_table(tmp_path)
    said = ask(Introduce(TERMS), path, tmp_path)
    everything = ask(Introduce(replace(TERMS, test_size=0.0)), path, tmp_path)
    rows = {n: s.n + s.missing for n, s in said.statistics.columns.items()}
    assert set(rows.values()) == {140}
    assert {s.n + s.missing for s in everything.statistics.columns.values()} == {200}


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.drop(columns="died"), "`label` must be a column of the table, got 'died'"),
        (lambda f: f.drop(columns="race"), "`sensitive` must be a column of the table, got 'race'"),
        (lambda f: f.assign(died=f["race"] + f["sex"]), "'died' must have two values, got 4"),
        (lambda f: f.assign(age=np.inf), "Column 'age' has 140 infinite values"),
    ],
)
def test_a_site_whose_columns_do_not_fit_is_named(tmp_path, change, sentence):
    frame = stays(200, hospitals=("north",)).drop(columns="hospital")
    said = ask(Introduce(TERMS), a_table(tmp_path, change(frame)), tmp_path)
    assert isinstance(said, Refusal)
    assert sentence in said.sentence


def test_a_refusal_has_no_cell_and_no_path(tmp_path):
    frame = stays(200, hospitals=("north",)).drop(columns="hospital")
    frame.loc[0, "died"] = "Jane Doe, born 1950"
    path = a_table(tmp_path, frame)
    said = ask(Introduce(TERMS), path, tmp_path)
    assert isinstance(said, Refusal) and "'died'" in said.sentence
    assert "Jane" not in said.sentence
    said = ask(Introduce(TERMS), tmp_path / "private" / "absent.csv", tmp_path)
    assert isinstance(said, Refusal) and "There is no file '…'" in said.sentence


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("Column 'age' must hold numbers, got 'x y'.", "Column 'age' must hold numbers, got '…'."),
        ("no columns 'a', 'b'. Did you mean 'c'?", "no columns 'a', 'b'. Did you mean '…'?"),
        ('Label "it\'s" is wrong.', "Label '…' is wrong."),
        (r"got 'don\'t say'", "got '…'"),
        ("client 'north' is empty", "client 'north' is empty"),
    ],
)
def test_quoted_text_is_redacted_except_known_names_and_columns(sentence, told):
    assert without_cells(sentence, {"north"}) == told


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "`name`"),
        ({"name": "north"}, "`table`"),
        ({"name": "north", "table": "north.csv"}, "`table`"),
        ({"name": " ", "table": "/x.csv"}, "`name`"),
        ({"name": "north", "tables": "/x.csv"}, "`tables`. Did you mean 'table'"),
        ({"name": 7, "table": "/x.csv"}, "`name`"),
    ],
)
def test_a_node_config_that_does_not_fit_is_named(config, sentence):
    with pytest.raises(DataError, match=sentence):
        SiteSettings.from_node_config(config)
    answer = decode_answer(reply_to(encode_message(Introduce(TERMS)), config))
    assert isinstance(answer.content, Refusal)


def test_bytes_that_are_no_question_are_rejected(tmp_path):
    config = config_of(a_table(tmp_path), tmp_path)
    hello = encode_message(Answer("server", Refusal("hello")))
    for message in (b"", b"nonsense", hello):
        assert isinstance(decode_answer(reply_to(message, config)).content, Refusal)


def test_an_unexpected_error_is_sent_as_its_type_only(tmp_path, monkeypatch):
    """No question is known that provokes one; should there be, its text stays at the site."""

    def fail(*_):
        raise AttributeError("secret cell")

    agreement = agreed(ask(Introduce(TERMS), a_table(tmp_path), tmp_path))
    monkeypatch.setattr(site, "answer", fail)
    answer = ask(evaluate(agreement), a_table(tmp_path), tmp_path)
    assert answer == Refusal("Unexpected AttributeError; see the site's log for details.")


def test_a_question_that_does_not_fit_the_table_is_one_sentence(tmp_path):
    agreement = agreed(ask(Introduce(TERMS), a_table(tmp_path), tmp_path))
    absent = replace(agreement.schema.columns[0], name="absent")
    damaged = replace(agreement, schema=Schema((absent, *agreement.schema.columns[1:])))
    answer = ask(evaluate(damaged), a_table(tmp_path), tmp_path)
    assert isinstance(answer, Refusal) and "has no column 'absent'" in answer.sentence


def test_an_unknown_attribute_is_rejected_without_its_name(tmp_path):
    agreement = agreed(ask(Introduce(TERMS), a_table(tmp_path), tmp_path))
    strange = (RateId("selection", "secret attribute", "x"),)
    answer = ask(evaluate(agreement, rates=strange), a_table(tmp_path), tmp_path)
    assert answer == Refusal("Client 'north' has no attribute '…'; it has 'race'.")


def test_a_site_answers_documented_requests_only(tmp_path):
    """The messages have no such question; one that is made all the same is refused twice."""
    extra, path = DisclosedRows({"north": 5}), a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    question = evaluate(agreement, Point(start_of(agreement), extras=(extra,)))
    with pytest.raises(TypeError, match=f"Cannot write a {type(extra).__name__}"):
        encode_message(question)
    forged = Serialiser(Ask, also=(*_QUESTIONS.classes.values(), type(extra))).dump(question)
    answer = ask(forged, path, tmp_path)
    assert isinstance(answer, Refusal) and "cannot be read" in answer.sentence


@pytest.mark.parametrize(
    "training",
    [
        LocalTraining(101, 0.1),
        LocalTraining(0, 0.1),
        LocalTraining(1, float("nan")),
    ],
    ids=str,
)
def test_unbounded_local_training_is_rejected(tmp_path, training):
    path = a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    question = evaluate(agreement, Point(start_of(agreement), extras=(training,)))
    answer = ask(question, path, tmp_path)
    assert isinstance(answer, Refusal) and "`epochs`" in answer.sentence
    allowed = LocalTraining(2, 0.1, batch_rows=32)
    question = evaluate(agreement, Point(start_of(agreement), extras=(allowed,)))
    (report,) = ask(question, path, tmp_path)
    assert set(report.extras) == {"local_params"}


LOO = LeaveOneOut((np.zeros(9),), (np.eye(9),), {"north": np.array([0.5])})


def test_leave_one_out_losses_are_those_of_a_client_in_memory(tmp_path):
    path = a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    point = Point(start_of(agreement), extras=(LOO,))
    (report,) = ask(evaluate(agreement, point), path, tmp_path)
    rows = open_rows(SiteSettings("north", path), TERMS).encode(
        agreement.schema, agreement.levels, agreement.labels
    )
    client = LocalClient("north", rows.train["north"], rows.test["north"])
    assert same(client.report(setup_of(agreement), (point,)), (report,))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"models": (), "factors": ()}, "0 `models`"),
        ({"factors": ()}, "0 `factors`"),
        ({"models": (np.zeros(8),)}, "`params` must be 9 finite numbers"),
        ({"factors": (np.eye(8),)}, "`factor` must be"),
        ({"factors": (np.full((9, 9), np.nan),)}, "`factor` must be"),
        ({"weights": {"north": np.array([np.nan])}}, "`weights` must be 1 finite numbers"),
        ({"weights": {"north": np.array([0.5, 0.5])}}, "`weights` must be 1 finite numbers"),
        ({"weights": {}}, "of this site only"),
    ],
    ids=str,
)
def test_malformed_leave_one_out_questions_are_rejected(tmp_path, change, sentence):
    path = a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    question = evaluate(agreement, Point(start_of(agreement), extras=(replace(LOO, **change),)))
    answer = ask(question, path, tmp_path)
    assert isinstance(answer, Refusal) and sentence in answer.sentence


def test_gradient_spread_is_sent_where_curvature_is(tmp_path):
    path = a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    start = start_of(agreement)

    def asked(factor):
        return ask(evaluate(agreement, Point(start, extras=(factor,))), path, tmp_path)

    (report,) = asked(GradientSpread(np.eye(start.size)))
    assert report.extras["gradient_spread"].shape == report.rates.shape
    for wrong in (np.eye(start.size - 1), np.full((start.size, start.size), np.nan)):
        answer = asked(GradientSpread(wrong))
        assert isinstance(answer, Refusal) and "`factor` must be" in answer.sentence


def test_a_module_is_built_only_where_the_policy_lists_it(tmp_path):
    path = a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    model = NamedModule("subprocess:run", agreement.schema.n_features)
    answer = ask(evaluate(agreement, model=model), path, tmp_path)
    assert answer == Refusal("This site's policy does not list the module '…' under `modules`.")
    for wrong in ("subprocess", "a b:c", ":x", "a:b()", "../x:y"):
        with pytest.raises(ValueError, match=r"`path` must be like package\.module:function"):
            NamedModule(wrong, 3)


def test_a_site_reports_on_linear_models_of_agreed_columns_only(tmp_path):
    path = a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    wider = Linear(agreement.schema.n_features + 1)
    sentence = (
        "The model must be linear or a module installed at the site, and its features must be "
        "those of the agreed columns."
    )
    for question in (
        evaluate(agreement, Point(wider.start()), model=wider),
        count(agreement, wider.start(), model=wider),
        evaluate(agreement, model="a model"),
    ):
        assert ask(question, path, tmp_path) == Refusal(sentence)
    usual = Linear(agreement.schema.n_features, loss=Hinge())
    assert are_reports(ask(evaluate(agreement, model=usual), path, tmp_path))
    opaque = evaluate(agreement, model=Opaque(start_of(agreement)))
    with pytest.raises(TypeError, match="Cannot write a Opaque"):
        encode_message(opaque)


def test_the_size_of_an_answer_is_limited(tmp_path):
    path = a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    start = start_of(agreement)
    weights = {"north": CurvatureWeights(1.0, np.zeros(2))}
    many = [Point(start, "curvature", weights)] * 300_000
    with pytest.raises(DataError, match=r"\d+ MB; this site sends at most 128 MB"):
        check_question(evaluate(agreement, *many).question, agreement, Limits())


@pytest.mark.parametrize("want", ["values", "decisions", "gradients", "curvature"])
def test_the_size_of_an_answer_is_known_before_it_is_computed(tmp_path, want):
    path = a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    weights = {"north": CurvatureWeights(1.0, np.zeros(2))}
    point = Point(start_of(agreement), want, weights, sharpness=30.0)
    (report,) = ask(evaluate(agreement, point), path, tmp_path)
    assert report.nbytes == 16 + answer_size(point, 2)


# --- rows -----------------------------------------------------------------------------------------


def test_a_column_of_rare_values_is_not_called_empty(tmp_path):
    frame = stays(200, hospitals=("north",)).drop(columns="hospital")
    path = a_table(tmp_path, frame.assign(patient=[f"p{i}" for i in range(200)]))
    for withhold, said in ((2, True), (1, False)):
        policy = str(a_policy(tmp_path, withhold=withhold))
        introduction = ask(Introduce(TERMS), path, tmp_path, policy=policy)
        notes = agree(TERMS, {"north": introduction}).schema.notes
        sentence = "Column 'patient' is empty, or all its values are too rare for the sites to name"
        assert any(note.startswith(sentence) for note in notes) == said


def test_rows_must_not_change_during_a_run(tmp_path):
    path = a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    assert are_reports(ask(evaluate(agreement), path, tmp_path))
    a_table(tmp_path, stays(201, hospitals=("north",)).drop(columns="hospital"))
    answer = ask(evaluate(agreement), path, tmp_path)
    assert isinstance(answer, Refusal)
    assert "Restore the original table and resume, or start a new run" in answer.sentence


def test_encoded_rows_are_cached_privately_and_replaced_when_torn(tmp_path):
    path = a_table(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path))
    first = ask_anew(evaluate(agreement), path, tmp_path)
    (kept,) = (tmp_path / "cache").glob("*.rows")
    if os.name == "posix":
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    written_at = kept.stat().st_mtime_ns
    assert same(ask_anew(evaluate(agreement), path, tmp_path), first)
    assert kept.stat().st_mtime_ns == written_at
    whole = kept.read_bytes()
    for place in (0, 20, 100, len(whole) // 2, len(whole) - 1):  # one flipped bit anywhere
        flipped = bytearray(whole)
        flipped[place] ^= 1
        kept.write_bytes(flipped)
        assert same(ask_anew(evaluate(agreement), path, tmp_path), first)
        assert kept.read_bytes() == whole
    kept.write_bytes(whole[:1000])
    assert same(ask_anew(evaluate(agreement), path, tmp_path), first)
    other = replace(agreement, schema=Schema(agreement.schema.columns[:2]))
    ask_anew(evaluate(other), path, tmp_path)
    assert len(list((tmp_path / "cache").glob("*.rows"))) == 1


def test_a_long_lived_process_caches_rows_and_reads_its_policy_again(tmp_path):
    path, policy = a_table(tmp_path), a_policy(tmp_path)
    agreement = agreed(ask(Introduce(TERMS), path, tmp_path, policy=str(policy)))
    (first,) = ask(evaluate(agreement), path, tmp_path, policy=str(policy))
    (kept,) = (tmp_path / "cache").glob("*.rows")
    kept.unlink()
    (again,) = ask(evaluate(agreement), path, tmp_path, policy=str(policy))
    assert same(again, first) and not kept.exists()
    assert first.group_counts.min() > 0
    a_policy(tmp_path, least=int(first.group_counts.min()) + 1)
    (closed,) = ask(evaluate(agreement), path, tmp_path, policy=str(policy))
    assert closed.group_counts.min() == 0


# --- policies -------------------------------------------------------------------------------------


def test_rules_looser_than_the_policy_are_rejected(tmp_path):
    path, policy = a_table(tmp_path), str(a_policy(tmp_path, budget=0.05))
    said = ask(Introduce(TERMS), path, tmp_path, policy=policy)
    assert said.rules == (Difference("demographic_parity", "race", 0.05),)
    kept = agreed(said)
    params = start_of(kept)
    assert are_reports(ask(evaluate(kept), path, tmp_path, policy=policy))
    assert isinstance(ask(count(kept, params), path, tmp_path, policy=policy), Counted)
    for rules in (
        (),
        (Difference("demographic_parity", "race"),),
        (Difference("demographic_parity", "race", 0.06),),
        (Difference("demographic_parity", "race", {"south": 0.01}),),
        (Difference("demographic_parity", "race", 0.01, "global"),),
        (Ratio("demographic_parity", "race", 0.8),),
        (Difference("equal_opportunity", "race", 0.01),),
    ):
        for question in (evaluate(kept, rules=rules), count(kept, params, rules=rules)):
            answer = ask(question, path, tmp_path, policy=policy)
            assert isinstance(answer, Refusal)
            assert "must be at least as strict as this client's policy" in answer.sentence


@pytest.mark.parametrize("budget", [0.05, 0.01, 0.0, {"north": 0.02, "south": 0.9}])
def test_rules_as_strict_as_the_policy_are_kept(budget):
    own = [Difference("demographic_parity", "race", 0.05)]
    check_rules_kept("north", own, [Difference("demographic_parity", "race", budget)])


def test_a_group_below_the_sites_own_threshold_is_neither_named_nor_reported(tmp_path):
    frame = stays(200, hospitals=("north",)).drop(columns="hospital")
    frame.loc[:19, "race"] = "rare"
    path, policy = a_table(tmp_path, frame), str(a_policy(tmp_path, least=30))
    said = ask(Introduce(TERMS), path, tmp_path, policy=policy)
    assert said.levels == {"race": ("black", "white")}
    agreement = agreed(said, levels={"race": ("black", "rare", "white")})  # another site names it
    point = Point(np.ones(agreement.schema.n_features + 1), "gradients")
    (report,) = ask(evaluate(agreement, point), path, tmp_path, policy=policy)
    assert report.group_counts[1] == report.rates[1] == 0 and not report.rate_grads[1].any()
    assert (np.delete(report.group_counts, 1) > 0).all()
    counted = ask(count(agreement, point.params), path, tmp_path, policy=policy)
    for counts in (counted.train, counted.test):
        assert counts.group_counts[1] == counts.group_selected[1] == 0
    open_policy = str(a_policy(tmp_path))
    (without,) = ask(evaluate(agreement, point), path, tmp_path, policy=open_policy)
    assert without.group_counts[1] > 0
    asked = evaluate(agreement, point, min_group_rows=30)  # a server's threshold hides it too
    (hidden,) = ask(asked, path, tmp_path, policy=open_policy)
    assert hidden.group_counts[1] == 0


def test_a_sites_policy_must_not_name_groups_or_other_sites(tmp_path):
    path = a_table(tmp_path)
    policy = tmp_path / "policy.toml"
    policy.write_text(
        POLICY.format(withhold=1, least=1, budget=0.1) + "[rule.clients]\nsouth = 0.2\n"
    )
    answer = ask(Introduce(TERMS), path, tmp_path, policy=str(policy))
    assert isinstance(answer, Refusal) and "client" in answer.sentence
    policy.write_text(
        'withhold-below = 1\n[groups]\nrace = ["a", "b"]\n[[rule]]\n'
        'metric = "demographic_parity"\nattribute = "race"\n'
    )
    answer = ask(Introduce(TERMS), path, tmp_path, policy=str(policy))
    assert isinstance(answer, Refusal) and "`groups` belongs to the server" in answer.sentence


def test_drop_unlabelled_leaves_out_rows_without_a_label(tmp_path):
    frame = stays(200, hospitals=("north",)).drop(columns="hospital")
    frame.loc[::10, "died"] = None
    path = a_table(tmp_path, frame)
    refusal = ask(Introduce(TERMS), path, tmp_path)
    assert "'died' is empty" in refusal.sentence and "unlabelled" in refusal.sentence
    terms = replace(TERMS, drop_unlabelled=True)
    said = ask(Introduce(terms), path, tmp_path)
    held_out = round(180 * TERMS.test_size)
    assert said.statistics.columns["sex"].n == 180 - held_out
