"""The paper's method, and its directions."""

from .two_stage import TwoStage, TwoStageState

__all__ = ["TwoStage", "TwoStageState"]
