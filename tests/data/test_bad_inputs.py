"""Inputs that cannot be used: one line names what is wrong, without the words of a library."""

import gzip
import re
import warnings

import numpy as np
import pandas as pd
import pytest

from fcfl import FCFLClassifier
from hospital import fcfl, only_error

ROWS = 60
OURS_OR_RAW = re.compile(
    r"Traceback|Errno|C error|tokeniz|site-packages|src.fcfl|fcfl/|pyarrow|Arrow|pandas|numpy|np\.|"
    r"narwhals|Parser|codec|DType|dtype|<class|object at|magic|EOF|zip file|Warning|\n"
)


def frame(**columns):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "site": np.resize(["a", "b", "c"], ROWS),
            "sex": np.resize(["f", "m"], ROWS),
            "x": rng.normal(size=ROWS).round(3),
            "y": rng.choice(["no", "yes"], ROWS),
        }
    )
    return table.assign(**columns)


def cells(name, **at):
    """The table with single cells replaced."""
    table = frame().astype({name: object})
    for row, value in at.items():
        table.loc[int(row[1:]), name] = value
    return table


CSV = frame().to_csv(index=False)
HUGE = np.where(np.arange(ROWS) == 3, 1e300, 1.0)
FILES = {
    "empty": (b"", "is empty"),
    "header only": (b"site,sex,y,x\n", "no rows"),
    "zero bytes": (b"\x00\x01\x02" * 9, "zero bytes"),
    "UTF-16 without a mark": (CSV.encode("utf-16-le"), "zero bytes"),
    "no encoding": (CSV.replace("yes", "\x81").encode("latin-1"), "neither UTF-8 nor"),
    "a name twice": (CSV.replace("sex", "x", 1), "'x' occurs twice"),
    "a long row": (CSV + "a,f,1,yes,7\n", "line 62 has 5 cells instead of 4"),
    "an open quote at the end": (CSV + 'a,f,1,"yes\n', "quote in row 61"),
    "no client": (frame().rename(columns={"site": "sites"}), "Did you mean 'sites'"),
    "rows without a client": (cells("site", r3=None), "'site' is empty in 1 of 60 rows"),
    "rows without a label": (cells("y", r3=None, r4="?"), "'y' is empty.*--drop-unlabelled"),
    "one label": (frame(y="no"), "'y' must have two values, got 1: 'no'"),
    "three labels": (cells("y", r3="maybe"), "'y' must have two values, got 3"),
    "labels by case": (cells("y", r3="Yes"), "'Yes' and 'yes' differ only by case"),
    "no groups": (frame(sex=None), "'sex' is empty in every row"),
    "a number as group": (frame(sex=np.arange(ROWS)), "'sex' is a number with 60"),
    "no features": (frame().drop(columns="x"), "at least one feature column"),
    "constant features": (frame(x=1), r"at least one feature column.*\['x'\]"),
    "infinite": (cells("x", r3=np.inf), "'x' has 1 infinite value"),
    "1e300": (frame(x=HUGE), "'x' has values too large"),
    "1e999": (CSV + "a,f,1e999,yes\n", "'x' has 1 infinite value"),
}
OTHER_FILES = {
    "t.txt": (b"a", "must end in"),
    "t.xlsx": (b"no workbook", r"not a .xlsx file"),
    "t.parquet": (b"no parquet", r"not a .parquet file"),
    "t.csv.gz": (b"not compressed", r"not a .gz file"),
    "cut.csv.gz": (gzip.compress(CSV.encode() * 99, mtime=0)[:-20], "damaged"),
}
OPTIONS = {
    "a role twice": (("--sensitive", "y"), 1, "'y' must have one role"),
    "a group that is not there": (("--sensitive", "sx"), 1, "'sx'. Did you mean 'sex'"),
    "a positive value that is not there": (("--positive", "yep"), 1, "positive`.*'yep'"),
    "kept and not there": (("--keep", "z"), 1, "keep`.*'z'"),
    "used and not there": (("--features", "z"), 1, "features`.*'z'"),
    "text as numbers": (("--features", "w", "--numeric", "w"), 1, "'w' must hold numbers, got 'u'"),
    "numbers and categories": (("--numeric", "x", "--categorical", "x"), 1, "'x' is in"),
    "no levels": (("--max-levels", "0"), 2, "max.levels"),
    "more held out than there is": (("--test-size", "1"), 2, "test.size"),
}


def told(tmp_path, content, *options, name="t.csv", code=1):
    path = tmp_path / name
    if isinstance(content, pd.DataFrame):
        content.to_csv(path, index=False)
    elif content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    names = ("--client", "site", "--label", "y", "--sensitive", "sex")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sentence = only_error(fcfl("data", path, *names, *options), code)
    return sentence.replace(str(path), name)


@pytest.mark.parametrize(("content", "named"), FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_used(tmp_path, content, named):
    sentence = told(tmp_path, content)
    assert re.search(named, sentence) and not OURS_OR_RAW.search(sentence), sentence


@pytest.mark.parametrize("name", OTHER_FILES)
def test_a_file_that_is_not_what_its_name_says(tmp_path, name):
    content, named = OTHER_FILES[name]
    sentence = told(tmp_path, content, name=name)
    assert re.search(named, sentence) and not OURS_OR_RAW.search(sentence), sentence


@pytest.mark.parametrize(("options", "code", "named"), OPTIONS.values(), ids=OPTIONS)
def test_an_option_that_does_not_fit_the_table(tmp_path, options, code, named):
    sentence = told(tmp_path, frame(w=np.resize(["u", "v", "w"], ROWS)), *options, code=code)
    assert re.search(named, sentence) and not OURS_OR_RAW.search(sentence), sentence


def test_columns_of_types_that_are_no_features(tmp_path):
    tables = {
        "d": frame(sex=pd.date_range("2020", periods=ROWS)),
        "l": frame(x=[[1, 2]] * ROWS),
        "b": frame(x=[b"1"] * ROWS),
    }
    for name, table in tables.items():
        table.to_parquet(tmp_path / f"{name}.parquet")
        sentence = told(tmp_path, None, name=f"{name}.parquet")
        assert re.search("'sex'|'x'", sentence) and not OURS_OR_RAW.search(sentence), sentence


# --- the estimator --------------------------------------------------------------------------------

X = frame()[["x"]].assign(z=1.0 + np.arange(ROWS) % 7)
BAD_X = {
    "dates": (X.assign(d=pd.date_range("2020", periods=ROWS)), "'d' holds dates"),
    "durations": (X.assign(d=pd.to_timedelta(np.arange(ROWS), unit="h")), "'d' holds dates"),
    "a name twice": (pd.concat([X, X[["x"]]], axis=1), "'x' occurs twice"),
    "text": (X.assign(t="u"), "'t' must hold numbers, got 'u'"),
    "lists": (X.assign(t=[[1]] * ROWS), "'t' holds lists"),
    "empty cells": (X.assign(e=np.nan), "'e'.*NaN in 60 of 60 rows"),
    "infinite": (X.assign(e=np.inf), "'e' has 60 infinite"),
    "1e300": (X.assign(h=HUGE), "'h'.*1e\\+300"),
    "1e300 in an array": (X.assign(h=HUGE).to_numpy(), "'x2'.*1e\\+300"),
    "rows of two lengths": ([[1.0], [2.0, 3.0]] * (ROWS // 2), "rows of one length"),
}
BAD_Y = {
    "no label": (cells("y", r3=None)["y"], "y.*in 1 row"),
    "labels by case": (cells("y", r3="Yes")["y"], "'Yes' and 'yes' differ only by case"),
}


def refused(features, labels):
    with warnings.catch_warnings(), pytest.raises(ValueError, match=r".") as caught:
        warnings.simplefilter("error")
        FCFLClassifier(budget=0.1, l2=0.01).fit(
            features, labels, clients=frame()["site"], sensitive_features=frame()["sex"]
        )
    return str(caught.value)


@pytest.mark.parametrize(("features", "named"), BAD_X.values(), ids=BAD_X)
def test_features_that_cannot_be_used(features, named):
    sentence = refused(features, frame()["y"])
    assert re.search(named, sentence) and not OURS_OR_RAW.search(sentence), sentence


@pytest.mark.parametrize(("labels", "named"), BAD_Y.values(), ids=BAD_Y)
def test_labels_that_cannot_be_used(labels, named):
    sentence = refused(X, labels)
    assert re.search(named, sentence) and not OURS_OR_RAW.search(sentence), sentence
