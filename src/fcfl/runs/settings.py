"""What a run is made of, as one frozen value that is also a TOML file."""

import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import tomli_w

from fcfl._checks import check_keys
from fcfl.methods.registry import METHODS, Registered
from fcfl.methods.two_stage import TwoStage
from fcfl.runs.budget_settings import BUDGETS, BudgetSettings
from fcfl.runs.budgets import EVERYONE_ELSE, for_every_client, parse_budget
from fcfl.runs.data_settings import DATA, DataSettings
from fcfl.runs.options import check_fields, check_table_keys, plain_table, read_table
from fcfl.runs.privacy_settings import check_left_out
from fcfl.runs.training_settings import TRAINING, TrainingSettings

__all__ = [
    "BUDGETS",
    "DATA",
    "EVERYONE_ELSE",
    "METHODS",
    "TRAINING",
    "Experiment",
    "for_every_client",
    "parse_budget",
]


@dataclass(frozen=True)
class Experiment(TrainingSettings, BudgetSettings, DataSettings):
    """Settings of one run: its data, its budgets, its training.

    Every field has the name of its command-line option and of its key in a TOML file.
    """

    def __post_init__(self) -> None:
        if self.objective == math.inf:  # a smooth maximum becomes the mean in the limit
            object.__setattr__(self, "objective", "mean")
        if self.privacy is not None and self.method == "sqp":  # by default: --privacy chooses it
            object.__setattr__(self, "method", "private")
        check_fields(self)
        self.check_budgets_fit()
        self.check_method_fits()
        if self.privacy is not None:
            check_left_out(self)
        self.make_method()

    def settled(self, l2: float, objective: float | Literal["max", "mean"]) -> "Experiment":
        """The same with what was left open chosen."""
        return replace(self, l2=l2, objective=objective)

    @property
    def _registered(self) -> Registered:
        return METHODS[self.method]

    def make_method(self) -> Any:
        """The method with its options."""
        chosen, options = self._registered.method, self._shared_options()
        if self.published and chosen is not TwoStage:
            raise ValueError(f"`published` belongs to method 'two-stage', got {self.method!r}.")
        if self.options and not self._registered.takes_options:
            raise ValueError(
                f"`options` must be left out with method {self.method!r}, which has settings of "
                "its own for them: see fcfl train --help"
            )
        if self.published:
            if self.protects != "all":
                raise ValueError("`protects` must be 'all' with `published`, as in that code.")
            return chosen.published(**{"step_size": 0.03, **self._step_options()})
        given = dict(self.options or {})
        check_keys(given, self._registered.own_options, f"the options of method {self.method!r}")
        return chosen(**options | given)

    def _shared_options(self) -> dict[str, object]:
        """The settings of a run that are also options of the method."""
        known, options = self._registered.options, self._step_options()
        if self.privacy is not None:
            options |= self.privacy
            if self.min_group_rows is not None:
                options["least_rows"] = float(self.min_group_rows)
        if "curvature" in known:
            options["curvature"] = self.curvature
        if "protects" in known:
            options["protects"] = self.protects
        if "objective" in known:
            objective = self.objective_or_default
            options["objective"] = "max" if objective == "auto" else objective
        return options

    def _step_options(self) -> dict[str, object]:
        """Step size and rounds, as the method takes them."""
        options: dict[str, object] = {}
        if self.step_size is not None:
            if "step_size" not in self._registered.options:
                raise ValueError(
                    f"`step_size` belongs to the gradient methods, got method {self.method!r}."
                )
            options["step_size"] = self.step_size
        if self.rounds is not None:
            options["rounds"] = self._registered.stage_rounds(self.rounds)
        return options

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
