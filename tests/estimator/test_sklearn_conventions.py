"""scikit-learn's own checks, and its tools around the estimator with clients and groups routed."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from fcfl import FCFLClassifier
from hospital import stays

REPEATED = (
    "a repeated row falls into several folds of the cross-validation, a weighted one does not"
)
CHOSEN_BY_FOLDS = {
    "check_sample_weight_equivalence_on_dense_data": REPEATED,
    "check_sample_weight_equivalence_on_sparse_data": REPEATED,
}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"l2": 0.01, "objective": "max"}, {}),
        pytest.param({"l2": 0.01, "objective": 1.0}, {}, marks=pytest.mark.thorough),
        pytest.param({}, CHOSEN_BY_FOLDS, marks=pytest.mark.thorough),
    ],
)
def test_scikit_learns_checks_pass(options, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of data made to be separable
        results = check_estimator(
            FCFLClassifier(**options),
            expected_failed_checks=expected,
            on_fail="raise",
            on_skip=None,
        )
    skipped = [r["check_name"] for r in results if r["status"] == "skipped"]
    assert skipped == ["check_array_api_input"]
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def routed(**options):
    """A pipeline over a table's columns that hands clients and groups to the estimator."""
    model = FCFLClassifier(
        l2=0.01, objective="max", confidence=0, starts=1, min_group_rows=1, **options
    )
    model = model.set_fit_request(clients=True, sensitive_features=True)
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["ward"]), (StandardScaler(), ["age", "score"])
    )
    return make_pipeline(columns, model)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    frame = stays(n_rows=240).dropna().reset_index(drop=True)
    return pd.DataFrame(
        {
            "ward": rng.choice(["a", "b", "c"], len(frame)),
            "age": rng.normal(60, 15, len(frame)),
            "score": rng.standard_normal(len(frame)) + (frame["race"] == frame["race"].iloc[0]),
            "race": frame["race"],
            "hospital": frame["hospital"],
            "died": (rng.random(len(frame)) < 0.4).astype(int),
        }
    )


def test_a_pipeline_hands_clients_and_groups_on(routing, table):
    pipeline = routed(budget=0.02)
    pipeline.fit(table, table["died"], clients=table["hospital"], sensitive_features=table["race"])
    fitted = pipeline[-1]
    assert fitted.clients_ == tuple(sorted(table["hospital"].unique()))
    assert list(fitted.levels_) == ["race"]
    for client in fitted.clients_:
        entry = fitted.result_.clients[client].train.disparities[0]
        assert entry.smooth <= 0.02 + 1e-6  # 24 people a group: decisions come in steps of .04


@pytest.mark.filterwarnings("ignore:The model selects nearly")
def test_a_grid_search_over_budgets_splits_clients_and_groups_with_the_rows(routing, table):
    search = GridSearchCV(routed(), {"fcflclassifier__budget": [0.01, 0.2]}, cv=3)
    search.fit(table, table["died"], clients=table["hospital"], sensitive_features=table["race"])
    assert search.best_params_["fcflclassifier__budget"] in (0.01, 0.2)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_[-1]
    assert best.clients_ == tuple(sorted(table["hospital"].unique()))


@pytest.mark.filterwarnings("ignore:The model selects nearly")
def test_cross_validation_routes_too(routing, table):
    metadata = {"clients": table["hospital"], "sensitive_features": table["race"]}
    scores = cross_val_score(routed(budget=0.1), table, table["died"], cv=3, params=metadata)
    assert scores.shape == (3,) and (scores > 0.4).all()


@pytest.mark.filterwarnings("ignore:The model selects nearly")
def test_a_clone_fits_to_the_same_bits(table):
    X = table[["age", "score"]].to_numpy()
    metadata = {"clients": table["hospital"], "sensitive_features": table["race"]}
    first = FCFLClassifier(0.05, min_group_rows=5).fit(X, table["died"], **metadata)
    again = clone(first).fit(X, table["died"], **metadata)
    refitted = clone(first)
    refitted.fit(X[:90], table["died"][:90], sensitive_features=table["race"][:90])
    refitted.fit(X, table["died"], **metadata)
    for other in (again, refitted):
        assert other.coef_.tobytes() == first.coef_.tobytes()
        assert other.intercept_.tobytes() == first.intercept_.tobytes()
        assert other.result_.selection == first.result_.selection


def test_parameters_are_kept_as_they_were_given():
    options = {"budget": {"a": 0.1, "*": 0.05}, "objective": 0.3, "rounds": (20, 5)}
    model = FCFLClassifier(**options)
    assert {name: model.get_params()[name] for name in options} == options
    assert clone(model).get_params() == model.get_params()
    assert "budget=" in repr(model) and "FCFLClassifier" in model._repr_html_()
