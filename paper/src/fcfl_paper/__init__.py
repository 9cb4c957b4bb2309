"""The paper again: its tables, figures, clinical data, and the baselines that only it compares."""
