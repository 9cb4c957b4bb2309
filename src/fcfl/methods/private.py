r"""`method="private"`: the mean loss within every budget, from noisy sums in seven rounds.

1. Counts, second moments and the gradient at zero give a quadratic model of the mean loss, and a
   first step without budgets.
2. Three rounds request the rates of decisions and sums of scores. The sums determine the gradients
   of smooth rates and, with the gradient at zero, that of the mean loss. Each round halves the
   weight of the rates' gradients from earlier rounds. The ratio of the decisions' response to that
   of smooth rates is estimated from the effects of the steps (`Response`).
3. The other rounds request rates only, and correct the remaining violations.

Finally decisions are counted on training and held-out rows. Clients add the noise, and the server
receives only noisy sums. `Private.releases` fixes the cost of each release in advance. Margins
tighten the bounds by the known size of the noise. Every step solves

.. math:: \min_s\; \tfrac12 s^T B s + g^T s + \rho \sum_j t_j \quad\text{s.t.}\quad
          v_j + G_j s \le m_j + t_j,\; t \ge 0,\; |s| \le 3

where v are the estimated violations by decisions and m the negative margins.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fcfl import privacy
from fcfl._checks import check_count, check_params
from fcfl._types import LABEL_OF, Matrix, Point, RateId, Reports, Request, Vector
from fcfl.errors import ReportError
from fcfl.methods.method import RoundInfo, Status
from fcfl.methods.sqp.qp import solve_dual_qp
from fcfl.privacy import Kind, Release
from fcfl.problem import Constraints, Problem

DISTRUST = 0.5  # relative standard deviation of a predicted change
MAX_RESPONSE = 4.0  # largest factor on the smooth slopes; the smallest is its inverse
PENALTY = 2.0  # nats of mean loss that a unit of disparity may cost
MAX_STEP = 3.0
DEVIATIONS = 2.326  # standard deviations: one-sided normal quantile of .99
NEW_ROWS = 1 / 3  # number of new rows per training row: a quarter is held out
MAX_MARGIN = 0.62  # largest margin, as a share of the budget


def cells_behind(
    rates: Sequence[RateId], kind: Kind = "counts", *, selected: bool = False
) -> Matrix:
    """Return a 0-1 matrix (rates, cells) that sums cells to the number of rows behind each rate.

    With ``selected``, the sums are the numbers of selected rows.
    """
    cells = privacy.cells_of(rates, kind)
    behind = np.zeros((len(rates), len(cells)))
    for place, rate in enumerate(rates):
        label = LABEL_OF[rate.kind]
        for at, cell in enumerate(cells):
            same = (cell.attribute, cell.group) == (rate.attribute, rate.group)
            fits = same and (label is None or cell.label == label)
            behind[place, at] = fits and (bool(cell.selected) or not selected)
    return behind


def curvature_estimate(moments: Vector, n_rows: float, noise: float, l2: float) -> Matrix:
    r"""Return a bound on the curvature of the mean loss: a quarter of the second moments, and L2.

    ``noise`` is the standard deviation of the sum of all clients' noise. Eigenvalues below the size
    of the noise are raised to it, so that noise does not cause long steps.
    """
    n = int((np.sqrt(8 * moments.size + 1) - 1) / 2)
    matrix = np.zeros((n, n))
    matrix[np.triu_indices(n)] = moments / n_rows
    matrix += np.triu(matrix, 1).T
    values, vectors = np.linalg.eigh(matrix)
    floor = noise * np.sqrt(n) / n_rows
    known = (np.maximum(values, floor) + floor) / 4.0 + l2
    return np.asarray((vectors * known) @ vectors.T)


def shrunk(slopes: Matrix, group_counts: Matrix, noise: Vector) -> Matrix:
    r"""Return slopes of rates, each shrunk towards those of the same group at all clients.

    These are positive-part Stein estimates. ``slopes`` has shape (clients, rates, parameters),
    ``noise`` is the variance of a slope's entries, by client and rate.
    """
    n_params = slopes.shape[2]
    if len(slopes) == 1:
        return slopes
    weights = group_counts / group_counts.sum(axis=0)
    pooled = np.einsum("kr,krn->rn", weights, slopes)
    off = slopes - pooled
    squares = np.maximum(np.square(off).sum(axis=2), 1e-300)
    kept = np.maximum(1.0 - (n_params - 2) * noise / squares, 0.0)
    return np.asarray(pooled + kept[:, :, None] * off)


@dataclass(frozen=True)
class Response:
    r"""Ratio of the change of hard rates to that of smooth rates after a step, one for all rows.

    Smooth rates depend on all rows. Hard rates change only by rows at the decision boundary, and
    their number may be twice or half of what the smooth slopes imply. The model of an observed
    change of a violation is c = f p, with the predicted change p, the factor f and noise of
    variance n. D (`DISTRUST`) is the relative standard deviation of p and the prior standard
    deviation of f around 1. The posterior mean of f is

    .. math:: f = \frac{1/D^2 + \sum pc/(n + D^2p^2)}{1/D^2 + \sum p^2/(n + D^2p^2)}
    """

    seen: float = 1.0 / DISTRUST**2
    predicted: float = 1.0 / DISTRUST**2

    @property
    def factor(self) -> float:
        """The factor on slopes."""
        return float(np.clip(self.seen / self.predicted, 1.0 / MAX_RESPONSE, MAX_RESPONSE))

    def updated(self, predicted: Vector, seen: Vector, noise: Vector) -> "Response":
        """Return the estimate after one more step."""
        weights = 1.0 / np.maximum(noise + (DISTRUST * predicted) ** 2, 1e-12)
        return Response(
            self.seen + float(weights @ (predicted * seen)),
            self.predicted + float(weights @ predicted**2),
        )


@dataclass(frozen=True)
class NoisyRates:
    """Estimated rates, stacked client by client.

    ``noise`` is the standard deviation of the rates due to the noise of their own release.
    ``counts`` are the numbers of rows behind the rates and ``count_noise`` their standard
    deviations. Counts are released once, so their noise is the same in every round.
    """

    rates: Vector
    noise: Vector
    counts: Vector
    count_noise: Vector

    @property
    def by_counts(self) -> Vector:
        """Standard deviations due to the noise of counts, which are divisors of rates minus ½."""
        return np.asarray(np.abs(self.rates - 0.5) * self.count_noise / self.counts)

    @property
    def all_noise(self) -> Vector:
        """Standard deviations of the rates due to both kinds of noise."""
        return np.hypot(self.noise, self.by_counts)


def allowances(constraints: Constraints) -> Vector:
    """Return the allowed difference of rates by row: its budget, or one minus its ratio."""
    return np.array(
        [row.budget if row.rule == "difference" else 1.0 - row.budget for row in constraints.rows]
    )


def noise_of_rows(constraints: Constraints, noise: Vector) -> Vector:
    """Return standard deviations of the violations by noise in the rates."""
    return np.asarray(np.sqrt(constraints.matrix**2 @ noise**2))


def usable_rows(constraints: Constraints, known: NoisyRates, least: float) -> NDArray[np.bool_]:
    """Return the rows whose groups are large enough and whose noise is below the budget."""
    too_small = (constraints.matrix != 0) @ (known.counts < least)
    noise = noise_of_rows(constraints, known.all_noise)
    return np.asarray(~too_small & (noise < allowances(constraints)))


def deviations(constraints: Constraints, known: NoisyRates, spread: Vector) -> Vector:
    """Return standard deviations of the violations on new rows around the estimates.

    They combine ``spread``, due to the noise of all rounds, with the noise of counts and the
    sampling errors of training rows and new rows.
    """
    chance = known.rates * (1.0 - known.rates) / np.maximum(known.counts, 1.0)
    both = known.by_counts**2 + chance * (1.0 + 1.0 / NEW_ROWS)
    return np.hypot(spread, noise_of_rows(constraints, np.sqrt(both)))


def margins(constraints: Constraints, known: NoisyRates, spread: Vector) -> Vector:
    """Return margins with which 99 of 100 samples of new rows satisfy each budget.

    If the required margin exceeds `MAX_MARGIN` times the budget, no margin suffices, and every
    margin costs accuracy. The returned margin is then inversely proportional to the required one.
    """
    wanted = DEVIATIONS * deviations(constraints, known, spread)
    most = np.maximum(MAX_MARGIN * allowances(constraints), 1e-12)
    return np.asarray(np.minimum(wanted, most**2 / np.maximum(wanted, 1e-12)))


def private_step(curvature: Matrix, gradient: Vector, slopes: Matrix, violations: Vector) -> Vector:
    """Return the step, damped until it is at most `MAX_STEP` long."""
    rows = np.vstack([gradient[None], slopes])
    upper = np.full(len(violations), PENALTY)
    damping = 0.0
    while True:
        factor = np.linalg.cholesky(curvature + damping * np.eye(gradient.size))
        whitened = np.linalg.solve(factor, rows.T).T
        weights = solve_dual_qp(whitened, np.append(0.0, violations), 1, upper)
        step: Vector = -np.linalg.solve(factor.T, whitened.T @ weights)
        if np.linalg.norm(step) <= MAX_STEP:
            return step
        damping = max(2.0 * damping, 1e-3)


SLOPE = 1.5  # sharpness of the smooth rates whose slopes are requested
MIN_ROWS = 100.0  # of a group that is compared
L2 = 3e-4  # smallest weight of |params|²/2 in the loss
SLOPE_MEMORY = 0.5  # factor on the weight of earlier slopes with each round

# Shares of the privacy loss (of mu squared, see `fcfl.privacy`). They are fixed and independent of
# clients' rows. They were chosen on other partitions than those in docs/privacy.md.
GRADIENT_ROUNDS = 3  # more rounds would divide the same budget and have noisier gradients
EVALUATION = 0.06  # of the decisions on training rows, at the end
_FIRST: dict[Kind, float] = {"counts": 0.05, "moments": 0.15, "gradient": 0.2}
_FULL: dict[Kind, float] = {"scores": 0.1, "rates": 0.03}
_CORRECTIONS = 0.12  # of all rounds that request rates only


def _shares(rounds: int) -> list[dict[Kind, float]]:
    """Return the shares of each round's releases, before they are scaled to the whole."""
    n_full = min(rounds - 1, GRADIENT_ROUNDS)
    n_corrections = rounds - 1 - n_full
    correction: dict[Kind, float] = {"rates": _CORRECTIONS / max(n_corrections, 1)}
    return [_FIRST, *[_FULL] * n_full, *[correction] * n_corrections]


@dataclass(frozen=True)
class PrivateState:
    """The model and the estimates from noisy sums.

    ``violations`` are those of the decisions before the last step, or after it once the run has
    ended. ``variances`` are their variances due to noise. ``group_counts`` are the rows behind each
    client's rates, at least one, with noise ``count_sd``. ``at_zero`` is the released gradient of
    the mean loss at zero. ``slopes`` are the gradients of rates. ``slope_noise`` is the noise
    variance of the slopes before division by ``group_counts``. ``evaluation`` and ``held_out`` are
    the cells counted at the end.
    """

    problem: Problem
    params: Vector
    request: Request
    status: Status
    message: str
    rounds: tuple[int, ...]
    group_counts: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    count_sd: Vector = field(default_factory=lambda: np.zeros(0))
    n_rows: Vector = field(default_factory=lambda: np.zeros(0))
    curvature: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    at_zero: Vector = field(default_factory=lambda: np.zeros(0))
    gradient: Vector = field(default_factory=lambda: np.zeros(0))
    last_step: Vector = field(default_factory=lambda: np.zeros(0))
    slopes: Matrix = field(default_factory=lambda: np.zeros((0, 0, 0)))
    slope_noise: float = 0.0
    response: Response = field(default_factory=Response)
    violations: Vector = field(default_factory=lambda: np.zeros(0))
    variances: Vector = field(default_factory=lambda: np.zeros(0))
    evaluation: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    held_out: Matrix = field(default_factory=lambda: np.zeros((0, 0)))


@dataclass(frozen=True)
class Private:
    r"""Options of the private method.

    Parameters
    ----------
    epsilon, delta
        The privacy loss of each client over the whole run, evaluation included.
    rounds
        Number of training rounds, before the final counts of decisions.
    least_rows
        Minimum noisy number of rows for a client's group to be compared.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    rounds: int = 7
    least_rows: float = MIN_ROWS
    name: str = "private"
    state_class: ClassVar[type[PrivateState]] = PrivateState
    objectives: ClassVar[tuple[str, ...]] = ("mean",)
    is_private: ClassVar[bool] = True

    def __post_init__(self) -> None:
        privacy.check_privacy(self.epsilon, self.delta)
        check_count("rounds", self.rounds)
        if self.rounds < 2:
            raise ValueError(f"`rounds` must be 2 or more for method 'private', got {self.rounds}.")

    def releases(self, taken: int) -> tuple[Release, ...]:
        """Return the releases requested of every client after ``taken`` rounds.

        The last exchange, after all ``rounds``, counts decisions.
        """
        mu = privacy.mu_of(self.epsilon, self.delta)
        if taken >= self.rounds:
            own = Release("evaluation", mu * math.sqrt(EVALUATION))
            return own, Release("held_out", mu)  # held-out rows have their full privacy budget
        shares = _shares(self.rounds)
        scale = (1.0 - EVALUATION) / sum(sum(one.values()) for one in shares)
        return tuple(
            Release(kind, mu * math.sqrt(scale * share)) for kind, share in shares[taken].items()
        )

    def init(self, params: Vector, problem: Problem) -> PrivateState:
        """Request counts, second moments and the gradient at zero, where training starts."""
        first = np.zeros(check_params(params).size)
        problem = replace(problem, l2=max(problem.l2, L2))
        state = PrivateState(problem, first, Request(()), "running", "", (0,))
        return self._with_request(state)

    def _with_request(self, state: PrivateState) -> PrivateState:
        extras = self.releases(state.rounds[0])
        point = Point(state.params, "values", extras=extras, sharpness=SLOPE)
        return replace(state, request=Request((point,)))

    def step(self, state: PrivateState, reports: Reports) -> tuple[PrivateState, RoundInfo]:
        """Update the estimates and take a step; after the last one, evaluate the decisions."""
        taken = state.rounds[0]
        released = _Releases(state, reports)
        if taken >= self.rounds:
            return self._finished(state, released)
        if taken == 0:
            state = _first_estimates(state, released)
            slopes, over = np.zeros((0, state.params.size)), np.zeros(0)
        else:
            state, slopes, over = self._updated(state, released)
        step = private_step(state.curvature, state.gradient, slopes, over)
        state = replace(state, params=state.params + step, last_step=step, rounds=(taken + 1,))
        largest = float(over.max(initial=-np.inf))
        return self._with_request(state), _info(taken + 1, largest, float(np.linalg.norm(step)))

    def _updated(
        self, state: PrivateState, released: "_Releases"
    ) -> tuple[PrivateState, Matrix, Vector]:
        """Return the new state, with the slopes and tightened violations for the next step."""
        constraints, known = state.problem.constraints, released.rates()
        usable = usable_rows(constraints, known, self.least_rows)
        measured = _with_violations(state, known, usable)
        if "scores" in released.asked:
            state = _with_slopes(measured, released)
            scores = released.total("scores")[0] / state.n_rows.sum()
            gradient = state.at_zero + scores + state.problem.l2 * state.params
        else:
            state = measured
            gradient = state.gradient + state.curvature @ state.last_step
        state = replace(state, gradient=gradient)
        over = state.violations + margins(constraints, known, np.sqrt(state.variances))
        return state, _row_slopes(state)[usable], over[usable]

    def _finished(
        self, state: PrivateState, released: "_Releases"
    ) -> tuple[PrivateState, RoundInfo]:
        constraints, decided = state.problem.constraints, released.decisions()
        usable = usable_rows(constraints, decided, self.least_rows)
        state = _with_violations(state, decided, usable)
        by_counts = noise_of_rows(constraints, decided.by_counts)
        state = replace(
            state,
            variances=state.variances + by_counts**2,
            evaluation=released.stacked("evaluation"),
            held_out=released.stacked("held_out"),
            status="converged",
            message=(
                f"All {self.rounds} rounds taken, each client with epsilon {self.epsilon:g} and "
                f"delta {self.delta:g}."
            ),
            rounds=(self.rounds + 1,),
        )
        return state, _info(self.rounds + 1, float("nan"), 0.0)

    def fraction_done(self, state: PrivateState) -> float:
        """Return the share of the exchanges made."""
        return state.rounds[0] / (self.rounds + 1)


@dataclass(frozen=True)
class _Releases:
    """The releases of one round."""

    state: PrivateState
    reports: Reports

    @property
    def asked(self) -> dict[Kind, Release]:
        releases: Any = self.state.request.points[0].extras
        return {release.kind: release for release in releases}

    def stacked(self, kind: Kind) -> Matrix:
        """Return one line per client."""
        problem = self.state.problem
        found = [self.reports[client][0].extras[kind] for client in problem.clients]
        if kind in ("counts", "evaluation", "held_out"):
            expected = len(privacy.cells_of(problem.rates, kind))
            for client, cells in zip(problem.clients, found, strict=True):
                if cells.size != expected:
                    raise ReportError(
                        f"Client {client!r} sent {cells.size} {kind}, expected {expected}."
                    )
        return np.array(found)

    def total(self, kind: Kind) -> Vector:
        return np.asarray(self.stacked(kind).sum(axis=0))

    def noise(self, kind: Kind) -> float:
        """Return the standard deviation of one client's noise."""
        return self.asked[kind].noise_sd(self.state.problem.rates)

    def rates(self) -> NoisyRates:
        """Return the rates of decisions."""
        rates = np.clip(self.stacked("rates") / self.state.group_counts + 0.5, 0.0, 1.0)
        return _noisy(self.state, rates, self.noise("rates"))

    def decisions(self) -> NoisyRates:
        """Return the rates of decisions from the cells that are counted at the end."""
        rates, cells = self.state.problem.rates, self.stacked("evaluation")
        behind = cells_behind(rates, "evaluation")
        chosen = cells_behind(rates, "evaluation", selected=True)
        found = np.clip(cells @ chosen.T / np.maximum(cells @ behind.T, 1.0), 0.0, 1.0)
        # The error of a rate combines the noise of the selected cells and of the other cells.
        sd = self.noise("evaluation") * np.sqrt(chosen.sum(axis=1))
        return _noisy(self.state, found, sd * np.hypot(found, 1.0 - found))


def _noisy(state: PrivateState, rates: Matrix, sd: Matrix | float) -> NoisyRates:
    """Return `NoisyRates` for ``rates``; ``sd`` is the noise of rates times group counts."""
    counts = state.group_counts
    count_noise = np.tile(state.count_sd, len(counts))
    return NoisyRates(rates.ravel(), (sd / counts).ravel(), counts.ravel(), count_noise)


def _first_estimates(state: PrivateState, released: _Releases) -> PrivateState:
    """Set the counts, and a quadratic model of the mean loss at zero."""
    rates = state.problem.rates
    cells, behind = released.stacked("counts"), cells_behind(rates)
    n_rows = np.maximum(cells.sum(axis=1) / len(privacy.attributes_of(rates)), 1.0)
    noise = released.noise("moments") * np.sqrt(len(cells))
    moments, n = released.total("moments"), state.params.size
    rows = len(state.problem.constraints.rows)
    gradient = released.total("gradient") / n_rows.sum()
    return replace(
        state,
        n_rows=n_rows,
        group_counts=np.maximum(cells @ behind.T, 1.0),
        count_sd=released.noise("counts") * np.sqrt(behind.sum(axis=1)),
        curvature=curvature_estimate(moments, n_rows.sum(), noise, state.problem.l2),
        gradient=gradient,
        at_zero=gradient,
        slopes=np.zeros((len(cells), len(rates), n)),
        violations=np.zeros(rows),
        variances=np.full(rows, np.inf),
    )


def _with_slopes(state: PrivateState, released: _Releases) -> PrivateState:
    """Average the slopes of all rounds; each round halves the weights of all earlier rounds."""
    scale = SLOPE * np.sqrt(privacy.rates_of_a_row(state.problem.rates)) / 2.0
    fresh = scale * released.stacked("scores")[:, 1:] / state.group_counts[:, :, None]
    weight = (1.0 - SLOPE_MEMORY ** state.rounds[0]) / (1.0 - SLOPE_MEMORY)
    old = (weight - 1.0) / weight
    noise = (scale * released.noise("scores") / weight) ** 2
    slopes = old * state.slopes + fresh / weight
    return replace(state, slopes=slopes, slope_noise=old**2 * state.slope_noise + noise)


def _row_slopes(state: PrivateState) -> Matrix:
    """Return the gradients of all rows' violations."""
    noise = state.slope_noise / state.group_counts**2
    slopes = shrunk(state.slopes, state.group_counts, noise)
    flat = slopes.reshape(-1, state.params.size)
    return np.asarray(state.response.factor * (state.problem.constraints.matrix @ flat))


def _with_violations(
    state: PrivateState, known: NoisyRates, usable: NDArray[np.bool_]
) -> PrivateState:
    """Average measured and predicted violations by inverse variance, and update the response."""
    constraints = state.problem.constraints
    measured = constraints.violations(known.rates)
    noise = noise_of_rows(constraints, known.noise) ** 2
    if not np.isfinite(state.variances).all():  # nothing was measured before
        return replace(state, violations=measured, variances=noise)
    moved = _row_slopes(state) @ state.last_step
    response = state.response.updated(
        moved[usable] / state.response.factor,
        (measured - state.violations)[usable],
        (state.variances + noise)[usable],
    )
    expected = state.violations + moved
    variance = state.variances + (DISTRUST * moved) ** 2 + 1e-5
    gain = variance / (variance + noise)
    return replace(
        state,
        violations=expected + gain * (measured - expected),
        variances=variance * (1.0 - gain),
        response=response,
    )


def _info(round: int, largest_violation: float, step: float) -> RoundInfo:
    """Return the `RoundInfo` of a round without losses, because these would cost privacy."""
    nan = float("nan")
    return RoundInfo(round, 1, "", nan, nan, largest_violation, step)


# --- budgets under noise --------------------------------------------------------------------------

SURE = 0.9  # required probability, given the noise, that training rows satisfy a budget
AIMED_SHARE = 0.4  # typical distance from the budget with little noise, as a share of the budget
ANY_GROUP = 1e9  # placeholder for group sizes, which are estimated later from noisy counts


def evaluated_rows(rates: Sequence[RateId], cells: Matrix) -> tuple[Matrix, Matrix]:
    """Return the rows behind each rate and those selected, as whole numbers, from noisy cells."""
    behind = cells_behind(rates, "evaluation")
    chosen = cells_behind(rates, "evaluation", selected=True)
    rows = np.maximum(np.rint(cells @ behind.T), 0.0)
    return rows, np.clip(np.rint(cells @ chosen.T), 0.0, rows)


def _ended(method: Private, state: PrivateState) -> NoisyRates:
    """Return the final hard rates, with the noise of one training round and of the counts."""
    rates = state.problem.rates
    (asked,) = (one for one in method.releases(1) if one.kind == "rates")
    rows, selected = evaluated_rows(rates, state.evaluation)
    return _noisy(state, selected / np.maximum(rows, 1.0), asked.noise_sd(rates))


def held_rows(method: Private, state: PrivateState) -> NDArray[np.bool_]:
    """Return which constraint rows were enforced."""
    return usable_rows(state.problem.constraints, _ended(method, state), method.least_rows)


def violation_noise(method: Private, state: PrivateState) -> Vector:
    """Return standard deviations of violations by the noise of one round, and of counts."""
    return noise_of_rows(state.problem.constraints, _ended(method, state).all_noise)


def unsure_budgets(method: Private, state: PrivateState) -> list[str]:
    """Return a note for each client whose budget may be exceeded, with the required rows.

    A budget is not enforced if the noise of a round is at least as large as the budget. An enforced
    budget is uncertain if the probability that training rows satisfy it is below `SURE`.
    """
    constraints, usable = state.problem.constraints, held_rows(method, state)
    noise = violation_noise(method, state)
    allowed = np.maximum(allowances(constraints), 1e-9)
    deviations = np.sqrt(np.maximum(state.variances, 1e-300))
    chances = ndtr(-state.violations / deviations)
    needed = np.maximum(ndtri(SURE) * deviations / (AIMED_SHARE * allowed), 2.0 * noise / allowed)
    owners, notes = np.array([row.client for row in constraints.rows], dtype=object), []
    for place, client in enumerate(state.problem.clients):
        rows = np.flatnonzero(owners == client)
        chance, is_held = float(chances[rows].prod()), bool(usable[rows].all())
        if is_held and chance >= SURE:
            continue
        worst = min(rows, key=lambda i: (usable[i], chances[i]))
        few = method.least_rows / float(state.group_counts[place].min())
        factor, n_rows = max(float(needed[worst]), few), float(state.n_rows[place])
        row, wanted = constraints.rows[worst], 1.2 * factor * n_rows
        said = "is not enforced"
        if is_held:
            kept = (
                "the probability that training rows satisfy it is "
                f"{np.floor(100 * chance) / 100:.2f}"
            )
            said = f"is enforced, but {kept}"
        if factor <= 1:
            way_out = "Noise is not the only cause: more rounds or a larger budget may help."
        elif wanted > ANY_GROUP:
            way_out = "A larger budget is required; more rows are not sufficient."
        else:
            way_out = f"About {float(f'{wanted:.2g}'):.0f} rows with the same groups would suffice."
        notes.append(
            f"Client {client!r} has about {n_rows:.0f} rows: at epsilon {method.epsilon:g} the "
            f"noise in its difference of rates has a standard deviation of {noise[worst]:.2g} "
            f"({row.attribute}), and its budget of {row.budget:g} {said}. {way_out}"
        )
    return notes
