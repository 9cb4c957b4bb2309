"""Tables of Arrow and Polars are taken as those of pandas are."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fcfl import FCFLClassifier

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"a": RNG.normal(size=200), "b": RNG.integers(0, 9, 200)})
SITE = pd.Series(RNG.choice(["north", "south"], 200), name="site")
SEX = pd.Series(RNG.choice(["f", "m"], 200), name="sex")
Y = (ROWS["a"] + (SEX == "m") + RNG.logistic(size=200) > 0).astype(int).rename("y")


def fitted(X, y, site, sex):
    model = FCFLClassifier(0.1, l2=0.01, objective="mean", confidence=0, min_group_rows=1)
    return model.fit(X, y, clients=site, sensitive_features=sex)


EXPECTED = fitted(ROWS, Y, SITE, SEX)


@pytest.mark.parametrize("library", ["polars", "arrow"])
@pytest.mark.parametrize("as_frame", [True, False])
def test_the_same_model_from_every_kind_of_table(library, as_frame):
    frame = pl.from_pandas if library == "polars" else pa.Table.from_pandas
    column = (
        pl.from_pandas if library == "polars" else lambda one: pa.chunked_array([one.to_numpy()])
    )
    X, y, site = frame(ROWS), column(Y), column(SITE)
    sex = frame(SEX.to_frame()) if as_frame else column(SEX)
    model = fitted(X, y, site, sex)
    assert model.coef_.tolist() == EXPECTED.coef_.tolist()
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert model.predict(X).tolist() == EXPECTED.predict(ROWS).tolist()
    expected = "sex" if as_frame or library == "polars" else "sensitive_feature"
    assert model.rules_[0].attribute == expected
    assert X.shape == (200, 2)  # the caller's table is whole
    audit = model.audit(X, y, clients=site, sensitive_features=sex)
    assert set(audit.clients) == {"north", "south"}
