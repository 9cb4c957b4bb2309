"""Training a model under budgets, from the first request to the result."""
