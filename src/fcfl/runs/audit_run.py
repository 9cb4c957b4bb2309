"""Audit a table of any model's predictions and write a result folder.

The folder's ``result.json`` is that of a training run with what an audit knows: ``method`` is
``"audit"``, ``status`` is ``"audited"`` (an extension of the contract's statuses: nothing was
trained, so nothing converged), every audited row is in the part ``"test"``, the part ``"train"``
is empty, and ``audit`` also has the gate and the sentences of what failed it.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fcfl import __version__
from fcfl._files import write_json
from fcfl._types import ClientId
from fcfl.audit import Audit, CountedPredictions, PredictionColumns, count_predictions, gate
from fcfl.audit.performance import pool
from fcfl.data import read_table
from fcfl.errors import FCFLError
from fcfl.policy import Policy, read_policy
from fcfl.results.compose import SCHEMA, AuditTerms, audit_terms_section, describe, versions
from fcfl.rules import Difference, Ratio, Rule, check_budget_clients
from fcfl.runs.audit_settings import AuditSettings
from fcfl.runs.budgets import for_every_client
from fcfl.runs.folder import SETTINGS, writing

_NOTHING: dict[str, Any] = {
    "loss": None,
    "accuracy": None,
    "accuracy_interval": None,
    "balanced_accuracy": None,
    "balanced_accuracy_interval": None,
    "disparities": [],
}


@dataclass(frozen=True)
class Audited:
    """An audit that was written; ``failures`` has a sentence for every verdict that failed."""

    folder: Path
    result: dict[str, Any]
    failures: tuple[str, ...]
    notes: tuple[str, ...]


def run_audit(settings: AuditSettings, folder: Path) -> Audited:
    """Count, judge, and write ``result.json``."""
    began = time.monotonic()
    _check_folder(folder)
    policy = None if settings.policy is None else read_policy(settings.policy)
    counted = _count(settings, policy)
    rules = _rules(settings, policy, list(counted.counts))
    terms = _terms(settings, policy)
    audit = terms.audit(rules, counted.rates, counted.counts)
    failures = () if settings.fail_on is None else gate(audit, settings.fail_on)
    notes = (*counted.notes, *audit.notes())
    result = {
        **_frame(settings, policy, audit, terms),
        **_sections(audit, counted),
        "notes": list(notes),
    }
    result["audit"] |= {"fail_on": settings.fail_on, "failures": list(failures)}
    result["seconds"] = time.monotonic() - began
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "result.json", result)
    return Audited(folder, result, failures, notes)


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise FCFLError(f"{str(folder)!r} is a file; `--out` needs a folder.")
    if (folder / SETTINGS).exists():
        raise FCFLError(f"The folder {str(folder)!r} holds a training run. Choose another `--out`.")


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


def _sections(audit: Audit, counted: CountedPredictions) -> dict[str, Any]:
    """The parts of the result that speak of rows."""
    clients = {
        client: {
            "rows": {"train": 0, "test": counts.n_rows},
            "train": _NOTHING,
            "test": describe(counts, audit.clients[client], audit.client_rules, counted.rates),
        }
        for client, counts in counted.counts.items()
    }
    together = pool(counted.counts.values())
    overall = describe(together, audit.overall, audit.global_rules, counted.rates)
    return {
        "worst_client": _worst_client(clients),
        "clients": clients,
        "global": {"train": _NOTHING, "test": overall},
    }


def _worst_client(clients: Mapping[ClientId, Any]) -> dict[str, Any]:
    """Who is served worst: the lowest accuracy; nobody is known to be without labels."""
    known = {c: found["test"]["accuracy"] for c, found in clients.items()}
    name = min((c for c in known if known[c] is not None), key=known.__getitem__, default=None)
    return {"name": name, "train_loss": None, "test_accuracy": known.get(name) if name else None}


def _frame(
    settings: AuditSettings, policy: Policy | None, audit: Audit, terms: AuditTerms
) -> dict[str, Any]:
    """Everything that does not speak of rows."""
    data = {"table": settings.table, "sha256": _sha256(Path(settings.table))}
    return {
        "schema": SCHEMA,
        "method": "audit",
        "status": "audited",
        "message": audit.statement,
        "rounds": {},
        "evaluations": {"value": 0, "gradient": 0, "curvature": 0},
        "bytes_from_clients": 0,
        "seconds": None,
        "kkt_residual": None,
        "l2": None,
        "objective": None,
        "selection": None,
        "seed": None,
        "fcfl_version": __version__,
        "versions": versions(),
        "audit": audit_terms_section(terms, audit),
        "settings": {k: v for k, v in asdict(settings).items() if v not in (None, ())},
        "data": data if policy is None else data | {"policy_sha256": policy.sha256},
    }


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
