"""Networks as a site would have them installed: by an import path."""

import torch


def mlp(n_features, hidden=4):
    """One hidden layer."""
    return torch.nn.Sequential(
        torch.nn.Linear(n_features, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1)
    )


def no_module(n_features):
    """Not a module."""
    return n_features
