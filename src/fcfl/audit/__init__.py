"""Audit the predictions of any model: intervals and verdicts from counts."""

from .auditing import Audit, Part, Selections, audit_clients, gate
from .intervals import difference_interval
from .predictions import CountedPredictions, PredictionColumns, count_predictions
from .verdicts import Disparity, judge

__all__ = [
    "Audit",
    "CountedPredictions",
    "Disparity",
    "Part",
    "PredictionColumns",
    "Selections",
    "audit_clients",
    "count_predictions",
    "difference_interval",
    "gate",
    "judge",
]
