"""Clients: answers to requests about rows, in-process or at a site."""
