"""`fcfl site`: what a site has answered, and what is left."""

import tomli_w

from fcfl.limits import Limits
from fcfl.sites.ledger import Entry, Ledger
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


def test_status_shows_what_was_asked_and_what_is_left(tmp_path):
    path = a_site(tmp_path, "[limits]\ncounts-per-table = 17\n")
    outcome = fcfl("site", "status", path)
    assert outcome.exit_code == 0 and "Nothing was asked" in outcome.output
    settings = SiteSettings.from_file(path)
    ledger, table = Ledger(settings.ledger_folder), table_checksum(settings)
    for number in range(3):
        entry = Entry(table, "abcdef0123", f"{number}", "count", 10, 4, (f"model {number}",))
        ledger.record(entry, Limits())
    outcome = fcfl("site", "status", path)
    assert outcome.exit_code == 0, outcome.output
    shown = " ".join(outcome.output.split())
    assert "questions 3 50000 49997" in shown and "points 12 500000" in shown
    assert "counts 3 17 14" in shown and "run 1 (abcdef01)" in shown
    assert "1 of 100 runs" in shown


def test_a_torn_ledger_is_told_and_mended(tmp_path):
    path = a_site(tmp_path)
    ledger = Ledger(SiteSettings.from_file(path).ledger_folder)
    ledger.record(Entry("table", "", "1", "introduce", 10), Limits())
    ledger.path.write_bytes(ledger.path.read_bytes() + b'{"entry":')
    assert "is torn or was changed at line 2" in only_error(fcfl("site", "status", path))
    outcome = fcfl("site", "mend", path)
    assert outcome.exit_code == 0 and "Cut 9 bytes off" in " ".join(outcome.output.split())
    assert "The ledger is whole" in fcfl("site", "mend", path).output
    assert fcfl("site", "status", path).exit_code == 0


def test_what_is_no_sites_file_is_one_sentence(tmp_path):
    (tmp_path / "site.toml").write_text("name = ")
    assert "is not TOML" in only_error(fcfl("site", "status", tmp_path / "site.toml"))
    assert "No such file" in only_error(fcfl("site", "status", tmp_path / "absent.toml"))
    (tmp_path / "site.toml").write_text('name = "x"\n')
    assert "`table` must be the path" in only_error(fcfl("site", "status", tmp_path / "site.toml"))
