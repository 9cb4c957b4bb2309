"""What a combination of budgets would give, predicted from those that were trained."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from fcfl._types import ClientId, Matrix
from fcfl.results.negotiation import Offer, View

Levels = tuple[int, ...]
"""A combination: for each client the position of its budget on the ladder, the loosest first."""

_LENGTH = 1.5  # steps of the ladder over which figures stay alike
_NOISE = 0.5  # of the variance: figures jump where a fit has several optima
_RIDGE = 1e-3


def optimistic(
    known: Mapping[Levels, Offer], unknown: Sequence[Levels], ladder: Sequence[float]
) -> list[Offer]:
    """Offers as good as they may well be: a standard deviation better than predicted, for all.

    Every figure of every client is a linear function of the levels plus a Gaussian process, whose
    scale is that of the residuals.
    """
    figures = np.array([_figures(offer) for offer in known.values()])
    mean, deviation = _regress(np.array(list(known), float), figures, np.array(unknown, float))
    better = np.tile([1.0, -1.0], figures.shape[1] // 2)
    guesses = np.clip(mean + better * deviation, 0.0, 1.0)
    clients = tuple(next(iter(known.values())).views)
    pairs = zip(unknown, guesses, strict=True)
    return [_offer(clients, levels, row, ladder) for levels, row in pairs]


def _figures(offer: Offer) -> list[float]:
    return list(chain.from_iterable((v.accuracy, v.disparity) for v in offer.views.values()))


def _offer(
    clients: Sequence[ClientId], levels: Levels, row: Matrix, ladder: Sequence[float]
) -> Offer:
    budgets = {c: ladder[level] for c, level in zip(clients, levels, strict=True)}
    views = {
        c: View(float(accuracy), 0.0, float(disparity))
        for c, (accuracy, disparity) in zip(clients, row.reshape(-1, 2), strict=True)
    }
    return Offer(budgets, views, {}, True, "predicted")


def _regress(at: Matrix, values: Matrix, wanted: Matrix) -> tuple[Matrix, Matrix]:
    """Means and standard deviations of the columns of ``values`` at other points."""
    lines, new_lines = (np.column_stack([np.ones(len(x)), x]) for x in (at, wanted))
    normal = lines.T @ lines + _RIDGE * np.eye(lines.shape[1])
    weights = np.linalg.solve(normal, lines.T @ values)
    left = values - lines @ weights
    covariance = _kernel(at, at) + _NOISE * np.eye(len(at))
    across = _kernel(wanted, at)
    solved = np.linalg.solve(covariance, np.column_stack([left, across.T]))
    by_left, by_across = solved[:, : left.shape[1]], solved[:, left.shape[1] :]
    scale = np.einsum("ij,ij->j", left, by_left) / len(at)
    variance = 1.0 + _NOISE - np.einsum("ij,ji->i", across, by_across)
    return new_lines @ weights + across @ by_left, np.sqrt(np.outer(variance, scale))


def _kernel(a: Matrix, b: Matrix) -> Matrix:
    squares = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-0.5 * squares / _LENGTH**2))
