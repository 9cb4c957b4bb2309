"""The scikit-learn estimator."""

from .classifier import FCFLClassifier

__all__ = ["FCFLClassifier"]
