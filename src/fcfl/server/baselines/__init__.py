"""Baselines of the literature, on the same reports and the same loop."""
