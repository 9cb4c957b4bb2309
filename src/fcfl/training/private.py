"""Training with clients that add noise: one stage, nothing chosen, no starts, no margins.

Nothing but the method's releases is requested of clients. What the result says of rows comes from
the last releases, counts of decisions with noise; intervals are as much wider.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fcfl._types import ClientId, RateId, Report, Vector
from fcfl.client.counts import Counts
from fcfl.errors import DataError
from fcfl.methods import private as noisy
from fcfl.methods.private import Private, PrivateState
from fcfl.privacy import attributes_of, cells_of
from fcfl.problem.constraints import exceeded_by
from fcfl.problem.evaluation import Problem, build_problem
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
SURE = 0.9  # chance that training rows keep a budget, as far as noise lets it be known
_MARGIN = 0.4  # of a budget: as far inside as rows with little noise end
_EVERYBODY = 1e9  # rows: which groups are too small is found out with noise


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
    problem, rules = _problem(run), run.setup.rules
    stage = run.first_fit(run.method, problem, first, "fit")
    state: PrivateState = stage.state
    too_noisy = tuple(_too_noisy(run.method, state))
    notes = run.noted(too_noisy, "clients have budgets that noise leaves unsure")
    found, usable = _evaluations(run, state), _usable(run.method, state)
    hard = np.concatenate([found.reports[client].rates for client in problem.clients])
    held = problem.constraints.take(np.flatnonzero(usable))
    exceeded = exceeded_by(held, hard, 0.0)
    solved = Solved(run, state.params, state, (stage,), notes, rules, exceeded=exceeded)
    return solved, found


def privacy_of(method: Private, clients: Iterable[ClientId]) -> Privacy:
    """Return what the run disclosed of a row, at most, and what that does not cover."""
    loss = PrivacyLoss(method.epsilon, method.delta)
    return Privacy(dict.fromkeys(clients, loss), NEIGHBOURS, NOT_COVERED)


def count_noise(found: Evaluations) -> float:
    """Return how far a client's count of selected rows may be off: three standard deviations."""
    n_cells = len(cells_of(found.rates, "evaluation"))
    sd = found.terms.noise_sd["train"] * np.sqrt(n_cells / 2)
    return float(3.0 * sd / len(attributes_of(found.rates)))


def _problem(run: Run) -> Problem:
    """Return all comparisons of the rules; the method finds out which groups are too small."""
    rates = run.setup.rates
    nobody = Report(_EVERYBODY, 0.0, np.full(len(rates), _EVERYBODY), np.zeros(len(rates)))
    pretended = dict.fromkeys(run.federation.names, (nobody,))
    return build_problem(run.setup.rules, rates, pretended, l2=run.l2)[0]


def _evaluations(run: Run, state: PrivateState) -> Evaluations:
    rates, clients = run.setup.rates, state.problem.clients
    train = {c: _counts(rates, n) for c, n in zip(clients, state.evaluation, strict=True)}
    test = {c: _counts(rates, n) for c, n in zip(clients, state.held_out, strict=True)}
    # Losses and smooth rates were not told: reports have the rates of decisions.
    nan = float("nan")
    reports = {
        client: Report(float(counts.n_rows), nan, np.zeros(len(rates)), _rates_of(counts))
        for client, counts in train.items()
    }
    point = state.request.points[0]
    extras: tuple[Any, ...] = point.extras
    sds = [extra.noise_sd(rates, point) for extra in extras]
    noise_sd: Any = dict(zip(("train", "test"), sds, strict=True))
    terms = AuditTerms(min_group_rows=run.method.least_rows, noise_sd=noise_sd)
    return Evaluations(rates, run.setup.rules, train, test, reports, terms)


def _rates_of(counts: Counts) -> Vector:
    return counts.group_selected / np.maximum(counts.group_counts, 1.0)


def _counts(rates: Sequence[RateId], cells: Vector) -> Counts:
    """Return sums of noisy cells as counts: whole numbers that are not negative."""
    share = 1.0 / len(attributes_of(rates))
    sums = {(label, selected): 0.0 for label in (0, 1) for selected in (False, True)}
    for cell, count in zip(cells_of(rates, "evaluation"), cells, strict=True):
        sums[cell.label, cell.selected] += share * count  # type: ignore[index]
    tn, fp, fn, tp = (max(round(total), 0) for total in sums.values())
    rows = np.maximum(np.rint(noisy.group_estimates(rates, cells, "evaluation")), 0.0)
    selected = np.rint(noisy.group_estimates(rates, cells, "evaluation", selected=True))
    return Counts(tn, fp, fn, tp, float("nan"), rows, np.clip(selected, 0.0, rows))


def _known_rates(method: Private, state: PrivateState) -> noisy.Known:
    """Return decided rates with the noise of one round, and that of the counts."""
    point = replace(state.request.points[0], params=np.ones(state.params.size))
    releases = method.schedule.releases(min(1, method.rounds - 1))
    (asked,) = (one for one in releases if one.kind == "rates")
    rates, counts = state.problem.rates, np.maximum(state.group_counts, 1.0)
    ended = np.concatenate([_rates_of(_counts(rates, cells)) for cells in state.evaluation])
    noise = asked.noise_sd(rates, point) / counts.ravel()
    return noisy.Known(ended, noise, counts.ravel(), np.tile(state.count_sd, len(counts)))


def _usable(method: Private, state: PrivateState) -> NDArray[np.bool_]:
    """Return which rows the model was held to."""
    known = _known_rates(method, state)
    return noisy.usable_rows(state.problem.constraints, known, method.least_rows)


def _rate_noise(method: Private, state: PrivateState) -> Vector:
    """Return standard deviations of violations by the noise of one round, and of counts."""
    known = _known_rates(method, state)
    noise = np.hypot(known.noise, known.by_counts)
    return noisy.noise_of_rows(state.problem.constraints, noise)


def _too_noisy(method: Private, state: PrivateState) -> list[str]:
    """Return a sentence for each client whose budget is not sure, with the rows that would do.

    A budget is not held at all where the noise of a round is as large as it is. Where it is held,
    it is not sure unless the chance that training rows keep it, in all comparisons, is `SURE`.
    """
    constraints, usable = state.problem.constraints, _usable(method, state)
    noise = _rate_noise(method, state)
    allowed = np.maximum(noisy.allowances(constraints), 1e-9)
    deviations = np.sqrt(np.maximum(state.variances, 1e-300))
    chances = ndtr(-state.violations / deviations)
    needed = np.maximum(ndtri(SURE) * deviations / (_MARGIN * allowed), 2.0 * noise / allowed)
    owners, notes = np.array([row.client for row in constraints.rows], dtype=object), []
    for place, client in enumerate(state.problem.clients):
        rows = np.flatnonzero(owners == client)
        if not rows.size:
            continue
        chance, is_held = float(chances[rows].prod()), bool(usable[rows].all())
        if is_held and chance >= SURE:
            continue
        worst = min(rows, key=lambda i: (usable[i], chances[i]))
        few = method.least_rows / max(float(np.maximum(state.group_counts, 1.0)[place].min()), 1.0)
        factor, n_rows = max(float(needed[worst]), few), float(state.n_rows[place])
        row = constraints.rows[worst]
        kept = f"the chance that its training rows keep it is {np.floor(100 * chance) / 100:.2f}"
        said = f"is held, but not for sure: {kept}" if is_held else "is not held"
        if factor <= 1:
            way_out = "It is not the noise alone: more rounds may help, or a larger budget."
        elif factor * n_rows > _EVERYBODY:
            way_out = "A larger budget would do, no number of rows."
        else:
            wanted = float(f"{1.2 * factor * n_rows:.2g}")
            way_out = f"About {wanted:.0f} rows with the same groups would do."
        notes.append(
            f"Client {client!r} has about {n_rows:.0f} rows: at epsilon {method.epsilon:g} its "
            f"difference of rates is known up to {noise[worst]:.2g} ({row.attribute}), so that its "
            f"budget of {row.budget:g} {said}. {way_out}"
        )
    return notes
