"""Training with clients that add noise: one fit, without choices of settings, starts or margins.

Clients receive no request except for the method's noisy releases. The result is computed from the
last releases, which are noisy counts of decisions. Its intervals include the noise.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fcfl._types import ROW_SIGNS, RateId, Report, Vector
from fcfl.client.counts import Counts
from fcfl.errors import DataError
from fcfl.methods import private as noisy
from fcfl.privacy import attributes_of
from fcfl.problem import Problem, build_problem, exceeded_by
from fcfl.results.evaluations import AuditTerms, Evaluations
from fcfl.results.result import Privacy, PrivacyLoss
from fcfl.rules import Rule
from fcfl.training.run import Run
from fcfl.training.solve import Solved

NEIGHBOURS = "add-remove"
NOT_COVERED = (
    "the declared schema: column names, levels, ranges, groups, labels, and the list of clients",
    "repeated responses after a restart or a retry: this epsilon assumes one response per request; "
    "a site's journal records the privacy loss of all responses",
    "settings chosen by inspecting the rows, and other runs on the same rows, whose privacy losses "
    "add up (a site's journal records them)",
    "one person with several rows, or with rows at several clients: the guarantee is per row",
    "times and sizes of messages; rows stored on the clients' own machines",
)


def check_private(run: Run, rules: Sequence[Rule]) -> None:
    """Raise `DataError` if a client has no privacy budget or a rule has scope "global"."""
    for name, introduction in run.introductions.items():
        if introduction.privacy is None:
            raise DataError(
                f"Client {name!r} has no privacy budget, so it would add no noise. Set one by "
                "`Federation.from_rows(train, test, privacy=PrivacyBudget(epsilon, delta))`, "
                "or by [privacy] in the policy of a site."
            )
    if any(-1 in ROW_SIGNS[kind] for rule in rules for kind in rule.kinds):
        raise DataError(
            "`metric` must compare rates of selected rows with method 'private', got "
            f"{', '.join(repr(rule.metric) for rule in rules)}."
        )
    if any(rule.scope == "global" for rule in rules):
        raise DataError(
            "`scope` must be 'client' with method 'private': a rule over all clients' rows "
            "requires exact counts."
        )


def solve_privately(run: Run, first: Vector) -> tuple[Solved, Evaluations]:
    """Train by noisy sums, and evaluate the model by the last of them."""
    problem = _problem(run)
    stage = run.first_fit(run.method, problem, first, "fit")
    state: noisy.PrivateState = stage.state
    unsure = tuple(noisy.unsure_budgets(run.method, state))
    notes = run.noted(unsure, "clients have budgets that may be exceeded because of the noise")
    evaluations, kept = _evaluations(run, state), noisy.held_rows(run.method, state)
    hard = np.concatenate([evaluations.reports[client].rates for client in problem.clients])
    held = problem.constraints.take(np.flatnonzero(kept))
    loss = PrivacyLoss(run.method.epsilon, run.method.delta)
    solved = Solved(
        run=run,
        params=state.params,
        state=state,
        turns=(stage,),
        notes=notes,
        rules=run.setup.rules,
        exceeded=exceeded_by(held, hard, 0.0),
        privacy=Privacy(dict.fromkeys(evaluations.train, loss), NEIGHBOURS, NOT_COVERED),
    )
    return solved, evaluations


def _problem(run: Run) -> Problem:
    """Return the problem with all comparisons; the method estimates which groups are too small."""
    rates = run.setup.rates
    nobody = Report(
        noisy.ANY_GROUP, 0.0, np.full(len(rates), noisy.ANY_GROUP), np.zeros(len(rates))
    )
    pretended = dict.fromkeys(run.federation.names, (nobody,))
    return build_problem(run.setup.rules, rates, pretended, l2=run.l2)[0]


def _evaluations(run: Run, state: noisy.PrivateState) -> Evaluations:
    """Return the noisy counts of decisions as evaluations of training and test rows."""
    rates, clients = run.setup.rates, state.problem.clients
    train, test = (
        {client: _counts(rates, sums) for client, sums in zip(clients, cells, strict=True)}
        for cells in (state.evaluation, state.held_out)
    )
    # Losses and smooth rates are unknown, so the reports contain the rates of decisions.
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
    """Return sums of noisy cells as counts, rounded to non-negative integers."""
    sums = cells.reshape(-1, 4).sum(axis=0) / len(
        attributes_of(rates)
    )  # in the order of `cells_of`
    tn, fp, fn, tp = (max(round(total), 0) for total in sums)
    return Counts(tn, fp, fn, tp, float("nan"), *noisy.evaluated_rows(rates, cells))
