"""Rows: tables, built-in sets, and how they become clients."""
