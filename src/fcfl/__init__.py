"""Federated learning whose model keeps each data holder's disparity budget."""

__version__ = "0.1.0"
