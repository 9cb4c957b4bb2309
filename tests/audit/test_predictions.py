import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl._types import RateId
from fcfl.audit import PredictionColumns, Selections, audit_clients, count_predictions
from fcfl.client.counts import count_rows
from fcfl.data import Columns, federate
from fcfl.errors import DataError
from fcfl.rules import Difference

COLUMNS = PredictionColumns("site", "yhat", ("race", "sex"), "y")


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 200
    return pd.DataFrame(
        {
            "site": rng.choice(["a", "b", "c"], n),
            "y": rng.integers(0, 2, n),
            "yhat": rng.integers(0, 2, n),
            "score": rng.random(n),
            "race": rng.choice(["black", "white", None], n, p=[0.4, 0.5, 0.1]),
            "sex": rng.choice(["f", "m"], n),
        }
    )


def by_hand(frame, rate):
    rows = frame[frame[rate.attribute] == rate.group]
    if rate.kind != "selection":
        rows = rows[rows["y"] == (rate.kind == "true_positive")]
    return len(rows), int(rows["yhat"].sum())


def test_counts_are_those_of_pandas(frame):
    found = count_predictions(frame, COLUMNS)
    assert found.levels == {"race": ("black", "white"), "sex": ("f", "m")}
    assert found.labels == ("0", "1") and list(found.counts) == ["a", "b", "c"]
    assert len(found.rates) == 12
    for client, counts in found.counts.items():
        rows = frame[frame["site"] == client]
        assert counts.n_rows == len(rows)
        assert counts.true_positive == ((rows["y"] == 1) & (rows["yhat"] == 1)).sum()
        assert counts.false_positive == ((rows["y"] == 0) & (rows["yhat"] == 1)).sum()
        for rate, n, k in zip(found.rates, counts.group_counts, counts.group_selected, strict=True):
            assert (n, k) == by_hand(rows, rate)
    unknown = int(frame["race"].isna().sum())
    assert found.notes == (
        "Prediction 'yhat': '1' counts as selected.",
        f"{unknown} of 200 rows have no value in 'race' and are in no group.",
    )


def test_counts_are_those_of_a_trained_model(frame):
    federation = federate(frame, Columns("site", "y", ("race", "sex"), ("yhat",)), test_size=0)
    found = count_predictions(frame, COLUMNS)
    for client, data in federation.train.items():
        logits = np.where(frame.loc[frame["site"] == client, "yhat"] == 1, 1.0, -1.0)
        theirs, ours = count_rows(logits, data, found.rates, 0.0), found.counts[client]
        assert (ours.group_counts == theirs.group_counts).all()
        assert (ours.group_selected == theirs.group_selected).all()
        assert ours.true_negative == theirs.true_negative


@given(st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(random):
    sites, values = list("aabbbccc"), [0, 1, 0, 1, 1, 0, 0, 1]
    frame = pd.DataFrame(
        {"site": sites, "yhat": values, "y": values[::-1], "sex": list("fmfmfmfm")}
    )
    order = list(range(8))
    random.shuffle(order)
    columns = PredictionColumns("site", "yhat", ("sex",), "y")
    one, other = (count_predictions(f, columns) for f in (frame, frame.iloc[order]))
    for client in one.counts:
        assert (one.counts[client].group_counts == other.counts[client].group_counts).all()
        assert (one.counts[client].group_selected == other.counts[client].group_selected).all()


def test_scores_with_a_threshold(frame):
    columns = PredictionColumns("site", "score", ("sex",), "y")
    found = count_predictions(frame, columns, threshold=0.7)
    classes = count_predictions(
        frame.assign(yhat=(frame["score"] >= 0.7).astype(int)),
        PredictionColumns("site", "yhat", ("sex",), "y"),
    )
    for client in found.counts:
        assert (found.counts[client].group_selected == classes.counts[client].group_selected).all()
    assert found.notes == ("Prediction 'score': scores of at least 0.7 are selected.",)


def test_the_threshold_itself_is_selected():
    frame = pd.DataFrame({"site": ["a"] * 3, "s": [0.4, 0.5, 0.6], "sex": ["f"] * 3})
    found = count_predictions(frame, PredictionColumns("site", "s", ("sex",)), threshold=0.5)
    assert found.counts["a"].group_selected.tolist() == [2.0]


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_without_a_label_only_selection_is_counted(frame, threshold):
    columns = PredictionColumns("site", "yhat" if threshold is None else "score", ("sex",))
    found = count_predictions(frame.drop(columns="y"), columns, threshold=threshold)
    assert found.rates == (RateId("selection", "sex", "f"), RateId("selection", "sex", "m"))
    assert all(isinstance(counts, Selections) for counts in found.counts.values())
    assert sum(counts.n_rows for counts in found.counts.values()) == 200
    audit = audit_clients([Difference("demographic_parity", "sex", 0.9)], found.rates, found.counts)
    assert audit.overall.accuracy is None and audit.overall.selected is not None


@pytest.mark.parametrize(
    ("values", "positive", "selected"),
    [
        (["no", "yes", "yes"], None, 2),
        (["no", "yes", "yes"], "no", 1),
        ([True, False, False], None, 1),
        ([1.0, 0.0, 0.0], None, 1),
        ([0, 0, 0], None, 0),
        (["9", "10", "10"], None, 2),
        (["yes", "yes", "yes"], "yes", 3),
        (["no", "no", "no"], "yes", 0),
    ],
    ids=str,
)
def test_classes_without_a_label(values, positive, selected):
    frame = pd.DataFrame({"site": ["a"] * 3, "p": values, "sex": ["f", "m", "m"]})
    found = count_predictions(frame, PredictionColumns("site", "p", ("sex",), positive=positive))
    assert found.counts["a"].group_selected.sum() == selected


def test_classes_in_the_words_of_the_label():
    frame = pd.DataFrame(
        {"site": ["a"] * 4, "y": ["good", "bad"] * 2, "p": ["good"] * 4, "sex": list("fmfm")}
    )
    columns = PredictionColumns("site", "p", ("sex",), "y", positive="bad")
    found = count_predictions(frame, columns)
    assert found.labels == ("good", "bad")
    assert found.counts["a"].group_selected.sum() == 0
    assert found.counts["a"].false_negative == 2


def test_only_the_named_groups_are_compared(frame):
    frame["race"] = np.resize(["black", "white", "other"], len(frame))
    columns = PredictionColumns("site", "yhat", ("race",), "y")
    found = count_predictions(frame, columns, groups={"race": ["white", "black"]})
    assert found.levels == {"race": ("white", "black")} and len(found.rates) == 6
    assert sum(counts.n_rows for counts in found.counts.values()) == 200
    with pytest.raises(DataError, match=r"`groups` of 'race' must be in the data, got 'wite'. Did"):
        count_predictions(frame, columns, groups={"race": ["wite", "black"]})


def with_cells(frame, column, rows, value):
    changed = frame.astype({column: object})
    changed.loc[rows, column] = value
    return changed


@pytest.mark.parametrize(
    ("change", "columns", "threshold", "named"),
    [
        (None, ("site", "y_hat", ("race",), "y"), None, "`prediction`.*'y_hat'.*'yhat'"),
        (None, ("site", "y", ("race",), "y"), None, "'y' .*`label` and `prediction`"),
        (("yhat", range(4), np.nan), ("site", "yhat", ("race",), "y"), None, "'yhat'.* 4 of 200"),
        (("yhat", range(4), np.nan), ("site", "yhat", ("race",), "y"), 0.5, "'yhat'.* 4 of 200"),
        (None, ("site", "score", ("race",)), None, "'score'.*got 200.*`--threshold`"),
        (None, ("site", "score", ("race",), "y"), None, "'score'.*'0' or '1'.*'y'.*`--threshold`"),
        (("score", [5], "high"), ("site", "score", ("race",), "y"), 0.5, "'score'.*'high'"),
        (("score", [5], np.inf), ("site", "score", ("race",), "y"), 0.5, "infinite"),
        (None, ("site", "score", ("race",), "y"), np.nan, "`threshold`.*nan"),
        (("yhat", range(200), "no"), ("site", "yhat", ("race",), "y"), None, "'yhat'.*'y'.*'no'"),
        (("yhat", range(200), "ok"), ("site", "yhat", ("race",)), None, "'ok'.*`--positive`"),
        (None, ("site", "yhat", ("race",), None, "2"), None, "`positive`.*'yhat'.*'2'"),
    ],
)
def test_errors_name_the_column_and_the_value(frame, change, columns, threshold, named):
    frame = frame if change is None else with_cells(frame, *change)
    with pytest.raises(ValueError, match=named):
        count_predictions(frame, PredictionColumns(*columns), threshold=threshold)
