"""Baselines of the literature, on the same reports and the same loop."""

from typing import TypeAlias

from .afl import AFL
from .agnostic_fair import AgnosticFair
from .fair_reg import FairReg
from .fairfed import FairFed
from .fedavg import FedAvg
from .fedfb import FedFB
from .fedmgda import FedMGDA
from .mmpf import MMPF
from .q_ffl import QFFL

Baseline: TypeAlias = (
    FedAvg | FairReg | QFFL | AFL | MMPF | AgnosticFair | FedMGDA | FairFed | FedFB
)

BASELINES: dict[str, type[Baseline]] = {
    "fedavg": FedAvg,
    "fair-reg": FairReg,
    "q-ffl": QFFL,
    "afl": AFL,
    "mmpf": MMPF,
    "agnostic-fair": AgnosticFair,
    "fedmgda": FedMGDA,
    "fairfed": FairFed,
    "fedfb": FedFB,
}
