"""Neighbouring tables by the thousand, and what one row changes of each kind of release."""

import numpy as np

from fcfl._types import Point
from fcfl.client.private import private_rows
from fcfl.data.client_data import ClientData
from fcfl.methods.private import SLOPE
from fcfl.privacy import Release

KINDS = ("counts", "moments", "gradient", "rates", "scores", "evaluation")


def random_row(rng, n_features, levels):
    """One row: ordinary, far outside, sparse, or all of one size."""
    x = rng.standard_normal((1, n_features)) * rng.choice([0.1, 1.0, 1e3])
    if rng.random() < 0.3:
        x = (rng.random((1, n_features)) < 0.3).astype(float)
    if rng.random() < 0.1:
        x = np.full((1, n_features), rng.choice([-50.0, 50.0]))
    groups = {name: rng.integers(0, len(names), 1) for name, names in levels.items()}
    return ClientData(x, rng.integers(0, 2, 1).astype(float), groups, levels)


def joined(table, row):
    """The neighbour that has one row more."""
    return ClientData(
        np.vstack([table.X, row.X]),
        np.append(table.y, row.y),
        {name: np.append(codes, row.groups[name]) for name, codes in table.groups.items()},
        table.levels,
    )


def change(kind, parts, rates, params, slope=SLOPE):
    """How far the releases of two neighbours are apart, and the sensitivity."""
    release, point = Release(kind, 1.0), Point(params, sharpness=slope)
    (more, unit), (less, _) = (part.exact_sum(release, point) for part in parts)
    off = (more - less).astype(float) * unit
    if kind == "moments":  # the noise of the diagonal is √2 as large
        off[np.equal(*np.triu_indices(params.size))] /= np.sqrt(2)
    return float(np.linalg.norm(off)), release.sensitivity(rates)


def largest_shares(seed, n_pairs, rates, levels, n_features=6, n_rows=6):
    """The largest change found of each kind, as a share of its sensitivity."""
    rng = np.random.default_rng(seed)
    found = dict.fromkeys(KINDS, 0.0)
    for _ in range(n_pairs):
        rows = [random_row(rng, n_features, levels) for _ in range(n_rows + 1)]
        table = ClientData(
            np.vstack([one.X for one in rows[1:]]),
            np.concatenate([one.y for one in rows[1:]]),
            {name: np.concatenate([one.groups[name] for one in rows[1:]]) for name in levels},
            levels,
        )
        params = rng.standard_normal(n_features + 1) * rng.choice([0.0, 0.01, 1.0, 30.0])
        both = [private_rows(part, rates) for part in (joined(table, rows[0]), table)]
        for kind in KINDS:
            off, most = change(kind, both, rates, params)
            found[kind] = max(found[kind], off / most)
    return found
