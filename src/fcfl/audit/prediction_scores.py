"""Scores of a table of predictions by group and label, where they may be probabilities."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, Vector
from fcfl.client.counts import Counts
from fcfl.client.score_counts import count_scores
from fcfl.data.roles import Roles

from .performance import Counted


def with_scores(
    counts: dict[ClientId, Counted],
    scores: Vector,
    roles: Roles,
    levels: Mapping[str, Sequence[str]],
) -> dict[ClientId, Counted]:
    """The counts with rows by group, label and score, where scores may be probabilities."""
    if not ((scores >= 0) & (scores <= 1)).all():
        return counts
    compared = {name: _compared(roles, name, kept) for name, kept in levels.items()}
    order = np.argsort(roles.client.codes, kind="stable")
    sizes = np.bincount(roles.client.codes, minlength=len(roles.client.levels))
    parts = np.split(order, np.cumsum(sizes)[:-1])
    found: dict[ClientId, Counted] = {}
    for (client, known), rows in zip(counts.items(), parts, strict=True):
        groups = {name: codes[rows] for name, codes in compared.items()}
        told = count_scores(scores[rows], roles.y[rows], groups, levels)
        found[client] = replace(known, scores=told) if isinstance(known, Counts) else known
    return found


def _compared(roles: Roles, name: str, kept: Sequence[str]) -> NDArray[np.int64]:
    """Codes into the groups that are compared, -1 for others."""
    place = [kept.index(level) if level in kept else -1 for level in roles.levels[name]]
    return np.array([*place, -1], dtype=np.int64)[roles.groups[name]]
