"""Simulated federations whose population rates are known exactly, for `benchmarks.promise`.

A `Law` is a distribution of federations. `Law.draw(seed)` draws a `Population`: shares of groups,
feature means, label weights of every client. `Population.rows` samples rows from it, and
`Population.rates` and `.performance` integrate what a linear model does in it, without sampling:
given client, group and category, both the logit of the label and that of the model are normal.

The label of a row of client k and group g has the logit ``x·beta_k + code effect + offset_kg``. The
model sees four numbers x, a category of five levels as indicators, and with ``giveaway`` one more
column: the label itself, flipped with that probability.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from fcfl._types import RateId
from fcfl.data import ClientData
from fcfl.rules import Difference, Ratio, Rule

ATTRIBUTE = "group"
GROUPS = tuple("abcdefghi")
N_NUMBERS, N_CODES = 4, 5
FARTHEST = 8.5  # standard deviations; beyond lies less than 1e-16
_OUTER = np.polynomial.legendre.leggauss(48)
_INNER = np.polynomial.hermite_e.hermegauss(24)

Array = NDArray[np.float64]
WEIGHTS = np.array([1.1, 0.75, 0.55, 0.45])  # of the numbers, in the logit of the label
ASIDE = np.array([0.7, -1.0, 0.0, 0.0]) / np.hypot(0.7, 1.0)


def parity(budget: float, scope: str = "client") -> Difference:
    """Equal selection rates up to ``budget``."""
    return Difference("demographic_parity", ATTRIBUTE, budget, scope)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Law:
    """A distribution of federations.

    Parameters
    ----------
    rule : the budget that training is asked to keep
    n_clients : least and most clients
    rows : least and most rows of a client; sizes are log-uniform between them
    groups : how many groups
    gap : distance of the first and the last group in the direction of the label's weights
        In standard deviations of a feature.
    aside : their distance in a direction that labels do not depend on, as a multiple of ``gap``
        The larger, the less accuracy equal rates cost; with 0 only selecting nobody, or everybody,
        makes rates equal.
    spread : standard deviation over clients of each group's own shift, in both directions
    differ : standard deviation over clients of label weights and, twice as large, of base rates
    concentration : of the Dirichlet shares of groups at a client; None for equal shares everywhere
    odd : rows of one more client, whose gap is `ODD_GAP`
    giveaway : probability with which the column that gives the label away is wrong
    """

    name: str
    rule: Rule
    n_clients: tuple[int, int]
    rows: tuple[int, int]
    groups: int = 2
    gap: float = 0.45
    aside: float = 2.5
    spread: float = 0.2
    differ: float = 0.3
    concentration: float | None = 2.0
    odd: int | None = None
    giveaway: float | None = None
    base: float = -0.8

    def draw(self, seed: int) -> "Population":
        """Draw a federation; the same one for the same seed."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        n_clients = int(rng.integers(self.n_clients[0], self.n_clients[1] + 1))
        sizes = np.exp(rng.uniform(*np.log(self.rows), n_clients)).astype(int)
        if self.odd is not None:
            sizes = np.append(sizes, self.odd)
        shape = (len(sizes), self.groups)
        shares = np.full(shape, 1.0 / self.groups)
        if self.concentration is not None:
            shares = rng.dirichlet(np.full(self.groups, self.concentration), len(sizes))
            shares = 0.9 * shares + 0.1 / self.groups  # nobody has a group of nearly no share
        place = np.linspace(0.5, -0.5, self.groups)
        gaps = np.full((len(sizes), 1), self.gap)
        if self.odd is not None:
            gaps[-1] = ODD_GAP
        own_shift = self.spread * rng.standard_normal(shape)
        shift, across = gaps * place + own_shift, self.aside * gaps * place + own_shift
        along = WEIGHTS / np.linalg.norm(WEIGHTS)
        means = shift[:, :, None] * along + across[:, :, None] * ASIDE
        own = self.differ * rng.standard_normal((len(sizes), N_NUMBERS))
        base = self.base + 2.0 * self.differ * rng.standard_normal(len(sizes))
        codes = np.full((*shape, N_CODES), 1.0 / N_CODES)
        if self.concentration is not None:
            codes = rng.dirichlet(np.full(N_CODES, 5.0), shape)
        names = [f"c{k:02d}" for k in range(len(sizes))]
        if self.odd is not None:
            names[-1] = "odd"
        return Population(
            tuple(names),
            sizes,
            shares,
            means,
            WEIGHTS + own,
            base[:, None] + 0.3 * shift,
            codes,
            np.array([-0.6, -0.2, 0.0, 0.3, 0.6]),
            self.giveaway,
            seed,
        )


@dataclass(frozen=True)
class Population:
    """One federation: what its clients' people are like.

    Arrays have clients first, then groups: ``shares`` of groups, ``means`` of the numbers, label
    weights ``beta``, ``offset`` of the label's logit, shares of ``codes``.
    """

    names: tuple[str, ...]
    sizes: NDArray[np.int_]
    shares: Array
    means: Array
    beta: Array
    offset: Array
    codes: Array
    code_effect: Array
    giveaway: float | None
    seed: int
    _known: dict[bytes, Array] = field(default_factory=dict, repr=False, compare=False)

    @property
    def levels(self) -> tuple[str, ...]:
        """The groups' names."""
        return GROUPS[: self.shares.shape[1]]

    @property
    def n_features(self) -> int:
        """Columns that a model sees."""
        return N_NUMBERS + N_CODES + (self.giveaway is not None)

    def rows(self, part: str, times: float = 1.0) -> dict[str, ClientData]:
        """Draw rows of every client, as many as its size, another sample for each ``part``."""
        rng = np.random.default_rng([self.seed, zlib.crc32(part.encode())])
        sizes = np.maximum((self.sizes * times).round().astype(int), 2)
        return {
            name: self._sample(rng, client, int(sizes[client]))
            for client, name in enumerate(self.names)
        }

    def _sample(self, rng: np.random.Generator, client: int, n_rows: int) -> ClientData:
        group = rng.choice(len(self.levels), n_rows, p=self.shares[client])
        ends = self.codes[client].cumsum(axis=1)[group]
        code = np.minimum((rng.random(n_rows)[:, None] > ends).sum(axis=1), N_CODES - 1)
        numbers = self.means[client, group] + rng.standard_normal((n_rows, N_NUMBERS))
        leaning = numbers @ self.beta[client] + self.code_effect[code] + self.offset[client, group]
        label = (rng.random(n_rows) < expit(leaning)).astype(float)
        columns = [numbers, np.eye(N_CODES)[code]]
        if self.giveaway is not None:
            flipped = rng.random(n_rows) < self.giveaway
            columns.append(np.abs(label - flipped)[:, None])
        return ClientData(np.hstack(columns), label, {ATTRIBUTE: group}, {ATTRIBUTE: self.levels})

    def table(self, params: Array) -> Array:
        """Return P(label, decision | client, group), indexed in that order after client and group.

        ``table[k, g, 1, 0]`` is the share of group g at client k that has the label and is not
        selected.
        """
        key = params.tobytes()
        if key not in self._known:
            self._known[key] = self._integrate(params)
        return self._known[key]

    def _integrate(self, params: Array) -> Array:
        w, v = params[:N_NUMBERS], params[N_NUMBERS : N_NUMBERS + N_CODES]
        extra, intercept = params[N_NUMBERS + N_CODES : -1], params[-1]
        scale = max(float(np.linalg.norm(w)), 1e-12)
        logit = (self.means @ w)[:, :, None] + v + intercept
        leaning = (self.means @ self.beta[:, :, None])[:, :, 0][:, :, None] + self.code_effect
        leaning = leaning + self.offset[:, :, None]
        slope = (self.beta @ w / scale)[:, None, None]
        rest = np.sqrt(np.maximum((self.beta**2).sum(axis=1)[:, None, None] - slope**2, 0.0))
        positive = _labelled(leaning, slope, rest, np.full(logit.shape, -FARTHEST))
        found = np.zeros((*self.shares.shape, 2, 2))
        for value, given in self._columns():
            start = -(logit + value * (extra[0] if extra.size else 0.0)) / scale
            start = np.clip(start, -FARTHEST, FARTHEST)
            both, selected = _labelled(leaning, slope, rest, start), norm.sf(start)
            parts = np.array(
                [
                    [given[0] * (1.0 - positive - (selected - both)), given[0] * (selected - both)],
                    [given[1] * (positive - both), given[1] * both],
                ]
            )
            found += np.einsum("ijkgc,kgc->kgij", parts, self.codes)
        return found

    def _columns(self) -> list[tuple[float, tuple[float, float]]]:
        """Values of the column that gives the label away, with their probability by label."""
        if self.giveaway is None:
            return [(0.0, (1.0, 1.0))]
        wrong = self.giveaway
        return [(0.0, (1.0 - wrong, wrong)), (1.0, (wrong, 1.0 - wrong))]

    @cached_property
    def weights(self) -> Array:
        """Each client's share of all rows."""
        return np.asarray(self.sizes / self.sizes.sum())

    def rates(self, params: Array, rates: Sequence[RateId]) -> tuple[Array, Array]:
        """Return the true hard rates of every client, and the share of its people behind each."""
        table, masses, selected = self.table(params), [], []
        labels = {"selection": (0, 1), "true_positive": (1,), "false_positive": (0,)}
        for rate in rates:
            group, which = self.levels.index(rate.group), list(labels[rate.kind])
            cell = self.shares[:, group, None, None] * table[:, group][:, which]
            masses.append(cell.sum(axis=(1, 2)))
            selected.append(cell[:, :, 1].sum(axis=1))
        mass = np.array(masses).T
        return np.array(selected).T / mass, mass

    def performance(self, params: Array) -> tuple[Array, Array]:
        """Return the true accuracy and the true share selected of every client."""
        cells = np.einsum("kg,kgij->kij", self.shares, self.table(params))
        return cells[:, 0, 0] + cells[:, 1, 1], cells[:, :, 1].sum(axis=1)


def _labelled(leaning: Array, slope: Array, rest: Array, start: Array) -> Array:
    """P(label and z >= start), z the standard normal part of the model's logit."""
    nodes, weights = _OUTER
    half = (FARTHEST - start) / 2.0
    z = start[..., None] + half[..., None] * (nodes + 1.0)
    inner, inner_weights = _INNER
    centre = leaning[..., None] + slope[..., None] * z
    chance = expit(centre[..., None] + rest[..., None, None] * inner) @ inner_weights
    density = norm.pdf(z) * chance / inner_weights.sum()
    return np.asarray(half * (density @ weights))


FOUR_FIFTHS = Ratio("demographic_parity", ATTRIBUTE, 0.8)
ODDS = Difference("equalized_odds", ATTRIBUTE, 0.1)
ODD_GAP = 0.77  # selection rates then differ by .25 without budgets, where others differ by .05
MANY = (50, 2000)


def _small(name: str, groups: int = 2, **options: float) -> Law:
    """35 clients that are alike but for their rows and for what ``options`` say."""
    given = {"gap": 0.25, "spread": 0.0, "differ": 0.0} | options
    return Law(name, parity(0.05), (35, 35), MANY, groups, concentration=None, **given)  # type: ignore[arg-type]


LAWS = {
    law.name: law
    for law in (
        Law("unequal", parity(0.05), (4, 6), (100, 20_000)),
        Law("many", parity(0.05), (35, 35), MANY, gap=0.2, spread=0.1, differ=0.2),
        Law("five-groups", parity(0.1), (4, 6), (500, 20_000), groups=5, gap=0.3, spread=0.1),
        Law("ratio", FOUR_FIFTHS, (4, 6), (100, 20_000), gap=0.25, spread=0.1),
        Law("odds", ODDS, (4, 6), (300, 20_000), gap=0.3, spread=0.1),
        Law("global", parity(0.05, "global"), (4, 12), (50, 5_000), groups=3, gap=0.3),
        _small("small-alike"),
        _small("small-016", spread=0.037),
        _small("small-038", spread=0.09),
        _small("small-alike-4", groups=4),
        _small("small-016-4", groups=4, spread=0.037),
        _small("small-038-4", groups=4, spread=0.09),
        _small("small-costly", aside=0.0),
        _small("odd-80", gap=0.14, odd=80),
        _small("odd-400", gap=0.14, odd=400),
        _small("giveaway", differ=0.2, spread=0.1, giveaway=0.03),
    )
}
