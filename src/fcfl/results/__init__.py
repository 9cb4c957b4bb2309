"""What a run found out, as data."""
