"""Budgets kept by thresholds: one score, trained without budgets, and decisions by group.

Every client chooses thresholds for its groups on its own training rows (`client.thresholds`), so
that only these and the usual counts leave it. Margins and limits on rates are those of `margins`;
of all pairs of groups of a client the tightest bound holds, since its groups share one window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fcfl._checks import check_choice
from fcfl._types import ClientId, RateKind, Vector
from fcfl.client.client import Setup
from fcfl.client.counts import pool_counts
from fcfl.client.thresholds import MOST_KINDS, RateWindow
from fcfl.federation.federation import Federation
from fcfl.methods.decisions import KEPT
from fcfl.models.rates import THRESHOLDS, GroupThresholds
from fcfl.problem.constraints import exceeded_by
from fcfl.problem.evaluation import Problem
from fcfl.rules import Rule
from fcfl.training.margins import enforced, rate_limits, rows_per_new_row, tightened
from fcfl.training.run import Run
from fcfl.training.solve import RUNGS, Demands, Solved


def check_thresholds(
    thresholds: str, rules: Sequence[Rule], federation: Federation, *, relative: bool
) -> None:
    """Refuse, before anything is trained, what thresholds by group cannot keep."""
    check_choice("thresholds", thresholds, THRESHOLDS)
    if thresholds == "common":
        return
    bounded = [rule for rule in rules if rule.budget is not None or relative]
    if not bounded:
        raise ValueError("`thresholds` 'group' needs a budget: what the thresholds are to keep.")
    if any(rule.scope == "global" for rule in bounded):
        raise ValueError(
            "`thresholds` 'group' needs rules of scope 'client', got one of scope 'global': every "
            "client chooses its own."
        )
    attributes = tuple(dict.fromkeys(rule.attribute for rule in bounded))
    if len(attributes) > 1:
        raise ValueError(
            "`thresholds` 'group' needs budgets on one attribute, got "
            f"{', '.join(map(repr, attributes))}. Leave the other budgets out."
        )
    kinds = dict.fromkeys(kind for rule in bounded for kind in rule.kinds)
    if len(kinds) > MOST_KINDS:
        raise ValueError(
            f"`thresholds` 'group' compares at most {MOST_KINDS} kinds of rates, got "
            f"{', '.join(kinds)}. Leave a rule out."
        )
    federation.check_chooses_thresholds()


def with_thresholds(solved: Solved, setup: Setup, demands: Demands) -> Solved:
    """Give the trained score thresholds by which its decisions keep the rules of ``setup``.

    First within the plain budgets; then, for a confidence, within bounds lowered by the margins of
    those decisions. Where that costs more accuracy than allowed, for the largest of the
    confidences `RUNGS` for which it does not.
    """
    run = replace(solved.run, setup=setup)
    problem, left_out = run.build(setup.rules)
    notes = [*solved.notes, *run.noted(left_out)]
    choosing = _Choosing(run, solved.params, problem, demands)
    plain = choosing.choose(problem.constraints.bounds)
    found, reached = plain, 0.0
    for confidence in sorted({*RUNGS, demands.confidence}, reverse=True):
        if confidence > demands.confidence or confidence == 0 or not len(problem.constraints):
            continue
        tried = choosing.within_margins(plain, confidence)
        if tried is not None and tried.accuracy >= plain.accuracy - demands.max_accuracy_loss:
            found, reached = tried, confidence
            break
    if reached < demands.confidence and len(problem.constraints):
        notes += run.noted((
            f"Margins for {demands.confidence:g} confidence were made for {reached:g}: larger ones "
            f"cost more than {demands.max_accuracy_loss:g} of accuracy on training rows "
            "(--max-accuracy-loss).",
        ))  # fmt: skip
    notes += run.noted((found.thresholds.sentence,))
    exceeded = exceeded_by(problem.constraints, found.hard, KEPT)
    return replace(
        solved,
        run=replace(run, setup=replace(setup, thresholds=found.thresholds)),
        problem=problem,
        notes=tuple(notes),
        rules=setup.rules,
        exceeded=exceeded,
    )


@dataclass(frozen=True)
class _Chosen:
    """Thresholds, the hard rates that they give, and the share of rows decided correctly."""

    thresholds: GroupThresholds
    hard: Vector
    accuracy: float


class _Choosing:
    """Clients choose thresholds under some bounds; each choice is counted."""

    def __init__(self, run: Run, params: Vector, problem: Problem, demands: Demands) -> None:
        self._run, self._params, self._problem, self._demands = run, params, problem, demands
        self._attribute = next(
            rule.attribute for rule in run.setup.rules if rule.budget is not None
        )

    def choose(self, bounds: Vector) -> _Chosen:
        """The most accurate thresholds under bounds of the rows."""
        run = self._run
        with run.federation.phase("threshold"):
            chosen = run.federation.choose_thresholds(
                run.setup, self._params, self._attribute, windows_of(self._problem, bounds)
            )
        listed = {client: dict(own) for client, own in chosen.items() if own}
        return self._counted(GroupThresholds(self._attribute, listed))

    def within_margins(self, plain: _Chosen, confidence: float) -> _Chosen | None:
        """The choice under tightened bounds; None if the federation's rate shifts too far."""
        problem, shift = self._problem, self._demands.shift
        counts = np.concatenate([report.group_counts for (report,) in self._run.counts.values()])
        rules = self._run.setup.rules
        known = enforced(problem.constraints, rules, counts, plain.hard, "none", 0.0)
        no_bias = np.zeros(len(known.budgets))
        new = rows_per_new_row(problem, known.budgets.rows, self._demands.new_rows)
        tight = tightened(known, plain.hard, plain.hard, no_bias, confidence, new)
        found = self.choose(tight.smooth)
        if shift is None:
            return found
        over = rate_limits(known, plain.hard, shift).violations(found.hard)
        return found if (over <= KEPT).all() else None

    def _counted(self, thresholds: GroupThresholds) -> _Chosen:
        setup = replace(self._run.setup, thresholds=thresholds)
        with self._run.federation.phase("threshold"):
            counted = self._run.federation.count(setup, self._params)
        hard = np.concatenate([counted[client].rates for client in self._problem.clients])
        counts = pool_counts(said.train for said in counted.values())
        right = counts.true_negative + counts.true_positive
        return _Chosen(thresholds, hard, right / max(counts.n_rows, 1))


def windows_of(problem: Problem, bounds: Vector) -> dict[ClientId, tuple[RateWindow, ...]]:
    """What each client's rates are held to: for every rule and kind one window for all its groups.

    ``bounds`` are those of the rows; of all pairs the lowest holds.
    """
    constraints = problem.constraints
    weights = np.zeros(len(constraints))
    np.maximum.at(weights, constraints.entry_row, constraints.entry_value)
    windows: dict[tuple[ClientId, int, str], RateWindow] = {}
    lines = zip(constraints.rows, constraints.blocks, weights, bounds, strict=True)
    for row, block, weight, bound in lines:
        assert row.client is not None, "rules over all rows are refused before"
        kind: RateKind = row.kind  # type: ignore[assignment]
        key = (row.client, int(block), row.kind)
        window = windows.get(key, RateWindow(kind, (), float(weight), float(bound)))
        groups = tuple(dict.fromkeys((*window.groups, row.group_a, row.group_b)))
        windows[key] = replace(window, groups=groups, bound=min(window.bound, float(bound)))
    found: dict[ClientId, tuple[RateWindow, ...]] = {}
    for (client, *_), window in windows.items():
        found[client] = (*found.get(client, ()), window)
    return found
