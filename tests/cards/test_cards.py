"""Cards against pandas, against the schema of CHAI, and with awkward names."""

import json
import re
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcfl.cards.card import facts_template, fields_of, make_card, read_facts
from fcfl.results import read_result
from hospital import fcfl, only_error, stays, written
from simulated import two_clients, write

SCHEMA = Path(__file__).parents[3] / "shared" / "data" / "chai" / "schema-v0.2.xsd"
TODAY = date(2026, 1, 2)
BAD_NAME = "<script>|a\x01"


def applicants(n_rows=6000, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "employer": rng.choice(["one", "two", BAD_NAME], n_rows),
            "sex": rng.choice(["Female", "Male", None], n_rows, p=[0.48, 0.48, 0.04]),
            "race": rng.choice(
                ["Asian", "Black", "White", "Hawaiian", None], n_rows, p=[0.3, 0.3, 0.3, 0.01, 0.09]
            ),
        }
    )
    chance = 0.3 + 0.2 * (frame["sex"] == "Male") - 0.1 * (frame["race"] == "Black")
    frame["hired"] = np.where(rng.random(n_rows) < chance, "yes", "no")
    frame["good"] = rng.choice(["yes", "no"], n_rows)
    return frame


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards")
    table = written(applicants(), folder / "applicants.csv")
    outcome = fcfl(
        "audit", table, "--client", "employer", "--prediction", "hired", "--label", "good",
        "--sensitive", "sex,race", "--ratio", "0.8", "--out", folder / "audit",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    return folder / "audit"


def tables_of(card):
    """Every table of a Markdown card after its heading, as lists of cells."""
    found = {}
    for title, body in re.findall(r"## (.*?)\n(.*?)(?=\n## |\Z)", card, re.S):
        lines = [line for line in body.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
        found[title] = [row for row in cells if not set("".join(row)) <= set("-: |")]
    return found


def by_pandas(frame, columns):
    """Applicants, selected, rate and impact ratio by group, by pandas alone."""
    known = frame.dropna(subset=columns)
    found = known.groupby(columns)["hired"].agg(
        applicants="size", selected=lambda hired: (hired == "yes").sum()
    )
    found["rate"] = found["selected"] / found["applicants"]
    compared = found[found["applicants"] >= 0.02 * len(frame)]
    found["ratio"] = compared["rate"] / compared["rate"].max()
    return found


@pytest.mark.parametrize(
    ("title", "columns"),
    [
        ("sex", ["sex"]),
        ("race", ["race"]),
        ("Intersection of sex and race", ["sex", "race"]),
    ],
)
def test_the_tables_of_local_law_144_are_those_of_pandas(audited, title, columns):
    frame = applicants()
    card = make_card(audited, "ll144", {}, 0, TODAY)
    rows = [row for row in tables_of(card)[title] if row[0] != "Category"]
    expected = by_pandas(frame, columns)
    assert len(rows) == len(expected)
    for name, *cells in rows:
        key = tuple(name.split(", ")) if len(columns) > 1 else name
        line = expected.loc[key]
        assert cells[0] == f"{line['applicants']:,.0f}" and cells[1] == f"{line['selected']:,.0f}"
        assert cells[2] == f"{line['rate']:.3f}"
        if np.isnan(line["ratio"]):
            assert len(cells) == 3  # under two per cent: counts and rate only
        else:
            assert cells[3] == f"{line['ratio']:.3f}"
    unknown = frame[columns].isna().any(axis=1).sum()
    body = card.split(f"## {title}\n")[1].split("\n## ")[0]
    assert f"Applicants of unknown category, not in this table: {unknown}." in body
    assert ("less than 2 % of the data" in body) == expected["ratio"].isna().any()


def test_employers_dates_and_sources_are_named_or_said_to_be_missing(audited, tmp_path):
    facts = tmp_path / "facts.toml"
    facts.write_text('audit_date = "1 May 2026"\ndata_source = "our system"\n', encoding="utf-8")
    outcome = fcfl(
        "card", audited, "--kind", "ll144", "--facts", facts, "--out", tmp_path / "card.md"
    )
    assert outcome.exit_code == 0, outcome.output
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert "Data of 3 employers or branches, each of which contributed its own" in card
    assert "| Date of the bias audit | 1 May 2026 |" in card and "Source: our system" in card
    assert "| Independent auditor | Not stated. |" in card
    assert "not legal advice" in card
    assert "<script>" not in card and "\x01" not in card


def test_small_counts_are_hidden_unless_asked_for(audited):
    hidden = make_card(audited, "ll144", {}, 100, TODAY)
    shown = make_card(audited, "ll144", {}, 0, TODAY)
    assert "hidden" in hidden and "| hidden" not in shown
    assert "Counts from 1 to 99 are hidden" in hidden


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    table = written(stays(hospitals=("north", "so<uth")), folder / "stays.csv")
    outcome = fcfl(
        "train", table, "--client", "hospital", "--label", "died", "--sensitive", "race,sex",
        "--budget", "0.3", "--method", "fedavg", "--rounds", "20", "--out", folder / "run",
    )  # fmt: skip
    assert outcome.exit_code in (0, 3), outcome.output
    return folder / "run"


def validate_chai(xml):
    etree = pytest.importorskip("lxml.etree", reason="needs lxml")
    if not SCHEMA.exists():
        pytest.skip("the schema of CHAI is not at hand: shared/data/chai beside the repository")
    schema = etree.parse(str(SCHEMA))
    root, xs = schema.getroot(), "{http://www.w3.org/2001/XMLSchema}"
    root.remove(root.find(f"{xs}import"))  # that of the optional signature is on the network
    for element in root.iter(f"{xs}element"):
        if element.get("ref") == "ds:Signature":
            element.getparent().remove(element)
    etree.XMLSchema(schema).assertValid(etree.fromstring(xml.encode()))
    return etree.fromstring(xml.encode())


@pytest.mark.parametrize("which", ["audited", "trained"])
@pytest.mark.parametrize("filled", [True, False])
def test_the_chai_card_validates_and_has_every_verdict(which, filled, request):
    folder = request.getfixturevalue(which)
    facts = {key: f"{key} & <x> \x02" for key in fields_of("chai")} if filled else {}
    root = validate_chai(make_card(folder, "chai", facts, 11, TODAY))
    space = {"c": "https://mc.chai.org/v0.2/schema.xsd"}
    found = root.findall(".//c:FairnessEquity//c:MetricResult", space)
    values = [json.loads(one.find("c:ValueJson", space).text) for one in found]
    result = read_result(folder / "result.json")
    part = result.judged_part
    entries = [e for c in result.clients.values() for e in c.part(part).disparities]
    shown = [value.get("value") for value in values if "verdict" in value]
    assert {e.value for e in entries} <= set(shown)
    assert ("Not stated." in "".join(root.itertext())) != filled


@pytest.mark.parametrize("kind", ["annex-iv", "skops"])
def test_the_other_cards_have_every_number(trained, kind):
    card = make_card(trained, kind, {"responsible_persons": "A. B., C. D."}, 0, TODAY)
    result = read_result(trained / "result.json")
    for client in result.clients.values():
        assert f"{client.test.accuracy:.3f}" in card
        for entry in client.test.disparities:
            assert f"{entry.value:.3f}" in card and entry.verdict in card
    assert result.data.sha256 in card and "2026-01-02" in card
    assert "so<uth" not in card
    if kind == "annex-iv":
        assert "| C. D. |" in card


@pytest.mark.parametrize("kind", ["annex-iv", "skops", "ll144"])
def test_names_from_the_data_cannot_add_markup(kind, tmp_path):
    bad = "<script>alert(1)</script>|[a](b)`\x01"
    frame = stays(hospitals=("north", "south")).rename(columns={"age": bad, "race": f"r{bad}"})
    frame["hospital"] = frame["hospital"].replace("south", bad)
    table = written(frame, tmp_path / "stays.csv")
    outcome = fcfl(
        "train", table, "--client", "hospital", "--label", "died", "--sensitive", f"r{bad}",
        "--method", "fedavg", "--rounds", "3", "--l2", "0.01", "--out", tmp_path / "run",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    card = make_card(tmp_path / "run", kind, {"model_name": bad, "provider": bad}, 11, TODAY)
    assert "alert(1)" in card
    for markup in ("<script>", "](b)", "|[a", "(b)`", "\x01"):
        assert markup not in card.replace("\\<script\\>", "").replace("\\]", "").replace("\\`", "")


def test_a_template_names_every_field_and_reads_back(tmp_path):
    for kind in ("ll144", "chai", "annex-iv", "skops"):
        path = tmp_path / f"{kind}.toml"
        outcome = fcfl("card", "--kind", kind, "--template", "--out", path)
        assert outcome.exit_code == 0, outcome.output
        assert path.read_text(encoding="utf-8") == facts_template(kind)
        assert read_facts(kind, path) == {}
        assert set(fields_of(kind).values()) == {""}


def test_bad_facts_and_folders_get_one_sentence(audited, tmp_path):
    (tmp_path / "f.toml").write_text('auditer = "x"', encoding="utf-8")
    (tmp_path / "g.toml").write_text("auditor = 5", encoding="utf-8")
    (tmp_path / "h.toml").write_text("auditor =", encoding="utf-8")
    for name, sentence in (
        ("f.toml", "unknown key 'auditer'. Did you mean 'auditor'?"),
        ("g.toml", "`auditor` in .* must be text in quotes, got 5"),
        ("h.toml", "is not TOML"),
        ("i.toml", "There is no file"),
    ):
        outcome = fcfl("card", audited, "--kind", "ll144", "--facts", tmp_path / name)
        assert re.search(sentence, only_error(outcome))
    assert "There is no result in" in only_error(fcfl("card", tmp_path, "--kind", "chai"))
    assert "Name the folder" in only_error(fcfl("card", "--kind", "chai"), 2)
    assert "has no model.json" in only_error(fcfl("card", audited, "--kind", "skops"))


def test_the_chai_card_of_a_built_in_table_names_no_label_column(tmp_path):
    card = make_card(write(tmp_path, two_clients(threshold=0.5)), "chai", {}, 0, TODAY)
    assert "Probability of the positive label" in card
