"""Settings of a run that say how the model is trained."""

# ruff: noqa: RUF009 - `option` makes a field, as `dataclasses.field` does

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fcfl._checks import check_non_negative, check_starts, is_number
from fcfl.accountant import check_privacy
from fcfl.models.loss import HINGE_WIDTH, LOSSES, CrossEntropy
from fcfl.runs.option_fields import (
    FLAG,
    Kind,
    counts,
    number,
    number_or,
    one_of,
    option,
    whole_number,
    words,
)
from fcfl.server.registry import METHODS
from fcfl.training.open_settings import EXCESS_L2, check_open_settings

TRAINING = "Training"  # heading in --help
_option = partial(option, group=TRAINING)

Objective = float | Literal["max", "mean", "auto"]


def _methods_help() -> str:
    return "\n\n".join(f"[bold]{name}[/]: {one.help}." for name, one in METHODS.items())


def _parse_options(name: str, text: str) -> dict[str, float]:
    """``q=10,local-epochs=5`` as numbers, whole ones as such."""
    options: dict[str, float] = {}
    for pair in words(name, text):
        key, equals, given = pair.partition("=")
        try:
            value = float(given)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"`option` must be NAME=NUMBER, got {pair!r}. Example: --option q=10")
        whole = value.is_integer() and "." not in given
        options[key.strip().replace("-", "_")] = int(value) if whole else value
    return options


def _parse_privacy(name: str, text: str) -> dict[str, float]:
    """``epsilon=2,delta=1e-6`` as numbers."""
    pairs = dict(pair.partition("=")[::2] for pair in words(name, text))
    try:
        return {key.strip(): float(value) for key, value in pairs.items()}
    except ValueError:
        raise ValueError(
            f"`{name}` must be epsilon=E,delta=D with numbers, got {text!r}."
        ) from None


def _check_privacy(name: str, value: Any) -> None:
    if not isinstance(value, Mapping) or set(value) != {"epsilon", "delta"}:
        raise ValueError(f"`{name}` must be epsilon=E,delta=D, got {value!r}.")
    check_privacy(value["epsilon"], value["delta"])


def _check_l2(name: str, value: Any) -> None:
    if isinstance(value, str) and value != "auto":
        raise ValueError(f"`{name}` must be a number or 'auto', got {value!r}.")
    if value != "auto":
        check_non_negative(name, value)


def _check_objective(name: str, value: Any) -> None:
    allowed = ("max", "mean", "auto")
    if value not in allowed and not (is_number(value) and value > 0):
        raise ValueError(
            f"`{name}` must be 'max', 'mean', 'auto' or a positive number, got {value!r}."
        )


@dataclass(frozen=True)
class TrainingSettings:
    """The method, its options and what it minimises.

    ``published`` takes the behaviour of the authors' public code where it differs from their
    paper. ``l2`` and ``objective`` are by default chosen by cross-validation for sqp, 0 and the
    method's own for the others. ``excess_loss`` compares what each client loses beyond its own
    best model, for clients whose labels are not equally hard to predict. ``options`` are numbers
    that only the chosen method knows, such as ``{"q": 10}``; docs/baselines.md has them.
    """

    method: str = _option(_methods_help(), one_of(*METHODS), default="sqp")
    published: bool = _option("Run two-stage as the authors' code does.", FLAG, default=False)
    step_size: float | None = _option("Longest gradient step.", Kind("X", number), default=None)
    rounds: tuple[int, ...] | None = _option(
        "Maximum number of rounds; for sqp and two-stage two counts: 800,1500.",
        Kind("N[,N]", counts),
        default=None,
        over_sites=True,
    )
    options: Mapping[str, float] | None = _option(
        "Setting that only one method has, such as q=10 or local-epochs=5; may be repeated.",
        Kind("NAME=X", _parse_options),
        default=None,
        flag="--option",
        repeated=True,
    )
    l2: float | Literal["auto"] | None = _option(
        "Weight of |params|²/2 in every loss; auto (default for sqp): cross-validated.",
        Kind("X|auto", number_or("auto"), _check_l2),
        default=None,
        over_sites=True,
    )
    objective: Objective | None = _option(
        "max: the largest loss (the paper); mean: the mean loss; X: a smooth maximum, near the "
        "mean when large; auto (default for sqp): cross-validated.",
        Kind("max|mean|X|auto", number_or("max", "mean", "auto"), _check_objective),
        default=None,
        over_sites=True,
    )
    loss: str = _option(
        "Loss of a row: cross-entropy; hinge, smoothed over a width of "
        f"{HINGE_WIDTH:g} (its scores are not probabilities); squared error.",
        one_of(*LOSSES),
        default=CrossEntropy.name,
        over_sites=True,
    )
    curvature: Literal["auto", "exact", "lbfgs"] = _option(
        "For sqp: exact, lbfgs, or auto by size.",
        one_of("auto", "exact", "lbfgs"),
        default="auto",
        over_sites=True,
    )
    masked: bool = _option(
        "Sum the clients' curvatures, and counts and rates that only rules of scope global "
        "compare, under masks: the server sees no single client's. Needs the masks extra, and "
        "three clients or more.",
        FLAG,
        default=False,
        over_sites=True,
    )
    protects: Literal["all", "worst"] = _option(
        "Whose loss the second stage may not raise: all clients' or the worst one's only.",
        one_of("all", "worst"),
        default="all",
        over_sites=True,
    )
    excess_loss: bool = _option(
        "Compare what clients lose beyond their own best model, not their losses; l2 0.001 "
        "and objective max unless given.",
        FLAG,
        default=False,
    )
    start: Literal["zero", "uniform"] = _option(
        "First parameters: zero, or uniform (random).", one_of("zero", "uniform"), default="zero"
    )
    starts: int | None = _option(
        "How many starts to compare, for sqp: the best is kept. By default 4.",
        Kind("N", whole_number, check_starts),
        default=None,
        over_sites=True,
    )

    privacy: Mapping[str, float] | None = _option(
        "Noise on all that clients say, so that each loses at most this much of a row's privacy: "
        "epsilon=2,delta=1e-6. The method is then 'private'.",
        Kind("epsilon=E,delta=D", _parse_privacy, _check_privacy),
        default=None,
        over_sites=True,
    )

    def check_not_private(self, what: str) -> None:
        """Refuse what trains several times: each run's result would state its own loss only."""
        if self.privacy is not None:
            raise ValueError(
                f"`privacy` must be left out of a {what}: each of its runs costs, and together "
                "they cost more than any of their results says. Train once: fcfl train --privacy"
            )

    def check_method_fits(self) -> None:
        """Refuse settings that the method does not have."""
        registered = METHODS[self.method]
        if registered.traits.is_private != (self.privacy is not None):
            raise ValueError(
                f"`privacy` and method 'private' belong together, got method {self.method!r}"
                f"{' without' if self.privacy is None else ' with'} `privacy`. Example: "
                "--privacy epsilon=2,delta=1e-6"
            )
        if self.privacy is not None and self.masked:
            raise ValueError(
                "`masked` must be left out with `privacy`: each client's sums have noise already."
            )
        check_open_settings(
            registered.method, self.l2, self.objective, excess_loss=self.excess_loss
        )
        if self.curvature != "auto" and "curvature" not in registered.options:
            raise ValueError(f"`curvature` belongs to method 'sqp', got {self.method!r}.")
        if self.masked and "curvature" not in registered.options:
            raise ValueError(
                f"`masked` belongs to method 'sqp', got {self.method!r}, without curvature."
            )
        if self.protects != "all" and "protects" not in registered.options:
            raise ValueError(f"`protects` belongs to methods with two stages, got {self.method!r}.")

    @property
    def l2_or_default(self) -> float | Literal["auto"]:
        """The L2 weight, or that it is to be chosen."""
        if self.l2 is not None:
            return self.l2
        if self.excess_loss:
            return EXCESS_L2
        return "auto" if METHODS[self.method].traits.is_cross_validated else 0.0

    @property
    def objective_or_default(self) -> Objective | None:
        """What is minimised over clients: by default chosen for sqp, the method's own else."""
        if self.objective is not None:
            return self.objective
        if self.excess_loss:
            return "max"
        traits = METHODS[self.method].traits
        if traits.is_cross_validated:
            return "auto"
        return "max" if "max" in traits.objectives else None

    @property
    def wants_selection(self) -> bool:
        """Whether anything is left to cross-validation."""
        return "auto" in (self.l2_or_default, self.objective_or_default)
