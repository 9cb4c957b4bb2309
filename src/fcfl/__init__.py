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
    from fcfl._types import (
        CurvatureWeights,
        Extra,
        Matrix,
        Point,
        RateId,
        Report,
        Reports,
        Request,
        Vector,
    )
    from fcfl.client.counts import Counts, count_rows, pool_counts
    from fcfl.client.local_client import Client, LocalClient
    from fcfl.client.questions import Counted, Introduction, Setup
    from fcfl.data.client_data import ClientData
    from fcfl.errors import FCFLError
    from fcfl.estimator import FCFLClassifier
    from fcfl.federation.federation import Federation
    from fcfl.methods.baselines.afl import AFL
    from fcfl.methods.baselines.fair_reg import FairReg
    from fcfl.methods.baselines.fedavg import FedAvg
    from fcfl.methods.baselines.q_ffl import QFFL
    from fcfl.methods.method import RoundInfo, Status, describe_round
    from fcfl.methods.sqp.sqp import SQP
    from fcfl.methods.two_stage.two_stage import TwoStage
    from fcfl.models.linear import Linear
    from fcfl.models.loss import CrossEntropy, Hinge, Loss, Squared
    from fcfl.models.model import Model, Opaque
    from fcfl.problem.evaluation import Evaluation, Problem, evaluate_point
    from fcfl.results import Result
    from fcfl.rules import Difference, Ratio
    from fcfl.sites.messages import Terms
    from fcfl.sites.remote import RemoteFederation
    from fcfl.sites.site import reply_to
    from fcfl.sites.transport import Reply, Transport
    from fcfl.training.fit import train
    from fcfl.training.rounds import Session
    from fcfl.training.trained import Trained

_HOME = {
    "fcfl._types": (
        "CurvatureWeights", "Extra", "Matrix", "Point", "RateId", "Report", "Reports",
        "Request", "Vector",
    ),
    "fcfl.client.counts": ("Counts", "count_rows", "pool_counts"),
    "fcfl.client.local_client": ("Client", "LocalClient"),
    "fcfl.client.questions": ("Counted", "Introduction", "Setup"),
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
    "fcfl.methods.baselines.afl": ("AFL",),
    "fcfl.methods.baselines.fair_reg": ("FairReg",),
    "fcfl.methods.baselines.fedavg": ("FedAvg",),
    "fcfl.methods.baselines.q_ffl": ("QFFL",),
    "fcfl.methods.method": ("RoundInfo", "Status", "describe_round"),
    "fcfl.problem.evaluation": ("Evaluation", "Problem", "evaluate_point"),
    "fcfl.methods.sqp.sqp": ("SQP",),
    "fcfl.methods.two_stage.two_stage": ("TwoStage",),
    "fcfl.training.fit": ("train",),
    "fcfl.training.rounds": ("Session",),
    "fcfl.training.trained": ("Trained",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AFL",
    "QFFL",
    "SQP",
    "Client",
    "ClientData",
    "Counted",
    "Counts",
    "CrossEntropy",
    "CurvatureWeights",
    "Difference",
    "Evaluation",
    "Extra",
    "FCFLClassifier",
    "FCFLError",
    "FairReg",
    "FedAvg",
    "Federation",
    "Hinge",
    "Introduction",
    "Linear",
    "LocalClient",
    "Loss",
    "Matrix",
    "Model",
    "Opaque",
    "Point",
    "Problem",
    "RateId",
    "Ratio",
    "RemoteFederation",
    "Reply",
    "Report",
    "Reports",
    "Request",
    "Result",
    "RoundInfo",
    "Session",
    "Setup",
    "Squared",
    "Status",
    "Terms",
    "Trained",
    "Transport",
    "TwoStage",
    "Vector",
    "__version__",
    "count_rows",
    "describe_round",
    "evaluate_point",
    "pool_counts",
    "reply_to",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: a site pays for imports on every message."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fcfl' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
