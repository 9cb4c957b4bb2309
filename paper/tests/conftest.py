"""Helpers of the core's tests, which these tests share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "methods" / "baselines"))
