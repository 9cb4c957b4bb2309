"""Sites with a privacy budget: they add the noise, count it, and answer nothing else."""

import json
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
import tomli_w

from fcfl._types import Point, Request
from fcfl.client.client import Count, Evaluate, Setup
from fcfl.data.declared_rows import read_declared
from fcfl.federation.journal import Journal, JournalError
from fcfl.models.linear import Linear
from fcfl.policy import PrivacyBudget
from fcfl.privacy import Release, mu_of
from fcfl.rules import Difference, rates_needed
from fcfl.sites import rows as site_rows
from fcfl.sites.journal import Entry, entries_of, open_journal, privacy_spent, record
from fcfl.sites.messages import Ask, Introduce, Refusal, Terms, decode_answer, encode_message
from fcfl.sites.remote import RemoteFederation
from fcfl.sites.settings import SiteSettings
from fcfl.sites.site import reply_to
from fcfl.sites.transport import InProcessTransport
from hospital import fcfl, stays
from in_one_process import hospitals, node_configs, open_policy, train

SCHEMA = """
label = ["no", "yes"]
[groups]
race = ["black", "white"]
[numbers]
age = [60, 15]
[categories]
ward = ["icu", "er", "07"]
"""
TERMS = Terms("died", ("race",))


@pytest.fixture
def sites(tmp_path):
    """Node configs of three hospitals, each with epsilon 3 for all time."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    policy = tmp_path / "policy.toml"
    schema = str(tmp_path / "schema.toml")
    policy.write_text(tomli_w.dumps({"privacy": {"epsilon": 3.0, "delta": 1e-6, "schema": schema}}))
    files = hospitals(tmp_path, stays(3000))
    own = {
        name: {"policy": str(policy), "ledger": str(tmp_path / f"ledger-{name}")} for name in files
    }
    return node_configs(files, tmp_path, **own)


def names(sites):
    return [config["name"] for config in sites.values()]


def run(sites, folder, **config):
    options = {"privacy": "epsilon=2,delta=1e-6", "min-group-rows": 50, **config}
    return train(InProcessTransport(sites), folder, names(sites), **options)


def asked(config, question):
    """Return the content of a site's reply."""
    return decode_answer(reply_to(encode_message(question), config)).content


def agreement_with(config, terms=TERMS):
    return RemoteFederation(InProcessTransport({0: config}), [config["name"]], terms).agreement


def spent_in(folder):
    """Return the privacy spent by the journal in a folder."""
    return privacy_spent(entries_of(open_journal(folder)))


def squares_of(folder):
    """Return the costs of the only split."""
    (squares,) = spent_in(folder).splits.values()
    return squares


def asking(agreement, *releases):
    """Return a request for releases at zero."""
    rates = rates_needed([Difference("demographic_parity", "race")], agreement.levels)
    n = agreement.schema.n_features
    point = Point(np.zeros(n + 1), extras=releases)
    return Ask(agreement, Evaluate(Setup(Linear(n), rates), Request((point,))))


def test_a_private_run_over_sites_reports_what_each_site_spent(sites, tmp_path):
    finished, _ = run(sites, tmp_path / "out")
    result = finished.result
    assert result.method == "private" and result.status == "converged"
    assert {loss.epsilon for loss in result.privacy.clients.values()} == {2.0}
    shown = json.loads((tmp_path / "out" / "result.json").read_text())
    assert shown["privacy"]["neighbours"] == "add-remove"
    assert any("one response per request" in one for one in shown["privacy"]["not_covered"])
    rows = result.clients["north"].rows
    assert abs(rows.train + rows.test - 1000) < 200 and rows.test > 150
    for config in sites.values():
        spent = spent_in(SiteSettings.from_node_config(config).ledger_folder)
        assert spent.epsilon(1e-6) == pytest.approx(2.0, rel=1e-6)


def test_runs_add_up_until_the_privacy_budget_rejects_one(sites, tmp_path):
    run(sites, tmp_path / "one")
    run(sites, tmp_path / "two", privacy="epsilon=1,delta=1e-6")
    settings = SiteSettings.from_node_config(sites[0])
    spent = spent_in(settings.ledger_folder)
    squares = mu_of(2.0, 1e-6) ** 2 + mu_of(1.0, 1e-6) ** 2
    assert spent.mu**2 == pytest.approx(squares, rel=1e-9)
    assert 2.0 < spent.epsilon(1e-6) < 3.0
    with pytest.raises(Exception, match=r"north.*privacy budget of epsilon 3.* would be exceeded"):
        run(sites, tmp_path / "three")
    site_file = tmp_path / "site.toml"
    site_file.write_text(tomli_w.dumps(sites[0]))
    said = " ".join(fcfl("site", "status", site_file).output.split())
    now = spent_in(settings.ledger_folder).epsilon(1e-6)  # the third run began
    assert spent.epsilon(1e-6) < now <= 3.0 and f"Privacy: epsilon {now:.4g} of 3 spent" in said


def test_a_private_introduction_reads_no_row(sites, monkeypatch):
    def unread(*_):
        raise AssertionError("a row was read")

    monkeypatch.setattr("fcfl.sites.rows.open_rows", unread)
    said = asked(sites[0], Introduce(TERMS))
    assert said.levels == said.present == {"race": ("black", "white")}
    assert said.labels == ("no", "yes") and said.statistics is None
    assert said.schema == read_declared(sites[0]["policy"].replace("policy", "schema")).schema
    assert said.privacy == PrivacyBudget(3.0, 1e-6)
    other = asked(sites[1], Introduce(TERMS))
    assert said.checksum != other.checksum
    again = asked(sites[0], Introduce(TERMS))
    assert said.checksum == again.checksum


def test_every_other_question_is_rejected_and_costs_nothing(sites):
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
        "exact counts": Ask(agreement, Count(setup, zero)),
        "only noisy sums": Ask(agreement, Evaluate(setup, Request((Point(zero),)))),
        "losses, rates or gradients": Ask(
            agreement, Evaluate(setup, Request((Point(zero, "gradients", extras=(release,)),)))
        ),
        "that this site's schema declares": Ask(
            other, Evaluate(setup, Request((Point(zero, extras=(release,)),)))
        ),
    }
    for sentence, question in questions.items():
        said = asked(config, question)
        assert isinstance(said, Refusal) and sentence in said.sentence, said
    assert spent_in(SiteSettings.from_node_config(config).ledger_folder).mu == 0


def test_a_killed_answer_counts_and_its_repetition_counts_again(sites, monkeypatch):
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
        patched.setattr(site_rows, "encoded_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            asked(config, question)
    folder = SiteSettings.from_node_config(config).ledger_folder
    assert squares_of(folder)[0] == pytest.approx(0.04)
    first, second = (asked(config, question)[0].extras["counts"] for _ in range(2))
    assert not np.array_equal(first, second)
    assert squares_of(folder)[0] == pytest.approx(0.12)


def test_a_site_with_a_torn_journal_answers_nothing(sites):
    config = sites[0]
    asked(config, Introduce(TERMS))
    path = SiteSettings.from_node_config(config).ledger_folder / "journal.sqlite"
    path.write_bytes(path.read_bytes()[:5000])
    said = asked(config, Introduce(TERMS))
    assert isinstance(said, Refusal) and "looked at it" in said.sentence


def test_errors_with_private_rows_stay_in_the_log(sites, caplog, tmp_path):
    config = dict(sites[0])
    agreement = agreement_with(config)
    frame = stays(60).drop(columns="hospital").assign(died="perhaps")
    frame.to_csv(config["table"], index=False)
    agreement = replace(agreement, checksums=agreement_with(config).checksums)
    rates = rates_needed([Difference("demographic_parity", "race")], agreement.levels)
    point = Point(np.zeros(agreement.schema.n_features + 1), extras=(Release("counts", 0.2),))
    question = Evaluate(Setup(Linear(agreement.schema.n_features), rates), Request((point,)))
    said = asked(config, Ask(agreement, question))
    assert isinstance(said, Refusal) and "perhaps" not in said.sentence
    assert "perhaps" in caplog.text


def test_privacy_adds_up_over_all_states_of_a_table(tmp_path):
    journal, budget = open_journal(tmp_path), PrivacyBudget(1.0, 1e-6)
    half = mu_of(1.0, 1e-6) ** 2 / 2
    record(journal, Entry("before", "", "old", "introduce", 1))
    for table in ("one", "two"):
        entry = Entry(table, "run", f"of {table}", "evaluate", 1, privacy=(half, 0.0))
        with pytest.raises(ValueError, match="1 responses without noise"):
            record(journal, entry, budget)
        record(journal, entry, budget, after_exact=True)
    assert spent_in(tmp_path).epsilon(1e-6) == pytest.approx(1.0, rel=1e-6)
    more = Entry("three", "run", "more", "evaluate", 1, privacy=(1e-3, 0.0))
    with pytest.raises(ValueError, match="would be exceeded"):
        record(Journal(journal.path), more, budget, after_exact=True)
    with sqlite3.connect(journal.path) as connection:
        connection.execute(
            "UPDATE records SET body = replace(body, '\"privacy\": [', '\"privacy\": [-')"
        )
    with pytest.raises(JournalError):
        entries_of(Journal(journal.path))


def test_one_row_more_at_a_site_changes_no_other_row(sites):
    """From the file to the rows that releases are about."""
    config = sites[0]
    settings = SiteSettings.from_node_config(config)
    header = "race,sex,age,ward,died"
    rows = [f"{race},f,{age},07,no" for race in ("black", "white") for age in range(40, 60)]

    def encoded(*more):
        settings.table.write_text("\n".join([header, *rows, *more, ""]))
        agreement = agreement_with(config)
        parts = site_rows.encoded_rows(settings, agreement, agreement.checksums[settings.name])
        names = agreement.schema.feature_names
        lines = [np.column_stack([data.X, data.y, data.groups["race"]]) for data in parts]
        return names, [sorted(map(tuple, part.tolist())) for part in lines]

    names, (train, test) = encoded()
    assert sum(row[names.index("ward=07")] for row in (*train, *test)) == len(rows)
    for more in ("white,f,50.5,er,no", "?,m,old,7,yes", "-,m,,,no"):
        _, parts = encoded(more)
        assert len(parts[0]) + len(parts[1]) == len(rows) + 1
        assert set(train) <= set(parts[0]) and set(test) <= set(parts[1])


def test_splits_that_the_server_chooses_add_up(sites, tmp_path):
    """A row that one split trains on is held out by another: it pays for both."""
    config, train, test = sites[0], Release("counts", 0.3), Release("held_out", 0.4)
    folder = SiteSettings.from_node_config(config).ledger_folder
    one = agreement_with(config)
    assert not isinstance(asked(config, asking(one, train, test)), Refusal)
    assert spent_in(folder).mu ** 2 == pytest.approx(0.16)
    other = agreement_with(config, replace(TERMS, seed=1))
    assert not isinstance(asked(config, asking(other, train)), Refusal)
    assert spent_in(folder).mu ** 2 == pytest.approx(0.16 + 0.09)
    for number, terms in enumerate((TERMS, replace(TERMS, test_size=0.5)), start=1):
        said = asked(config, asking(agreement_with(config, terms), replace(test, mu=0.1)))
        assert not isinstance(said, Refusal)
        squares = 0.16 + 0.01 * number + 0.09  # the first of them is within the first split
        assert spent_in(folder).mu ** 2 == pytest.approx(squares)
    said = asked(config, asking(agreement_with(config, replace(TERMS, seed=2)), test))
    assert isinstance(said, Refusal) and "would be exceeded" in said.sentence


def test_rows_that_move_between_two_files_pay_for_both(sites, tmp_path):
    config = sites[0] | {"test-table": sites[1]["table"]}
    settings = SiteSettings.from_node_config(config)
    for release in (Release("counts", 0.3), Release("held_out", 0.4)):
        assert not isinstance(asked(config, asking(agreement_with(config), release)), Refusal)
    assert spent_in(settings.ledger_folder).mu ** 2 == pytest.approx(0.16)
    one, two = settings.table.read_bytes(), settings.test_table.read_bytes()
    settings.table.write_bytes(two)
    settings.test_table.write_bytes(one)
    question = asking(agreement_with(config), Release("counts", 0.3))
    assert not isinstance(asked(config, question), Refusal)
    assert spent_in(settings.ledger_folder).mu ** 2 == pytest.approx(0.25)


def test_noisy_answers_after_exact_ones_need_the_policys_consent(sites, tmp_path):
    config, private = sites[0], tmp_path / "policy.toml"
    site_file = tmp_path / "site.toml"
    site_file.write_text(tomli_w.dumps(config))
    exact = asked(config | {"policy": open_policy(tmp_path)}, Introduce(TERMS))
    assert exact.statistics is not None
    said = asked(config, Introduce(TERMS))
    assert isinstance(said, Refusal) and "has sent 1 responses without noise" in said.sentence
    shown = " ".join(fcfl("site", "status", site_file).output.split())
    assert "Not included: 1 earlier responses without noise" in shown
    private.write_text(private.read_text() + "after-exact-answers = true\n")
    assert asked(config, Introduce(TERMS)).privacy == PrivacyBudget(3.0, 1e-6)
    assert not isinstance(
        asked(config, asking(agreement_with(config), Release("counts", 0.1))), Refusal
    )
    private.write_text(private.read_text().replace("= true", "= 1"))
    said = asked(config, Introduce(TERMS))
    assert isinstance(said, Refusal) and "after-exact-answers" in said.sentence


def test_a_private_site_needs_a_ledger_outside_its_cache(sites):
    config = {key: value for key, value in sites[0].items() if key != "ledger"}
    said = asked(config, Introduce(TERMS))
    assert isinstance(said, Refusal) and said.sentence.startswith(
        "`ledger` must be set in the site's"
    )
