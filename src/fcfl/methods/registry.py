"""All methods by name: the class, one line of help, and what the rest of the package may ask.

To add a method, write its module, import its class and add it to the list. A method of one's own
that is passed as an object needs no entry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from fcfl.methods.baselines.afl import AFL
from fcfl.methods.baselines.agnostic_fair import AgnosticFair
from fcfl.methods.baselines.fair_reg import FairReg
from fcfl.methods.baselines.fairfed import FairFed
from fcfl.methods.baselines.fedavg import FedAvg
from fcfl.methods.baselines.fedfb import FedFB
from fcfl.methods.baselines.fedmgda import FedMGDA
from fcfl.methods.baselines.mmpf import MMPF
from fcfl.methods.baselines.q_ffl import QFFL
from fcfl.methods.method import Traits, traits_of
from fcfl.methods.private import Private
from fcfl.methods.sqp.sqp import SQP
from fcfl.methods.two_stage.two_stage import TwoStage

# Options that a run has under the same name for every method, and the name itself.
_SHARED_OPTIONS = ("step_size", "rounds", "objective", "curvature", "protects", "name")


@dataclass(frozen=True, slots=True)
class Registered:
    """A method's class, and one line of help: what it minimises and whether it enforces budgets.

    All options of the class must have defaults. What else may be asked is read off the class, so
    that nobody has to compare names or classes: its `Traits`, and the names of its options.
    """

    method: type[Any]
    help: str

    @property
    def name(self) -> str:
        """The name by which it is chosen."""
        return str(self.method.name)

    @property
    def traits(self) -> Traits:
        """What the package may ask of it."""
        return traits_of(self.method)

    @property
    def options(self) -> tuple[str, ...]:
        """Names of all its options."""
        return tuple(field.name for field in fields(self.method) if field.name != "name")

    def stage_rounds(self, rounds: Sequence[int]) -> int | tuple[int, ...]:
        """Counts as the option ``rounds`` takes them: one for each stage."""
        if len(rounds) != self.traits.n_stages:
            wanted = "one count" if self.traits.n_stages == 1 else "two counts"
            given = ",".join(map(str, rounds))
            raise ValueError(f"`rounds` must be {wanted} for method {self.name!r}, got {given}.")
        return rounds[0] if self.traits.n_stages == 1 else tuple(rounds)

    @property
    def takes_options(self) -> bool:
        """Whether they may be given by name; those of two stages and of noise have settings."""
        return self.traits.n_stages == 1 and not self.traits.is_private

    @property
    def own_options(self) -> tuple[str, ...]:
        """Names of the options that a run does not have under a name of their own."""
        return tuple(name for name in self.options if name not in _SHARED_OPTIONS)


_ALL = (
    Registered(
        SQP,
        "the worst client's loss within every budget, in few rounds and with prices; budgets hold "
        "on training rows, on new ones only nearly (default)",
    ),
    Registered(
        TwoStage, "the same by the gradient steps of FCFL (Cui et al., 2021), thousands of rounds"
    ),
    Registered(
        Private,
        "the mean loss within every budget from noisy sums, with an epsilon for each client; "
        "chosen by --privacy",
    ),
    Registered(FedAvg, "the mean loss over all rows; does not enforce budgets"),
    Registered(
        FairReg,
        "the sum of the clients' losses and disparities; a penalty, so it does not enforce budgets",
    ),
    Registered(
        QFFL, "losses to the power 6, so that clients become more alike; does not enforce budgets"
    ),
    Registered(
        AFL, "the worst mixture of clients, by descent and ascent; does not enforce budgets"
    ),
    Registered(
        MMPF, "the worst client's loss, by reweighting whole fits; does not enforce budgets"
    ),
    Registered(
        AgnosticFair,
        "the loss and covariance under the worst reweighting of rows; discloses 50 rows, does not "
        "enforce budgets",
    ),
    Registered(
        FedMGDA,
        "every client's loss, until one could only gain at another's cost; does not enforce "
        "budgets",
    ),
    Registered(
        FairFed,
        "reweighted local losses, averaged by how near each client's disparity is to that of all "
        "rows; does not enforce budgets",
    ),
    Registered(
        FedFB,
        "losses whose weights steer the selection rates of all rows together; does not enforce "
        "budgets",
    ),
)

METHODS: Mapping[str, Registered] = MappingProxyType({one.name: one for one in _ALL})
"""All methods, in the order in which help lists them."""
