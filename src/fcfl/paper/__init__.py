"""The paper again: its tables, figures and clinical data."""
