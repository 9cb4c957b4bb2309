"""Budgets kept by thresholds: one score, trained without budgets, and decisions by group.

Every client chooses thresholds for its groups on its own training rows (`client.thresholds`), so
that only these and the usual counts leave it. Margins and limits on rates are those of `margins`;
of all pairs of groups of a client the tightest bound holds, since its groups share one window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fcfl._checks import first_of
from fcfl._types import Vector
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
    """Raise `ValueError`, before training, for what thresholds by group cannot keep."""
    bounded = [rule for rule in rules if rule.budget is not None or relative]
    attributes = {rule.attribute: None for rule in bounded}
    kinds = {kind: None for rule in bounded for kind in rule.kinds}
    for is_wrong, needs in (
        (not bounded, "a budget: what the thresholds are to keep"),
        (any(rule.scope == "global" for rule in bounded), "rules of scope 'client', not 'global'"),
        (len(attributes) > 1, f"budgets on one attribute, got {first_of(map(repr, attributes))}"),
        (len(kinds) > MAX_KINDS, f"at most {MAX_KINDS} kinds of rates, got {first_of(kinds)}"),
    ):
        if is_wrong:
            raise ValueError(f"`thresholds` 'group' needs {needs}.")
    federation.check_chooses_thresholds()


@dataclass(frozen=True)
class _Chosen:
    """Thresholds, the hard rates that they give, and the share of rows decided correctly."""

    thresholds: GroupThresholds
    hard: Vector
    accuracy: float


def with_thresholds(solved: Solved, setup: Setup, demands: Demands) -> Solved:
    """Give the trained score thresholds by which its decisions keep the rules of ``setup``.

    First within the plain budgets; then, for a confidence, within bounds lowered by the margins of
    those decisions. Where that costs more accuracy than allowed, for the largest of the
    confidences `RUNGS` for which it does not.
    """
    run = replace(solved.run, setup=setup)
    problem, left_out = run.build(setup.rules)
    notes, constraints = run.noted(left_out), problem.constraints
    attribute = next(rule.attribute for rule in setup.rules if rule.budget is not None)

    def choose(bounds: Vector) -> _Chosen:
        """Return the most accurate thresholds under bounds of the rows."""
        windows = windows_of(constraints, bounds)
        with run.federation.phase("threshold"):
            chosen = run.federation.choose_thresholds(setup, solved.params, attribute, windows)
            listed = {client: dict(own) for client, own in chosen.items() if own}
            thresholds = GroupThresholds(attribute, listed)
            counted = run.federation.count(replace(setup, thresholds=thresholds), solved.params)
        hard = np.concatenate([counted[client].rates for client in problem.clients])
        counts = pool_counts(said.train for said in counted.values())
        right = counts.true_negative + counts.true_positive
        return _Chosen(thresholds, hard, right / max(counts.n_rows, 1))

    found = plain = choose(constraints.bounds)
    reached, asked = 0.0, demands.confidence
    if asked > 0 and len(constraints):
        counts = np.concatenate([report.group_counts for (report,) in run.counts.values()])
        known = margins.enforced(constraints, setup.rules, counts, plain.hard, "none", 0.0)
        shift = demands.shift
        limits = None if shift is None else margins.rate_limits(known, plain.hard, shift)
        new = margins.rows_per_new_row(problem, known.budgets.rows, demands.new_rows)
        unbiased = np.zeros(len(known.budgets))
        for confidence in sorted({asked, *(r for r in margins.RUNGS if r < asked)}, reverse=True):
            bounds = margins.tightened(known, plain.hard, plain.hard, unbiased, confidence, new)
            tried = choose(bounds.smooth)
            is_near = limits is None or (limits.violations(tried.hard) <= KEPT).all()
            if is_near and tried.accuracy >= plain.accuracy - demands.max_accuracy_loss:
                found, reached = tried, confidence
                break
        if reached < asked:
            notes += run.noted((
                f"Margins for {asked:g} confidence were made for {reached:g}: larger ones cost "
                f"more than {demands.max_accuracy_loss:g} of accuracy on training rows "
                "(--max-accuracy-loss).",
            ))  # fmt: skip
    notes += run.noted((found.thresholds.sentence,))
    return replace(
        solved,
        run=replace(run, setup=replace(setup, thresholds=found.thresholds)),
        notes=(*solved.notes, *notes),
        rules=setup.rules,
        decisive=None,
        exceeded=exceeded_by(constraints, found.hard, KEPT),
    )
