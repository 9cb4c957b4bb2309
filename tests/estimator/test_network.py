"""A torch module as the estimator's model."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fcfl import FCFLClassifier
from fcfl.errors import DataError


def rows(seed=0, n_rows=300):
    """A label that no linear model predicts, and a feature that leaks the group."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b"], n_rows)
    X = rng.standard_normal((n_rows, 3))
    X[:, 2] += 2 * (group == "b")
    y = (X[:, 0] * X[:, 1] + 0.7 * X[:, 2] + 0.3 * rng.logistic(size=n_rows) > 0.7).astype(int)
    return X, y, rng.choice(["x", "y"], n_rows), pd.Series(group, name="group")


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 1)).double()


@pytest.fixture(scope="module")
def fitted():
    X, y, site, group = rows()
    module = network()
    before = [leaf.detach().clone() for leaf in module.parameters()]
    model = FCFLClassifier(0.05, model=module, l2=1e-3, objective="max", rounds=(80, 20))
    model.fit(X, y, clients=site, sensitive_features=group)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    return model


@pytest.mark.filterwarnings("ignore:The model selects nearly")
def test_a_network_keeps_budgets_and_serves_the_worst_client_better_than_a_line(fitted):
    X, y, site, group = rows()
    line = FCFLClassifier(0.05, l2=1e-3, objective="max")
    line.fit(X, y, clients=site, sensitive_features=group)
    for client in ("x", "y"):
        entry = fitted.result_.clients[client].train.disparities[0]
        assert entry.value <= 0.05 + 1e-3  # 100 rounds end before the plain fit converges
    worst = [model.result_.worst_client.train_loss for model in (fitted, line)]
    assert worst[0] < worst[1] - 0.05
    assert fitted.score(X, y) > line.score(X, y)


def test_predictions_are_the_trained_modules(fitted):
    X = rows(1)[0]
    with torch.no_grad():
        logits = fitted.module_(torch.tensor(X)).numpy().ravel()
    np.testing.assert_allclose(fitted.decision_function(X), logits, rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X), (logits >= 0).astype(int))
    assert not hasattr(fitted, "coef_")


@pytest.mark.thorough
def test_fitted_twice_gives_the_same_bits(fitted):
    X, y, site, group = rows()
    again = FCFLClassifier(0.05, model=network(), l2=1e-3, objective="max", rounds=(80, 20))
    again.fit(X, y, clients=site, sensitive_features=group)
    assert again.decision_function(X).tobytes() == fitted.decision_function(X).tobytes()


def test_weights_are_saved_as_safetensors_and_read_into_the_same_architecture(fitted, tmp_path):
    X = rows(1)[0]
    fitted.save(tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {
        "classifier.json", "history.jsonl", "model.json", "model.safetensors", "result.json",
    }  # fmt: skip
    read = FCFLClassifier.load(tmp_path, model=network(5))
    assert read.decision_function(X).tobytes() == fitted.decision_function(X).tobytes()
    assert read.audit_ == fitted.audit_
    with pytest.raises(
        ValueError, match=r"needs `model`.*FCFLClassifier\.load\(.*, model=module\)"
    ):
        FCFLClassifier.load(tmp_path)
    with pytest.raises(DataError):
        FCFLClassifier.load(tmp_path, model=nn.Linear(3, 1))
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match="do not match the checksum"):
        FCFLClassifier.load(tmp_path, model=network())


def test_unsupported_networks_are_rejected():
    X, y, site, group = rows(n_rows=60)
    with pytest.raises(ValueError, match="`l2` and `objective`"):
        FCFLClassifier(0.05, model=network(), l2="auto").fit(X, y, sensitive_features=group)
    two_outputs = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="one logit per row"):
        FCFLClassifier(0.05, model=two_outputs).fit(X, y, sensitive_features=group)
    with pytest.raises(TypeError, match=r"`model` must be .*, got str"):
        FCFLClassifier(model="net").fit(X, y, clients=site)
