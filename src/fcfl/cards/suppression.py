"""Suppression of small counts, and of the counts from which they could be computed."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from fcfl._types import Matrix, Vector

_ZERO = 1e-8


@dataclass(frozen=True)
class Sum:
    """A count, as the sum of atoms: disjoint sets of people.

    A total is hidden only if no other count can be hidden instead.
    """

    name: Hashable
    atoms: tuple[int, ...]
    value: int
    is_total: bool = False

    def is_small(self, least: int) -> bool:
        """Return whether the count must be hidden; 0 need not be."""
        return 0 < self.value < least


def hidden_sums(
    sums: Sequence[Sum], least: int, *, also_secret: Sequence[Sum] = ()
) -> set[Hashable]:
    """Return the sums to hide: small ones, and others until none follows from the rest.

    A small sum follows from those shown if it is a linear combination of them. While one does, the
    smallest shown sum of that combination is hidden too. ``also_secret`` are counts that are not
    shown, and must not follow either.
    """
    n_atoms = 1 + max((atom for one in (*sums, *also_secret) for atom in one.atoms), default=0)
    shown = [one for one in sums if not one.is_small(least)]
    secrets = {one.atoms for one in (*sums, *also_secret) if one.is_small(least)}
    while True:
        matrix = np.array([_vector(one.atoms, n_atoms) for one in shown]).reshape(-1, n_atoms)
        used = _first_combination(matrix, [_vector(atoms, n_atoms) for atoms in sorted(secrets)])
        if used is None:
            break
        del shown[min(used, key=lambda i: (shown[i].is_total, shown[i].value))]
    return {one.name for one in sums} - {one.name for one in shown}


def _vector(atoms: tuple[int, ...], size: int) -> Vector:
    vector = np.zeros(size)
    vector[list(atoms)] = 1.0
    return vector


def _first_combination(shown: Matrix, secrets: Sequence[Vector]) -> list[int] | None:
    """Return the rows of which a linear combination is one of the secrets, if any is."""
    if not len(shown):
        return None
    inverse = np.linalg.pinv(shown.T)
    for secret in secrets:
        weights = inverse @ secret
        if np.abs(shown.T @ weights - secret).max() < _ZERO:
            return np.flatnonzero(np.abs(weights) > _ZERO).tolist()
    return None
