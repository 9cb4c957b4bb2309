"""Fits of the settings that cross-validation compares, with and without each fold's rows.

The fits of several candidates go in lock step, one exchange a round, each from one that is near. A
fold costs one Newton step on the KKT conditions from its candidate's fit; only those of the
objectives compared at the chosen weight are trained to their ends.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from fcfl._types import ClientId, Fold, Point, Reports, Vector
from fcfl.client.questions import HeldOut, Setup
from fcfl.federation.federation import Federation
from fcfl.results import Selection
from fcfl.rules import Rule
from fcfl.server.constraints import Constraints
from fcfl.server.problem import Evaluation, Problem, build_problem, evaluate_point
from fcfl.server.sqp.one_step import ask_step, merit_of, take_step
from fcfl.training.fitted_file import Fitted, read_fitted, write_fitted
from fcfl.training.progress_share import OnRound, part_of
from fcfl.training.selection_rule import Candidate, decide
from fcfl.training.together import Lane, ask_together, progress_info, run_together

L2_FIRST = 1e-2  # where the first fit is made, from which the others start
WHAT = "choosing l2 and objective"
_TOLERANCE = 1e-4  # KKT residual of a fit that is only compared; at 1e-3 the choice is noise
_ROUNDS = 60
_MOST_NUMBERS = 4_000_000  # of curvature in one exchange, 32 MB: with many columns there are more
_FITS, _FOLDS = 0.85, 0.95  # shares of a phase's progress

_Judged = tuple[tuple[Fitted, ...], dict[ClientId, HeldOut]]  # models, and what was said of them


class CandidateFits:
    """Fits of candidates, and what they do on rows that were held out, if any are."""

    def __init__(
        self,
        federation: Federation,
        setup: Setup,
        rules: Sequence[Rule],
        method: Any,
        folds: Sequence[Fold],
        min_group_rows: float | None,
        progress_file: Path | None,
    ) -> None:
        self._federation, self._setup, self._method = federation, setup, method
        self._clients = federation.bind(setup)
        self._folds, self._file = tuple(folds), progress_file
        # The rows that take part in choosing, none of them held out.
        self._whole = replace(folds[0], index=len(folds))
        start = setup.model.neutral_start()
        asked = [[Point(start, fold=fold)] for fold in (self._whole, folds[0])]
        whole, inside = ask_together(asked, self._clients, WHAT)
        self.holds_out = any(whole[c][0].n_rows > inside[c][0].n_rows for c in whole)
        self._problem, _ = build_problem(rules, setup.rates, whole, min_group_rows=min_group_rows)
        self._judged: _Judged = ((), {})
        self._known = {} if progress_file is None else read_fitted(progress_file)

    def fit(
        self,
        candidates: Sequence[Candidate],
        near: Mapping[Candidate, Fitted],
        on_round: OnRound,
    ) -> dict[Candidate, Fitted]:
        """Fits of all candidates, from those that are there; from nothing, one is made first."""
        candidates = [one for one in candidates if one not in near]
        found = {one: self._known[one] for one in candidates if one in self._known}
        left = [one for one in candidates if one not in found]
        start = {one: fitted.params for one, fitted in (*near.items(), *found.items())}
        lanes: dict[Candidate, Lane] = {}
        if left and not start:
            centre = min(left, key=lambda one: abs(np.log(max(one[0], 1e-12) / L2_FIRST)))
            first = {centre: self._lane(centre, self._setup.model.neutral_start())}
            lanes |= run_together(first, self._clients, WHAT, part_of(on_round, 0.0, 0.4))
            start = {one: lane.state.params for one, lane in lanes.items()}
        others = {
            one: self._lane(one, start[_nearest(one, start)]) for one in left if one not in lanes
        }
        lanes |= run_together(others, self._clients, WHAT, part_of(on_round, 0.4, _FITS))
        found |= self._folded(lanes)
        on_round(progress_info(0, WHAT), _FOLDS)
        self._known |= found
        if self._file is not None:
            write_fitted(self._file, self._known)
        return {one: found[one] for one in candidates}

    def _lane(self, candidate: Candidate, start: Vector) -> Lane:
        l2, objective = candidate
        method = replace(
            self._method,
            objective=objective,
            rounds=(_ROUNDS, 0),
            tolerance=_TOLERANCE,
            feasibility=_TOLERANCE,
        )
        problem = replace(self._problem, l2=l2)
        return Lane(method, method.init(start, problem), self._whole)

    def _folded(self, lanes: Mapping[Candidate, Lane]) -> dict[Candidate, Fitted]:
        """Where each fit ends without each fold's rows: one step from it, if that step is sound.

        With little regularisation a full step may lead too far. Such a fold is trained to its end:
        a shorter step would stay near the fit that has seen the rows held out.
        """
        n_matrix = self._setup.model.neutral_start().size ** 2
        n_at_once = max(_MOST_NUMBERS // (n_matrix * len(self._folds)), 1)
        steps: dict[tuple[Candidate, Fold], _Step] = {}
        for first in range(0, len(lanes), n_at_once):
            steps |= self._steps(dict(list(lanes.items())[first : first + n_at_once]))
        ends = [[Point(step.end, fold=fold)] for (_, fold), step in steps.items()]
        astray = {
            (candidate, fold): Lane(
                lanes[candidate].method,
                lanes[candidate].method.init(lanes[candidate].state.params, step.problem),
                fold,
            )
            for ((candidate, fold), step), reports in zip(
                steps.items(), ask_together(ends, self._clients, WHAT), strict=True
            )
            if not step.is_sound(reports)
        }
        trained = run_together(astray, self._clients, WHAT)
        found = {key: step.end for key, step in steps.items()}
        found |= {key: lane.state.params for key, lane in trained.items()}
        return {
            candidate: Fitted(
                candidate, lane.state.params, tuple(found[candidate, fold] for fold in self._folds)
            )
            for candidate, lane in lanes.items()
        }

    def _steps(self, lanes: Mapping[Candidate, Lane]) -> dict[tuple[Candidate, Fold], "_Step"]:
        """The step of each fit without each fold's rows, asked for in one exchange."""
        asked = [
            [ask_step(lane.method, lane.state, fold) for fold in self._folds]
            for lane in lanes.values()
        ]
        answers = ask_together(asked, self._clients, WHAT)
        return {
            (candidate, fold): _step(lane, reports, place)
            for (candidate, lane), reports in zip(lanes.items(), answers, strict=True)
            for place, fold in enumerate(self._folds)
        }

    def refined(
        self, fitted: Mapping[Candidate, Fitted], which: Sequence[Candidate], on_round: OnRound
    ) -> dict[Candidate, Fitted]:
        """The same, with the folds of some candidates trained to their ends."""
        lanes = {
            (one, fold): replace(self._lane(one, fitted[one].folds[place]), fold=fold)
            for one in which
            for place, fold in enumerate(self._folds)
        }
        ended = run_together(lanes, self._clients, WHAT, on_round)
        trained = {
            one: replace(
                fitted[one], folds=tuple(ended[one, fold].state.params for fold in self._folds)
            )
            for one in which
        }
        return {**fitted, **trained}

    def decide(self, fitted: Mapping[Candidate, Fitted], *, between: bool = True) -> Selection:
        """The choice among what was fitted, or the L2 weight between that promises to be best."""
        totals = self._held_out(list(fitted.values()))
        # Under masks one that held nothing out may carry the counts of all.
        judged = {client: sums for client, sums in totals.items() if sums.n_rows}
        return decide(list(fitted), judged, between=between)

    def _held_out(self, fitted: Sequence[Fitted]) -> dict[ClientId, HeldOut]:
        """Each client's sums over the rows it held out; asked once about the same models."""
        before, totals = self._judged
        if len(before) == len(fitted) and all(map(operator.is_, before, fitted)):
            return totals
        models = {
            fold: [one.folds[place] for one in fitted] for place, fold in enumerate(self._folds)
        }
        told = self._federation.hold_out(self._setup, models)
        totals = {client: reduce(HeldOut.plus, sums) for client, sums in told.items()}
        self._judged = (tuple(fitted), totals)
        return totals


@dataclass(frozen=True)
class _Step:
    """Where a fit would move to without a fold's rows, and how well it did before on the others."""

    problem: Problem
    end: Vector
    merit: Callable[[Evaluation], float]
    before: float

    def is_sound(self, reports: Reports) -> bool:
        """Whether it does no worse there, on the rows that were not held out."""
        return self.merit(evaluate_point(self.problem, self.end, reports)) <= self.before


def _step(lane: Lane, reports: Reports, place: int) -> _Step:
    """Where a fit would move to without the rows of one fold."""
    problem: Problem = lane.state.problem
    here = evaluate_point(problem, lane.state.params, reports, place)
    counts = np.concatenate([report.group_counts for report in here.reports])
    own = replace(problem, constraints=_without_absent(problem.constraints, counts))
    here, merit = replace(here, problem=own), merit_of(lane.method, lane.state)
    end = take_step(lane.method, lane.state, here)
    return _Step(own, np.nan_to_num(end), merit, merit(here))


def _without_absent(constraints: Constraints, counts: Vector) -> Constraints:
    """The same rows, where those of a group that a fold leaves no row of bind nothing."""
    gone = constraints.entry_row[counts[constraints.entry_column] == 0]
    bounds = constraints.bounds.copy()
    bounds[gone] = 10.0  # rates are at most 1
    return replace(constraints, bounds=bounds)


def _nearest(candidate: Candidate, known: Mapping[Candidate, object]) -> Candidate:
    """The candidate among those known with the nearest L2 weight."""
    weight = np.log(max(candidate[0], 1e-12))
    return min(known, key=lambda one: abs(np.log(max(one[0], 1e-12)) - weight))
