"""Models: linear models and torch modules, their losses, and reports on rows."""
