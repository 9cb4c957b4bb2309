"""All methods by name: the class, one line of help, and what the rest of the package may ask.

To add a method, write its module and add its class to the list by its place: a module is imported
when the method is chosen. A method of one's own that is passed as an object needs no entry. Another
distribution adds a method as an entry point of the group ``fcfl.methods``: a class with a class
attribute ``help``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import entry_points
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

from fcfl._checks import check_choice
from fcfl.methods.method import Traits, traits_of

# Options that a run has under the same name for every method, and the name itself.
_SHARED_OPTIONS = ("step_size", "rounds", "objective", "curvature", "protects", "name")


@dataclass(frozen=True, slots=True)
class Registered:
    """A method's name, the place of its class, and one line of help.

    ``summary`` says what it minimises and whether it enforces budgets. All options of the class
    must have defaults. What else may be asked is read off the class, so that nobody has to compare
    names or classes: its `Traits`, and the names of its options.
    """

    name: str
    place: str
    summary: str = ""

    @property
    def help(self) -> str:
        """One line; that of another distribution is an attribute of its class."""
        return self.summary or str(self.method.help)

    @property
    def method(self) -> type[Any]:
        """The class, imported when it is first asked for."""
        method: type[Any] = resolve_name(self.place)
        return method

    @property
    def traits(self) -> Traits:
        """What the package may ask of it."""
        return traits_of(self.method)

    @property
    def options(self) -> tuple[str, ...]:
        """Names of all its options."""
        return tuple(field.name for field in fields(self.method) if field.name != "name")

    def stage_rounds(self, rounds: Sequence[int]) -> int | tuple[int, ...]:
        """Return counts as the option ``rounds`` takes them: one for each stage."""
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
        "sqp",
        "fcfl.methods.sqp.sqp:SQP",
        "the worst client's loss within every budget, in few rounds and with prices; budgets hold "
        "on training rows, on new ones only nearly (default)",
    ),
    Registered(
        "two-stage",
        "fcfl.methods.two_stage:TwoStage",
        "the same by the gradient steps of FCFL (Cui et al., 2021), thousands of rounds",
    ),
    Registered(
        "private",
        "fcfl.methods.private:Private",
        "the mean loss within every budget from noisy sums, with an epsilon for each client; "
        "chosen by --privacy",
    ),
    Registered(
        "fedavg",
        "fcfl.methods.baselines:FedAvg",
        "the mean loss over all rows; does not enforce budgets",
    ),
    Registered(
        "fair-reg",
        "fcfl.methods.baselines:FairReg",
        "the sum of the clients' losses and disparities; a penalty, so it does not enforce budgets",
    ),
    Registered(
        "q-ffl",
        "fcfl.methods.baselines:QFFL",
        "losses to the power 6, so that clients become more alike; does not enforce budgets",
    ),
    Registered(
        "afl",
        "fcfl.methods.baselines:AFL",
        "the worst mixture of clients, by descent and ascent; does not enforce budgets",
    ),
)

_PAPER = ("mmpf", "agnostic-fair", "fedmgda", "fairfed", "fedfb")  # in a distribution of their own


def _installed() -> Iterator[Registered]:
    """Return the methods that other distributions add."""
    for entry in entry_points(group="fcfl.methods"):
        yield Registered(entry.name, entry.value)


METHODS: Mapping[str, Registered] = MappingProxyType(
    {one.name: one for one in (*_ALL, *_installed())}
)
"""All methods, in the order in which help lists them."""


def check_method(argument: str, name: str) -> str:
    """Return ``name`` if a method is registered under it; else raise `ValueError`."""
    if name in _PAPER and name not in METHODS:
        raise ValueError(
            f"`{argument}` {name!r} is a baseline that only the paper compares. Install it with "
            "the distribution fcfl-paper: `make paper` in a clone of the repository."
        )
    return check_choice(argument, name, METHODS)
