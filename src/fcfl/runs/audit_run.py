"""Audit a table of any model's predictions and write a result folder.

The folder's ``result.json`` has the format of a training run, with ``method`` ``"audit"`` and
``status`` ``"audited"``. All audited rows are in the part ``"test"``, and the part ``"train"`` is
empty. The field ``audit`` also has the gate and a sentence for each failed verdict.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from fcfl import __version__
from fcfl._checks import check_at_least_one, check_fraction
from fcfl._files import write_json
from fcfl._types import ClientId
from fcfl.audit import Audit, CountedPredictions, PredictionColumns, count_predictions, gate
from fcfl.audit.auditing import FailOn, Simultaneous
from fcfl.audit.predictions import CellCounts
from fcfl.data import read_table
from fcfl.policy import Policy, read_policy
from fcfl.results import CELLS, RESULT, ClientResult, Part, Result, RowCounts
from fcfl.results.evaluations import AuditTerms, RowSections
from fcfl.results.result import DataSource, WorstClient, versions
from fcfl.rules import Rule, check_budget_clients
from fcfl.runs.options import Written, check_fields
from fcfl.runs.run import check_free_folder, writing
from fcfl.runs.settings import DATA, Column, Columns, ComparedRates


@dataclass(frozen=True)
class AuditedTable:
    """A table with predictions, and the roles of its columns."""

    GROUP: ClassVar = DATA

    table: str
    """CSV, Parquet or xlsx file with any model's predictions."""
    _: KW_ONLY
    client: Column
    """Column with the client of each row."""
    prediction: Column
    """Column with predicted classes or scores."""
    sensitive: Columns = ()
    """Columns whose groups are compared, separated by commas."""
    label: Column | None = None
    """Column with the true label. Not required for selection rates."""
    positive: Annotated[str | None, Written("VALUE")] = None
    """Predicted value that counts as selected. Default: the last value."""
    threshold: float | None = None
    """Smallest score that counts as selected, if predictions are scores."""


@dataclass(frozen=True)
class AuditSettings(ComparedRates, AuditedTable):
    """Settings of an audit. Each field is an option of ``fcfl audit``."""

    GROUP: ClassVar = "Audit"

    _: KW_ONLY
    policy: Annotated[str | None, Written("FILE")] = None
    """TOML file with rules, instead of --metric and budgets."""
    confidence: Annotated[float, Written("SHARE"), check_fraction] = 0.95
    """Confidence of the intervals: of all together, or of each with --simultaneous none."""
    simultaneous: Simultaneous = "bonferroni"
    """bonferroni: the confidence applies to all intervals together. none: it applies to each
    interval."""
    min_group_rows: Annotated[int | None, check_at_least_one] = None
    """Minimum number of rows of a compared group. Smaller groups are listed in the notes."""
    fail_on: Annotated[FailOn | None, Written("VERDICT")] = None
    """Exit with code 4 if a budget is exceeded, or also if the verdict is undetermined."""

    def __post_init__(self) -> None:
        check_fields(self)
        given = [name for name in ("budget", "ratio", "policy") if getattr(self, name) is not None]
        if self.fail_on is not None and not given:
            raise ValueError("`fail_on` requires a budget or a policy.")
        if self.policy is not None and given != ["policy"]:
            raise ValueError(f"Give `policy` or `{given[0]}`, not both.")
        if self.policy is None and not self.sensitive:
            raise ValueError("`sensitive` must name the columns whose groups are compared.")


@dataclass(frozen=True)
class Audited:
    """A finished audit; ``failures`` has a sentence for each failed verdict."""

    folder: Path
    result: Result
    failures: tuple[str, ...]
    notes: tuple[str, ...]


def run_audit(settings: AuditSettings, folder: Path) -> Audited:
    """Audit a table and write ``result.json`` and ``cells.json``."""
    began = time.monotonic()
    check_free_folder(folder)
    policy = None if settings.policy is None else read_policy(settings.policy)
    counted = _count(settings, policy)
    rules = _rules(settings, policy, list(counted.counts))
    least = settings.min_group_rows or (1 if policy is None else policy.min_group_rows)
    terms = AuditTerms(settings.confidence, settings.simultaneous, least)
    audit = terms.audit(rules, counted.rates, counted.counts)
    failures = () if settings.fail_on is None else gate(audit, settings.fail_on)
    notes = (*counted.notes, *audit.notes())
    section = replace(terms.section(audit), fail_on=settings.fail_on, failures=failures)
    rows = replace(_row_sections(audit, counted), audit=section)
    result = _result(settings, policy, rows)
    result = result.replace(notes=notes, seconds=time.monotonic() - began)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CELLS, CellCounts(tuple(counted.levels), counted.cells))
        write_json(folder / RESULT, result)
    return Audited(folder, result, failures, notes)


def _count(settings: AuditSettings, policy: Policy | None) -> CountedPredictions:
    """Return counts of predictions by client and group, read from the table."""
    rules = () if policy is None else policy.policy_rules
    columns = PredictionColumns(
        settings.client,
        settings.prediction,
        settings.sensitive or tuple(dict.fromkeys(found.rule.attribute for found in rules)),
        settings.label,
        settings.positive,
    )
    frame = read_table(settings.table, text=(columns.client, *columns.sensitive))
    groups = {} if policy is None else policy.groups
    return count_predictions(frame, columns, threshold=settings.threshold, groups=groups)


def _rules(
    settings: AuditSettings, policy: Policy | None, clients: Sequence[ClientId]
) -> tuple[Rule, ...]:
    """Return the policy's rules, or a difference, a ratio or both for each attribute."""
    if policy is not None:
        return policy.rules(clients)
    rules = settings.make_rules(settings.sensitive, clients)
    check_budget_clients(rules, clients)
    return rules


def _row_sections(audit: Audit, counted: CountedPredictions) -> RowSections:
    """Return the results by client; all rows are in the test part."""
    sizes = {client: counts.n_rows for client, counts in counted.counts.items()}
    clients = {
        client: ClientResult(RowCounts(0, n_rows), Part(), audit.clients[client])
        for client, n_rows in sizes.items()
    }
    overall = ClientResult(RowCounts(0, sum(sizes.values())), Part(), audit.overall)
    accuracies = {name: client.test.accuracy for name, client in clients.items()}
    known = {name: value for name, value in accuracies.items() if value is not None}
    worst = min(known, key=known.__getitem__, default=None)  # None without labels
    lowest = None if worst is None else known[worst]
    return RowSections(WorstClient(worst, None, lowest), clients, overall)


def _result(settings: AuditSettings, policy: Policy | None, rows: RowSections) -> Result:
    """Return the result of an audit, in which fields about training are empty."""
    with open(settings.table, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Result(
        method="audit",
        status="audited",
        message="" if rows.audit is None else rows.audit.statement,
        rounds={},
        fcfl_version=__version__,
        worst_client=rows.worst_client,
        clients=rows.clients,
        overall=rows.overall,
        audit=rows.audit,
        settings={k: v for k, v in asdict(settings).items() if v not in (None, ())},
        data=DataSource(settings.table, sha256, None if policy is None else policy.sha256),
        versions=versions(),
    )
