"""Audits of any model's predictions: intervals and verdicts from counts."""

from .auditing import Audit, PartAudit, audit_clients, gate
from .intervals import difference_interval
from .performance import Estimate, Selections
from .predictions import CountedPredictions, PredictionColumns, count_predictions
from .verdicts import Evidence, judge

__all__ = [
    "Audit",
    "CountedPredictions",
    "Estimate",
    "Evidence",
    "PartAudit",
    "PredictionColumns",
    "Selections",
    "audit_clients",
    "count_predictions",
    "difference_interval",
    "gate",
    "judge",
]
