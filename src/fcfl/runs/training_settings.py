"""Settings of a run that say how the model is trained."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal

from fcfl._checks import check_non_negative, check_starts, is_number
from fcfl.accountant import check_privacy
from fcfl.methods.registry import METHODS, check_method
from fcfl.models.loss import HALF, LOSSES, CrossEntropy, as_loss
from fcfl.models.model import check_threshold
from fcfl.runs.options import Written, one_of, words
from fcfl.training.open_settings import EXCESS_L2, check_open_settings

TRAINING = "Training"  # heading in --help

Objective = float | Literal["max", "mean", "auto"]


def _methods_help() -> str:
    return " ".join(f"{name}: {one.help}." for name, one in METHODS.items())


def _parse_rounds(name: str, text: str) -> tuple[int, ...]:
    """``800,1500`` as whole numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"`{name}` must be counts such as 800,1500, got {text!r}.") from None


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
            raise ValueError(f"`{name}` must be NAME=NUMBER, got {pair!r}. Example: --option q=10")
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

    GROUP: ClassVar = TRAINING

    _: KW_ONLY
    method: Annotated[str, one_of(METHODS, help=_methods_help()), check_method] = "sqp"
    """The method."""
    published: bool = False
    """Run two-stage as the authors' code does."""
    step_size: float | None = None
    """Longest gradient step."""
    rounds: Annotated[tuple[int, ...] | None, Written("N[,N]", read=_parse_rounds)] = None
    """Maximum number of rounds; for sqp and two-stage two counts: 800,1500."""
    options: Annotated[
        Mapping[str, float] | None,
        Written("NAME=X", read=_parse_options, flag="--option", repeated=True),
    ] = None
    """Setting that only one method has, such as q=10 or local-epochs=5; may be repeated."""
    l2: Annotated[float | Literal["auto"] | None, Written("X|auto"), _check_l2] = None
    """Weight of |params|²/2 in every loss; auto (default for sqp): chosen by
    leave-one-out losses."""
    objective: Annotated[Objective | None, Written("max|mean|X|auto"), _check_objective] = None
    """max: the largest loss (the paper); mean: the mean loss; X: a smooth maximum, near the
    mean when large; auto (default for sqp): chosen with --l2."""
    loss: Annotated[str, one_of(LOSSES)] = CrossEntropy.name
    """Loss of a row: cross-entropy; hinge, smoothed (its scores are not probabilities);
    squared error."""
    threshold: Annotated[float, Written("P")] = HALF
    """Probability from which on a row is selected: group rates are taken there. Lower it for a
    rare label. Not for the hinge loss."""
    curvature: Literal["auto", "exact", "lbfgs"] = "auto"
    """For sqp: exact, lbfgs, or auto by size."""
    masked: bool = False
    """Sum the clients' curvatures, and counts and rates that only rules of scope global
    compare, under masks: the server sees no single client's. Needs the masks extra, and
    three clients or more."""
    protects: Literal["all", "worst"] = "all"
    """Whose loss the second stage may not raise: all clients' or the worst one's only."""
    excess_loss: bool = False
    """Compare what clients lose beyond their own best model, not their losses; l2 0.001
    and objective max unless given."""
    start: Literal["zero", "uniform"] = "zero"
    """First parameters; uniform is random."""
    starts: Annotated[int | None, check_starts] = None
    """How many starts to compare, for sqp: the best is kept. Default: 1; 2 if --l2 and
    --objective are given."""
    privacy: Annotated[
        Mapping[str, float] | None,
        Written("epsilon=E,delta=D", read=_parse_privacy),
        _check_privacy,
    ] = None
    """Noise on all that clients report, so that each loses at most this much of a row's
    privacy: epsilon=2,delta=1e-6. The method is then 'private'."""

    def check_not_private(self, what: str) -> None:
        """Refuse what trains several times: each run's result would state its own loss only."""
        if self.privacy is not None:
            raise ValueError(
                f"`privacy` must be left out of a {what}: each of its runs costs, and together "
                "they cost more than any of their results says. Train once: fcfl train --privacy"
            )

    def check_method_fits(self) -> None:
        """Refuse settings that the method does not have."""
        check_threshold(self.threshold, as_loss("loss", self.loss))
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
        """Whether anything is left to be chosen."""
        return "auto" in (self.l2_or_default, self.objective_or_default)
