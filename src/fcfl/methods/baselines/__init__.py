"""Baselines of the literature, on the same reports and the same loop.

None of them enforces budgets: they show what other objectives cost and give. `methods.registry` has
all methods by name.
"""

from .afl import AFL
from .fair_reg import FairReg
from .fedavg import FedAvg
from .q_ffl import QFFL

__all__ = [
    "AFL",
    "QFFL",
    "FairReg",
    "FedAvg",
]
