"""What is audited and how."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fcfl._checks import check_fraction, is_count
from fcfl._types import ClientId
from fcfl.audit.auditing import FailOn, Simultaneous
from fcfl.runs.option_fields import check_fields, like, number, one_of, option, whole_number
from fcfl.runs.settings import DATA, Experiment

_AUDIT = "Audit"  # heading in --help


def _check_rows(name: str, value: int) -> None:
    if not (is_count(value) and value >= 1):
        raise ValueError(f"`{name}` must be at least 1, got {value!r}.")


@dataclass(frozen=True)
class AuditSettings:
    """What is audited and how; every field has the name of its command-line option."""

    table: str = field(
        metadata=like(Experiment, "table", help="CSV or Parquet file with any model's predictions.")
    )
    client: str = field(metadata=like(Experiment, "client"))
    prediction: str = field(
        metadata=option("Column with predicted classes, or scores.", group=DATA, metavar="COLUMN")
    )
    sensitive: tuple[str, ...] = field(default=(), metadata=like(Experiment, "sensitive"))
    label: str | None = field(
        default=None,
        metadata=like(
            Experiment,
            "label",
            help="Column with the correct answer. Not needed for selection rates.",
        ),
    )
    positive: str | None = field(
        default=None,
        metadata=like(
            Experiment, "positive", help="Value that counts as selected. Default: the last one."
        ),
    )
    metric: str = field(default="demographic_parity", metadata=like(Experiment, "metric"))
    budget: float | Mapping[ClientId, float] | None = field(
        default=None, metadata=like(Experiment, "budget")
    )
    ratio: float | None = field(default=None, metadata=like(Experiment, "ratio"))
    policy: str | None = field(
        default=None,
        metadata=like(
            Experiment, "policy", help="TOML file with rules, instead of --metric and budgets."
        ),
    )
    threshold: float | None = field(
        default=None,
        metadata=option(
            "Predictions are scores; this much or more is selected.",
            group=DATA,
            metavar="X",
            parse=number,
        ),
    )
    confidence: float = field(
        default=0.95,
        metadata=option(
            "Confidence of the intervals, of all of them together.",
            group=_AUDIT,
            metavar="SHARE",
            parse=number,
            check=check_fraction,
        ),
    )
    simultaneous: Simultaneous = field(
        default="bonferroni",
        metadata=option(
            "bonferroni: all intervals hold together; none: each on its own.",
            group=_AUDIT,
            metavar="NAME",
            check=one_of("bonferroni", "none"),
        ),
    )
    min_group_rows: int | None = field(
        default=None,
        metadata=option(
            "Groups with fewer rows are left out, and named.",
            group=_AUDIT,
            metavar="N",
            parse=whole_number,
            check=_check_rows,
        ),
    )
    fail_on: FailOn | None = field(
        default=None,
        metadata=option(
            "Exit with code 4 where a budget is exceeded, or also where that is undetermined.",
            group=_AUDIT,
            metavar="VERDICT",
            check=one_of("exceeded", "undetermined"),
        ),
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
