"""Satisfy budgets by group thresholds on a score that is trained without budgets.

Every client chooses thresholds for its groups on its own training rows (`client.thresholds`). It
sends only the thresholds and the usual counts. Margins and rate limits are computed by `margins`.
All groups of a client share one window of rates, so the tightest bound of its pairs of groups
applies to all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fcfl._checks import first_of
from fcfl._types import ROW_SIGNS, Vector
from fcfl.client.client import Setup
from fcfl.client.counts import pool_counts
from fcfl.client.thresholds import MAX_KINDS, windows_of
from fcfl.federation.federation import Federation
from fcfl.methods.decisions import KEPT
from fcfl.models.model import GroupThresholds
from fcfl.problem import exceeded_by
from fcfl.rules import Rule
from fcfl.training import margins
from fcfl.training.solve import Demands, Solved


def check_thresholds(rules: Sequence[Rule], federation: Federation, *, relative: bool) -> None:
    """Raise `ValueError` before training if group thresholds cannot satisfy the rules."""
    bounded = [rule for rule in rules if rule.budget is not None or relative]
    attributes = {rule.attribute: None for rule in bounded}
    kinds = {kind: None for rule in bounded for kind in rule.kinds}
    for is_wrong, needs in (
        (not bounded, "a budget for the thresholds to satisfy"),
        (any(rule.scope == "global" for rule in bounded), "rules of scope 'client', not 'global'"),
        (any(-1 in ROW_SIGNS[kind] for kind in kinds), "a metric of rates of selected rows"),
        (len(attributes) > 1, f"budgets on one attribute, got {first_of(map(repr, attributes))}"),
        (len(kinds) > MAX_KINDS, f"at most {MAX_KINDS} kinds of rates, got {first_of(kinds)}"),
    ):
        if is_wrong:
            raise ValueError(f"`thresholds` 'group' needs {needs}.")
    federation.check_chooses_thresholds()


@dataclass(frozen=True)
class _Chosen:
    """Thresholds, the hard rates at these thresholds, and the training accuracy."""

    thresholds: GroupThresholds
    hard: Vector
    accuracy: float


def with_thresholds(solved: Solved, setup: Setup, demands: Demands) -> Solved:
    """Choose thresholds for the trained score so that decisions satisfy the rules of ``setup``.

    1. Choose thresholds under the plain budgets.
    2. With a confidence, choose them again under bounds tightened by margins.
    3. If the margins cost too much accuracy, use the largest confidence in `RUNGS` that does not.
    """
    run = replace(solved.run, setup=setup)
    problem, left_out = run.build(setup.rules)
    notes, constraints = run.noted(left_out), problem.constraints
    attribute = next(rule.attribute for rule in setup.rules if rule.budget is not None)

    def choose(bounds: Vector) -> _Chosen:
        """Return the most accurate thresholds under these bounds of the rows."""
        windows = windows_of(constraints, bounds)
        with run.federation.phase("threshold"):
            chosen = run.federation.choose_thresholds(setup, solved.params, attribute, windows)
            listed = {client: dict(own) for client, own in chosen.items() if own}
            thresholds = GroupThresholds(attribute, listed)
            counted = run.federation.count(replace(setup, thresholds=thresholds), solved.params)
        hard = np.concatenate([counted[client].rates for client in problem.clients])
        counts = pool_counts(parts.train for parts in counted.values())
        right = counts.true_negative + counts.true_positive
        return _Chosen(thresholds, hard, right / max(counts.n_rows, 1))

    best = plain = choose(constraints.bounds)
    reached, target = 0.0, demands.confidence
    if target > 0 and len(constraints):
        counts = np.concatenate([report.group_counts for (report,) in run.counts.values()])
        known = margins.enforced(constraints, setup.rules, counts, plain.hard, "none", 0.0)
        shift = demands.shift
        limits = None if shift is None else margins.rate_limits(known, plain.hard, shift)
        new = margins.rows_per_new_row(problem, known.budgets.rows, demands.new_rows)
        unbiased = np.zeros(len(known.budgets))
        for confidence in sorted({target, *(r for r in margins.RUNGS if r < target)}, reverse=True):
            bounds = margins.tightened(known, plain.hard, plain.hard, unbiased, confidence, new)
            tried = choose(bounds.smooth)
            is_near = limits is None or (limits.violations(tried.hard) <= KEPT).all()
            if is_near and tried.accuracy >= plain.accuracy - demands.max_accuracy_loss:
                best, reached = tried, confidence
                break
        if reached < target:
            notes += run.noted((
                f"Margins use a confidence of {reached:g} instead of {target:g}: larger margins "
                f"cost more than {demands.max_accuracy_loss:g} of accuracy on training rows "
                "(--max-accuracy-loss).",
            ))  # fmt: skip
    notes += run.noted((best.thresholds.sentence,))
    return replace(
        solved,
        run=replace(run, setup=replace(setup, thresholds=best.thresholds)),
        notes=(*solved.notes, *notes),
        rules=setup.rules,
        decisive=None,
        exceeded=exceeded_by(constraints, best.hard, KEPT),
    )
