"""Sites with a privacy budget: they add the noise, count it, and answer nothing else."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tomli_w
from in_one_process import hospitals, node_configs, train

from fcfl._types import Fold, Point, Request
from fcfl.accountant import mu_of
from fcfl.client.questions import Count, Evaluate, HoldOut, Setup
from fcfl.data.declared import read_declared
from fcfl.federation import private_site
from fcfl.federation.ledger import Entry, Ledger, LedgerError
from fcfl.federation.messages import Ask, Introduce, Refusal, Terms, decode_answer, encode_message
from fcfl.federation.remote import RemoteFederation
from fcfl.federation.replying import reply_to
from fcfl.federation.site_settings import SiteSettings
from fcfl.federation.transport import InProcessTransport
from fcfl.models.linear import Linear
from fcfl.policy import Limits, PrivacyBudget
from fcfl.releases import Release
from fcfl.rules import Difference, rates_needed
from hospital import fcfl, stays

SCHEMA = """
label = ["no", "yes"]
[groups]
race = ["black", "white"]
[numbers]
age = [60, 15]
[categories]
ward = ["icu", "er", "07"]
"""
TERMS = Terms("died", ("race",), drop=("sex",))


@pytest.fixture
def sites(tmp_path):
    """Node configs of three hospitals, each with epsilon 3 for all time."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    policy = tmp_path / "policy.toml"
    schema = str(tmp_path / "schema.toml")
    policy.write_text(tomli_w.dumps({"privacy": {"epsilon": 3.0, "delta": 1e-6, "schema": schema}}))
    files = hospitals(tmp_path, stays(3000))
    own = {"policy": str(policy)}
    return node_configs(files, tmp_path, **dict.fromkeys(files, own))


def names(sites):
    return [config["name"] for config in sites.values()]


def run(sites, folder, **config):
    options = {"drop": "sex", "privacy": "epsilon=2,delta=1e-6", "min-group-rows": 50, **config}
    return train(InProcessTransport(sites), folder, names(sites), **options)


def asked(config, question):
    """What one site says to one question."""
    return decode_answer(reply_to(encode_message(question), config)).content


def agreement_with(config):
    return RemoteFederation(InProcessTransport({0: config}), [config["name"]], TERMS).agreement


def test_a_private_run_over_sites_ends_with_what_each_spent(sites, tmp_path):
    finished, _ = run(sites, tmp_path / "out")
    result = finished.result
    assert result.method == "private" and result.status == "converged"
    assert {loss.epsilon for loss in result.privacy.clients.values()} == {2.0}
    shown = json.loads((tmp_path / "out" / "result.json").read_text())
    assert shown["privacy"]["neighbours"] == "add-remove"
    rows = result.clients["north"].rows
    assert abs(rows.train + rows.test - 1000) < 200 and rows.test > 150
    for config in sites.values():
        spent = Ledger(SiteSettings.from_node_config(config).ledger_folder).privacy_spent()
        assert spent.epsilon(1e-6) == pytest.approx(2.0, rel=1e-6)


def test_a_second_run_adds_up_and_one_too_many_is_refused_by_name(sites, tmp_path):
    run(sites, tmp_path / "one")
    run(sites, tmp_path / "two", privacy="epsilon=1,delta=1e-6")
    settings = SiteSettings.from_node_config(sites[0])
    spent = Ledger(settings.ledger_folder).privacy_spent()
    squares = mu_of(2.0, 1e-6) ** 2 + mu_of(1.0, 1e-6) ** 2
    assert spent.mu**2 == pytest.approx(squares, rel=1e-9)
    assert 2.0 < spent.epsilon(1e-6) < 3.0
    with pytest.raises(Exception, match=r"north.*privacy budget of epsilon 3.* would be passed"):
        run(sites, tmp_path / "three")
    site_file = tmp_path / "site.toml"
    site_file.write_text(tomli_w.dumps(sites[0]))
    said = " ".join(fcfl("site", "status", site_file).output.split())
    now = Ledger(settings.ledger_folder).privacy_spent().epsilon(1e-6)  # the third run began
    assert spent.epsilon(1e-6) < now <= 3.0 and f"Privacy: epsilon {now:.4g} of 3 spent" in said


def test_an_introduction_names_the_declared_and_reads_no_row(sites, monkeypatch):
    def unread(*_):
        raise AssertionError("a row was read")

    monkeypatch.setattr("fcfl.federation.replying.open_rows", unread)
    monkeypatch.setattr("fcfl.federation.site_rows.open_rows", unread)
    said = asked(sites[0], Introduce(TERMS))
    assert said.levels == said.present == {"race": ("black", "white")}
    assert said.labels == ("no", "yes") and said.statistics is None
    assert said.schema == read_declared(sites[0]["policy"].replace("policy", "schema")).schema
    assert said.privacy == PrivacyBudget(3.0, 1e-6)
    other = asked(sites[1], Introduce(TERMS))
    assert said.checksum != other.checksum
    again = asked(sites[0], Introduce(TERMS))
    assert said.checksum == again.checksum


def test_every_other_question_is_refused_and_costs_nothing(sites):
    config = sites[0]
    agreement = agreement_with(config)
    n = agreement.schema.n_features + 1
    model, rates = (
        Linear(n - 1),
        rates_needed([Difference("demographic_parity", "race")], agreement.levels),
    )
    setup, zero = Setup(model, rates), np.zeros(n)
    release = Release("counts", 0.1)
    other = replace(agreement, schema=replace(agreement.schema, notes=("other",)))
    questions = {
        "no exact counts": Ask(agreement, Count(setup, zero)),
        "losses of held-out": Ask(agreement, HoldOut(setup, Fold(0), (zero,))),
        "only noisy sums": Ask(agreement, Evaluate(setup, Request((Point(zero),)))),
        "not say gradients": Ask(
            agreement, Evaluate(setup, Request((Point(zero, "gradients", extras=(release,)),)))
        ),
        "that its schema declares": Ask(
            other, Evaluate(setup, Request((Point(zero, extras=(release,)),)))
        ),
    }
    for sentence, question in questions.items():
        said = asked(config, question)
        assert isinstance(said, Refusal) and sentence in said.sentence, said
    ledger = Ledger(SiteSettings.from_node_config(config).ledger_folder)
    assert ledger.privacy_spent().mu == 0


def test_an_answer_that_is_killed_is_counted_and_asked_again_it_counts_again(sites, monkeypatch):
    config = sites[0]
    agreement = agreement_with(config)
    rates = rates_needed([Difference("demographic_parity", "race")], agreement.levels)
    point = Point(np.zeros(agreement.schema.n_features + 1), extras=(Release("counts", 0.2),))
    question = Ask(
        agreement, Evaluate(Setup(Linear(agreement.schema.n_features), rates), Request((point,)))
    )

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(private_site, "encoded_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            asked(config, question)
    folder = SiteSettings.from_node_config(config).ledger_folder
    assert Ledger(folder).privacy_spent().squares["train"] == pytest.approx(0.04)
    first, second = (asked(config, question)[0].extras["counts"] for _ in range(2))
    assert not np.array_equal(first, second)
    assert Ledger(folder).privacy_spent().squares["train"] == pytest.approx(0.12)


def test_a_torn_ledger_answers_nothing(sites):
    config = sites[0]
    asked(config, Introduce(TERMS))
    path = SiteSettings.from_node_config(config).ledger_folder / "ledger.jsonl"
    path.write_bytes(path.read_bytes() + b'{"entry":')
    said = asked(config, Introduce(TERMS))
    assert isinstance(said, Refusal) and "torn or was changed" in said.sentence


def test_what_is_wrong_with_rows_stays_in_the_log(sites, caplog, tmp_path):
    config = dict(sites[0])
    agreement = agreement_with(config)
    frame = stays(60).drop(columns="hospital").assign(died="perhaps")
    frame.to_csv(config["table"], index=False)
    agreement = replace(agreement, checksums=agreement_with(config).checksums)
    rates = rates_needed([Difference("demographic_parity", "race")], agreement.levels)
    point = Point(np.zeros(agreement.schema.n_features + 1), extras=(Release("counts", 0.2),))
    question = Evaluate(Setup(Linear(agreement.schema.n_features), rates), Request((point,)))
    said = asked(config, Ask(agreement, question))
    assert said == Refusal("This site could not answer from its rows; its own log says why.")
    assert "perhaps" in caplog.text


def test_a_ledger_counts_over_all_states_of_a_table_and_reads_older_ones(tmp_path):
    ledger, budget = Ledger(tmp_path), PrivacyBudget(1.0, 1e-6)
    half = mu_of(1.0, 1e-6) ** 2 / 2
    ledger.record(Entry("before", "", "old", "introduce", 1), Limits())
    assert b"privacy" not in ledger.path.read_bytes()
    for table in ("one", "two"):
        entry = Entry(table, "run", f"of {table}", "evaluate", 1, privacy=(half, 0.0))
        ledger.record(entry, Limits(), budget)
    assert Ledger(tmp_path).privacy_spent().epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)
    more = Entry("three", "run", "more", "evaluate", 1, privacy=(1e-3, 0.0))
    with pytest.raises(ValueError, match="would be passed"):
        Ledger(tmp_path).record(more, Limits(), budget)
    text = ledger.path.read_text().replace('"privacy":[', '"privacy":[-')
    ledger.path.write_text(text)
    with pytest.raises(LedgerError):
        Ledger(tmp_path).privacy_spent()
