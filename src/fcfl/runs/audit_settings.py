"""What is audited and how."""

# ruff: noqa: RUF009 - `option` makes a field, as `dataclasses.field` does

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, replace
from functools import partial

from fcfl._checks import is_count
from fcfl._types import ClientId
from fcfl.audit.auditing import FailOn, Simultaneous
from fcfl.runs.option_fields import (
    COLUMN,
    SHARE,
    Kind,
    check_fields,
    like,
    number,
    one_of,
    option,
    whole_number,
)
from fcfl.runs.settings import DATA, Experiment

_option = partial(option, group="Audit")  # heading in --help
_like = partial(like, Experiment)


def _check_rows(name: str, value: int) -> None:
    if not (is_count(value) and value >= 1):
        raise ValueError(f"`{name}` must be at least 1, got {value!r}.")


@dataclass(frozen=True)
class AuditSettings:
    """What is audited and how; every field has the name of its command-line option."""

    table: str = _like(
        "table", help="CSV, Parquet or xlsx file with any model's predictions.", repeated=False
    )
    client: str = _like("client", default=MISSING)
    prediction: str = option("Column with predicted classes, or scores.", COLUMN, group=DATA)
    sensitive: tuple[str, ...] = _like("sensitive")
    label: str | None = _like(
        "label", help="Column with the correct answer. Not needed for selection rates."
    )
    positive: str | None = _like(
        "positive", help="Value that counts as selected. Default: the last one."
    )
    metric: str = _like("metric")
    budget: float | Mapping[ClientId, float] | None = _like("budget")
    ratio: float | None = _like("ratio")
    policy: str | None = _like(
        "policy", help="TOML file with rules, instead of --metric and budgets."
    )
    threshold: float | None = option(
        "Predictions are scores; this much or more is selected.",
        Kind("X", number),
        default=None,
        group=DATA,
    )
    confidence: float = _option(
        "Confidence of the intervals, of all of them together.", SHARE, default=0.95
    )
    simultaneous: Simultaneous = _option(
        "bonferroni: all intervals hold together; none: each on its own.",
        one_of("bonferroni", "none"),
        default="bonferroni",
    )
    min_group_rows: int | None = _option(
        "Groups with fewer rows are left out, and named.",
        Kind("N", whole_number, _check_rows),
        default=None,
    )
    fail_on: FailOn | None = _option(
        "Exit with code 4 where a budget is exceeded, or also where that is undetermined.",
        replace(one_of("exceeded", "undetermined"), metavar="VERDICT"),
        default=None,
    )

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
