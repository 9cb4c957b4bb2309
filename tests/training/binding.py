"""Clients whose first feature tells the group, so that budgets bind; no two rows are alike."""

import numpy as np

from fcfl import Difference, train
from fcfl.data.client_data import ClientData
from fcfl.federation.federation import Federation
from fcfl.models.linear import Linear
from helpers import RACE

PARITY = Difference("demographic_parity", "race", 0.05)
PLAIN = {"l2": 0.01, "objective": 1.0, "confidence": 0, "starts": 1}


def binding_rows(seed, n_rows, shift=1.0):
    rng = np.random.default_rng(seed)
    group = (rng.random(n_rows) < 0.4).astype(np.int32)
    X = rng.standard_normal((n_rows, 3))
    X[:, 0] += shift * group
    y = (X @ [1, 1, -0.5] + rng.logistic(size=n_rows) > 0.6) * 1.0
    return ClientData(X, y, {"race": group}, RACE)


def binding(seed, sizes=(240, 400, 900), held_out=True, **options):
    """A federation of clients of these sizes, with as many held-out rows or none."""
    train_rows = {f"client-{k}": binding_rows([seed, k], n, **options) for k, n in enumerate(sizes)}
    test_rows = {
        f"client-{k}": binding_rows([seed, k, 1], n, **options) for k, n in enumerate(sizes)
    }
    return Federation.from_rows(train_rows, test_rows if held_out else None)


def trained_on(clients, *rules, model=None, **options):
    """A run with plain budgets and one start, unless others are asked for."""
    return train(clients, model or Linear(3), rules or (PARITY,), **PLAIN | options)


def decided_rates(trained, params=None):
    """Of each client the shares of its groups that are selected, by its own rows."""
    return {
        name: counts.group_selected / counts.group_counts for name, counts in trained.counts.items()
    }


def share_selected(trained):
    """Of each client the share of all its rows that is selected."""
    return {
        name: (counts.true_positive + counts.false_positive) / counts.n_rows
        for name, counts in trained.counts.items()
    }


def accuracy(trained):
    right = sum(c.true_positive + c.true_negative for c in trained.counts.values())
    return right / sum(c.n_rows for c in trained.counts.values())
