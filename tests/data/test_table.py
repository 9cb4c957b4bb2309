import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcfl.data import Category, Columns, Number, Schema, federate, summarise
from fcfl.errors import DataError


def dense(X):
    return np.asarray(X)


def equal(one, other):
    same_groups = all((one.groups[a] == other.groups[a]).all() for a in one.groups)
    return (dense(one.X) == dense(other.X)).all() and (one.y == other.y).all() and same_groups


def test_rows_find_their_client(frame, columns):
    federation = federate(frame, columns)
    assert federation.clients == ("a", "b", "c") == tuple(federation.test)
    for client, rows in frame.groupby("site"):
        train, test = federation.train[client], federation.test[client]
        assert train.n_rows + test.n_rows == len(rows)
        assert test.n_rows == round(0.3 * len(rows))
        assert train.y.sum() + test.y.sum() == rows["y"].sum()
        white = (train.groups["race"] == 1).sum() + (test.groups["race"] == 1).sum()
        assert white == (rows["race"] == "white").sum()
    assert federation.levels == {"race": ("black", "white")}
    assert federation.labels == ("0", "1")
    assert federation.schema.feature_names == ("age", "ward=er", "ward=icu", "ward missing")


def test_rows_keep_their_order_and_cells(frame, columns):
    data = federate(frame, columns, test_size=0).train["b"]
    rows = frame[frame["site"] == "b"]
    age = (rows["age"] - frame["age"].mean()) / frame["age"].std(ddof=0)
    assert dense(data.X)[:, 0] == pytest.approx(age.to_numpy())
    assert (data.y == rows["y"]).all()


def test_split_is_stratified_by_label_and_group(frame, columns):
    federation = federate(frame, columns, test_size=0.5)
    for client, rows in frame.groupby("site"):
        test = federation.test[client]
        for (y, race), stratum in rows.groupby(["y", "race"]):
            code = federation.levels["race"].index(race)
            held_out = ((test.y == y) & (test.groups["race"] == code)).sum()
            assert abs(held_out - len(stratum) / 2) < 1


@pytest.mark.parametrize("seed", range(5))
def test_rows_without_a_group_are_held_out_in_the_same_share_as_others(columns, seed):
    races = pd.Series([None, "black", "white"] * 80, dtype=object)
    table = pd.DataFrame({"site": "a", "y": np.repeat([0, 1], 120), "race": races, "x": range(240)})
    held_out = federate(table, columns, seed=seed).held_out
    n_tested = table[held_out].groupby(["y", "race"], dropna=False).size()
    assert n_tested.tolist() == [12] * 6  # .3 of 40


def test_schema_depends_on_training_rows_only(frame, columns):
    loud = frame.copy()
    held_out = federate(loud.assign(row=np.arange(300.0)), columns).test["a"]
    schema = federate(frame.assign(row=np.arange(300.0)), columns).schema
    row = next(column for column in schema.columns if column.name == "row")
    rows = np.round(dense(held_out.X)[:, -1] * row.scale + row.mean).astype(int)
    loud.loc[rows, "age"] = 1e6
    loud.loc[rows, "ward"] = "only in test"
    assert federate(loud, columns).schema == federate(frame, columns).schema


def test_a_client_is_split_alike_whoever_else_takes_part(frame, columns):
    schema = federate(frame, columns).schema
    together = federate(frame, columns, schema=schema)
    alone = federate(frame[frame["site"] == "b"], columns, schema=schema)
    assert equal(together.train["b"], alone.train["b"])
    assert equal(together.test["b"], alone.test["b"])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 0.9))
def test_same_seed_same_federation(seed, test_size):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 2, (60, 3)), columns=["s", "y", "g"])
    frame["x"] = rng.normal(size=60)
    names = Columns("s", "y", ("g",))
    first, again = (federate(frame, names, seed=seed, test_size=test_size) for _ in range(2))
    assert first.checksum == again.checksum
    assert all(equal(first.test[c], again.test[c]) for c in first.clients)


def test_checksum_names_the_rows_and_their_split(frame, columns):
    def checksum(table=frame, **options):
        return federate(table, columns, **options).checksum

    changed = frame.copy()
    changed.loc[0, "age"] += 1e-9
    different = [checksum(), checksum(changed), checksum(seed=1), checksum(test_size=0)]
    assert len(set(different)) == 4
    assert checksum(frame.astype({"site": object, "ward": "category"})) == checksum()


def test_given_test_rows_are_not_split_again(frame, columns):
    train, test = frame[:250], frame[250:]
    federation = federate(train, columns, test_frame=test[test["site"] != "c"])
    assert sum(data.n_rows for data in federation.train.values()) == 250
    assert federation.test["c"].n_rows == 0
    assert federation.test["a"].n_rows == (test["site"] == "a").sum()
    assert federation.train["a"].n_rows == (train["site"] == "a").sum()


def test_one_row_and_no_test_rows(frame, columns):
    single = frame.copy()
    single.loc[0, "site"] = "tiny"
    federation = federate(single, columns)
    assert federation.train["tiny"].n_rows == 1 and federation.test["tiny"].n_rows == 0
    assert federation.test["tiny"].n_features == federation.schema.n_features
    assert "Only one training row at client 'tiny'." in federation.notes


def test_names_are_just_text(frame, columns):
    odd = frame.replace({"site": {"a": " <script>alert(1)</script> ", "b": "Žilina ’x’"}})
    odd["race"] = odd["race"].replace("white", " weiß ")
    federation = federate(odd, columns)
    assert set(federation.clients) == {"<script>alert(1)</script>", "Žilina ’x’", "c"}
    assert federation.levels["race"] == ("black", "weiß")


@pytest.mark.parametrize("dtype", [int, float, "Int64", str, "category"])
def test_client_numbers_become_their_text(frame, columns, dtype):
    numbered = frame.assign(site=frame["site"].map({"a": 9, "b": 10, "c": 11}).astype(dtype))
    assert federate(numbered, columns).clients == ("10", "11", "9")


def test_notes_name_columns_and_clients_without_information(frame, columns):
    table = frame.assign(
        y=frame["y"].where(frame["site"] != "b", 1),
        race=frame["race"].where(frame["site"] != "c", "white"),
        same=1,
        ward=np.arange(300).astype(str),
    )
    table["Unnamed: 0"] = np.arange(300)
    notes = " ".join(federate(table, columns, test_size=0).notes)
    for named in (
        "one group of 'race' among the training rows of client 'c'",
        "one label value among the training rows of client 'b'",
        "'ward' has 300 levels; the 100 most frequent",
        "195 more, in 200 of 300 training rows",
        "`max_levels=`",
        "'same' is '1' in every training row",
    ):
        assert named in notes


def test_agreed_levels_and_labels_serve_a_site_that_has_not_all_of_them(frame, columns):
    site = frame[(frame["race"] == "white") & (frame["y"] == 0)]
    levels, labels = {"race": ("white", "black")}, ("0", "1")
    federation = federate(site, columns, levels=levels, labels=labels)
    assert federation.levels == levels and federation.labels == labels
    assert set(federation.train["a"].groups["race"]) == {0}
    others = federate(site, columns, levels={"race": ("black",)}, labels=labels)
    assert set(others.train["a"].groups["race"]) == {-1}
    with pytest.raises(DataError, match="'y' must hold '1' or '2', got '0'"):
        federate(site, columns, levels=levels, labels=("1", "2"))


def test_no_work_is_done_row_by_row(monkeypatch):
    """Python sees each distinct value, not each row."""
    from fcfl.data import cells

    calls = []
    original = cells.text_of
    monkeypatch.setattr(cells, "text_of", lambda value: calls.append(0) or original(value))
    n = 20_000
    frame = pd.DataFrame({"s": np.arange(n) % 3, "y": np.arange(n) % 2, "g": np.arange(n) % 5})
    frame["c"] = pd.Series(np.arange(n) % 7).astype(str)
    federation = federate(frame, Columns("s", "y", ("g",)))
    assert sum(data.n_rows for data in federation.train.values()) == 0.7 * n
    assert len(calls) < 100


@given(st.integers(0, 50))
@settings(deadline=None, max_examples=15)
def test_pooled_cells_agree_on_the_schema_that_clients_would_agree_on(seed):
    """Numbers to the last bit: one process and sites encode alike."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "site": rng.choice(["a", "b", "c"], 60),
            "y": rng.integers(0, 2, 60),
            "race": rng.choice(["x", "z"], 60),
            "age": np.where(rng.random(60) < 0.1, np.nan, 1e3 + rng.normal(size=60)),
            "ward": pd.Categorical(rng.choice(["icu", "er", None, "0", "0.0"], 60)),
        }
    )
    columns = Columns("site", "y", ("race",))
    ours = federate(table, columns, test_size=0)
    each = {c: summarise(rows, ["age", "ward"]) for c, rows in table.groupby("site")}
    assert ours.schema == Schema.from_statistics(each)
    objects = federate(table.astype({"ward": object}), columns, test_size=0)
    assert objects.schema == ours.schema and objects.checksum == ours.checksum


@pytest.mark.parametrize(
    ("values", "positive", "labels"),
    [
        ([0.0, 1.0], None, ("0", "1")),
        ([9, 10], None, ("9", "10")),
        ([False, True], None, ("False", "True")),
        (["<=50K", ">50K"], None, ("<=50K", ">50K")),
        (["alive", "died"], "alive", ("died", "alive")),
        ([0, 1], "0", ("1", "0")),
    ],
)
def test_which_label_is_positive(frame, columns, values, positive, labels):
    table = frame.assign(y=np.array(values)[frame["y"]])
    federation = federate(table, dataclasses.replace(columns, positive=positive), test_size=0)
    assert federation.labels == labels
    ones = 1 - frame["y"] if positive is not None else frame["y"]
    assert federation.train["a"].y.sum() == ones[frame["site"] == "a"].sum()
    assert f"{labels[1]!r} is the positive value" in federation.notes[0]


def test_several_attributes_and_rows_without_a_group(frame):
    rng = np.random.default_rng(1)
    table = frame.assign(age_band=rng.choice([1, 2, 3], 300), extra=rng.choice(["u", "v"], 300))
    table.loc[table.index[table["site"] == "b"][:4], "race"] = None
    table.attrs["notes"] = ("The file was odd.",)
    columns = Columns("site", "y", ("race", "age_band", "extra"))
    federation = federate(table, columns, test_size=0)
    assert federation.levels["age_band"] == ("1", "2", "3")
    assert set(federation.train["a"].groups["age_band"]) == {0, 1, 2}
    assert (federation.train["b"].groups["race"] == -1).sum() == 4
    assert any("'race'" in note and "'b' 4" in note for note in federation.notes)
    assert federation.notes[0] == "The file was odd."


def test_dropped_columns_a_given_schema_and_max_levels(frame, columns):
    dropped = federate(frame, dataclasses.replace(columns, drop=("age",)))
    assert [column.name for column in dropped.schema.columns] == ["ward"]
    schema = Schema((Category("ward", ("icu",)),))
    assert federate(frame, columns, schema=schema).train["a"].n_features == 1
    many = frame.assign(ward=np.arange(300).astype(str))
    assert "ward=299" in federate(many, columns, test_size=0, max_levels=300).schema.feature_names


@pytest.mark.parametrize(
    ("options", "change", "named"),
    [
        ({}, {"client": "sit"}, "`client` .* 'sit'. Did you mean"),
        ({}, {"sensitive": ("rase",)}, "`sensitive` .*'rase'. Did you mean 'race'"),
        ({}, {"drop": ("agee",)}, "`drop` .*'agee'. Did you mean 'age'"),
        ({}, {"drop": ("y",)}, "'y' must have one role, got `label` and `drop`"),
        ({}, {"positive": "yes"}, "`positive` .* 'y', got 'yes'"),
        ({}, {"drop": ("age", "ward")}, "got none"),
        ({"schema": Schema((Number("y", 0.0, 1.0),))}, {}, "'y' .*`schema`"),
        ({"test_frame": pd.DataFrame({"y": [1]})}, {}, "`client`"),
    ],
)
def test_columns_that_do_not_fit_the_table(frame, columns, options, change, named):
    with pytest.raises(DataError, match=named):
        federate(frame, dataclasses.replace(columns, **change), **options)


def test_rows_that_cannot_be_used(frame, columns):
    labels = frame["y"].astype(object)
    rows = {client: frame.index[frame["site"] == client] for client in "bc"}
    labels.loc[rows["b"][:3].append(rows["c"][:1])] = None
    for table, named in (
        (frame.assign(y=labels), "'y' is empty .*'b' 3, 'c' 1"),
        (frame[:0], "at least one client, got none"),
        (frame.assign(race=(np.arange(300) % 30).astype(str)), "'race' is a number with 30"),
        (frame.assign(seen=pd.Timestamp("2020-01-01")), "'seen' holds dates"),
    ):
        with pytest.raises(DataError, match=named):
            federate(table, columns)
    with pytest.raises(DataError, match="'c' has test rows but no training rows"):
        federate(frame[frame["site"] != "c"], columns, test_frame=frame)
    with pytest.raises(DataError, match="no column 'age'"):
        federate(frame, columns, test_frame=frame.drop(columns="age"))
