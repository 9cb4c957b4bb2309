"""A network as sites would have it installed, by an import path: about 10⁵ parameters."""

from torch import nn


def wide(n_features: int, hidden: int = 300) -> nn.Module:
    """Two hidden layers; 300 wide they have 90,901 weights and 300 more for every feature."""
    return nn.Sequential(
        nn.Linear(n_features, hidden),
        nn.Tanh(),
        nn.Linear(hidden, hidden),
        nn.Tanh(),
        nn.Linear(hidden, 1),
    )
