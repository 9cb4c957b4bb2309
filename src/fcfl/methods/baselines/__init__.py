"""Baselines of the literature, on the same reports and the same loop.

None of them enforces budgets: they show what other objectives cost and give. `methods.registry` has
all methods by name.
"""

from .afl import AFL
from .agnostic_fair import AgnosticFair
from .fair_reg import FairReg
from .fairfed import FairFed
from .fedavg import FedAvg
from .fedfb import FedFB
from .fedmgda import FedMGDA
from .mmpf import MMPF
from .q_ffl import QFFL

__all__ = [
    "AFL",
    "MMPF",
    "QFFL",
    "AgnosticFair",
    "FairFed",
    "FairReg",
    "FedAvg",
    "FedFB",
    "FedMGDA",
]
