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


def test_rows_keep_their_order_andcells(frame, columns):
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


def test_schema_is_learnt_from_training_rows_only(frame, columns):
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


def test_a_client_seen_only_in_test_is_refused(frame, columns):
    with pytest.raises(DataError, match="Client 'c' has test rows but no training rows"):
        federate(frame[frame["site"] != "c"], columns, test_frame=frame)


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


@pytest.mark.parametrize(
    ("values", "positive", "labels"),
    [
        ([0, 1], None, ("0", "1")),
        ([0.0, 1.0], None, ("0", "1")),
        ([9, 10], None, ("9", "10")),
        ([-1, 1], None, ("-1", "1")),
        ([False, True], None, ("False", "True")),
        (["no", "yes"], None, ("no", "yes")),
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


def test_several_attributes_and_more_than_two_groups(frame):
    rng = np.random.default_rng(1)
    table = frame.assign(age_band=rng.choice([1, 2, 3], 300), extra=rng.choice(["u", "v"], 300))
    federation = federate(table, Columns("site", "y", ("race", "age_band", "extra")))
    assert federation.levels["age_band"] == ("1", "2", "3")
    assert list(federation.train["a"].groups) == ["race", "age_band", "extra"]
    assert set(federation.train["a"].groups["age_band"]) == {0, 1, 2}


def test_rows_without_a_group_stay_and_are_noted(frame, columns):
    table = frame.copy()
    table.loc[table.index[table["site"] == "b"][:4], "race"] = None
    federation = federate(table, columns, test_size=0)
    assert (federation.train["b"].groups["race"] == -1).sum() == 4
    note = "Rows without a value in 'race' count for the loss and belong to no group: 'b' 4."
    assert note in federation.notes


def test_notes_name_what_is_wanting(frame, columns):
    table = frame.assign(
        y=frame["y"].where(frame["site"] != "b", 1),
        race=frame["race"].where(frame["site"] != "c", "white"),
        same=1,
        ward=np.arange(300).astype(str),
    )
    table["Unnamed: 0"] = np.arange(300)
    notes = federate(table, columns, test_size=0).notes
    assert notes == (
        "Label 'y': '1' is the positive value, '0' the other.",
        "Only one group of 'race' among the training rows of client 'c'.",
        "Only one label value among the training rows of client 'b'.",
        "Column 'Unnamed: 0' has no name in the file and was left out.",
        "Column 'ward' has 300 levels; the 100 most frequent are used and the others count as "
        "unknown: '189', '19', '190', '191', '192' and 195 more, in 200 of 300 training rows. "
        "Drop it if it is an identifier (`max_levels=` uses more levels).",
        "Column 'same' is '1' in every training row and was left out.",
    )


def test_long_lists_of_clients_are_cut():
    frame = pd.DataFrame({"s": np.arange(20), "y": [0, 1] * 10, "g": "u", "x": np.arange(20)})
    notes = federate(frame, Columns("s", "y", ("g",))).notes
    assert notes[-1].endswith("'14', '15' and 12 more.")


def test_drop_and_given_schema_choose_the_features(frame, columns):
    dropped = federate(frame, dataclasses.replace(columns, drop=("age",)))
    assert [column.name for column in dropped.schema.columns] == ["ward"]
    schema = Schema((Category("ward", ("icu",)),))
    assert federate(frame, columns, schema=schema).train["a"].n_features == 1


def test_a_schema_must_not_use_the_label(frame, columns):
    with pytest.raises(DataError, match="`schema` must not use column 'y'"):
        federate(frame, columns, schema=Schema((Number("y", 0.0, 1.0),)))


def test_agreed_levels_and_labels_serve_a_site_that_has_not_all_of_them(frame, columns):
    site = frame[(frame["race"] == "white") & (frame["y"] == 0)]
    levels, labels = {"race": ("white", "black")}, ("0", "1")
    federation = federate(site, columns, levels=levels, labels=labels)
    assert federation.levels == levels and federation.labels == labels
    assert set(federation.train["a"].groups["race"]) == {0}
    with pytest.raises(DataError, match=r"unknown group 'white'. Did you mean 'whites'"):
        federate(site, columns, levels={"race": ("whites",)}, labels=labels)
    with pytest.raises(DataError, match="'y' must hold '1' or '2', got '0'"):
        federate(site, columns, levels=levels, labels=("1", "2"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"client": "sit"},
            "`client` must be a column of the table, got 'sit'. Did you mean",
        ),
        ({"label": "died"}, "`label` must be a column of the table, got 'died'. Known: 'site'"),
        ({"sensitive": ("rase",)}, "`sensitive` must be a column.*'rase'. Did you mean 'race'"),
        ({"drop": ("agee",)}, "`drop` must be a column.*'agee'. Did you mean 'age'"),
        ({"positive": "yes"}, "`positive` must be a value of label column 'y', got 'yes'. Known"),
        ({"drop": ("age", "ward")}, "at least one feature column.*got none"),
    ],
)
def test_columns_that_do_not_fit_the_table(frame, columns, change, sentence):
    with pytest.raises(DataError, match=sentence):
        federate(frame, dataclasses.replace(columns, **change))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"label": "site"}, "Column 'site' must have one role, got `client` and `label`"),
        ({"sensitive": ("race", "race")}, "Column 'race' must have one role"),
        ({"drop": ("y",)}, "Column 'y' must have one role, got `label` and `drop`"),
    ],
)
def test_a_column_has_one_role(columns, change, sentence):
    with pytest.raises(DataError, match=sentence):
        dataclasses.replace(columns, **change)


def blank(frame, name, rows):
    return frame.assign(**{name: frame[name].astype(object).where(~frame.index.isin(rows))})


BAD_TABLES = {
    "no client": (lambda f: blank(f, "site", [1, 2, 3]), "'site' is empty in 3 of 300 rows"),
    "no label": (
        lambda f: blank(f.assign(site="a"), "y", [4, 5]),
        "Label column 'y' is empty in 2 rows of client 'a'.*`--drop-unlabelled`",
    ),
    "three labels": (
        lambda f: f.assign(y=np.arange(300) % 3),
        "'y' must have two values, got 3: '0', '1', '2'",
    ),
    "many labels": (
        lambda f: f.assign(y=np.arange(300)),
        r"two values, got 300: .* and 295 more\. Map",
    ),
    "one label": (lambda f: f.assign(y=1), "'y' must have two values, got 1: '1'"),
    "a way out": (lambda f: f.assign(y=1), r"got 1: '1'\. Add rows with the other value, or"),
    "constant features": (
        lambda f: f.assign(age=1, ward="x"),
        r"at least one feature column that varies.*got \['age', 'ward'\]",
    ),
    "no rows": (lambda f: f[:0], "rows of at least one client, got none"),
    "numeric group": (
        lambda f: f.assign(race=np.arange(300) / 7),
        "'race' is a number with 300 distinct values, more than 20. Bin it first",
    ),
    "numeric group as text": (
        lambda f: f.assign(race=(np.arange(300) % 30).astype(str)),
        "'race' is a number with 30 distinct values",
    ),
    "unlabelled": (
        lambda f: blank(
            f, "y", f.index[f["site"] == "b"][:3].append(f.index[f["site"] == "c"][:1])
        ),
        "'y' is empty in 3 rows of client 'b' and in 1 row of other clients",
    ),
    "no group": (lambda f: f.assign(race=np.nan), "'race' is empty in every row"),
    "infinite": (
        lambda f: f.assign(age=f["age"].where(f["site"] != "b", np.inf)),
        "Column 'age' has .* infinite values",
    ),
    "dates": (
        lambda f: f.assign(seen=pd.Timestamp("2020-01-01")),
        "Column 'seen' holds dates",
    ),
    "twice": (lambda f: f.set_axis(["site", "y", "race", "x", "x"], axis=1), "'x' occurs twice"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_tables_that_cannot_be_used(frame, columns, name):
    spoil, sentence = BAD_TABLES[name]
    with pytest.raises(DataError, match=sentence) as caught:
        federate(spoil(frame), columns)
    assert "\n" not in str(caught.value)


def test_test_rows_must_have_the_columns(frame, columns):
    with pytest.raises(DataError, match="`client` must be a column"):
        federate(frame, columns, test_frame=frame.drop(columns="site"))
    with pytest.raises(DataError, match="The table has no column 'age'"):
        federate(frame, columns, test_frame=frame.drop(columns="age"))


def test_bad_share(frame, columns):
    with pytest.raises(ValueError, match="`test_size` must be at least 0 and below 1, got 1"):
        federate(frame, columns, test_size=1)


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


def test_how_many_levels_are_used_can_be_set(frame, columns):
    table = frame.assign(ward=np.arange(300).astype(str))
    federation = federate(table, columns, test_size=0, max_levels=300)
    assert "ward=299" in federation.schema.feature_names
    assert not [note for note in federation.notes if "levels" in note]


def test_what_was_noted_about_the_file_is_a_note_of_the_table(frame, columns):
    table = frame.copy()
    table.attrs["notes"] = ("The file was odd.",)
    assert federate(table, columns).notes[0] == "The file was odd."


@given(st.integers(0, 50))
@settings(deadline=None)
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
