"""What a notebook and a console show of results, trained models and rows."""

import numpy as np
import pytest

from fcfl import Difference, FCFLClassifier, Federation
from fcfl.methods.baselines import FedAvg
from fcfl.models.linear import Linear
from fcfl.training.train import train
from helpers import simulated_clients

PARITY = Difference("demographic_parity", "race", budget=0.05)


@pytest.fixture(scope="module")
def trained():
    clients = simulated_clients(0)
    hostile = {"<b>bold</b>\n" + "x" * 60: clients["client-0"], **clients}
    federation = Federation.from_rows(hostile, simulated_clients(100))
    given = {"l2": 0.01, "objective": 1.0, "confidence": 0, "starts": 1, "min_group_rows": 1}
    return train(federation, Linear(4), (PARITY,), **given)


def test_a_trained_model_is_a_few_lines(trained):
    shown = repr(trained).splitlines()
    assert 4 < len(shown) <= 12 and max(map(len, shown)) <= 130
    assert shown[0] == f"sqp, converged, {sum(trained.exchanges.values())} exchanges, 4 clients"
    (line,) = [one for one in shown if one.strip().startswith("client-1")]
    counts = trained.evaluations.train["client-1"]
    assert "0.05" in line and counts.n_rows > 0
    assert "array" not in repr(trained)


def test_a_table_for_notebooks_escapes_names(trained):
    html = trained._repr_html_()
    assert "<b>bold" not in html and "&lt;b&gt;bold" in html
    assert html.count("<tr>") == 1 + 4 + 1  # headings, clients, all rows
    assert "selected" in html and "held-out rows" in html


def test_selected_accuracy_value_and_verdict_are_those_of_the_result():
    rng = np.random.default_rng(0)
    X, site, sex = rng.normal(size=(600, 2)), rng.choice(["n", "s"], 600), rng.choice([0, 1], 600)
    y = X[:, 0] + sex + rng.logistic(size=600) > 0
    model = FCFLClassifier(0.05, l2=0.01, method=FedAvg(rounds=3), confidence=0)
    with pytest.warns(UserWarning):
        model.fit(X, y, clients=site, sensitive_features=sex)
    part, rows = model.result_.clients["n"].train, model.result_.clients["n"].rows.train
    cells = [f"{part.selected / rows:.3f}", f"{part.accuracy:.3f}", part.disparities[0].verdict]
    cells.append(f"{part.disparities[0].value:.3f}")
    (line,) = [one for one in repr(model.result_).splitlines() if one.startswith("  n ")]
    assert all(cell in line.split() for cell in cells)
    assert "exceeded on the training rows" in repr(model.result_)
    assert "exceeded on the training rows" in model.result_._repr_html_()


def test_of_many_clients_the_first_are_shown_and_the_rest_counted(trained):
    result = trained.result(seed=0, start="zero", settings={}, data=None)
    one = next(iter(result.clients.values()))
    many = result.replace(clients={f"site {i}": one for i in range(500)})
    assert len(repr(many).splitlines()) <= 14 and "493 more" in repr(many)
    assert many._repr_html_().count("<tr>") == 41


def test_no_repr_prints_arrays(trained):
    (rows, *_) = simulated_clients(0).values()
    parts = (trained.state, trained.at, trained.turns[0], trained.evaluations, rows)
    reports = trained.evaluations.reports
    for one in (*parts, trained.state.problem, trained.state.request.points[0], *reports.values()):
        assert len(repr(one)) < 2000 and "array(" not in repr(one), type(one)
        assert repr(one).startswith(type(one).__name__)
