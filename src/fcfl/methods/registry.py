"""Registry of methods by name, with their classes and help texts.

To add a method, write its module and add the import path of its class to the list. The module is
imported when the method is chosen. A method passed as an object does not require an entry. Other
distributions add methods by entry points of the group ``fcfl.methods``; each is a class with a
class attribute ``help``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

from fcfl._checks import check_choice
from fcfl.methods.method import Traits, traits_of

# Options that every run has under the same name for all methods, and `name`, which is no option.
_SHARED_OPTIONS = ("step_size", "rounds", "objective", "curvature", "protects", "name")


@dataclass(frozen=True, slots=True)
class Registered:
    """An entry of the registry: name, import path of the class, and one line of help.

    ``summary`` states what the method minimises and whether it enforces budgets. All options of the
    class must have defaults. `Traits` and names of options are read from the class.
    """

    name: str
    place: str
    summary: str = ""

    @property
    def help(self) -> str:
        """One line of help, read from the class for methods of other distributions."""
        return self.summary or str(self.method.help)

    @property
    def method(self) -> type[Any]:
        """The class, imported on first access."""
        method: type[Any] = resolve_name(self.place)
        return method

    @property
    def traits(self) -> Traits:
        """Traits of the class."""
        return traits_of(self.method)

    @property
    def options(self) -> tuple[str, ...]:
        """Names of all options except ``name``."""
        return tuple(field.name for field in fields(self.method) if field.name != "name")

    def stage_rounds(self, rounds: Sequence[int]) -> int | tuple[int, ...]:
        """Return the value of the option ``rounds`` for one count per stage."""
        if len(rounds) != self.traits.n_stages:
            wanted = "one count" if self.traits.n_stages == 1 else "two counts"
            given = ",".join(map(str, rounds))
            raise ValueError(f"`rounds` must be {wanted} for method {self.name!r}, got {given}.")
        return rounds[0] if self.traits.n_stages == 1 else tuple(rounds)

    @property
    def takes_options(self) -> bool:
        """Whether a run may set single options by name; False for private and two-stage methods."""
        return self.traits.n_stages == 1 and not self.traits.is_private

    @property
    def own_options(self) -> tuple[str, ...]:
        """Names of the options that are specific to this method."""
        return tuple(name for name in self.options if name not in _SHARED_OPTIONS)


_ALL = (
    Registered(
        "sqp",
        "fcfl.methods.sqp.sqp:SQP",
        "the worst client's loss within every budget, in few rounds and with prices; budgets hold "
        "on training rows and approximately on new rows (default)",
    ),
    Registered(
        "two-stage",
        "fcfl.methods.two_stage:TwoStage",
        "the worst client's loss within every budget, by the gradient steps of FCFL (Cui et al., "
        "2021); takes thousands of rounds",
    ),
    Registered(
        "private",
        "fcfl.methods.private:Private",
        "the mean loss within every budget from noisy sums, with an epsilon for each client; "
        "use --privacy",
    ),
    Registered(
        "fedavg",
        "fcfl.methods.baselines:FedAvg",
        "the mean loss over all rows; does not enforce budgets",
    ),
    Registered(
        "fair-reg",
        "fcfl.methods.baselines:FairReg",
        "the sum of the clients' losses and penalised disparities; does not enforce budgets",
    ),
    Registered(
        "q-ffl",
        "fcfl.methods.baselines:QFFL",
        "the sum of losses to the power 6, for more similar losses; does not enforce budgets",
    ),
    Registered(
        "afl",
        "fcfl.methods.baselines:AFL",
        "the loss of the worst mixture of clients; does not enforce budgets",
    ),
)

_PAPER = ("mmpf", "agnostic-fair", "fedmgda", "fairfed", "fedfb")  # in the distribution fcfl-paper


def _installed() -> Iterator[Registered]:
    """Return the methods of other distributions."""
    for entry in entry_points(group="fcfl.methods"):
        yield Registered(entry.name, entry.value)


METHODS: Mapping[str, Registered] = MappingProxyType(
    {one.name: one for one in (*_ALL, *_installed())}
)
"""All methods by name, in the order of the help."""


def check_method(argument: str, name: str) -> str:
    """Return ``name`` if a method is registered under it; else raise `ValueError`."""
    if name in _PAPER and name not in METHODS:
        raise ValueError(
            f"`{argument}` {name!r} is a baseline of the distribution fcfl-paper. Install it by "
            "`make paper` in a clone of the repository."
        )
    return check_choice(argument, name, METHODS)
