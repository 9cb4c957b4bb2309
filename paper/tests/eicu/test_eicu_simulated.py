"""Simulated tables: labelled as such, every rule at work, and differences that are known."""

import gzip

import numpy as np
import pandas as pd
import pytest

from fcfl.errors import DataError
from fcfl_paper.eicu import Options, prepare
from fcfl_paper.eicu.prepare import gather, needed_tables, select
from fcfl_paper.eicu.simulate import COLUMNS, EFFECT, FLAWS, simulate, truth
from fcfl_paper.eicu.stays import GROUPS, RULES, failures, hospital
from fcfl_paper.eicu.tables import find_tables

HOSPITALS, STAYS = 4, 400
OPTIONS = Options(min_stays=STAYS // 2, sensitive=("race", "gender"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("simulated")
    simulate(place, HOSPITALS, STAYS, seed=1)
    return place


@pytest.fixture(scope="module")
def prepared(folder):
    return prepare(folder, OPTIONS)


def test_every_rule_has_a_stay_that_it_alone_removes(folder):
    """Without the rule that stay would be in; no other rule touches it."""
    tables = find_tables(folder, needed_tables(OPTIONS), ("carePlanGeneral",))
    facts = gather(tables, OPTIONS)
    client = hospital(facts.stays)
    broken = failures(facts)
    groups = {name: GROUPS[name](facts.stays) for name in OPTIONS.sensitive}
    broken |= {name: np.array([text is None for text in texts]) for name, texts in groups.items()}
    in_cohort = ~np.any([broken[rule.name] for rule in RULES], axis=0)
    sizes = pd.Series(client[in_cohort]).value_counts()
    broken["client"] = ~pd.Series(client).isin(sizes.index[sizes >= OPTIONS.min_stays]).to_numpy()
    times_broken = np.sum(list(broken.values()), axis=0)
    alone = {name: int((mask & (times_broken == 1)).sum()) for name, mask in broken.items()}
    _, flow = select(facts, client, groups, OPTIONS)
    assert set(alone) == {step.rule for step in flow}
    assert all(alone.values()), alone
    assert {step.rule: step.removed for step in flow} == alone


def test_the_tables_have_the_published_columns_and_rows_of_a_stay_lie_apart(folder):
    for name, columns in COLUMNS.items():
        with gzip.open(folder / f"{name}.csv.gz", "rt") as file:
            assert file.readline().strip() == ",".join(columns)
    ids = pd.read_csv(folder / "nurseCharting.csv.gz", usecols=[1])["patientunitstayid"]
    changes = int((ids.diff() != 0).sum())
    assert changes > 5 * ids.nunique()


def test_the_page_says_that_they_are_simulated(folder):
    page = (folder / "README.md").read_text()
    assert page.startswith("# Simulated tables") and "No patient is behind any row" in page
    assert page.count("\n| 10") == HOSPITALS + 1


def test_hospitals_and_groups_differ_as_declared(prepared):
    """Label rates by hospital and group against the declared log-odds, within four errors."""
    known = truth(HOSPITALS, STAYS)
    severity = np.random.default_rng(0).normal(size=20_000)
    for at in range(HOSPITALS):
        rows = prepared.frame[prepared.frame["hospital"] == str(known.hospital[at])]
        for group, gap in (("Caucasian", 0.0), ("not Caucasian", known.gap[at])):
            label = rows.loc[rows["race"] == group, "los7"]
            odds = known.los7[at] + EFFECT["los7"] * (severity + gap)
            expected = float(np.mean(1 / (1 + np.exp(-odds))))
            error = np.sqrt(expected * (1 - expected) / len(label))
            assert abs(label.mean() - expected) < 4 * error
        share = (rows["race"] == "Caucasian").mean()
        assert abs(share - known.caucasian[at]) < 4 * np.sqrt(0.25 / len(rows))


def test_the_features_carry_the_severity(prepared):
    """Sicker stays are longer: what shifts with severity also differs by label."""
    means = prepared.frame.groupby("los7")[["heart_rate_max", "lactate_last", "gcs_min"]].mean()
    assert means.loc[1, "heart_rate_max"] > means.loc[0, "heart_rate_max"]
    assert means.loc[1, "lactate_last"] > means.loc[0, "lactate_last"]
    assert means.loc[1, "gcs_min"] < means.loc[0, "gcs_min"]


def test_both_labels_all_feature_sets_and_both_clients(folder):
    for features, label, client in (
        ("day1-all", "mortality", "region"), ("apache", "los7", "hospital"),
    ):  # fmt: skip
        found = prepare(folder, Options(features, label, client, 100)).frame
        assert 0 < found[label].mean() < 1
        assert found[client].nunique() >= 3
        assert not found.isna().all().any()


def test_the_same_arguments_give_the_same_bytes(folder, tmp_path):
    simulate(tmp_path / "again", HOSPITALS, STAYS, seed=1)
    simulate(tmp_path / "other", HOSPITALS, STAYS, seed=2)
    for path in folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    name = "patient.csv.gz"
    assert (tmp_path / "other" / name).read_bytes() != (folder / name).read_bytes()


def test_they_are_never_written_among_other_files(tmp_path):
    (tmp_path / "patient.csv.gz").write_bytes(b"somebody's")
    with pytest.raises(DataError, match="must not be mixed with real ones"):
        simulate(tmp_path, 1, 50)
    assert [path.name for path in tmp_path.iterdir()] == ["patient.csv.gz"]
    with pytest.raises(DataError, match="need a folder, got the file"):
        simulate(tmp_path / "patient.csv.gz", 1, 50)


def test_simulated_tables_may_be_replaced_by_others(tmp_path):
    simulate(tmp_path, 1, 50)
    rows = simulate(tmp_path, 2, 60)
    assert rows["patient"] == 2 * 60 + 3
    assert len(pd.read_csv(tmp_path / "patient.csv.gz")) == rows["patient"]
    assert not [path for path in tmp_path.iterdir() if "draft" in path.name]


def test_stopped_on_the_way_every_table_in_the_folder_is_whole(tmp_path):
    def stop(table, share):
        if table == "carePlanGeneral":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(tmp_path, 1, 50, on_progress=stop)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"README.md", *(f"{name}.csv.gz" for name in list(COLUMNS)[:6])}
    for name in names - {"README.md"}:
        assert len(pd.read_csv(tmp_path / name)) > 0


@pytest.mark.parametrize(("hospitals", "stays"), [(0, 100), (2, 2 * len(FLAWS) - 1)])
def test_too_few_hospitals_or_stays(tmp_path, hospitals, stays):
    with pytest.raises(ValueError, match="must be at least"):
        simulate(tmp_path / "new", hospitals, stays)
    assert not (tmp_path / "new").exists()
