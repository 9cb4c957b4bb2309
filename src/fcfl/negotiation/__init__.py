"""Negotiation of budgets: train combinations, request ballots, count votes."""
