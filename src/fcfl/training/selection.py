"""Choose the L2 weight and the objective by cross-validation inside the clients.

Every client splits its own training rows into folds, scores each candidate on the rows it held
out, and says only sums over them: their count, the sum of the losses under each candidate, and the
sums of their products. A candidate is judged by the worst-served client's held-out loss. Each
objective is taken at its best L2 weight; of those not worse than the best by more than one
standard error of the difference, on the same rows, the one with the lowest mean loss is chosen. The
L2 weight is then where a parabola in its logarithm, through that objective's losses near their
lowest, has its minimum: a single lowest point is mostly noise. If that is the strong end of the
grid, as for few rows it may be, a decade more is tried. The result says how flat it
was, and when min-max buys the worst client nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fcfl._types import ClientId, Fold, Point, Request, Vector
from fcfl.client.questions import HeldOut, Setup
from fcfl.federation.federation import Federation
from fcfl.federation.loop import Progress, run
from fcfl.results import Selection, SelectionLine
from fcfl.results.result import objective_name
from fcfl.rules import Rule
from fcfl.server.method import RoundInfo
from fcfl.server.problem import build_problem
from fcfl.training.rounds import OnRound

N_FOLDS = 5
L2_GRID = (1e-1, 5.6e-2, 3e-2, 1.8e-2, 1e-2, 5.6e-3, 3e-3, 1.8e-3, 1e-3, 5.6e-4, 3e-4)
L2_ABOVE = (1.0, 5.6e-1, 3e-1, 1.8e-1)  # tried too when the grid's strong end is chosen
OBJECTIVE_GRID: tuple[float | Literal["max"], ...] = (10.0, 0.3, "max")
REACH = 3  # steps of the L2 grid to either side of the lowest loss that the parabola goes through
SLACK = 1.0  # standard errors that the worst client may be behind the best candidate
MOST_ROWS = 100_000  # used for choosing; more rows would not change the choice
_TOLERANCE = 1e-4  # KKT residual of a fit that is only compared

_CHOOSING = RoundInfo(0, 0, "", np.nan, np.nan, np.nan, 0.0, "choosing l2 and objective")

Candidate = tuple[float, float | Literal["max", "mean"]]


@dataclass(frozen=True)
class OpenSettings:
    """What is left to choose: ``"auto"``, or the value that is given."""

    l2: float | Literal["auto"]
    objective: float | Literal["max", "mean", "auto"]

    @property
    def is_open(self) -> bool:
        """Whether anything is left to cross-validation."""
        return "auto" in (self.l2, self.objective)

    def candidates(self, n_clients: int, l2_grid: tuple[float, ...]) -> list[Candidate]:
        """From much to little regularised, from the mean towards the maximum.

        One client alone is both.
        """
        weights = l2_grid if self.l2 == "auto" else (float(self.l2),)
        grid = OBJECTIVE_GRID if n_clients > 1 else ("max",)
        objectives: Any = grid if self.objective == "auto" else (self.objective,)
        return [(weight, objective) for weight in weights for objective in objectives]


def select(
    federation: Federation,
    setup: Setup,
    rules: Sequence[Rule],
    method: Any,
    settings: OpenSettings,
    *,
    seed: int,
    on_round: OnRound | None = None,
) -> Selection:
    """Cross-validate all candidates; the choice, the table and one sentence of reading."""
    n_clients = len(federation.names)
    most = max(MOST_ROWS // n_clients, 500)
    folds = [Fold(index, N_FOLDS, seed, most) for index in range(N_FOLDS)]
    someone = federation.hold_out(setup, folds[0], (setup.model.neutral_start(),))
    if not any(sums.n_rows for sums in someone.values()):
        return _nothing_to_hold_out(settings)
    fits = _Fits(federation, setup, rules, method)
    candidates = settings.candidates(n_clients, L2_GRID)
    open_l2 = settings.l2 == "auto"
    first = len(L2_GRID) / len((*L2_GRID, *L2_ABOVE)) if open_l2 else 1.0  # of all there may be
    fitted = fits.along(candidates, folds, _part(on_round, 0.0, first))
    chosen = decide(candidates, fits.held_out(fitted))
    if not open_l2 or chosen.l2 < max(L2_GRID):
        return chosen
    above = settings.candidates(n_clients, L2_ABOVE)
    more = fits.along(above, folds, _part(on_round, first, 1.0))
    both = {fold: [*more[fold], *fitted[fold]] for fold in folds}
    return decide([*above, *candidates], fits.held_out(both))


@dataclass(frozen=True)
class _Fits:
    """Fits without the rows of a fold, and what they do on those rows."""

    federation: Federation
    setup: Setup
    rules: Sequence[Rule]
    method: Any

    def along(
        self, candidates: Sequence[Candidate], folds: Sequence[Fold], on_round: OnRound
    ) -> dict[Fold, list[Vector]]:
        """Parameters of every candidate for every fold, each from where the one before ended."""
        fitted: dict[Fold, list[Vector]] = {}
        for fold in folds:
            clients = self.federation.bind(self.setup, fold)
            params = self.setup.model.neutral_start()
            counted = clients.evaluate(Request((Point(params),)))
            self.federation.check_all_answered("what its rows outside a fold are")
            fitted[fold] = []
            for l2, objective in candidates:
                problem, _ = build_problem(
                    self.rules,
                    self.setup.rates,
                    counted,
                    l2=l2,
                    min_group_rows=self.setup.min_group_rows,
                )
                method = replace(
                    self.method,
                    objective=objective,
                    rounds=(60, 0),
                    tolerance=_TOLERANCE,
                    feasibility=_TOLERANCE,
                )
                for progress, _ in run(method, Progress(method.init(params, problem)), clients):
                    params = progress.state.params
                fitted[fold].append(params)
                share = fold.index + len(fitted[fold]) / len(candidates)
                on_round(_CHOOSING, share / len(folds))
        return fitted

    def held_out(self, fitted: Mapping[Fold, Sequence[Vector]]) -> dict[ClientId, HeldOut]:
        """Each client's losses on the rows it held out; one that held none is not among them."""
        totals: dict[ClientId, HeldOut] = {}
        for fold, params in fitted.items():
            for client, sums in self.federation.hold_out(self.setup, fold, params).items():
                if sums.n_rows:
                    totals[client] = totals[client].plus(sums) if client in totals else sums
        return totals


def _part(on_round: OnRound | None, low: float, high: float) -> OnRound:
    """Tells ``on_round`` shares of a part as shares of the whole."""

    def part(info: RoundInfo, share: float) -> None:
        if on_round is not None:
            on_round(info, low + (high - low) * share)

    return part


def decide(candidates: Sequence[Candidate], totals: Mapping[ClientId, HeldOut]) -> Selection:
    """The objective with the lowest mean loss of those near the best; then the L2 weight."""
    means = np.array([sums.means for sums in totals.values()])
    names, worst = list(totals), np.argmax(means, axis=0)
    worst_losses = means.max(axis=0)
    best = int(np.argmin(worst_losses))
    table = []
    for i, (l2, objective) in enumerate(candidates):
        who = names[worst[i]]
        error = totals[who].standard_error(i, best)
        table.append(
            SelectionLine(
                l2=l2,
                objective=_named(objective),
                worst_client=who,
                worst_loss=float(worst_losses[i]),
                worst_loss_standard_error=totals[who].standard_error(i),
                mean_loss=float(np.mean(means[:, i])),
                standard_error_of_difference=error,
                near_best=bool(worst_losses[i] - worst_losses[best] <= SLACK * error),
            )
        )
    curves = [
        [line for line in table if line.objective == objective]
        for objective in dict.fromkeys(line.objective for line in table)
    ]
    bests = [min(curve, key=lambda line: line.worst_loss) for curve in curves]
    near = [i for i, line in enumerate(bests) if line.near_best]
    curve = curves[min(near, key=lambda i: bests[i].mean_loss)]
    l2 = lowest_between([line.l2 for line in curve], [line.worst_loss for line in curve])
    chosen = min(curve, key=lambda line: abs(np.log(line.l2 / l2)) if l2 else 0.0)
    return Selection(
        l2=l2,
        objective=chosen.objective,
        folds=N_FOLDS,
        best=table[best],
        chosen=chosen,
        near_best=sum(line.near_best for line in table),
        spread=float(worst_losses.max() - worst_losses[best]),
        table=tuple(table),
        sentence=_sentence(l2, chosen, table[best], table),
    )


def _named(objective: float | str) -> Any:
    return objective_name(objective)


def lowest_between(weights: list[float], losses: list[float]) -> float:
    """The L2 weight, to two digits, where a parabola in its logarithm is lowest.

    It is drawn through the losses near the lowest one, and never left; where it does not open
    upwards, the lowest loss's own weight is taken.
    """
    lowest = int(np.argmin(losses))
    near = slice(max(lowest - REACH, 0), lowest + REACH + 1)
    if len(losses[near]) < 3:
        return weights[lowest]
    logs = np.log(weights[near])
    bend, slope, _ = np.polyfit(logs, losses[near], 2)
    if bend <= 0:
        return weights[lowest]
    return float(f"{np.exp(np.clip(-slope / (2 * bend), logs.min(), logs.max())):.2g}")


def _sentence(
    l2: float, chosen: SelectionLine, best: SelectionLine, table: Sequence[SelectionLine]
) -> str:
    """What was chosen, how flat it was, and whether min-max bought anything."""
    near = sum(line.near_best for line in table)
    nearby = "" if l2 == chosen.l2 else f" at l2 {chosen.l2:g}"
    said = (
        f"Chose l2 {l2:g} and objective {_shown(chosen.objective)} by "
        f"{N_FOLDS}-fold cross-validation: held-out loss of the worst client "
        f"({chosen.worst_client}) {chosen.worst_loss:.4f} ± "
        f"{chosen.worst_loss_standard_error:.4f}{nearby}; the best is "
        f"{best.worst_loss:.4f}, and {near} of {len(table)} settings are within one standard "
        "error of it."
    )
    at_max = [line.worst_loss for line in table if line.objective == "max"]
    others = [line.worst_loss for line in table if line.objective != "max"]
    if at_max and others and min(at_max) >= min(others):
        said += " Min-max buys the worst client nothing on held-out rows."
    return said


def _shown(objective: float | str) -> str:
    return objective if isinstance(objective, str) else f"{objective:g}"


def _nothing_to_hold_out(settings: OpenSettings) -> Selection:
    """Clients of a handful of rows: a moderate choice, and it is said."""
    return Selection(
        l2=1e-2 if settings.l2 == "auto" else float(settings.l2),
        objective=_named(1.0 if settings.objective == "auto" else settings.objective),
        folds=0,
        sentence=f"No client has the {2 * N_FOLDS} training rows that cross-validation needs; "
        "l2 and objective were not chosen but set to a middle value.",
    )
