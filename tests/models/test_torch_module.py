import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fcfl._types import ROW_SIGNS, CurvatureWeights, Point, RateId
from fcfl.data.client_data import ClientData
from fcfl.errors import DataError, ReportError
from fcfl.extras import LocalTraining, train_locally
from fcfl.models.linear_rows import linear_rows
from fcfl.models.torch_module import TorchModule
from fcfl.models.torch_rows import as_network
from fcfl.torch import TorchClient
from helpers import RACE, TWO_ATTRIBUTES, all_rates, identical, simulated_data, slope_along_axes

RATES = all_rates(TWO_ATTRIBUTES)
torch.set_num_threads(1)  # threads that wait for each other cost seconds on a busy machine
PARTS = ("n_rows", "loss", "group_counts", "rates", "loss_grad", "rate_grads", "curvature")


def torch_rows(name, data, rates, module, **options):
    return TorchModule(module, **options).rows(name, data, rates)


def rows_of(client, name, rates):
    return client.model.rows(name, client.data, rates)


def weights_for(seed, rates=RATES):
    rng = np.random.default_rng(seed)
    return CurvatureWeights(rng.random(), rng.standard_normal(len(rates)))


def ask(client, params, want="gradients", **more):
    weights = {client.name: weights_for(0, client.rates)}
    return client.report(Point(params, want, weights, **more))


def assert_reports_agree(left, right, tolerance):
    """Two reports say the same about every part."""
    for part in PARTS:
        a, b = getattr(left, part), getattr(right, part)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * (1 + np.abs(a).max()))


# --- a linear layer ---


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    batch_rows=st.integers(9, 80),
    as_sparse=st.booleans(),
    weighted=st.booleans(),
)
def test_a_linear_layer_is_the_closed_form(seed, batch_rows, as_sparse, weighted):
    data = simulated_data(seed, levels=TWO_ATTRIBUTES, as_sparse=as_sparse)
    rng = np.random.default_rng(seed)
    if weighted:
        data = replace(data, weights=rng.integers(0, 4, data.n_rows) + 0.5)
    params = rng.standard_normal(data.n_features + 1)
    module = nn.Linear(data.n_features, 1, dtype=torch.float64)
    network = torch_rows("a", data, RATES, module, batch_rows=batch_rows)
    weights = {"a": weights_for(seed)}
    point = Point(params, "curvature", weights)
    closed, ours = linear_rows("a", data, RATES).report(point), network.report(point)
    assert_reports_agree(closed, ours, 1e-12)


def test_a_linear_layer_is_the_closed_form_for_rates_with_negative_signs(monkeypatch):
    monkeypatch.setitem(ROW_SIGNS, "selection", (-1, 1))
    data = simulated_data(3, levels=TWO_ATTRIBUTES)
    data = replace(data, X=np.round(data.X))  # equal rows with both labels
    params = np.linspace(-0.4, 0.6, data.n_features + 1)
    network = torch_rows("a", data, RATES, nn.Linear(data.n_features, 1, dtype=torch.float64))
    point = Point(params, "curvature", {"a": weights_for(3)})
    closed = linear_rows("a", data, RATES).report(point)
    assert_reports_agree(closed, network.report(point), 1e-12)


def test_only_what_is_asked_for_is_sent():
    data = simulated_data(0, levels=TWO_ATTRIBUTES)
    client = torch_rows("a", data, RATES, nn.Linear(4, 1))
    params = client.network.first_params()
    values, gradients = ask(client, params, "values"), ask(client, params)
    assert values.loss_grad is None and values.rate_grads is None
    assert gradients.loss_grad is not None and gradients.curvature is None
    for report in (values, gradients):
        assert not report.extras
    assert values.loss == gradients.loss and (values.rates == gradients.rates).all()


# --- any module ---


class Tied(nn.Module):
    """One matrix, used twice."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.out(torch.tanh(self.second(torch.sigmoid(self.first(x))))).squeeze(1)


def with_statistics():
    norm = nn.BatchNorm1d(3)
    norm.running_mean = torch.tensor([0.3, -0.2, 0.1])
    norm.running_var = torch.tensor([0.5, 2.0, 1.3])
    return nn.Sequential(nn.Linear(4, 3), norm, nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, 1))


def partly_fixed():
    module = nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 1))
    module[0].weight.requires_grad_(False)
    return module


MODULES = {
    "two hidden layers": lambda: nn.Sequential(
        nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3), nn.SiLU(), nn.Linear(3, 1), nn.Flatten(0)
    ),
    "layer norm": lambda: nn.Sequential(
        nn.Linear(4, 3), nn.LayerNorm(3), nn.Softplus(), nn.Linear(3, 1)
    ),
    "batch norm, dropout": with_statistics,
    "tied weights": Tied,
    "fixed weights": partly_fixed,
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(6, 1)
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_gradients_and_curvature_are_those_of_the_values(name):
    torch.manual_seed(1)
    module = MODULES[name]().double()
    rates = all_rates(RACE)
    client = torch_rows("a", simulated_data(2, n_rows=30), rates, module, batch_rows=17)
    params = client.network.first_params()
    report = ask(client, params, "curvature")

    def values(at):
        found = ask(client, at, "values")
        return np.append(found.loss, found.rates)

    def lagrangian_grad(at):
        found, weights = ask(client, at), weights_for(0, rates)
        return weights.loss * found.loss_grad + weights.rates @ found.rate_grads

    slopes = slope_along_axes(values, params)
    np.testing.assert_allclose(report.loss_grad, slopes[0], atol=1e-8)
    np.testing.assert_allclose(report.rate_grads, slopes[1:], atol=1e-6)
    np.testing.assert_allclose(
        report.curvature, slope_along_axes(lagrangian_grad, params), atol=1e-5
    )


@pytest.mark.parametrize("name", MODULES)
def test_batches_change_nothing_but_rounding(name):
    torch.manual_seed(2)
    module = MODULES[name]().double()
    data = simulated_data(3, levels=TWO_ATTRIBUTES)
    params = as_network(module).first_params()
    whole, *parts = (
        ask(torch_rows("a", data, RATES, module, batch_rows=rows), params, "curvature")
        for rows in (1000, 1, 7)
    )
    for report in parts:
        assert_reports_agree(whole, report, 1e-12)


@pytest.mark.parametrize("name", MODULES)
def test_float32_agrees_to_its_precision(name):
    torch.manual_seed(3)
    single = MODULES[name]()
    double = copy.deepcopy(single).double()
    data = simulated_data(4, levels=TWO_ATTRIBUTES)
    params = as_network(single).first_params()
    reports = [
        ask(torch_rows("a", data, RATES, module, batch_rows=13), params, "curvature")
        for module in (single, double)
    ]
    assert_reports_agree(*reports, 3e-5)
    assert all(getattr(reports[0], part).dtype == np.float64 for part in PARTS[3:])
    assert not np.array_equal(reports[0].loss_grad, reports[1].loss_grad)


@pytest.mark.parametrize("name", MODULES)
def test_a_report_is_the_same_twice_and_leaves_the_module_alone(name):
    torch.manual_seed(4)
    module = MODULES[name]()
    module[0].eval() if isinstance(module, nn.Sequential) else module.first.eval()
    modes = [part.training for part in module.modules()]
    state = copy.deepcopy(module.state_dict())
    client = torch_rows("a", simulated_data(5, levels=TWO_ATTRIBUTES), RATES, module)
    params = client.network.first_params() + 0.1
    assert identical(ask(client, params, "curvature"), ask(client, params, "curvature"))
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(state[key], value) for key, value in module.state_dict().items())
    assert all(leaf.grad is None for leaf in module.parameters())


def test_parameters_survive_the_way_there_and_back():
    for make in MODULES.values():
        network = as_network(make())
        params = np.random.default_rng(0).standard_normal(network.n_params).astype(np.float32)
        trained = network.restored(params.astype(np.float64))
        assert not trained.training
        assert (as_network(trained).first_params() == params).all()
        X = np.random.default_rng(1).standard_normal((6, 4))
        with torch.no_grad():
            direct = trained(torch.tensor(X, dtype=torch.float32)).reshape(6)
        logits = network.logits(params.astype(np.float64), X, batch_rows=6)
        np.testing.assert_allclose(logits, direct.numpy(), rtol=1e-6)


def test_fixed_parameters_are_not_trained():
    module = partly_fixed()
    network = as_network(module)
    assert network.names == ("0.bias", "2.weight", "2.bias") and network.n_params == 3 + 3 + 1
    trained = network.restored(np.zeros(7))
    assert torch.equal(trained[0].weight, module[0].weight)
    assert not trained[0].weight.requires_grad


class Largest(nn.Module):
    """Remembers the most rows it was shown at once."""

    def __init__(self):
        super().__init__()
        self.inner, self.most = nn.Linear(4, 1), 0

    def forward(self, x):
        self.most = max(self.most, len(x))
        return self.inner(x)


def test_no_more_rows_than_allowed_are_evaluated_at_once():
    module = Largest()
    data = simulated_data(0, levels=TWO_ATTRIBUTES, as_sparse=True)
    client = torch_rows("a", data, RATES, module, batch_rows=9)
    params = client.network.first_params()
    local = LocalTraining(1, 0.1)
    ask(client, params, "curvature", extras=(local,))
    client.logits(params)
    assert module.most == 9


# --- rows as people have them ---


def test_tensors_of_any_shape_and_whole_numbers_are_rows():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    y, group = rng.integers(0, 2, 30), rng.choice(["a", "b"], 30)
    words = nn.Sequential(nn.Embedding(7, 2), nn.Flatten(), nn.Linear(6, 1))
    images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    for module, X in (
        (words, torch.randint(0, 7, (30, 3))),
        (images, torch.randn(30, 1, 4, 4, dtype=torch.float64)),
        (images, rng.standard_normal((30, 1, 4, 4))),
    ):
        client = TorchClient(module, X, y, group, batch_rows=8)
        client = rows_of(client, "north", [RateId("selection", "group", "a")])
        report = client.report(Point(client.network.first_params(), "gradients"))
        assert np.isfinite(report.loss_grad).all() and report.rate_grads.any()


def test_groups_go_by_name_and_may_be_missing():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 2)), np.array([0, 1, 0, 1, 1, 0])
    groups = {"sex": ["f", "m", None, "f", "", np.nan], "age": [30, 40, 40, 30.0, 40, 30]}
    client = TorchClient(nn.Linear(2, 1), X, y, groups)
    rates = [
        RateId("selection", "sex", "x"),
        RateId("selection", "sex", "m"),
        RateId("true_positive", "sex", "f"),
        RateId("false_positive", "age", "30"),
    ]
    report = rows_of(client, "north", rates).report(Point(np.zeros(3)))
    assert report.group_counts.tolist() == [0, 1, 1, 2]
    assert report.rates.tolist() == [0.0, 0.5, 0.5, 0.5]


def test_a_weight_stands_for_so_many_rows():
    data = simulated_data(1)
    times = np.random.default_rng(1).integers(0, 4, data.n_rows)
    names = np.array(RACE["race"] + ("",))[data.groups["race"]]
    module = nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 1)).double()
    rates = [replace(rate, attribute="group") for rate in all_rates(RACE)]
    weighted = TorchClient(module, data.X, data.y, names, weights=times)
    repeated = TorchClient(module, *(np.repeat(a, times, axis=0) for a in (data.X, data.y, names)))
    params = weighted.model.start()
    reports = [ask(rows_of(c, "a", rates), params, "curvature") for c in (weighted, repeated)]
    assert_reports_agree(*reports, 1e-12)


# --- training at the client ---


def plain_steps(data, start, training, seed):
    """The linear model's steps, row by row."""
    rows = np.column_stack([data.X, np.ones(data.n_rows)])

    def summed_gradient(params, items):
        some = slice(None) if items is None else items
        h = 1 / (1 + np.exp(-rows[some] @ params))
        return rows[some].T @ (h - data.y[some])

    return train_locally(start, training, lambda: seed, np.ones(data.n_rows), summed_gradient)


@pytest.mark.parametrize("batch_rows", [0, 37])
def test_local_training_takes_the_same_steps_as_a_linear_model(batch_rows):
    data = simulated_data(1, n_rows=120, levels=TWO_ATTRIBUTES)
    client = torch_rows("a", data, RATES, nn.Linear(4, 1).double(), batch_rows=10)
    start = np.random.default_rng(0).standard_normal(5)
    training = LocalTraining(3, 0.2, batch_rows, l2=0.01)
    ours = client.report(Point(start, extras=(training,))).extras["local_params"]
    np.testing.assert_allclose(
        ours, plain_steps(data, start, training, client._own_seed), rtol=1e-12
    )


# --- what is refused ---


@pytest.mark.parametrize(
    "module",
    [nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 1), nn.Unflatten(1, (1, 1))), nn.LSTM(4, 1)],
    ids=["two logits", "too many axes", "not a tensor"],
)
def test_anything_but_one_logit_is_refused(module):
    client = torch_rows("a", simulated_data(0), all_rates(RACE), module)
    with pytest.raises(ValueError, match=r"^`module` must give one logit per row.*let it return"):
        client.report(Point(client.network.first_params()))


def test_one_row_has_one_logit():
    rows = simulated_data(0).take([3])
    one = ask(torch_rows("a", rows, (), nn.Linear(4, 1)), np.zeros(5))
    assert one.loss == pytest.approx(math.log(2))


def frozen():
    return nn.Linear(4, 1).requires_grad_(False)


def with_nan():
    module = nn.Linear(4, 1)
    nn.init.constant_(module.bias, math.nan)
    return module


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (nn.ReLU, r"`module` must have a parameter with requires_grad=True, got none"),
        (frozen, r"`module` must have a parameter with requires_grad=True, got none"),
        (
            lambda: nn.Linear(4, 1).to(torch.bfloat16),
            r"float32 or float64, got torch.bfloat16 for 'weight'. Convert",
        ),
        (with_nan, r"must start from finite parameters, got others in 'bias'\."),
        (
            lambda: nn.Sequential(
                nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 1)
            ),
            r"must not normalise by the rows of a batch, got '1' without running statistics",
        ),
    ],
)
def test_a_module_that_cannot_be_trained_is_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        torch_rows("a", simulated_data(0), (), make())


def test_a_module_must_be_one():
    with pytest.raises(TypeError, match=r"`module` must be a torch.nn.Module, got function\."):
        TorchClient(lambda x: x, [[1.0]], [1], ["a"])


@pytest.mark.parametrize("want", ["values", "gradients"])
def test_a_logit_that_is_no_number_names_its_client(want):
    client = torch_rows("south", simulated_data(0), (), nn.Linear(4, 1))
    with pytest.raises(
        ReportError, match=r"^Client 'south': the module gave a logit of (nan|-?inf)"
    ):
        client.report(Point(np.full(5, 1e39), want))


def test_parameters_of_another_model_are_refused():
    client = torch_rows("a", simulated_data(0), (), nn.Linear(4, 1))
    with pytest.raises(ValueError, match=r"each of the module's 5 trainable .* got shape \(6,\)"):
        client.report(Point(np.zeros(6)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"X": [[1.0], [math.nan]]}, "`X` must hold finite numbers"),
        ({"X": torch.tensor([[1.0], [math.inf]])}, "`X` must hold finite numbers"),
        ({"X": [["a"], ["b"]]}, "`X` must hold numbers, got <U1"),
        ({"X": 1.0}, "`X` must have one row per label, got a single number"),
        ({"y": [0, 2]}, "`y` must hold 0 and 1, got 2"),
        ({"y": [0, 1, 1]}, "`y` must have one value for each of the 2 rows"),
        ({"groups": ["a"]}, r"`groups\['group'\]` must have one value for each of the 2 rows"),
        ({"groups": [["a"], ["b"]]}, r"one group name per row, got shape \(2, 1\) for 'group'"),
        ({"levels": {"sex": ["f"]}}, "`levels` must name attributes of `groups`, got 'sex'"),
        ({"levels": {"group": ["a"]}}, r"of `levels` \('a'\) for 'group', got 'b'\."),
        ({"weights": [1.0, -1.0]}, "`weights` must be zero or positive numbers, got -1"),
        ({"batch_rows": 0}, "`batch_rows` must be a whole number from 1 up, got 0"),
        ({"batch_rows": True}, "`batch_rows` must be a whole number from 1 up, got True"),
    ],
)
def test_bad_rows_are_refused(change, sentence):
    given = {"X": [[1.0], [2.0]], "y": [0, 1], "groups": ["a", "b"]} | change
    with pytest.raises((DataError, ValueError), match=sentence):
        TorchClient(nn.Linear(1, 1), **given)


def test_no_rows_and_no_attribute_are_refused_by_name():
    empty = ClientData(np.zeros((0, 4)), [], {}, {})
    with pytest.raises(ValueError, match=r"Client 'b' has no training rows\."):
        torch_rows("b", empty, (), nn.Linear(4, 1))
    client = TorchClient(nn.Linear(1, 1), [[1.0]], [1], {"sex": ["f"]})
    with pytest.raises(ValueError, match=r"Client 'b' has no attribute 'race'; it has 'sex'\."):
        rows_of(client, "b", [RateId("selection", "race", "x")])


def test_what_a_network_cannot_answer_is_refused():
    data = simulated_data(0)
    large = torch_rows("a", data, (), nn.Sequential(nn.Linear(4, 400), nn.Linear(400, 1)))
    params = large.network.first_params()
    with pytest.raises(ValueError, match=r"must be 'lbfgs' above 2000 parameters, .* of 2401\."):
        ask(large, params, "curvature")
    small = torch_rows("a", data, (), nn.Linear(4, 1))
    with pytest.raises(ValueError, match=r"^`curvature_weights` must name client 'a'"):
        small.report(Point(np.zeros(5), "curvature"))
