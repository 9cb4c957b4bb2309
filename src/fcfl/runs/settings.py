"""Settings of a run, as a frozen dataclass that can be stored as a TOML file.

Each group of settings has a class; `Experiment` inherits all of them. Each field is a key of the
file and an option of the command line, whose help is the field's docstring. See
``fcfl.runs.options``.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tomli_w

from fcfl import _checks
from fcfl._types import ClientId
from fcfl.data import BUILTIN, Choices
from fcfl.data.builtin import ORIGINAL_SPLIT
from fcfl.methods.registry import METHODS, check_method
from fcfl.models.loss import HALF, LOSSES, CrossEntropy, as_loss
from fcfl.models.model import Thresholds, check_threshold
from fcfl.privacy import check_privacy
from fcfl.rules import RATE_KINDS, Difference, Ratio, Rule, Scope
from fcfl.runs.options import (
    EVERYONE_ELSE,
    Written,
    check_budgets,
    check_fields,
    one_of,
    plain_table,
    read_budget,
    read_options,
    read_privacy,
    read_table,
    settings_of,
)
from fcfl.training.choose import OpenSettings, check_open_settings, open_settings
from fcfl.training.margins import MAX_ACCURACY_LOSS

DATA, BUDGETS, TRAINING = "Data", "Budgets", "Training"  # headings in --help
SYNTHETIC = "synthetic"  # in place of a table: the problem without rows (`runs.synthetic`)
MAX_CLIENTS = 1000

Column = Annotated[str, Written("COLUMN")]
Columns = Annotated[tuple[str, ...], Written("COLUMN,…")]


@dataclass(frozen=True)
class DataSettings:
    """The table, the roles of its columns, and the split of its rows."""

    GROUP: ClassVar = DATA

    table: Annotated[
        str,
        Written(
            help="CSV, Parquet or xlsx file, several files, a folder with one file per client, "
            f"or a built-in set: {', '.join([*BUILTIN, 'synthetic'])}."
        ),
    ]
    """The table."""
    _: KW_ONLY
    client: Column | None = None
    """Column with the client of each row. Default for several files: the files' names."""
    label: Column | None = None
    """Column to predict. It must have two values."""
    sensitive: Columns = ()
    """Columns whose groups are compared, separated by commas."""
    positive: Annotated[str | None, Written("VALUE")] = None
    """Label value that counts as 1. Default: a value that means yes, else the larger number, else
    the last text in alphabetical order."""
    drop: Columns = ()
    """Columns to leave out, separated by commas."""
    features: Columns = ()
    """Columns to use as features. Default: all columns without another role."""
    keep: Columns = ()
    """Columns to use even if they look like an identifier, a date or a copy of the label."""
    categorical: Columns = ()
    """Columns whose numbers are codes. Each code becomes a feature."""
    numeric: Columns = ()
    """Columns to treat as numbers."""
    missing: Annotated[tuple[str, ...] | None, Written("TEXT,…")] = None
    """Texts of empty cells, separated by commas. Default: ?, -, . and other usual marks."""
    drop_unlabelled: bool = False
    """Leave out rows without a label."""
    max_levels: Annotated[int | None, _checks.check_at_least_one] = None
    """Maximum number of levels to use per column; the most frequent are used. Default: 100."""
    max_clients: Annotated[int | None, _checks.check_at_least_one] = None
    """Maximum number of clients without confirmation. Default: 1,000."""
    resplit: bool = False
    """Split the rows of adult by --seed and --test-size instead of using the published split."""
    schema: Annotated[str | None, Written("FILE")] = None
    """File that declares labels, groups and columns. Required with --privacy, because private rows
    must not determine them."""
    seed: Annotated[int, _checks.check_count] = 0
    """Random seed of the split and of random initial parameters."""
    test_size: Annotated[float, Written("SHARE"), _checks.check_confidence] = 0.3
    """Share of each client's rows to hold out."""

    @property
    def choices(self) -> Choices:
        """Return the choices for single columns."""
        return Choices(self.features, self.keep, self.categorical, self.numeric)


@dataclass(frozen=True)
class ComparedRates:
    """The metric and its budgets, for training and audits.

    ``budget`` is one number for all clients, or a mapping from clients to numbers. The key ``"*"``
    of the mapping has the budget of all clients that are not named.
    """

    GROUP: ClassVar = BUDGETS

    _: KW_ONLY
    metric: Annotated[str, one_of(RATE_KINDS)] = "demographic_parity"
    """Group rates to compare."""
    budget: Annotated[
        float | Mapping[ClientId, float] | None, Written("BUDGET", read=read_budget), check_budgets
    ] = None
    """Largest allowed difference of group rates: 0.05 or 5%. By client: north=0.05,south=0.1. For
    all clients except one: 0.05,south=0.1."""
    ratio: Annotated[float | None, Written("RATIO"), _checks.check_share] = None
    """Smallest allowed ratio of group rates. 0.8 is the four-fifths rule."""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Return the scopes of the budgets."""
        return ("client",)

    def make_rules(
        self, attributes: Sequence[str], clients: Sequence[ClientId]
    ) -> tuple[Rule, ...]:
        """Return the rules of each attribute and scope: a difference, a ratio or both."""
        rules: list[Rule] = []
        metric: Any = self.metric
        budget = self.budget
        if isinstance(budget, Mapping):
            named = {client: b for client, b in budget.items() if client != EVERYONE_ELSE}
            everyone = dict.fromkeys(clients, budget.get(EVERYONE_ELSE, 0.0))
            budget = everyone | named if EVERYONE_ELSE in budget else named
        for attribute, scope in product(attributes, self.scopes):
            if self.ratio is None or budget is not None:
                rules.append(Difference(metric, attribute, budget, scope))
            if self.ratio is not None:
                rules.append(Ratio(metric, attribute, self.ratio, scope))
        return tuple(rules)


@dataclass(frozen=True)
class BudgetSettings(ComparedRates):
    """Scope and confidence of budgets, and limits on the cost of safety margins.

    The budget of each client is ``relative_budget`` times its disparity without budgets, if
    ``relative_budget`` is given.
    """

    GROUP: ClassVar = BUDGETS

    _: KW_ONLY
    relative_budget: Annotated[float | None, Written("SHARE"), _checks.check_positive] = None
    """Budget of each client as a share of its disparity without budgets."""
    scope: Literal["client", "global", "both"] = "client"
    """client: budgets apply to each client's rows. global: budgets apply to the rows of all clients
    together. both: both sets of budgets apply."""
    policy: Annotated[str | None, Written("FILE")] = None
    """TOML file with rules and budgets, instead of --metric, --budget, --ratio and --scope."""
    confidence: Annotated[float | None, Written("SHARE"), _checks.check_confidence] = None
    """Confidence that each budget holds for new people, as far as a client's rows allow. Training
    tightens the bounds by safety margins. 0: no margins. Default: 0.9."""
    max_accuracy_loss: Annotated[float, Written("X"), _checks.check_share] = MAX_ACCURACY_LOSS
    """Largest drop in training accuracy that safety margins may cause, beyond that of budgets."""
    max_rate_shift: Annotated[float | None, Written("X"), _checks.check_share] = None
    """Largest shift of the rate over all clients, compared with the model without budgets.
    Default: 0.05; no limit with --confidence 0."""
    pooling: Literal["auto", "none"] = "auto"
    """auto: with eight clients or more, estimate the disparity of a client with few rows from its
    own rows and those of the other clients. none: use only the client's own rows."""
    new_rows: Annotated[float | None, Written("N"), _checks.check_positive] = None
    """Make margins for samples of N rows from each client. Default: for its population."""
    min_group_rows: Annotated[int | None, _checks.check_count] = None
    """Minimum number of a client's rows for comparing a group. Default: 30; for a budget below
    0.05 more, but at most 100."""
    thresholds: Thresholds = "common"
    """common: one decision threshold for all people. group: thresholds by client and group, which
    satisfy the budgets with one score for all. Every decision then depends on the sensitive
    attribute, which some laws forbid."""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Return the scopes of the budgets."""
        return ("client", "global") if self.scope == "both" else (self.scope,)

    @property
    def is_constrained(self) -> bool:
        """Return whether any budget is given."""
        return any(b is not None for b in (self.budget, self.relative_budget, self.ratio))

    def check_budgets_fit(self) -> None:
        """Raise `ValueError` if budgets contradict each other or the scope."""
        if self.relative_budget is not None and (self.budget is not None or self.ratio is not None):
            other = "budget" if self.budget is not None else "ratio"
            raise ValueError(f"Give `{other}` or `relative_budget`, not both.")
        if self.policy is not None and (self.is_constrained or self.scope != "client"):
            raise ValueError("Give a `policy` or budgets and scope, not both.")
        needs_client = {
            "`relative_budget` needs": self.relative_budget is not None,
            "`thresholds` 'group' needs": self.thresholds == "group",
            "Budgets by client need": isinstance(self.budget, Mapping),
        }
        for what, is_given in needs_client.items():
            if is_given and self.scope != "client":
                raise ValueError(f"{what} scope 'client', got {self.scope!r}.")


_METHODS_HELP = " ".join(f"{one.name}: {one.summary}." for one in METHODS.values() if one.summary)


def _check_privacy(name: str, value: Any) -> None:
    if not isinstance(value, Mapping) or set(value) != {"epsilon", "delta"}:
        raise ValueError(f"`{name}` must be epsilon=E,delta=D, got {value!r}.")
    check_privacy(value["epsilon"], value["delta"])


@dataclass(frozen=True)
class TrainingSettings:
    """The method, its options, the loss and the objective.

    ``published`` reproduces the authors' public code where it differs from their paper. By
    default, ``l2`` and ``objective`` are chosen by leave-one-out losses for sqp. For other methods
    the defaults are 0 and the objective of the method. ``options`` has numeric settings of the
    chosen method only, such as ``{"q": 10}``; docs/baselines.md lists them.
    """

    GROUP: ClassVar = TRAINING

    _: KW_ONLY
    method: Annotated[str, one_of(METHODS, help=_METHODS_HELP), check_method] = "sqp"
    """Training method."""
    published: bool = False
    """Run two-stage as in the authors' code."""
    step_size: float | None = None
    """Largest gradient step."""
    rounds: Annotated[tuple[int, ...] | None, Written("N[,N]")] = None
    """Maximum number of rounds. sqp and two-stage take one number per stage: 800,1500."""
    options: Annotated[
        Mapping[str, int | float] | None,
        Written("NAME=X", read=read_options, flag="--option", repeated=True),
    ] = None
    """Setting of a single method, such as q=10 or local-epochs=5. May be repeated."""
    l2: Annotated[float | Literal["auto"] | None, Written("X|auto")] = None
    """Weight of |params|²/2 in every loss. auto (default for sqp): choose it by
    leave-one-out losses."""
    objective: Annotated[
        float | Literal["max", "mean", "auto"] | None, Written("max|mean|X|auto")
    ] = None
    """max: the largest client loss (as in the paper). mean: the mean loss. X: a smooth maximum,
    close to the mean if X is large. auto (default for sqp): choose it with --l2."""
    loss: Annotated[str, one_of(LOSSES)] = CrossEntropy.name
    """Loss of a row: cross-entropy, smoothed hinge (its scores are not probabilities) or
    squared error."""
    threshold: Annotated[float, Written("P")] = HALF
    """Smallest probability at which a row is selected. Group rates depend on it. Lower it for a
    rare label. Not available with the hinge loss."""
    curvature: Literal["auto", "exact", "lbfgs"] = "auto"
    """Second derivatives for sqp: exact, approximated (lbfgs), or auto by the model's size."""
    protects: Literal["all", "worst"] = "all"
    """Losses that the second stage must not increase: of all clients, or of the worst client."""
    start: Literal["zero", "uniform"] = "zero"
    """Initial parameters: zero or random (uniform)."""
    starts: Annotated[int | None, _checks.check_at_least_one] = None
    """Number of initial parameters to try with sqp; the best model is kept. Default: 1, or 2 if
    --l2 and --objective are given."""
    privacy: Annotated[
        Mapping[str, float] | None,
        Written("epsilon=E,delta=D", read=read_privacy),
        _check_privacy,
    ] = None
    """Differential privacy of each row, as epsilon=2,delta=1e-6. Clients add noise to all reports,
    and the method is 'private'."""

    def check_not_private(self, what: str) -> None:
        """Raise `ValueError` if ``privacy`` is given for a command that trains several times."""
        if self.privacy is not None:
            raise ValueError(
                f"`privacy` must be left out of a {what}: each run spends its own epsilon, and no "
                "result reports their sum. Train once: fcfl train --privacy"
            )

    def check_method_fits(self) -> None:
        """Raise `ValueError` if a setting does not apply to the method."""
        check_threshold(self.threshold, as_loss("loss", self.loss))
        registered = METHODS[self.method]
        if registered.traits.is_private != (self.privacy is not None):
            raise ValueError(
                f"`privacy` and method 'private' belong together, got method {self.method!r}"
                f"{' without' if self.privacy is None else ' with'} `privacy`. Example: "
                "--privacy epsilon=2,delta=1e-6"
            )
        check_open_settings(registered.method, self.l2, self.objective)
        for name in ("curvature", "protects", "step_size", "published"):
            default = settings_of(TrainingSettings)[name].default
            if getattr(self, name) != default and not hasattr(registered.method, name):
                owners = [one.name for one in METHODS.values() if hasattr(one.method, name)]
                raise ValueError(
                    f"`{name}` belongs to method {' or '.join(owners)}, got {self.method!r}."
                )
        if self.published and self.protects != "all":
            raise ValueError("`protects` must be 'all' with `published`, as in the authors' code.")
        if self.options and not registered.takes_options:
            raise ValueError(
                f"`options` must be left out with method {self.method!r}, whose settings are "
                "options of the command: see fcfl train --help"
            )
        where = f"the options of method {self.method!r}"
        _checks.check_keys(self.options or {}, registered.own_options, where)

    @property
    def open_settings(self) -> OpenSettings:
        """Return the L2 weight and the objective of a linear model, as given or to be chosen."""
        return open_settings(self.method, None, self.l2, self.objective)


@dataclass(frozen=True)
class Experiment(TrainingSettings, BudgetSettings, DataSettings):
    """Settings of a run: data, budgets and training."""

    def __post_init__(self) -> None:
        if self.objective == math.inf:  # a smooth maximum becomes the mean in the limit
            object.__setattr__(self, "objective", "mean")
        if self.privacy is not None and self.method == "sqp":  # the default; --privacy replaces it
            object.__setattr__(self, "method", "private")
        check_fields(self)
        self.check_budgets_fit()
        self.check_method_fits()
        if self.privacy is not None:
            check_private(self)
        self.make_method()

    def make_method(self) -> Any:
        """Return the configured method."""
        registered = METHODS[self.method]
        steps: dict[str, object] = {}
        if self.step_size is not None:
            steps["step_size"] = self.step_size
        if self.rounds is not None:
            steps["rounds"] = registered.stage_rounds(self.rounds)
        method: Any = registered.method
        if self.published:
            return method.published(**{"step_size": 0.03, **steps})
        shared: dict[str, object] = {"curvature": self.curvature, "protects": self.protects}
        objective = self.open_settings.objective
        shared["objective"] = "max" if objective == "auto" else objective
        if self.privacy is not None:
            shared |= self.privacy
            if self.min_group_rows is not None:
                shared["least_rows"] = float(self.min_group_rows)
        shared = {name: value for name, value in shared.items() if name in registered.options}
        return method(**shared, **steps, **(self.options or {}))

    def to_toml(self) -> str:
        """Return the settings as the text of a TOML file, without unset fields."""
        return "# Settings of an fcfl run.\n\n" + tomli_w.dumps(plain_table(self))

    @classmethod
    def from_toml(cls, path: Path) -> "Experiment":
        """Read settings written by `to_toml` or by hand."""
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"Cannot read the settings {str(path)!r}: {error}.") from None
        try:
            return cls(**read_table(cls, table, repr(str(path))))
        except (TypeError, ValueError) as error:
            raise ValueError(f"The settings {str(path)!r} are invalid: {error}") from None


_DECLARED = "the schema declares columns, levels and labels"
_BY_NOISE = "margins depend on the size of the noise"
_NOT_PRIVATE = {
    **dict.fromkeys(("positive", "drop", "features", "keep", "categorical", "numeric"), _DECLARED),
    **dict.fromkeys(("missing", "max_levels"), _DECLARED),
    "max_clients": "clients are not counted before training",
    "resplit": "rows are split by their content",
    **dict.fromkeys(("confidence", "max_accuracy_loss", "max_rate_shift"), _BY_NOISE),
    **dict.fromkeys(("pooling", "new_rows"), _BY_NOISE),
    **dict.fromkeys(("start", "starts"), "there is one fit, from zero"),
}  # settings that do not apply to a private run, and the reason


def check_private(settings: object) -> None:
    """Raise `ValueError` if a setting does not apply to a private run."""
    has_split = getattr(settings, "table", None) in ORIGINAL_SPLIT
    split = {"test_size": "this data set has a published split"} if has_split else {}
    check_left_out(settings, _NOT_PRIVATE | split, "with `privacy`")


def check_left_out(settings: object, reasons: Mapping[str, str], what: str) -> None:
    """Raise `ValueError` if a setting that would be ignored is not the default.

    ``reasons`` maps each such setting to the reason. ``settings`` needs only some fields of
    `Experiment`.
    """
    for name, why in reasons.items():
        default = settings_of(Experiment)[name].default
        value = getattr(settings, name, default)
        if value != default:
            raise ValueError(f"`{name}` must be left out {what}, got {value!r}: {why}.")
