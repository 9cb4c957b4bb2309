"""Simulated tables in the schema of eICU, to try everything without the credentialed database."""

from .simulated_files import check_size, simulate

__all__ = ["check_size", "simulate"]
