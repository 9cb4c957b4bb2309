"""Baselines of the paper's comparison; none of them enforces budgets."""

from .agnostic_fair import AgnosticFair
from .fairfed import FairFed
from .fedfb import FedFB
from .fedmgda import FedMGDA
from .mmpf import MMPF

__all__ = ["MMPF", "AgnosticFair", "FairFed", "FedFB", "FedMGDA"]
