"""Our fast method, and the small quadratic programmes it solves."""

from .sqp import SQP, SQPState

__all__ = ["SQP", "SQPState"]
