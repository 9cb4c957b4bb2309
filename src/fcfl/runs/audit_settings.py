"""What is audited and how."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

from fcfl._checks import check_fraction, is_count
from fcfl.audit.auditing import FailOn, Simultaneous
from fcfl.runs.budget_settings import Budget, Metric, RateRatio
from fcfl.runs.data_settings import DATA, Column, Columns
from fcfl.runs.options import Written, check_fields


def _check_rows(name: str, value: int) -> None:
    if not (is_count(value) and value >= 1):
        raise ValueError(f"`{name}` must be at least 1, got {value!r}.")


@dataclass(frozen=True)
class AuditedTable:
    """The table with predictions, and which of its columns are which."""

    GROUP: ClassVar = DATA

    table: str
    """CSV, Parquet or xlsx file with any model's predictions."""
    _: KW_ONLY
    client: Column
    """Column that names the client of a row."""
    prediction: Column
    """Column with predicted classes, or scores."""
    sensitive: Columns = ()
    """Columns whose groups are compared, separated by commas."""
    label: Column | None = None
    """Column with the correct answer. Not needed for selection rates."""
    positive: Annotated[str | None, Written("VALUE")] = None
    """Value that counts as selected. Default: the last one."""
    threshold: float | None = None
    """Predictions are scores; this much or more is selected."""


@dataclass(frozen=True)
class AuditSettings(AuditedTable):
    """What is audited and how; every field has the name of its command-line option."""

    GROUP: ClassVar = "Audit"

    _: KW_ONLY
    metric: Metric = "demographic_parity"
    """Rates that are compared."""
    budget: Budget | None = None
    """Largest difference of group rates: 0.05 or 5%; by client: north=0.05,south=0.1; for all
    but one: 0.05,south=0.1."""
    ratio: RateRatio | None = None
    """Smallest ratio of group rates; 0.8 is the four-fifths rule."""
    policy: Annotated[str | None, Written("FILE")] = None
    """TOML file with rules, instead of --metric and budgets."""
    confidence: Annotated[float, Written("SHARE"), check_fraction] = 0.95
    """Confidence of the intervals, of all of them together."""
    simultaneous: Simultaneous = "bonferroni"
    """bonferroni: all intervals hold together; none: each on its own."""
    min_group_rows: Annotated[int | None, _check_rows] = None
    """Groups with fewer rows are left out, and named."""
    fail_on: Annotated[FailOn | None, Written("VERDICT")] = None
    """Exit with code 4 where a budget is exceeded, or also where that is undetermined."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.fail_on is not None and not self.has_budgets:
            raise ValueError("`fail_on` needs something to hold against: a budget or a policy.")
        if self.policy is not None and (self.budget is not None or self.ratio is not None):
            other = "ratio" if self.budget is None else "budget"
            raise ValueError(f"Give `policy` or `{other}`, not both.")
        if self.policy is None and not self.sensitive:
            raise ValueError("`sensitive` must name the columns whose groups are compared.")

    @property
    def has_budgets(self) -> bool:
        """Whether there is anything a gate could fail on."""
        return any(given is not None for given in (self.budget, self.ratio, self.policy))
