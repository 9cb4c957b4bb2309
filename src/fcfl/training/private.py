"""Training with clients that add noise: one stage, nothing chosen, no starts, no margins.

Nothing but the method's releases is requested of clients. What the result says of rows comes from
the last releases, counts of decisions with noise; intervals are as much wider.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fcfl._types import ClientId, RateId, Report, Vector
from fcfl.client.counts import Counts
from fcfl.errors import DataError
from fcfl.methods.private import (
    ANY_GROUP,
    Private,
    PrivateState,
    evaluated_rows,
    held_rows,
    unsure_budgets,
)
from fcfl.privacy import attributes_of
from fcfl.problem import Problem, build_problem, exceeded_by
from fcfl.results.evaluations import AuditTerms, Evaluations
from fcfl.results.result import Privacy, PrivacyLoss
from fcfl.rules import Rule
from fcfl.training.run import Run
from fcfl.training.solve import Solved

NEIGHBOURS = "add-remove"
NOT_COVERED = (
    "what is declared: column names, levels, ranges, groups, labels, and who takes part",
    "answers that were given twice, after a stop or a reminder: the epsilon here holds if every "
    "question was asked once; a site's journal counts what was",
    "settings that somebody chose by looking at the rows, and other runs on the same rows, which "
    "add up (a site's journal counts them)",
    "one person with several rows, or with rows at several clients: each row counts",
    "times and sizes of messages; rows on the machines of the clients themselves",
)


def check_private(run: Run, rules: Sequence[Rule]) -> None:
    """Raise `DataError` for clients without noise, and rules that noisy counts cannot weigh."""
    for name, said in run.introductions.items():
        if said.privacy is None:
            raise DataError(
                f"Client {name!r} has no privacy budget, so that it would add no noise. Give it "
                "one: `Federation.from_rows(train, test, privacy=PrivacyBudget(epsilon, delta))`, "
                "or [privacy] in the policy of a site."
            )
    if any(rule.scope == "global" for rule in rules):
        raise DataError(
            "`scope` must be 'client' with method 'private': a rule over all rows together needs "
            "exact counts."
        )


def solve_privately(run: Run, first: Vector) -> tuple[Solved, Evaluations]:
    """Train by noisy sums alone; the last of them say what the model does on rows."""
    problem = _problem(run)
    stage = run.first_fit(run.method, problem, first, "fit")
    state: PrivateState = stage.state
    unsure = tuple(unsure_budgets(run.method, state))
    notes = run.noted(unsure, "clients have budgets that noise leaves unsure")
    found, kept = _evaluations(run, state), held_rows(run.method, state)
    hard = np.concatenate([found.reports[client].rates for client in problem.clients])
    held = problem.constraints.take(np.flatnonzero(kept))
    solved = Solved(
        run=run,
        params=state.params,
        state=state,
        turns=(stage,),
        notes=notes,
        rules=run.setup.rules,
        exceeded=exceeded_by(held, hard, 0.0),
        privacy=_privacy_of(run.method, found.train),
    )
    return solved, found


def _privacy_of(method: Private, clients: Iterable[ClientId]) -> Privacy:
    """Return what the run disclosed of a row, at most, and what that does not cover."""
    loss = PrivacyLoss(method.epsilon, method.delta)
    return Privacy(dict.fromkeys(clients, loss), NEIGHBOURS, NOT_COVERED)


def _problem(run: Run) -> Problem:
    """Return all comparisons of the rules; the method finds out which groups are too small."""
    rates = run.setup.rates
    nobody = Report(ANY_GROUP, 0.0, np.full(len(rates), ANY_GROUP), np.zeros(len(rates)))
    pretended = dict.fromkeys(run.federation.names, (nobody,))
    return build_problem(run.setup.rules, rates, pretended, l2=run.l2)[0]


def _evaluations(run: Run, state: PrivateState) -> Evaluations:
    rates, clients = run.setup.rates, state.problem.clients
    train, test = (
        {client: _counts(rates, one) for client, one in zip(clients, cells, strict=True)}
        for cells in (state.evaluation, state.held_out)
    )
    # Losses and smooth rates were not told: reports have the rates of decisions.
    nan = float("nan")
    reports = {
        client: Report(
            float(counts.n_rows),
            nan,
            np.zeros(len(rates)),
            counts.group_selected / np.maximum(counts.group_counts, 1.0),
        )
        for client, counts in train.items()
    }
    releases: Any = state.request.points[0].extras
    noise_sd = {release.part: release.noise_sd(rates) for release in releases}
    terms = AuditTerms(min_group_rows=run.method.least_rows, noise_sd=noise_sd)
    return Evaluations(rates, run.setup.rules, train, test, reports, terms)


def _counts(rates: Sequence[RateId], cells: Vector) -> Counts:
    """Return sums of noisy cells as counts: whole numbers that are not negative."""
    sums = cells.reshape(-1, 4).sum(axis=0) / len(attributes_of(rates))  # as `cells_of` has them
    tn, fp, fn, tp = (max(round(total), 0) for total in sums)
    return Counts(tn, fp, fn, tp, float("nan"), *evaluated_rows(rates, cells))
