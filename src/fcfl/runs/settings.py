"""What a run is made of, as one frozen value that is also a TOML file."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from fcfl._checks import (
    check_budget,
    check_choice,
    check_fraction,
    check_non_negative,
    check_positive,
    did_you_mean,
)
from fcfl._types import ClientId
from fcfl.rules import RATE_KINDS, Difference, Ratio, Rule, Scope
from fcfl.server.method import Method
from fcfl.server.registry import METHODS, Registered
from fcfl.server.two_stage.two_stage import TwoStage

EXCESS_L2 = 1e-3  # cross-validation compares losses, not what is lost beyond one's own best
EVERYONE_ELSE = "*"  # key of a budget mapping that stands for all clients not named


@dataclass(frozen=True)
class Experiment:
    """Settings of one run; every field has the name of its command-line option.

    ``table`` is a path or the name of a built-in set. ``budget`` is a number for every client or
    one per client, the key ``"*"`` standing for all others. ``relative_budget`` w gives every
    client w times the disparity it has without budgets. ``ratio`` asks for at least that ratio of
    group rates (0.8 is the four-fifths rule). ``published`` takes the behaviour of the authors'
    public code where it differs from their paper. ``l2`` and ``objective`` are by default chosen
    by cross-validation for sqp, 0 and the method's own for the others. ``policy`` is a file that
    says all about budgets; ``confidence`` trains against tighter ones, so that held-out
    disparities keep them that often. ``excess_loss`` compares what each client loses beyond its
    own best model, for clients whose labels are not equally hard to predict. ``options`` are
    numbers that only the chosen baseline knows, such as ``{"q": 10}``; docs/baselines.md has them.
    """

    table: str
    client: str | None = None
    label: str | None = None
    sensitive: tuple[str, ...] = ()
    positive: str | None = None
    drop: tuple[str, ...] = ()
    metric: str = "demographic_parity"
    budget: float | Mapping[ClientId, float] | None = None
    relative_budget: float | None = None
    ratio: float | None = None
    scope: Literal["client", "global", "both"] = "client"
    policy: str | None = None
    confidence: float | None = None
    method: str = "sqp"
    published: bool = False
    step_size: float | None = None
    rounds: tuple[int, ...] | None = None
    options: Mapping[str, float] | None = None
    l2: float | Literal["auto"] | None = None
    objective: float | Literal["max", "mean", "auto"] | None = None
    curvature: Literal["auto", "exact", "lbfgs"] = "auto"
    excess_loss: bool = False
    start: Literal["zero", "uniform"] = "zero"
    seed: int = 0
    test_size: float = 0.3

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, RATE_KINDS)
        check_choice("method", self.method, METHODS)
        check_choice("scope", self.scope, ("client", "global", "both"))
        check_choice("start", self.start, ("zero", "uniform"))
        if self.l2 not in (None, "auto"):
            if isinstance(self.l2, str):
                raise ValueError(f"`l2` must be a number or 'auto', got {self.l2!r}.")
            check_non_negative("l2", self.l2)
        self._check_method_settings()
        if self.excess_loss:
            self._check_excess_loss()
        if not 0 <= self.test_size < 1:
            raise ValueError(f"`test_size` must be at least 0 and below 1, got {self.test_size!r}.")
        if self.seed < 0:
            raise ValueError(f"`seed` must be zero or a positive number, got {self.seed!r}.")
        if self.relative_budget is not None:
            check_positive("relative_budget", self.relative_budget)
            if self.budget is not None or self.ratio is not None:
                other = "budget" if self.budget is not None else "ratio"
                raise ValueError(f"Give `{other}` or `relative_budget`, not both.")
            if self.scope != "client":
                raise ValueError(f"`relative_budget` needs scope 'client', got {self.scope!r}.")
        if self.ratio is not None and not 0 <= self.ratio <= 1:
            raise ValueError(
                f"`ratio` must be a number from 0 to 1, got {self.ratio!r}. "
                "The four-fifths rule is 0.8."
            )
        if self.policy is not None and (self.is_constrained or self.scope != "client"):
            raise ValueError("Give a `policy` or budgets and scope, not both.")
        if self.confidence is not None:
            check_fraction("confidence", self.confidence)
            if self.ratio is not None or self.scope != "client":
                raise ValueError("`confidence` needs difference budgets of scope 'client'.")
        if isinstance(self.budget, Mapping):
            if self.scope != "client":
                raise ValueError(f"Budgets by client need scope 'client', got {self.scope!r}.")
            for client, value in self.budget.items():
                check_budget(f"budget[{client!r}]", value)
        elif self.budget is not None:
            check_budget("budget", self.budget)
        self.make_method()

    @property
    def is_constrained(self) -> bool:
        """Whether any budget is given."""
        return any(b is not None for b in (self.budget, self.relative_budget, self.ratio))

    @property
    def _registered(self) -> Registered:
        return METHODS[self.method]

    def _check_method_settings(self) -> None:
        """Refuse what the chosen method does not take."""
        traits = self._registered.traits
        if self.l2 == "auto" and not traits.is_cross_validated:
            raise ValueError(f"`l2` 'auto' belongs to method 'sqp', got {self.method!r}.")
        if self.objective is not None and not self._takes_objective(self.objective):
            raise ValueError(
                f"`objective` belongs to method 'sqp', got {self.objective!r} "
                f"for {self.method!r}."
            )
        if self.curvature != "auto" and "curvature" not in self._registered.options:
            raise ValueError(f"`curvature` belongs to method 'sqp', got {self.method!r}.")

    def _takes_objective(self, objective: float | str) -> bool:
        """Whether the method may be asked for it; the method itself checks a value further."""
        traits = self._registered.traits
        if objective == "auto":
            return traits.is_cross_validated
        return objective in traits.objectives or "temperature" in traits.objectives

    def _check_excess_loss(self) -> None:
        if not self._registered.traits.takes_excess_loss:
            raise ValueError(
                f"`excess_loss` belongs to methods 'sqp' and 'two-stage', got {self.method!r}."
            )
        if "auto" in (self.l2, self.objective):
            raise ValueError(
                "`excess_loss` needs `l2` as a number and `objective` as 'max' or a number; "
                "cross-validation compares losses."
            )

    @property
    def l2_or_default(self) -> float | Literal["auto"]:
        """The L2 weight, or that it is to be chosen."""
        if self.l2 is not None:
            return self.l2
        if self.excess_loss:
            return EXCESS_L2
        return "auto" if self._registered.traits.is_cross_validated else 0.0

    @property
    def l2_weight(self) -> float:
        """The L2 weight once it is settled."""
        return 0.0 if self.l2_or_default == "auto" else float(self.l2_or_default)

    @property
    def objective_or_default(self) -> float | Literal["max", "mean", "auto"] | None:
        """What is minimised over clients: by default chosen for sqp, the method's own else."""
        if self.objective is not None:
            return self.objective
        if self.excess_loss:
            return "max"
        traits = self._registered.traits
        if traits.is_cross_validated:
            return "auto"
        return "max" if "max" in traits.objectives else None

    @property
    def wants_selection(self) -> bool:
        """Whether anything is left to cross-validation."""
        return "auto" in (self.l2_or_default, self.objective_or_default)

    def settled(self, l2: float, objective: float | Literal["max", "mean"]) -> "Experiment":
        """The same with what was left open chosen."""
        return replace(self, l2=l2, objective=objective)

    def make_method(self) -> Method[Any]:
        """The method with its options."""
        chosen, options = self._registered.method, self._shared_options()
        if self.published and chosen is not TwoStage:
            raise ValueError(f"`published` belongs to method 'two-stage', got {self.method!r}.")
        if self.options and self._registered.traits.enforces_budgets:
            raise ValueError(f"`options` belong to the baselines, got method {self.method!r}.")
        if self.published:
            return TwoStage.published(**{"step_size": 0.03, **options})
        method: Method[Any] = chosen(**options | self._own_options())
        return method

    def _shared_options(self) -> dict[str, Any]:
        """The settings of a run that are also options of the method."""
        known, options = self._registered.options, self._step_options()
        if "seed" in known:
            options["seed"] = self.seed
        if "curvature" in known:
            options["curvature"] = self.curvature
        if "objective" in known:
            objective = self.objective_or_default
            options["objective"] = "max" if objective == "auto" else objective
        return options

    def _step_options(self) -> dict[str, Any]:
        """Step size and rounds, as the method takes them."""
        options: dict[str, Any] = {}
        if self.step_size is not None:
            if "step_size" not in self._registered.options:
                raise ValueError(
                    f"`step_size` belongs to the gradient methods, got method {self.method!r}."
                )
            options["step_size"] = self.step_size
        if self.rounds is not None:
            stages = self._registered.traits.n_stages
            wanted = "one count" if stages == 1 else "two counts"
            if len(self.rounds) != stages:
                given = ",".join(map(str, self.rounds))
                raise ValueError(
                    f"`rounds` must be {wanted} for method {self.method!r}, got {given}."
                )
            options["rounds"] = self.rounds[0] if stages == 1 else self.rounds
        return options

    def _own_options(self) -> dict[str, Any]:
        """Numbers that only this method knows."""
        given, known = dict(self.options or {}), self._registered.own_options
        for name in given:
            if name not in known:
                raise ValueError(
                    f"`options` must be of method {self.method!r}, got {name!r}. "
                    f"{did_you_mean(name, known)}"
                )
        return given

    def make_rules(
        self,
        attributes: Sequence[str],
        clients: Sequence[ClientId],
        relative_budgets: Sequence[Mapping[ClientId, float]] | None = None,
    ) -> tuple[Rule, ...]:
        """One rule per attribute and scope, and one more where a ratio is asked for.

        ``relative_budgets`` has one mapping per attribute, measured beforehand.
        """
        rules: list[Rule] = []
        scopes: tuple[Scope, ...] = ("client", "global") if self.scope == "both" else (self.scope,)
        metric: Any = self.metric
        for position, attribute in enumerate(attributes):
            budget = self.budget
            if isinstance(budget, Mapping):
                budget = for_every_client(budget, clients)
            if relative_budgets is not None:
                budget = relative_budgets[position]
            for scope in scopes:
                if self.ratio is None or budget is not None:
                    rules.append(Difference(metric, attribute, budget, scope))
                if self.ratio is not None:
                    rules.append(Ratio(metric, attribute, self.ratio, scope))
        return tuple(rules)

    def to_toml(self) -> str:
        """The settings as a TOML file; what is unset is left out."""
        lines = ["# Settings of an fcfl run.", ""]
        for key, value in asdict(self).items():
            if value is not None:
                lines.append(f"{key.replace('_', '-')} = {_toml(value)}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: Path) -> "Experiment":
        """Read settings written by `to_toml` or by hand."""
        with open(path, "rb") as file:
            try:
                table = tomllib.load(file)
            except tomllib.TOMLDecodeError as error:
                raise ValueError(f"Cannot read the settings {str(path)!r}: {error}.") from None
        known = {field.name.replace("_", "-"): field.name for field in fields(cls)}
        given: dict[str, Any] = {}
        for key, value in table.items():
            name = key.replace("_", "-")
            if name not in known:
                raise ValueError(
                    f"`{key}` in {str(path)!r} is no setting of a run. {did_you_mean(name, known)}"
                )
            given[known[name]] = tuple(value) if isinstance(value, list) else value
        try:
            return cls(**given)
        except TypeError as error:
            raise ValueError(f"The settings {str(path)!r} do not fit: {error}.") from None


def for_every_client(
    budget: Mapping[ClientId, float], clients: Sequence[ClientId]
) -> dict[ClientId, float]:
    """Write out the budget of all others."""
    named = {client: value for client, value in budget.items() if client != EVERYONE_ELSE}
    if EVERYONE_ELSE not in budget:
        return named
    return {client: budget[EVERYONE_ELSE] for client in clients if client not in named} | named


def parse_budget(text: str) -> float | dict[ClientId, float]:
    """``0.05``; ``north=0.05,south=0.1``; ``0.05,south=0.1``: all at .05 but one."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError("`budget` is empty. Example: --budget 0.05")
    budgets: dict[ClientId, float] = {}
    for part in parts:
        client, equals, number = part.rpartition("=")
        key = client.strip() if equals else EVERYONE_ELSE
        try:
            value = float(number)
        except ValueError:
            raise _no_budget(part) from None
        if not key:
            raise _no_budget(part)
        if key in budgets:
            whom = "without a client" if key == EVERYONE_ELSE else f"for client {key!r}"
            raise ValueError(f"`budget` must not have two numbers {whom}, got {text!r}.")
        budgets[key] = check_budget("budget" if key == EVERYONE_ELSE else f"budget[{key!r}]", value)
    return budgets[EVERYONE_ELSE] if list(budgets) == [EVERYONE_ELSE] else budgets


def parse_options(texts: Sequence[str]) -> dict[str, float] | None:
    """``["q=10", "local-epochs=5"]`` as numbers, whole ones as such; nothing given: none."""
    options: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"`option` must be NAME=NUMBER, got {text!r}. Example: --option q=10")
        whole = value.is_integer() and "." not in number
        options[name.strip().replace("-", "_")] = int(value) if whole else value
    return options or None


def _no_budget(part: str) -> ValueError:
    return ValueError(
        f"`budget` must be a number or client=number, got {part!r}. "
        "Example: --budget 0.05 or --budget north=0.05,south=0.1"
    )


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(str(k))} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):  # TOML's escapes are JSON's, but it also wants DEL escaped
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
