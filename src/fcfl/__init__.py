"""Federated learning whose model keeps each data holder's disparity budget.

`FCFLClassifier` is the scikit-learn estimator. Rules say what may differ between groups, methods
say how to train; `fcfl.runs` runs a table to a folder, `fcfl.audit` judges predictions of
any model, `fcfl.torch` trains networks.
"""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcfl.errors import FCFLError
    from fcfl.estimator import FCFLClassifier
    from fcfl.rules import Difference, Ratio
    from fcfl.server.baselines.fedavg import FedAvg
    from fcfl.server.sqp.sqp import SQP
    from fcfl.server.two_stage.two_stage import TwoStage

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

_HOME = {
    "SQP": "fcfl.server.sqp.sqp",
    "Difference": "fcfl.rules",
    "FCFLClassifier": "fcfl.estimator",
    "FCFLError": "fcfl.errors",
    "FedAvg": "fcfl.server.baselines.fedavg",
    "Ratio": "fcfl.rules",
    "TwoStage": "fcfl.server.two_stage.two_stage",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: a site pays for imports on every message."""
    if name not in _HOME:
        raise AttributeError(f"module 'fcfl' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
