"""Small counts hidden, and as many others as keep them from being computed by subtraction."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from fcfl._types import Matrix, Vector

PRESET = 11  # counts from 1 to 10 are hidden, as the US health agency CMS asks
_ZERO = 1e-8


@dataclass(frozen=True)
class Sum:
    """A count, as the atoms (disjoint sets of people) that it adds up.

    A total is hidden only where nothing else would do.
    """

    name: Hashable
    atoms: tuple[int, ...]
    value: int
    is_total: bool = False

    def is_small(self, least: int) -> bool:
        """Whether it must not be known; that nobody is there may be."""
        return 0 < self.value < least


def hidden_sums(
    sums: Sequence[Sum], least: int, *, also_secret: Sequence[Sum] = ()
) -> set[Hashable]:
    """The names of the sums to hide: the small ones, and others until none follows from the rest.

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
    """Which rows give one of the secrets when they are added up with weights, if any do."""
    if not len(shown):
        return None
    inverse = np.linalg.pinv(shown.T)
    for secret in secrets:
        weights = inverse @ secret
        if np.abs(shown.T @ weights - secret).max() < _ZERO:
            return np.flatnonzero(np.abs(weights) > _ZERO).tolist()
    return None
