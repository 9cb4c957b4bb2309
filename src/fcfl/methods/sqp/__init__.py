"""Sequential quadratic programming, the default method."""

from .sqp import SQP, SQPState

__all__ = ["SQP", "SQPState"]
