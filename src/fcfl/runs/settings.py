"""Settings of a run, as one frozen value that is also a TOML file.

A class for each group of settings, and `Experiment`, which has them all. A field is an option of
the command line with its docstring as help, and a key of the file: see ``fcfl.runs.options``.
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
    """The table, the roles of its columns, and how its rows are split."""

    GROUP: ClassVar = DATA

    table: Annotated[
        str,
        Written(
            help="CSV, Parquet or xlsx file, several of them, a folder with one for each client, "
            f"or a built-in set: {', '.join([*BUILTIN, 'synthetic'])}."
        ),
    ]
    """The table."""
    _: KW_ONLY
    client: Column | None = None
    """Column that names the client of a row. Default for several files: their names."""
    label: Column | None = None
    """Column to predict; it has two values."""
    sensitive: Columns = ()
    """Columns whose groups are compared, separated by commas."""
    positive: Annotated[str | None, Written("VALUE")] = None
    """Label value that counts as 1. Default: that which means yes, larger number or last text."""
    drop: Columns = ()
    """Columns to leave out, separated by commas."""
    features: Columns = ()
    """The only columns to use as features. Default: all without another role."""
    keep: Columns = ()
    """Columns to use although they look like an identifier, a date or the label itself."""
    categorical: Columns = ()
    """Columns whose numbers are codes: one feature for each value."""
    numeric: Columns = ()
    """Columns to use as numbers."""
    missing: Annotated[tuple[str, ...] | None, Written("TEXT,…")] = None
    """Cells that count as empty, separated by commas. Default: ?, -, . and other usual marks."""
    drop_unlabelled: bool = False
    """Leave out rows without a label."""
    max_levels: Annotated[int | None, _checks.check_at_least_one] = None
    """Levels of a column that are used, the most frequent ones. Default: 100."""
    max_clients: Annotated[int | None, _checks.check_at_least_one] = None
    """Largest number of clients that needs no confirmation. Default: 1,000."""
    resplit: bool = False
    """Split the rows of adult again, by --seed and --test-size, not as they were published."""
    schema: Annotated[str | None, Written("FILE")] = None
    """File that declares labels, groups and columns; for --privacy, which reads none off rows."""
    seed: Annotated[int, _checks.check_count] = 0
    """Seed of the split and of a random start."""
    test_size: Annotated[float, Written("SHARE"), _checks.check_confidence] = 0.3
    """Share of each client's rows to hold out."""

    @property
    def choices(self) -> Choices:
        """The settings of single columns."""
        return Choices(self.features, self.keep, self.categorical, self.numeric)


@dataclass(frozen=True)
class ComparedRates:
    """The metric and its budgets, of training and of audits.

    ``budget`` is a number for every client or one per client, the key ``"*"`` standing for all
    others.
    """

    GROUP: ClassVar = BUDGETS

    _: KW_ONLY
    metric: Annotated[str, one_of(RATE_KINDS)] = "demographic_parity"
    """Rates that are compared."""
    budget: Annotated[
        float | Mapping[ClientId, float] | None, Written("BUDGET", read=read_budget), check_budgets
    ] = None
    """Largest difference of group rates: 0.05 or 5%; by client: north=0.05,south=0.1; for all
    but one: 0.05,south=0.1."""
    ratio: Annotated[float | None, Written("RATIO"), _checks.check_share] = None
    """Smallest ratio of group rates; 0.8 is the four-fifths rule."""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The rows that budgets hold on."""
        return ("client",)

    def make_rules(
        self, attributes: Sequence[str], clients: Sequence[ClientId]
    ) -> tuple[Rule, ...]:
        """Return one rule per attribute and scope, and another one if a ratio is given."""
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
    """Scope and confidence of budgets, and limits on what they may cost.

    ``relative_budget`` w gives every client w times the disparity it has without budgets.
    """

    GROUP: ClassVar = BUDGETS

    _: KW_ONLY
    relative_budget: Annotated[float | None, Written("SHARE"), _checks.check_positive] = None
    """Budgets as a share of the disparity each client has without budgets."""
    scope: Literal["client", "global", "both"] = "client"
    """client: budgets hold on each client's rows; global: on all rows together."""
    policy: Annotated[str | None, Written("FILE")] = None
    """TOML file with rules and budgets, instead of --metric, --budget, --ratio and --scope."""
    confidence: Annotated[float | None, Written("SHARE"), _checks.check_confidence] = None
    """How sure to be that each budget holds for new people, as far as a client's rows allow:
    training uses tighter bounds. 0 trains with the budgets as they are. Default: 0.9."""
    max_accuracy_loss: Annotated[float, Written("X"), _checks.check_share] = MAX_ACCURACY_LOSS
    """Accuracy on training rows that margins may cost beside the budgets."""
    max_rate_shift: Annotated[float | None, Written("X"), _checks.check_share] = None
    """How far the rate of all clients together may shift from the model without budgets.
    Default: 0.05; no limit with --confidence 0."""
    pooling: Literal["auto", "none"] = "auto"
    """auto: with eight clients or more, a client with few rows keeps its budget by an estimate
    that borrows from the others. none: always by its own rows."""
    new_rows: Annotated[float | None, Written("N"), _checks.check_positive] = None
    """Keep budgets on samples of N rows of each client. Default: in its population."""
    min_group_rows: Annotated[int | None, _checks.check_count] = None
    """Rows that a group needs at a client to be compared there. Default: 30, more for a
    budget below 0.05, 100 at most."""
    thresholds: Thresholds = "common"
    """group: one score for everybody, decision thresholds by client and group that keep the
    budgets. The attribute is then used for every decision, which some laws forbid. common:
    one threshold for everybody."""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The rows that budgets hold on."""
        return ("client", "global") if self.scope == "both" else (self.scope,)

    @property
    def is_constrained(self) -> bool:
        """Whether any budget is given."""
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
    """The method, its options and what it minimises.

    ``published`` takes the behaviour of the authors' public code where it differs from their
    paper. By default ``l2`` and ``objective`` are chosen by leave-one-out losses for sqp, and are 0
    and the method's own for the others. ``options`` are numbers that only the chosen method has,
    such as ``{"q": 10}``; docs/baselines.md lists them.
    """

    GROUP: ClassVar = TRAINING

    _: KW_ONLY
    method: Annotated[str, one_of(METHODS, help=_METHODS_HELP), check_method] = "sqp"
    """The method."""
    published: bool = False
    """Run two-stage as the authors' code does."""
    step_size: float | None = None
    """Longest gradient step."""
    rounds: Annotated[tuple[int, ...] | None, Written("N[,N]")] = None
    """Maximum number of rounds; for sqp and two-stage two counts: 800,1500."""
    options: Annotated[
        Mapping[str, int | float] | None,
        Written("NAME=X", read=read_options, flag="--option", repeated=True),
    ] = None
    """Setting that only one method has, such as q=10 or local-epochs=5; may be repeated."""
    l2: Annotated[float | Literal["auto"] | None, Written("X|auto")] = None
    """Weight of |params|²/2 in every loss; auto (default for sqp): chosen by
    leave-one-out losses."""
    objective: Annotated[
        float | Literal["max", "mean", "auto"] | None, Written("max|mean|X|auto")
    ] = None
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
    protects: Literal["all", "worst"] = "all"
    """Whose loss the second stage may not raise: all clients' or the worst one's only."""
    start: Literal["zero", "uniform"] = "zero"
    """First parameters; uniform is random."""
    starts: Annotated[int | None, _checks.check_at_least_one] = None
    """How many starts to compare, for sqp: the best is kept. Default: 1; 2 if --l2 and
    --objective are given."""
    privacy: Annotated[
        Mapping[str, float] | None,
        Written("epsilon=E,delta=D", read=read_privacy),
        _check_privacy,
    ] = None
    """Noise on all that clients report, so that each loses at most this much of a row's
    privacy: epsilon=2,delta=1e-6. The method is then 'private'."""

    def check_not_private(self, what: str) -> None:
        """Raise `ValueError` if a run that trains several times is private."""
        if self.privacy is not None:
            raise ValueError(
                f"`privacy` must be left out of a {what}: each of its runs spends its own epsilon, "
                "and their sum is in no result. Train once: fcfl train --privacy"
            )

    def check_method_fits(self) -> None:
        """Raise `ValueError` if the method does not have one of the settings."""
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
            raise ValueError("`protects` must be 'all' with `published`, as in that code.")
        if self.options and not registered.takes_options:
            raise ValueError(
                f"`options` must be left out with method {self.method!r}, which has settings of "
                "its own for them: see fcfl train --help"
            )
        where = f"the options of method {self.method!r}"
        _checks.check_keys(self.options or {}, registered.own_options, where)

    @property
    def open_settings(self) -> OpenSettings:
        """The L2 weight and the objective of a linear model, or that they are to be chosen."""
        return open_settings(self.method, None, self.l2, self.objective)


@dataclass(frozen=True)
class Experiment(TrainingSettings, BudgetSettings, DataSettings):
    """Settings of one run: its data, its budgets, its training."""

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
        """Return the method with its options."""
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
        """Return the settings as a TOML file; what is unset is left out."""
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
            raise ValueError(f"The settings {str(path)!r} do not fit: {error}") from None


_DECLARED = "columns, levels and labels are declared by the schema"
_BY_NOISE = "bounds are tightened by the size of the noise"
_NOT_PRIVATE = {
    **dict.fromkeys(("positive", "drop", "features", "keep", "categorical", "numeric"), _DECLARED),
    **dict.fromkeys(("missing", "max_levels"), _DECLARED),
    "max_clients": "clients are not counted beforehand",
    "resplit": "rows are split by their content",
    **dict.fromkeys(("confidence", "max_accuracy_loss", "max_rate_shift"), _BY_NOISE),
    **dict.fromkeys(("pooling", "new_rows"), _BY_NOISE),
    **dict.fromkeys(("start", "starts"), "there is one fit, from zero"),
}  # settings that a private run does not have, and why


def check_private(settings: object) -> None:
    """Raise `ValueError` for a setting without effect in a private run."""
    has_split = getattr(settings, "table", None) in ORIGINAL_SPLIT
    split = {"test_size": "this set has a split of its own"} if has_split else {}
    check_left_out(settings, _NOT_PRIVATE | split, "with `privacy`")


def check_left_out(settings: object, reasons: Mapping[str, str], what: str) -> None:
    """Raise `ValueError` for a setting that would be ignored; ``reasons`` are by setting.

    ``settings`` may have some of the fields of `Experiment` only.
    """
    for name, why in reasons.items():
        default = settings_of(Experiment)[name].default
        value = getattr(settings, name, default)
        if value != default:
            raise ValueError(f"`{name}` must be left out {what}, got {value!r}: {why}.")
