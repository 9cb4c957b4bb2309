"""What the estimator learns: the same optimum as a run, budgets kept, inputs of every kind."""

import re
import warnings

import msgspec
import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
)
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from fcfl import Difference, FCFLClassifier, Ratio
from fcfl._files import to_json
from fcfl.data import adult
from fcfl.errors import DataError
from fcfl.methods.registry import METHODS
from fcfl.results import Result
from fcfl.runs import Experiment, run_experiment

SETTLED = {"l2": 0.01, "objective": "max", "confidence": 0, "starts": 1, "min_group_rows": 1}


def rows(seed=0, n_rows=400):
    """Two sites, two attributes; the score leaks group and site."""
    rng = np.random.default_rng(seed)
    sex, race = rng.choice(["f", "m"], n_rows), rng.choice(["black", "white"], n_rows)
    site = rng.choice(["north", "south"], n_rows, p=[0.3, 0.7])
    X = rng.standard_normal((n_rows, 4))
    X[:, 1] += 1.5 * (sex == "m")
    X[:, 2] += race == "white"
    leaning = X[:, 0] + X[:, 1] + 0.5 * X[:, 2] * (site == "south") - 1
    y = np.where(leaning + rng.logistic(size=n_rows) > 0, "yes", "no")
    return X, y, site, pd.DataFrame({"sex": sex, "race": race})


WITHOUT_YES = 1.0 * (rows(n_rows=60)[1] == "no")


def disparity(model, client, position=0, key="value"):
    return getattr(model.result_.clients[client].train.disparities[position], key)


# --- the same as a run ---


@pytest.mark.thorough
def test_fit_equals_a_run_of_the_command_line(tmp_path):
    federation = adult(sensitive="race")
    clients = federation.train
    X = sparse.vstack([sparse.csr_array(data.X) for data in clients.values()])
    y = np.concatenate([data.y for data in clients.values()])
    names = np.repeat(list(clients), [data.n_rows for data in clients.values()])
    race = np.concatenate(
        [np.array(data.levels["race"])[data.groups["race"]] for data in clients.values()]
    )
    model = FCFLClassifier(0.05, l2=1e-3, objective="max")
    model.fit(X, y, clients=names, sensitive_features=pd.Series(race, name="race"))
    experiment = Experiment("adult", sensitive=("race",), budget=0.05, l2=1e-3, objective="max")
    finished = run_experiment(experiment, tmp_path / "run")
    found = np.append(model.coef_, model.intercept_)
    np.testing.assert_allclose(found, finished.params, atol=1e-6)
    for client in clients:
        ours = model.result_.clients[client].train
        theirs = finished.result.clients[client].train
        assert ours.accuracy == theirs.accuracy
        assert ours.loss == pytest.approx(theirs.loss, abs=1e-8)
        assert ours.disparities[0].value == theirs.disparities[0].value
    for key in ("method", "status", "l2", "objective", "rounds", "versions"):
        assert getattr(model.result_, key) == getattr(finished.result, key)


def test_the_result_can_be_written_as_json():
    X, y, site, sensitive = rows()
    model = FCFLClassifier(0.05, **SETTLED)
    model.fit(X, y, clients=site, sensitive_features=sensitive)
    assert msgspec.json.decode(to_json(model.result_), type=Result) == model.result_
    assert model.result_.status == "converged"
    assert len(model.history_) == model.n_iter_ == sum(model.result_.rounds.values())


# --- budgets ---


@pytest.mark.parametrize("metric", ["demographic_parity", "equal_opportunity", "equalized_odds"])
def test_budgets_are_kept_on_the_training_rows_for_every_attribute(metric):
    X, y, site, sensitive = rows()
    free = FCFLClassifier(metric=metric, **SETTLED)
    free.fit(X, y, clients=site, sensitive_features=sensitive)
    bound = FCFLClassifier(0.05, metric=metric, **SETTLED)
    bound.fit(X, y, clients=site, sensitive_features=sensitive)
    for client in ("north", "south"):
        assert disparity(free, client) > 0.1
        for position in (0, 1):
            assert disparity(bound, client, position) <= 0.05 + 1e-6


def test_a_number_is_a_rule_for_every_attribute():
    X, y, site, sensitive = rows()
    named = [Difference("demographic_parity", name, 0.05) for name in ("sex", "race")]
    fits = [
        FCFLClassifier(budget, **SETTLED).fit(X, y, clients=site, sensitive_features=sensitive)
        for budget in (0.05, named)
    ]
    assert fits[0].coef_.tobytes() == fits[1].coef_.tobytes()
    assert fits[0].rules_ == tuple(named)


def test_each_client_has_its_own_budget():
    X, y, site, sensitive = rows()
    model = FCFLClassifier({"north": 0.2, "*": 0.02}, **SETTLED)
    model.fit(X, y, clients=site, sensitive_features=sensitive["sex"])
    assert disparity(model, "north", key="budget") == 0.2
    assert disparity(model, "south", key="budget") == 0.02
    assert disparity(model, "north") <= 0.2 + 1e-6
    assert disparity(model, "south") <= 0.02 + 1e-6


def test_rules_of_several_kinds_hold_together():
    X, y, site, sensitive = rows()
    rules = [Ratio("demographic_parity", "sex", 0.8), Difference("equal_opportunity", "race", 0.1)]
    model = FCFLClassifier(rules, **SETTLED)
    model.fit(X, y, clients=site, sensitive_features=sensitive)
    for client in ("north", "south"):
        assert disparity(model, client, 0) >= 0.8 - 1e-6
        assert disparity(model, client, 1) <= 0.1 + 1e-6


def test_prices_are_derivatives_by_the_budget():
    X, y, site, sensitive = rows()
    losses, h = {}, 1e-4
    for budget in (0.05 - h, 0.05, 0.05 + h):
        model = FCFLClassifier({"south": budget}, **SETTLED)
        model.fit(X, y, clients=site, sensitive_features=sensitive["sex"])
        plain = [info for info in model.history_ if info.stage == 1]
        losses[budget] = plain[-1].worst_loss
        if budget == 0.05:
            price = next(p.value for p in model.prices_ if p.client == "south")
    slope = (losses[0.05 + h] - losses[0.05 - h]) / (2 * h)
    assert price > 0.01
    assert price == pytest.approx(-slope, rel=0.05)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("sqp", "private")])
def test_other_methods_train_too(method):
    X, y, site, sensitive = rows(n_rows=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = FCFLClassifier(0.05, method=method, l2=0.01, min_group_rows=1)
        model.fit(X, y, clients=site, sensitive_features=sensitive["sex"])
    assert model.result_.method == method
    assert model.score(X, y) > 0.6
    if method == "two-stage":
        smooth = [disparity(model, client, key="smooth") for client in model.clients_]
        assert max(smooth) <= 0.05 + 1e-6
    else:
        assert any("does not enforce budgets" in note for note in model.result_.notes)


def test_arrays_name_their_attributes_by_position():
    X, y, _, sensitive = rows(n_rows=150)
    one = FCFLClassifier(**SETTLED).fit(X, y, sensitive_features=sensitive["sex"].to_numpy())
    two = FCFLClassifier(**SETTLED).fit(X, y, sensitive_features=sensitive.to_numpy())
    assert list(one.levels_) == ["sensitive_feature"]
    assert list(two.levels_) == ["sensitive_feature_0", "sensitive_feature_1"]
    assert one.clients_ == ("all rows",)


def test_integer_weights_are_repeated_rows_under_budgets():
    X, y, site, sensitive = rows(n_rows=200)
    copies = np.random.default_rng(0).integers(0, 4, 200)
    again = np.repeat(np.arange(200), copies)
    weighted = FCFLClassifier(0.05, **{**SETTLED, "min_group_rows": 0})
    weighted.fit(X, y, clients=site, sensitive_features=sensitive["sex"], sample_weight=copies)
    repeated = FCFLClassifier(0.05, **{**SETTLED, "min_group_rows": 0})
    repeated.fit(
        X[again], y[again], clients=site[again], sensitive_features=sensitive["sex"].iloc[again]
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-7)
    scaled = FCFLClassifier(0.05, **{**SETTLED, "min_group_rows": 0})
    scaled.fit(X, y, clients=site, sensitive_features=sensitive["sex"], sample_weight=copies * 1e-6)
    np.testing.assert_allclose(weighted.coef_, scaled.coef_, atol=1e-7)


def test_a_row_without_a_group_counts_for_the_loss_only():
    X, y, site, sensitive = rows()
    sex = sensitive["sex"].where(np.arange(len(y)) % 5 > 0)  # a fifth of the cells are empty
    model = FCFLClassifier(0.02, **SETTLED).fit(X, y, clients=site, sensitive_features=sex)
    groups = [disparity(model, client, key="groups") for client in model.clients_]
    counted = sum(group.rows for found in groups for group in found)
    assert counted == sex.notna().sum() < len(y)
    assert sum(model.result_.clients[c].rows.train for c in model.clients_) == len(y)


def test_names_are_taken_as_they_are():
    X, y, _, sensitive = rows(n_rows=100)
    names = np.where(X[:, 3] > 0, "<script>alert(1)</script>", "Zürich 医院")
    model = FCFLClassifier(0.1, **SETTLED)
    model.fit(X, y, clients=names, sensitive_features=sensitive["sex"])
    assert set(model.clients_) == set(names)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"budget": -1}, "`budget` must be a number from 0 to 1, got -1"),
        ({"budget": float("nan")}, "`budget` must be a number from 0 to 1, got nan"),
        ({"budget": {"nowhere": 0.1}}, "names client 'nowhere', which is not in the data"),
        ({"budget": [0.05]}, "rules such as Difference(...), got 0.05 in a sequence"),
        ({"budget": Difference("demographic_parity", "age", 0.1)}, "sensitive columns 'sex'"),
        ({"metric": "fairness"}, "`metric` must be one of demographic_parity"),
        ({"method": "magic"}, "`method` must be one of sqp"),
        ({"l2": -1.0}, "`l2` must be zero or a positive number, got -1.0"),
        ({"sensitive_features": None}, "`budget` needs `sensitive_features` in `fit`"),
        ({"clients": ["a", "b"]}, "`clients` must have one value for each of the 60 rows"),
        ({"clients": [None] * 60}, "'clients' is empty in 60 of 60 rows"),
        ({"sensitive_features": {"sex": ["f"]}}, "`sensitive_features['sex']` must have one value"),
        ({"sensitive_features": np.arange(60)}, "Bin it first"),
        ({"sample_weight": [1.0]}, "sample_weight"),
        ({"sample_weight": [-1.0] * 60}, "sample_weight"),
        ({"sample_weight": [0.0] * 60}, "ample"),
        ({"sample_weight": WITHOUT_YES}, "`sample_weight` must leave rows of both classes"),
        ({"y": ["yes"] * 60}, "`y` must have two classes, got one class: 'yes'"),
        ({"y": np.arange(60) % 3}, "Only binary classification is supported"),
    ],
)
def test_bad_arguments_get_one_sentence(change, sentence):
    X, y, site, sensitive = rows(n_rows=60)
    given = {"y": y, "clients": site, "sensitive_features": sensitive["sex"], **change}
    in_fit = {name: given.pop(name) for name in [*given] if name in given and name in (
        "y", "clients", "sensitive_features", "sample_weight")}  # fmt: skip
    model = FCFLClassifier(**{"budget": 0.05, **SETTLED, **given})
    with pytest.raises(ValueError, match=re.escape(sentence)):
        model.fit(X, in_fit.pop("y"), **in_fit)


@pytest.mark.filterwarnings("ignore:The model selects nearly")
def test_contradictory_budgets_warn():
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(2), 50, axis=0)
    group = np.repeat(["a", "b"], 50)
    y = rng.integers(0, 2, 100)
    rule = Ratio("demographic_parity", "group", 0.9)
    model = FCFLClassifier([rule], l2=1e-3, objective="max", rounds=(1, 0), confidence=0)
    model.fit(X, y, sensitive_features=pd.Series(group, name="group"))
    assert model.result_.status == "stopped"  # the limit was asked for: no warning
    with pytest.warns(ConvergenceWarning, match="rounds"):
        FCFLClassifier(method="fedavg", l2=0.0).fit(X, group == "a")


@pytest.mark.parametrize(
    "container", [pytest.param(np.asarray, marks=pytest.mark.thorough), sparse.csr_array]
)
def test_columns_of_unlike_size_are_to_be_scaled_when_rounds_do_not_suffice(container):
    X = rows()[0]
    y = X[:, 0] > 0  # separable: without a penalty no method converges
    uneven = X * [1, 1, 250_000, 0]
    advice = "Scale the columns of X, for instance with StandardScaler."
    model = FCFLClassifier(method="fedavg", l2=0.0)
    with pytest.warns(ConvergenceWarning, match=advice):
        model.fit(container(uneven), y)
    with pytest.warns(ConvergenceWarning) as told:
        model.fit(container(X), y)
    assert all(advice not in str(warning.message) for warning in told)


# --- evidence on other rows ---


def test_an_audit_of_held_out_rows_judges_the_budgets_of_fit():
    X, y, site, sensitive = rows(n_rows=900)
    train, test = slice(0, 600), slice(600, None)
    model = FCFLClassifier({"north": 0.05, "south": 0.3}, **SETTLED)
    model.fit(X[train], y[train], clients=site[train], sensitive_features=sensitive[train])
    held_out = model.audit(X[test], y[test], clients=site[test], sensitive_features=sensitive[test])
    found = held_out.clients["north"].disparities[0]
    assert found.budget == 0.05 and found.low <= found.value <= found.high
    assert found.verdict == "undetermined"
    in_north = site[test] == "north"
    predicted = model.predict(X[test])[in_north] == "yes"
    expected = demographic_parity_difference(
        predicted, predicted, sensitive_features=sensitive["sex"][test][in_north]
    )
    assert found.value == pytest.approx(expected)
    alone = model.audit(
        X[test][in_north],
        y[test][in_north],
        clients=site[test][in_north],
        sensitive_features=sensitive[test][in_north],
    )
    assert alone.clients["north"].disparities[0].value == found.value


def test_an_audit_needs_the_groups_and_classes_of_fit():
    X, y, site, sensitive = rows(n_rows=100)
    with pytest.raises(NotFittedError):
        FCFLClassifier().audit(X, y)
    model = FCFLClassifier(0.1, **SETTLED)
    model.fit(X, y, clients=site, sensitive_features=sensitive["sex"])
    with pytest.raises(ValueError, match="must have 'sex', as in `fit`"):
        model.audit(X, y, clients=site)
    with pytest.raises(ValueError, match="the classes of `fit`, got 'maybe'"):
        model.audit(X, ["maybe"] * 100, clients=site, sensitive_features=sensitive["sex"])
    with pytest.raises(ValueError, match="unknown group 'x'"):
        model.audit(X, y, clients=site, sensitive_features={"sex": ["x"] * 100})


# --- files ---


def test_a_saved_classifier_reads_back_whole(tmp_path):
    X, y, site, sensitive = rows(n_rows=150)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    budget = [Difference("demographic_parity", "sex", {"north": 0.1})]
    model = FCFLClassifier(budget, **SETTLED)
    model.fit(frame, y, clients=site, sensitive_features=sensitive["sex"])
    model.save(tmp_path / "model")
    read = FCFLClassifier.load(tmp_path / "model")
    assert read.decision_function(frame).tobytes() == model.decision_function(frame).tobytes()
    assert (read.predict(frame) == model.predict(frame)).all()
    assert read.coef_.tobytes() == model.coef_.tobytes()
    assert read.result_ == model.result_
    assert read.prices_ == model.prices_
    assert read.audit_ == model.audit_ and len(read.history_) == len(model.history_)
    for one, other in zip(read.history_, model.history_, strict=True):  # without budgets: NaN
        assert str(one).replace("=nan", "=-inf") == str(other).replace("=nan", "=-inf")
    assert (read.rules_, read.clients_, read.levels_) == (
        model.rules_, model.clients_, model.levels_,
    )  # fmt: skip
    assert read.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert {path.name for path in (tmp_path / "model").iterdir()} == {
        "classifier.json", "history.jsonl", "model.json", "result.json",
    }  # fmt: skip
    again = read.fit(frame, y, clients=site, sensitive_features=sensitive["sex"])
    assert again.coef_.tobytes() == model.coef_.tobytes()


def test_a_folder_without_a_whole_classifier_is_rejected(tmp_path):
    with pytest.raises(DataError, match="There is no classifier in"):
        FCFLClassifier.load(tmp_path)
    X, y, site, _ = rows(n_rows=60)
    model = FCFLClassifier(**SETTLED).fit(X, y, clients=site)
    model.save(tmp_path)
    path = tmp_path / "classifier.json"
    for content, sentence in (
        ("{", "is not a whole classifier"),
        ('{"kind": "fcfl-linear-1"}', "holds a 'fcfl-linear-1'"),
        ('{"kind": "fcfl-classifier-4"}', "is not a whole classifier"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=sentence):
            FCFLClassifier.load(tmp_path)
    with pytest.raises(NotFittedError):
        FCFLClassifier().save(tmp_path)
    (tmp_path / "result.json").unlink()
    with pytest.raises(DataError, match=r"it has no result\.json"):
        FCFLClassifier.load(tmp_path)


def test_text_is_to_be_encoded_not_left_empty():
    X = pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0], "ward": ["a", "b", "a", "b"]})
    with pytest.raises(ValueError, match=r"'ward'.*OneHotEncoder") as raised:
        FCFLClassifier().fit(X, [0, 1, 0, 1])
    assert "empty" not in str(raised.value)  # `fit` rejects NaN


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"X": pd.DataFrame(index=range(40))}, "`X` must have at least one column"),
        ({"X": pd.DataFrame({"a": np.ones(40) * 1j})}, "Column 'a' holds complex"),
        ({"X": pd.DataFrame({"a": pd.date_range("2020", periods=40)})}, "Column 'a' holds dates"),
        ({"X": pd.DataFrame({"a": [[1]] * 40})}, "Column 'a'"),
        ({"y": np.resize([0, 1], 39)}, "samples: [40, 39]"),
        ({"y": np.resize([0, 1, np.nan], 40)}, "Input y"),
        ({"y": np.resize([0, 1, 2], 40)}, "`y`"),
        ({"clients": ["a"] * 39}, "`clients`"),
        ({"sensitive_features": ["f"] * 39}, "`sensitive_features"),
        ({"sensitive_features": np.linspace(0, 1, 40)}, "Sensitive column"),
        ({"budget": "5%"}, "`budget`"),
        ({"budget": {"nobody": 0.1}}, "`budget` names client 'nobody'"),
        ({"budget": [0.1]}, "`budget`"),
        ({"threshold": 1}, "`threshold`"),
        ({"model": 3}, "`model`"),
    ],
)
def test_bad_input_raises_one_line_that_names_it(change, named):
    rng = np.random.default_rng(0)
    rows = {"X": rng.normal(size=(40, 2)), "y": np.resize([0, 1], 40), "clients": None}
    rows["sensitive_features"] = rng.choice(["f", "m"], 40)
    options = {"budget": 0.1, **{key: change[key] for key in change if key not in rows}}
    rows |= {key: change[key] for key in change if key in rows}
    with pytest.raises((ValueError, TypeError)) as raised:
        FCFLClassifier(**options).fit(rows.pop("X"), rows.pop("y"), **rows)
    assert named in str(raised.value) and "\n" not in str(raised.value)


def test_a_budget_that_compares_no_two_groups_warns():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.resize([0, 1], 200)
    with pytest.warns(UserWarning, match="No budget is enforced.*'sensitive_feature'"):
        FCFLClassifier(0.1, l2=0.01).fit(X, y, sensitive_features=np.full(200, "f"))
