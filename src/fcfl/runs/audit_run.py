"""Audit a table of any model's predictions and write a result folder.

The folder's ``result.json`` is that of a training run with what an audit knows: ``method`` is
``"audit"``, ``status`` is ``"audited"`` (an extension of the contract's statuses: nothing was
trained, so nothing converged), every audited row is in the part ``"test"``, the part ``"train"``
is empty, and ``audit`` also has the gate and the sentences of what failed it.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fcfl import __version__
from fcfl._files import write_json
from fcfl._types import ClientId
from fcfl.audit import Audit, CountedPredictions, PredictionColumns, count_predictions, gate
from fcfl.audit.performance import pool
from fcfl.audit.predictions import CellCounts
from fcfl.data import read_table
from fcfl.policy import Policy
from fcfl.policy_file import read_policy
from fcfl.results import ClientResult, Part, Result, RowCounts
from fcfl.results.compose import versions
from fcfl.results.evaluations import AuditTerms, RowSections, part_of
from fcfl.results.files import CELLS, RESULT
from fcfl.results.result import DataSource, WorstClient
from fcfl.rules import Difference, Ratio, Rule, check_budget_clients
from fcfl.runs.audit_settings import AuditSettings
from fcfl.runs.budgets import for_every_client
from fcfl.runs.folder import check_free_folder, writing


@dataclass(frozen=True)
class Audited:
    """An audit that was written; ``failures`` has a sentence for every verdict that failed."""

    folder: Path
    result: Result
    failures: tuple[str, ...]
    notes: tuple[str, ...]


def run_audit(settings: AuditSettings, folder: Path) -> Audited:
    """Count, judge, and write ``result.json`` and ``cells.json``."""
    began = time.monotonic()
    check_free_folder(folder)
    policy = None if settings.policy is None else read_policy(settings.policy)
    counted = _count(settings, policy)
    rules = _rules(settings, policy, list(counted.counts))
    terms = _terms(settings, policy)
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
    """Read the columns that have a role, and count them by client and group."""
    sensitive = settings.sensitive or tuple(_attributes(policy))
    columns = PredictionColumns(
        settings.client, settings.prediction, sensitive, settings.label, settings.positive
    )
    frame = read_table(settings.table, text=(columns.client, *columns.sensitive))
    groups = {} if policy is None else policy.groups
    return count_predictions(frame, columns, threshold=settings.threshold, groups=groups)


def _attributes(policy: Policy | None) -> Iterator[str]:
    if policy is not None:
        yield from dict.fromkeys(found.rule.attribute for found in policy.policy_rules)


def _rules(
    settings: AuditSettings, policy: Policy | None, clients: Sequence[ClientId]
) -> tuple[Rule, ...]:
    """The policy's rules, or a difference, a ratio or both for each attribute."""
    if policy is not None:
        return policy.rules(clients)
    budget = settings.budget
    if isinstance(budget, Mapping):
        budget = for_every_client(budget, clients)
    rules: list[Rule] = []
    metric: Any = settings.metric
    for attribute in settings.sensitive:
        if settings.ratio is None or budget is not None:
            rules.append(Difference(metric, attribute, budget))
        if settings.ratio is not None:
            rules.append(Ratio(metric, attribute, settings.ratio))
    check_budget_clients(rules, clients)
    return tuple(rules)


def _terms(settings: AuditSettings, policy: Policy | None) -> AuditTerms:
    least = settings.min_group_rows or (1 if policy is None else policy.min_group_rows)
    return AuditTerms(settings.confidence, settings.simultaneous, least)


def _row_sections(audit: Audit, counted: CountedPredictions) -> RowSections:
    """The parts of the result that speak of rows: all are judged, none were trained on."""
    rules, rates = audit.client_rules, counted.rates
    clients = {
        client: ClientResult(
            RowCounts(0, counts.n_rows),
            Part(),
            part_of(counts, audit.clients[client], rules, rates),
        )
        for client, counts in counted.counts.items()
    }
    together = pool(counted.counts.values())
    judged = part_of(together, audit.overall, audit.global_rules, rates, with_scores=True)
    overall = ClientResult(RowCounts(0, together.n_rows), Part(), judged)
    return RowSections(_worst_client(clients), clients, overall)


def _worst_client(clients: Mapping[ClientId, ClientResult]) -> WorstClient:
    """Who is served worst: the lowest accuracy; nobody is known to be without labels."""
    accuracies = {name: client.test.accuracy for name, client in clients.items()}
    known = {name: value for name, value in accuracies.items() if value is not None}
    name = min(known, key=known.__getitem__, default=None)
    return WorstClient(name, None, None if name is None else known[name])


def _result(settings: AuditSettings, policy: Policy | None, rows: RowSections) -> Result:
    """A result of which training says nothing."""
    sha256 = None if policy is None else policy.sha256
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
        data=DataSource(settings.table, _sha256(Path(settings.table)), sha256),
        versions=versions(),
    )


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
