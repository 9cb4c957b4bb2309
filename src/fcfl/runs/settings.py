"""What a run is made of, as one frozen value that is also a TOML file."""

import math
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import tomli_w

from fcfl._checks import check_keys
from fcfl.runs.budget_settings import BUDGETS, BudgetSettings
from fcfl.runs.budgets import EVERYONE_ELSE, for_every_client, parse_budget
from fcfl.runs.data_settings import DATA, DataSettings
from fcfl.runs.option_fields import check_fields, check_table_keys, plain_table, read_table
from fcfl.runs.training_settings import EXCESS_L2, METHODS, TRAINING, TrainingSettings
from fcfl.server.baselines import BASELINES, Baseline
from fcfl.server.sqp.sqp import SQP
from fcfl.server.two_stage.two_stage import TwoStage

__all__ = [
    "BUDGETS",
    "DATA",
    "EVERYONE_ELSE",
    "EXCESS_L2",
    "METHODS",
    "TRAINING",
    "Experiment",
    "for_every_client",
    "parse_budget",
]

_SHARED_OPTIONS = ("step_size", "rounds", "seed", "name")  # options of their own on every method


@dataclass(frozen=True)
class Experiment(TrainingSettings, BudgetSettings, DataSettings):
    """Settings of one run: its data, its budgets, its training.

    Every field has the name of its command-line option and of its key in a TOML file.
    """

    def __post_init__(self) -> None:
        if self.objective == math.inf:  # a smooth maximum becomes the mean in the limit
            object.__setattr__(self, "objective", "mean")
        check_fields(self)
        self.check_budgets_fit()
        self.check_method_fits()
        self.make_method()

    def settled(self, l2: float, objective: float | Literal["max", "mean"]) -> "Experiment":
        """The same with what was left open chosen."""
        return replace(self, l2=l2, objective=objective)

    def make_method(self) -> SQP | TwoStage | Baseline:
        """The method with its options."""
        options = self._step_options()
        if self.published and self.method != "two-stage":
            raise ValueError(f"`published` belongs to method 'two-stage', got {self.method!r}.")
        if self.method in BASELINES:
            baseline = BASELINES[self.method]
            if any(field.name == "seed" for field in fields(baseline)):
                options["seed"] = self.seed
            return baseline(**options | self._own_options(baseline))
        if self.options:
            raise ValueError(f"`options` belong to the baselines, got method {self.method!r}.")
        if self.method == "two-stage":
            if self.published:
                return TwoStage.published(**{"step_size": 0.03, **options})
            return TwoStage(**options)
        if self.step_size is not None:
            raise ValueError("`step_size` belongs to the gradient methods, got method 'sqp'.")
        temperature = self.temperature
        options["objective"] = "max" if temperature is None else temperature
        return SQP(curvature=self.curvature, **options)

    def _step_options(self) -> dict[str, Any]:
        """Step size and rounds, as the method takes them."""
        options: dict[str, Any] = {}
        if self.step_size is not None:
            options["step_size"] = self.step_size
        if self.rounds is not None:
            stages, wanted = (1, "one count") if self.method in BASELINES else (2, "two counts")
            if len(self.rounds) != stages:
                given = ",".join(map(str, self.rounds))
                raise ValueError(
                    f"`rounds` must be {wanted} for method {self.method!r}, got {given}."
                )
            options["rounds"] = self.rounds[0] if stages == 1 else self.rounds
        return options

    def _own_options(self, baseline: type[Baseline]) -> dict[str, Any]:
        """Numbers that only this baseline knows."""
        given = dict(self.options or {})
        known = [f.name for f in fields(baseline) if f.name not in _SHARED_OPTIONS]
        check_keys(given, known, f"the options of method {self.method!r}")
        return given

    def to_toml(self) -> str:
        """The settings as a TOML file; what is unset is left out."""
        return "# Settings of an fcfl run.\n\n" + tomli_w.dumps(plain_table(self))

    @classmethod
    def from_toml(cls, path: Path) -> "Experiment":
        """Read settings written by `to_toml` or by hand."""
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"Cannot read the settings {str(path)!r}: {error}.") from None
        check_table_keys(cls, table, repr(str(path)))
        try:
            return cls(**read_table(cls, table))
        except (TypeError, ValueError) as error:
            raise ValueError(f"The settings {str(path)!r} do not fit: {error}") from None
