"""Federated learning whose model keeps each data holder's disparity budget.

`FCFLClassifier` is the scikit-learn estimator. Rules say what may differ between groups, methods
say how to train; `fcfl.experiment` runs a table to a folder, `fcfl.audit` judges predictions of
any model, `fcfl.torch` trains networks.
"""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fcfl.errors import FCFLError
from fcfl.rules import Difference, Ratio
from fcfl.server.baselines.fedavg import FedAvg
from fcfl.server.sqp import SQP
from fcfl.server.two_stage import TwoStage

if TYPE_CHECKING:
    from fcfl.estimator import FCFLClassifier

__all__ = [
    "SQP",
    "Difference",
    "FCFLClassifier",
    "FCFLError",
    "FedAvg",
    "Ratio",
    "TwoStage",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import the estimator, and scikit-learn with it, when it is first asked for."""
    if name != "FCFLClassifier":
        raise AttributeError(f"module 'fcfl' has no attribute {name!r}")
    return import_module("fcfl.estimator").FCFLClassifier
