"""Adapter of Flower: two apps for an existing SuperLink (docs/deployment.md).

Only `client_app` and `server_app` import Flower.
"""
