"""Thresholds by group in the estimator: predict, score and audit agree; files, routing, errors."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from fairlearn.metrics import demographic_parity_difference
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fcfl import FCFLClassifier
from fcfl.errors import DataError
from fcfl.runs.predicting import predict_file

BUDGET = 0.05
SETTLED = {"l2": 0.01, "objective": 1.0, "confidence": 0.0}


def rows(seed=0, n_rows=600):
    """Two sites; the score leaks the group, one row has none."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n_rows).astype(object)
    site = rng.choice(["north", "south"], n_rows, p=[0.3, 0.7])
    X = rng.standard_normal((n_rows, 3))
    X[:, 1] += 1.5 * (sex == "m")
    y = np.where(X[:, 0] + X[:, 1] - 1 + rng.logistic(size=n_rows) > 0, "yes", "no")
    sex[0] = None
    return X, y, site, pd.Series(sex, name="sex")


@pytest.fixture(scope="module")
def fitted():
    X, y, site, sex = rows()
    model = FCFLClassifier(BUDGET, thresholds="group", **SETTLED)
    return model.fit(X, y, clients=site, sensitive_features=sex)


def test_predictions_keep_every_clients_budget_on_the_training_rows(fitted):
    X, y, site, sex = rows()
    predicted = fitted.predict(X, clients=site, sensitive_features=sex)
    for name in ("north", "south"):
        own = (site == name) & sex.notna().to_numpy()
        found = demographic_parity_difference(
            y[own] == "yes", predicted[own] == "yes", sensitive_features=sex[own]
        )
        assert found <= BUDGET + 1e-9
        entry = fitted.result_.clients[name].train.disparities[0]
        assert entry.value == pytest.approx(found)
        own = site == name
        assert (predicted[own] == y[own]).mean() == fitted.result_.clients[name].train.accuracy
    logits = fitted.decision_function(X)
    assert ((logits >= 0) != (predicted == "yes")).any()
    assert (predicted == "yes")[0] == (logits[0] >= 0)  # without a group


def test_score_and_audit_decide_as_predict_does(fitted):
    X, y, site, sex = rows(1)
    given = {"clients": site, "sensitive_features": sex}
    predicted = fitted.predict(X, **given)
    weights = np.arange(y.size)
    assert fitted.score(X, y, **given) == pytest.approx((predicted == y).mean())
    weighted = fitted.score(X, y, weights, **given)
    assert weighted == pytest.approx(np.average(predicted == y, weights=weights))
    audit = fitted.audit(X, y, **given)
    for name, found in audit.clients.items():
        own = site == name
        assert found.accuracy == pytest.approx((predicted[own] == y[own]).mean())
        shares = [(predicted[own & (sex == g)] == "yes").mean() for g in ("f", "m")]
        assert found.disparities[0].value == pytest.approx(np.ptp(shares))


def test_unknown_clients_and_groups_have_the_common_threshold(fitted):
    X, _, site, sex = rows(2)
    common = fitted.decision_function(X) >= 0
    away = fitted.predict(X, clients=["west"] * len(X), sensitive_features=sex)
    other = fitted.predict(
        X, clients=site, sensitive_features=pd.Series(["x"] * len(X), name="sex")
    )
    assert ((away == "yes") == common).all() and ((other == "yes") == common).all()


def test_missing_arguments_are_named(fitted):
    X, y, site, sex = rows()
    with pytest.raises(ValueError, match="`sensitive_features` must be given to `predict`"):
        fitted.predict(X, clients=site)
    with pytest.raises(ValueError, match="`clients` must be given"):
        fitted.score(X, y, sensitive_features=sex)
    with pytest.raises(ValueError, match="must have 'sex', as in `fit`"):
        fitted.predict(X, clients=site, sensitive_features=sex.to_numpy())
    with pytest.raises(ValueError, match="each of the 600 rows"):
        fitted.predict(X, clients=site[:-1], sensitive_features=sex)
    for options, sentence in (
        ({"budget": None}, "budget"),
        ({"scope": "global"}, "scope"),
        ({"thresholds": "own"}, "`thresholds` must be"),
    ):
        model = FCFLClassifier(**{"budget": BUDGET, "thresholds": "group", **SETTLED, **options})
        with pytest.raises(ValueError, match=sentence):
            model.fit(X, y, clients=site, sensitive_features=sex)


def test_one_client_needs_no_name():
    X, y, _, sex = rows()
    model = FCFLClassifier(BUDGET, thresholds="group", **SETTLED)
    model.fit(X, y, sensitive_features=sex)
    predicted = model.predict(X, sensitive_features=sex)
    assert (predicted == y).mean() == model.result_.overall.train.accuracy


def test_a_saved_classifier_decides_the_same_and_so_does_the_command_line(fitted, tmp_path):
    X, _, site, sex = rows(3)
    fitted.save(tmp_path / "model")
    loaded = FCFLClassifier.load(tmp_path / "model")
    assert loaded.thresholds_ == fitted.thresholds_ == loaded.result_.thresholds
    given = {"clients": site, "sensitive_features": sex}
    expected = fitted.predict(X, **given)
    assert (loaded.predict(X, **given) == expected).all()
    assert clone(loaded).thresholds == "group"
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"]).assign(clients=site, sex=sex)
    frame.to_csv(tmp_path / "new.csv", index=False)
    found = predict_file(tmp_path / "model", tmp_path / "new.csv")
    assert (found.table["prediction"].to_numpy() == expected).all()
    frame.drop(columns="clients").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(DataError, match="needs a column 'clients'"):
        predict_file(tmp_path / "model", tmp_path / "less.csv")


def test_without_thresholds_clients_and_groups_are_ignored():
    X, y, site, sex = rows()
    model = FCFLClassifier(0.2, **SETTLED).fit(X, y, clients=site, sensitive_features=sex)
    assert model.thresholds_ is None and model.result_.thresholds is None
    assert (model.predict(X) == model.predict(X, clients=site, sensitive_features=sex)).all()
    assert model.score(X, y) == (model.predict(X) == y).mean()


def test_a_grid_search_routes_clients_and_groups_to_the_score():
    X, y, site, sex = rows(n_rows=300)
    metadata = {"clients": site, "sensitive_features": sex}
    with sklearn.config_context(enable_metadata_routing=True):
        model = FCFLClassifier(thresholds="group", min_group_rows=10, **SETTLED)
        asked = dict.fromkeys(metadata, True)
        model.set_fit_request(**asked).set_score_request(**asked).set_predict_request(**asked)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), model), {"fcflclassifier__budget": [0.02, 0.3]}, cv=2
        )
        search.fit(X, y, **metadata)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        scores = cross_val_score(model.set_params(budget=0.1), X, y, cv=2, params=metadata)
        assert (scores > 0.6).all()
        predicted = search.best_estimator_.predict(X, **metadata)
        assert (predicted == y).mean() > 0.6
