"""The constrained problem: linear rows over group rates, their values at a point, their prices."""
