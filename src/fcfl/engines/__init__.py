"""Adapters of federated-learning engines: NVIDIA FLARE (recommended) and Flower."""
