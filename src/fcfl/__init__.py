"""Federated learning whose model keeps each data holder's disparity budget.

Rules say what may differ between groups, methods say how to train; `fcfl.experiment` runs a table
to a folder, `fcfl.audit` judges predictions of any model.
"""

__version__ = "0.1.0"

from fcfl.errors import FCFLError
from fcfl.rules import Difference, Ratio
from fcfl.server.baselines.fedavg import FedAvg
from fcfl.server.sqp import SQP
from fcfl.server.two_stage import TwoStage

__all__ = ["SQP", "Difference", "FCFLError", "FedAvg", "Ratio", "TwoStage", "__version__"]
