"""What the data can support: intervals, verdicts, and audits of any model's predictions."""

from .auditing import Audit, PartAudit, audit_clients, gate
from .intervals import (
    METHOD,
    balanced_accuracy_interval,
    difference_interval,
    proportion_interval,
    ratio_interval,
)
from .performance import Estimate, Selections, accuracy, balanced_accuracy
from .predictions import CountedPredictions, PredictionColumns, count_predictions
from .verdicts import Evidence, Verdict, judge, verdict_of

__all__ = [
    "METHOD",
    "Audit",
    "CountedPredictions",
    "Estimate",
    "Evidence",
    "PartAudit",
    "PredictionColumns",
    "Selections",
    "Verdict",
    "accuracy",
    "audit_clients",
    "balanced_accuracy",
    "balanced_accuracy_interval",
    "count_predictions",
    "difference_interval",
    "gate",
    "judge",
    "proportion_interval",
    "ratio_interval",
    "verdict_of",
]
