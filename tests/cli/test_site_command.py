"""`fcfl site`: what a site has answered, and what is left."""

import tomli_w

from fcfl.sites.journal import Entry, open_journal, record
from fcfl.sites.rows import table_checksum
from fcfl.sites.settings import SiteSettings
from hospital import fcfl, only_error, stays, written


def a_site(folder, policy=None):
    table = written(stays(40).drop(columns="hospital"), folder / "north.csv")
    config = {"name": "north", "table": str(table), "ledger": str(folder / "ledger")}
    if policy is not None:
        (folder / "policy.toml").write_text(policy)
        config["policy"] = str(folder / "policy.toml")
    (folder / "site.toml").write_text(tomli_w.dumps(config))
    return folder / "site.toml"


def test_status_shows_what_was_asked(tmp_path):
    path = a_site(tmp_path)
    outcome = fcfl("site", "status", path)
    assert outcome.exit_code == 0 and "no requests for its current table" in outcome.output
    settings = SiteSettings.from_file(path)
    journal, table = open_journal(settings.ledger_folder), table_checksum(settings)
    record(journal, Entry("another table", "", "introduction", "introduce", 10))
    for number in range(3):
        record(journal, Entry(table, "abcdef0123", f"{number}", "evaluate", 10, points=4))
    outcome = fcfl("site", "status", path)
    assert outcome.exit_code == 0, outcome.output
    shown = " ".join(outcome.output.split())
    assert "abcdef01 3 12 20" in shown and "1 other tables" in shown


def test_a_changed_journal_is_one_sentence(tmp_path):
    path = a_site(tmp_path)
    journal = open_journal(SiteSettings.from_file(path).ledger_folder)
    record(journal, Entry("table", "", "1", "introduce", 10))
    journal.path.write_bytes(journal.path.read_bytes()[:5000])
    assert "journal.sqlite" in only_error(fcfl("site", "status", path))


def test_what_is_no_sites_file_is_one_sentence(tmp_path):
    (tmp_path / "site.toml").write_text("name = ")
    assert "not TOML" in only_error(fcfl("site", "status", tmp_path / "site.toml"))
    assert "No such file" in only_error(fcfl("site", "status", tmp_path / "absent.toml"))
    (tmp_path / "site.toml").write_text('name = "x"\n')
    assert "`table`" in only_error(fcfl("site", "status", tmp_path / "site.toml"))
