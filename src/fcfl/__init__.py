"""Federated learning whose model keeps each client's disparity budget.

`FCFLClassifier` is the scikit-learn estimator; `train` is what it, the command line and everything
else go through: clients in a `Federation`, a model, rules, a method. Methods, clients and models of
your own need only what stands here: see ``examples/own_method.py`` and its neighbours.
`fcfl.audit` judges predictions of any model, `fcfl.runs` runs a table to a folder, `fcfl.torch`
trains networks.
"""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcfl._types import CurvatureWeights as CurvatureWeights
    from fcfl._types import Extra as Extra
    from fcfl._types import Matrix as Matrix
    from fcfl._types import Point as Point
    from fcfl._types import RateId as RateId
    from fcfl._types import Report as Report
    from fcfl._types import Reports as Reports
    from fcfl._types import Request as Request
    from fcfl._types import Vector as Vector
    from fcfl.client.client import Client as Client
    from fcfl.client.client import Counted as Counted
    from fcfl.client.client import Introduction as Introduction
    from fcfl.client.client import LocalClient as LocalClient
    from fcfl.client.client import Setup as Setup
    from fcfl.client.counts import Counts as Counts
    from fcfl.client.counts import count_rows as count_rows
    from fcfl.client.counts import pool_counts as pool_counts
    from fcfl.data.client_data import ClientData as ClientData
    from fcfl.errors import FCFLError as FCFLError
    from fcfl.estimator import FCFLClassifier as FCFLClassifier
    from fcfl.federation.federation import Federation as Federation
    from fcfl.federation.session import Session as Session
    from fcfl.methods.baselines import AFL as AFL
    from fcfl.methods.baselines import QFFL as QFFL
    from fcfl.methods.baselines import FairReg as FairReg
    from fcfl.methods.baselines import FedAvg as FedAvg
    from fcfl.methods.method import RoundInfo as RoundInfo
    from fcfl.methods.method import Status as Status
    from fcfl.methods.method import describe_round as describe_round
    from fcfl.methods.sqp.sqp import SQP as SQP
    from fcfl.methods.two_stage import TwoStage as TwoStage
    from fcfl.models.linear import Linear as Linear
    from fcfl.models.loss import CrossEntropy as CrossEntropy
    from fcfl.models.loss import Hinge as Hinge
    from fcfl.models.loss import Loss as Loss
    from fcfl.models.loss import Squared as Squared
    from fcfl.models.model import Model as Model
    from fcfl.models.model import Opaque as Opaque
    from fcfl.problem import Evaluation as Evaluation
    from fcfl.problem import Problem as Problem
    from fcfl.problem import evaluate_point as evaluate_point
    from fcfl.results import Result as Result
    from fcfl.rules import Difference as Difference
    from fcfl.rules import Ratio as Ratio
    from fcfl.sites.messages import Terms as Terms
    from fcfl.sites.remote import RemoteFederation as RemoteFederation
    from fcfl.sites.site import reply_to as reply_to
    from fcfl.sites.transport import Reply as Reply
    from fcfl.sites.transport import Transport as Transport
    from fcfl.training.train import Trained as Trained
    from fcfl.training.train import train as train

_HOME = {
    "fcfl._types": (
        "CurvatureWeights", "Extra", "Matrix", "Point", "RateId", "Report", "Reports",
        "Request", "Vector",
    ),
    "fcfl.client.counts": ("Counts", "count_rows", "pool_counts"),
    "fcfl.client.client": ("Client", "Counted", "Introduction", "LocalClient", "Setup"),
    "fcfl.data.client_data": ("ClientData",),
    "fcfl.errors": ("FCFLError",),
    "fcfl.estimator": ("FCFLClassifier",),
    "fcfl.federation.federation": ("Federation",),
    "fcfl.sites.messages": ("Terms",),
    "fcfl.sites.remote": ("RemoteFederation",),
    "fcfl.sites.site": ("reply_to",),
    "fcfl.sites.transport": ("Reply", "Transport"),
    "fcfl.models.linear": ("Linear",),
    "fcfl.models.loss": ("CrossEntropy", "Hinge", "Loss", "Squared"),
    "fcfl.models.model": ("Model", "Opaque"),
    "fcfl.results": ("Result",),
    "fcfl.rules": ("Difference", "Ratio"),
    "fcfl.methods.baselines": ("AFL", "FairReg", "FedAvg", "QFFL"),
    "fcfl.methods.method": ("RoundInfo", "Status", "describe_round"),
    "fcfl.problem": ("Evaluation", "Problem", "evaluate_point"),
    "fcfl.methods.sqp.sqp": ("SQP",),
    "fcfl.methods.two_stage": ("TwoStage",),
    "fcfl.training.train": ("Trained", "train"),
    "fcfl.federation.session": ("Session",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    """Import a public name on first use: a site pays for imports with every message."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fcfl' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
