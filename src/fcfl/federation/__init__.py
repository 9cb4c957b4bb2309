"""Clients in process, and the training loop."""
