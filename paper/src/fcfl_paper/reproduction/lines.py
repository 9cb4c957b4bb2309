"""The methods that items compare: name, label in tables, and settings of the runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fcfl.methods.registry import METHODS

Kind = Literal["theirs", "ours", "baseline"]
Settings: TypeAlias = Mapping[str, object]  # of a run, as the experiment takes them


@dataclass(frozen=True)
class Line:
    """One line of a table.

    ``is_random``: the run depends on its seed even when the rows do not. ``enforces_budgets``: it
    is given the budgets; the others run once for all budgets. ``tuned_by`` names the line whose
    cross-validated l2 and objective it uses. It trains with ``budget_times`` the budget it is
    judged by. ``quick`` replaces settings in a quick trial.
    """

    label: str
    kind: Kind
    options: Settings
    is_random: bool = False
    enforces_budgets: bool = False
    tuned_by: str | None = None
    budget_times: float = 1.0
    quick: Settings = field(default_factory=dict)

    @property
    def is_cross_validated(self) -> bool:
        """Whether l2 and objective are both left to cross-validation."""
        chosen = {"l2", "objective"} & self.options.keys()
        chooses = METHODS[str(self.options["method"])].traits.is_cross_validated
        return chooses and not chosen and self.tuned_by is None


_UNTUNED = {"l2": 3e-3, "objective": 10.0}
_SHORT = {"rounds": (60,)}


def _baseline(label: str, method: str, *, is_random: bool = False) -> Line:
    return Line(label, "baseline", {"method": method}, is_random, quick=_SHORT)


LINES: dict[str, Line] = {
    "fedavg": _baseline("FedAvg", "fedavg"),
    "fair-reg": _baseline("FedAvg+FairReg", "fair-reg"),
    "agnostic-fair": _baseline("FA (AgnosticFair)", "agnostic-fair", is_random=True),
    "mmpf": _baseline("MMPF", "mmpf"),
    "q-ffl": _baseline("q-FFL", "q-ffl"),
    "afl": _baseline("AFL", "afl"),
    "fedmgda": _baseline("FedMGDA+", "fedmgda"),
    "fairfed": _baseline("FairFed", "fairfed"),
    "fedfb": _baseline("FedFB", "fedfb"),
    "two-stage": Line(
        "FCFL, two-stage, authors' options",
        "theirs",
        {"method": "two-stage", "published": True, "start": "uniform"},
        is_random=True,
        enforces_budgets=True,
        quick={"rounds": (80, 40)},
    ),
    "two-stage-as-written": Line(
        "FCFL, two-stage, as written",
        "theirs",
        {"method": "two-stage"},
        enforces_budgets=True,
        quick={"rounds": (80, 40)},
    ),
    "sqp": Line(
        "FCFL, sqp", "ours", {"method": "sqp"}, is_random=True, enforces_budgets=True,
        quick=_UNTUNED,
    ),
    "sqp-max": Line(
        "FCFL, sqp, min-max optimum",
        "ours",
        {"method": "sqp", "l2": 1e-3, "objective": "max"},
        enforces_budgets=True,
    ),
    "sqp-mean": Line(
        "FCFL, sqp, mean loss",
        "ours",
        {"method": "sqp", "objective": 10.0},
        enforces_budgets=True,
        quick=_UNTUNED,
    ),
    "sqp-tenth": Line(
        "FCFL, sqp, a tenth of the budget",
        "ours",
        {"method": "sqp"},
        is_random=True,
        enforces_budgets=True,
        tuned_by="sqp",
        budget_times=0.1,
    ),
    "sqp-sure": Line(
        "FCFL, sqp, confidence .9",
        "ours",
        {"method": "sqp", "confidence": 0.9},
        is_random=True,
        enforces_budgets=True,
        tuned_by="sqp",
    ),
}  # fmt: skip
