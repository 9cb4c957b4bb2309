"""What a client computes on its own rows."""
