"""Training with clients that add noise: one stage, nothing chosen, no starts, no margins.

Nothing but the method's releases is asked of anybody. What the result says of rows comes from the
last releases, counts of decisions with noise; intervals are as much wider.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fcfl._types import ClientId, RateId, Report, Vector
from fcfl.client.client import Introduction
from fcfl.client.counts import Counts
from fcfl.errors import DataError
from fcfl.methods.private import Private, PrivateState, allowances, group_estimates, noise_of_rows
from fcfl.privacy import attributes_of, cells_of
from fcfl.problem.constraints import Constraints, name_of
from fcfl.problem.evaluation import Evaluation, Problem, build_problem
from fcfl.results.evaluations import AuditTerms, Evaluations
from fcfl.results.result import Privacy, PrivacyLoss
from fcfl.rules import Rule
from fcfl.training.degenerate import find_degenerate
from fcfl.training.run import Run, briefly
from fcfl.training.trained import Trained

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


def train_privately(run: Run, rules: Sequence[Rule], first: Vector, l2: float) -> Trained:
    """Train by noisy sums alone; the last of them say what the model does."""
    problem = _problem(run, rules, l2)
    with run.federation.phase("fit"):
        stage = run.fit_from(problem, first)
    state: PrivateState = stage.progress.state
    found = _evaluations(run, state, rules)
    notes = briefly(
        tuple(_too_noisy(run.method, state)), "clients have budgets that noise leaves unsure"
    )
    for note in notes:
        run.session.on_message(note)
    degenerate = find_degenerate(run.setup.model, found.train, _count_noise(run, found))
    at = Evaluation(problem, state.params, tuple(found.reports[c] for c in problem.clients))
    over = problem.constraints.violations(at.rates)
    usable = _judged(run.method, state)
    return Trained(
        model=run.setup.model,
        method=run.method,
        params=state.params,
        state=state,
        at=at,
        evaluations=found,
        rules=tuple(rules),
        l2=l2,
        objective="mean",
        selection=None,
        starts=(),
        turns=(stage,),
        notes=notes if degenerate is None else (*notes, degenerate.in_python),
        exceeded=_exceeded(problem.constraints, over, usable),
        exchanges=dict(run.federation.exchanges.by_phase),
        degenerate=degenerate,
        privacy=privacy_of(run.method, problem.clients),
    )


def privacy_of(method: Private, clients: Sequence[ClientId]) -> Privacy:
    """What the run disclosed of a row, at most, and what that does not cover."""
    loss = PrivacyLoss(method.epsilon, method.delta)
    return Privacy(dict.fromkeys(clients, loss), NEIGHBOURS, NOT_COVERED)


def check_private(run: Run, rules: Sequence[Rule]) -> None:
    """Refuse clients that add no noise, and rules that noisy counts cannot weigh."""
    for name, said in run.introductions.items():
        _check_budget(name, said, run.method)
    if any(rule.scope == "global" for rule in rules):
        raise DataError(
            "`scope` must be 'client' with method 'private': a rule over all rows together needs "
            "exact counts."
        )


def _check_budget(name: ClientId, said: Introduction, method: Private) -> None:
    if said.privacy is None:
        raise DataError(
            f"Client {name!r} has no privacy budget, so that it would add no noise. Give it one: "
            "`Federation.from_rows(train, test, privacy=PrivacyBudget(epsilon, delta))`, or "
            "[privacy] in the policy of a site."
        )


def _problem(run: Run, rules: Sequence[Rule], l2: float) -> Problem:
    """All comparisons that the rules ask for; the method finds out which groups are too small."""
    rates = run.setup.rates
    full = np.full(len(rates), _EVERYBODY)
    nobody = Report(_EVERYBODY, 0.0, full, np.zeros(len(rates)))
    pretended = dict.fromkeys(run.federation.names, (nobody,))
    return build_problem(rules, rates, pretended, l2=l2)[0]


def _evaluations(run: Run, state: PrivateState, rules: Sequence[Rule]) -> Evaluations:
    rates, clients = run.setup.rates, state.problem.clients
    train = [_counts(rates, cells) for cells in state.evaluation]
    test = [_counts(rates, cells) for cells in state.held_out]
    reports = {client: _report(counts) for client, counts in zip(clients, train, strict=True)}
    point = state.request.points[0]
    sds = [extra.noise_sd(rates, point) for extra in point.extras]  # type: ignore[attr-defined]
    return Evaluations(
        rates,
        tuple(rules),
        dict(zip(clients, train, strict=True)),
        dict(zip(clients, test, strict=True)),
        reports,
        AuditTerms(
            min_group_rows=run.method.least_rows,
            noise_sd=dict(zip(("train", "test"), sds, strict=True)),
        ),
    )


def _report(counts: Counts) -> Report:
    """Rates of decisions with noise; losses and smooth rates were not told."""
    rates = counts.group_selected / np.maximum(counts.group_counts, 1.0)
    return Report(float(counts.n_rows), float("nan"), np.zeros(rates.size), rates)


def _counts(rates: Sequence[RateId], noisy: Vector) -> Counts:
    """Sums of noisy cells as counts: whole numbers that are not negative."""
    cells = cells_of(rates, "evaluation")
    share = 1.0 / len(attributes_of(rates))
    sums = {(label, selected): 0.0 for label in (0, 1) for selected in (False, True)}
    for cell, count in zip(cells, noisy, strict=True):
        sums[cell.label, cell.selected] += share * count  # type: ignore[index]
    confusion = {key: max(round(total), 0) for key, total in sums.items()}
    rows = np.maximum(np.rint(group_estimates(rates, noisy, "evaluation")), 0.0)
    selected = np.rint(group_estimates(rates, noisy, "evaluation", selected=True))
    return Counts(
        true_negative=confusion[0, False],
        false_positive=confusion[0, True],
        false_negative=confusion[1, False],
        true_positive=confusion[1, True],
        loss_sum=float("nan"),
        group_counts=rows,
        group_selected=np.clip(selected, 0.0, rows),
    )


def _count_noise(run: Run, found: Evaluations) -> float:
    """Return how far a client's count of selected rows may be off: three standard deviations."""
    cells, n_attributes = cells_of(run.setup.rates, "evaluation"), len(attributes_of(found.rates))
    return float(3.0 * found.terms.noise_sd["train"] * np.sqrt(len(cells) / 2) / n_attributes)


def _rate_noise(method: Private, state: PrivateState) -> Vector:
    """Standard deviations of all violations by the noise of one round's rates, and of counts."""
    point = replace(state.request.points[0], params=np.ones(state.params.size))
    releases = method.schedule.releases(min(1, method.rounds - 1))
    (asked,) = (one for one in releases if one.kind == "rates")
    sd = asked.noise_sd(state.problem.rates, point)
    rates = state.problem.rates
    ended = np.array([_report(_counts(rates, cells)).rates for cells in state.evaluation])
    noise = np.hypot(sd, (ended - 0.5) * state.count_sd) / _counted(state)
    return noise_of_rows(state.problem.constraints, noise.ravel())


def _counted(state: PrivateState) -> Vector:
    return np.maximum(state.group_counts, 1.0)


def _judged(method: Private, state: PrivateState) -> NDArray[np.bool_]:
    """Which rows the model was held to."""
    constraints, counts = state.problem.constraints, _counted(state).ravel()
    small = counts[constraints.entry_column] < method.least_rows
    enough = np.ones(len(constraints.rows), dtype=bool)
    enough[constraints.entry_row[small]] = False
    return np.asarray(enough & (_rate_noise(method, state) < allowances(constraints)))


def _chances(state: PrivateState) -> Vector:
    """The chance that training rows keep each row's budget, by all that was told with noise.

    What the steps should have done and what is counted at the end are weighed by their variances.
    """
    deviations = np.sqrt(np.maximum(state.variances, 1e-300))
    return np.array([NormalDist().cdf(-z) for z in state.violations / deviations])


def _too_noisy(method: Private, state: PrivateState) -> list[str]:
    """A sentence for each client whose budget is not sure, with the rows that would do.

    A budget is not held at all where the noise of a round is as large as it is. Where it is held,
    it is not sure unless the chance that training rows keep it, in all comparisons, is `SURE`.
    """
    constraints, judged = state.problem.constraints, _judged(method, state)
    noise, allowed = _rate_noise(method, state), np.maximum(allowances(constraints), 1e-9)
    chances = _chances(state)
    of_sd = NormalDist().inv_cdf(SURE) * np.sqrt(state.variances) / (_MARGIN * allowed)
    needed = np.maximum(of_sd, 2.0 * noise / allowed)
    own: dict[ClientId, list[int]] = {}
    for index, row in enumerate(constraints.rows):
        if row.client is not None:
            own.setdefault(row.client, []).append(index)
    notes = []
    for client, rows in own.items():
        chance, is_held = float(chances[rows].prod()), bool(judged[rows].all())
        if is_held and chance >= SURE:
            continue
        worst = min(rows, key=lambda index: (judged[index], chances[index]))
        place = state.problem.clients.index(client)
        few = method.least_rows / max(float(_counted(state)[place].min()), 1.0)
        factor, n_rows = max(float(needed[worst]), few), float(state.n_rows[place])
        row = constraints.rows[worst]
        kept = f"the chance that its training rows keep it is {np.floor(100 * chance) / 100:.2f}"
        said = f"is held, but not for sure: {kept}" if is_held else "is not held"
        if factor <= 1:
            way_out = "It is not the noise alone: more rounds may help, or a larger budget."
        elif factor * n_rows > _EVERYBODY:
            way_out = "A larger budget would do, no number of rows."
        else:
            wanted = _rounded(1.2 * factor * n_rows)
            way_out = f"About {wanted} rows with the same groups would do."
        notes.append(
            f"Client {client!r} has about {n_rows:.0f} rows: at epsilon {method.epsilon:g} its "
            f"difference of rates is known up to {noise[worst]:.2g} ({row.attribute}), so that its "
            f"budget of {row.budget:g} {said}. {way_out}"
        )
    return notes


def _rounded(rows: float) -> int:
    digits = len(str(int(rows))) - 2
    return int(round(rows, -digits)) if digits > 0 else int(rows)


def _exceeded(
    constraints: Constraints, over: Vector, usable: NDArray[np.bool_]
) -> dict[str, float]:
    """By how much budgets are exceeded that noise leaves something of, by name."""
    found: dict[str, float] = {}
    for place in np.flatnonzero(usable & (over > 0)):
        name = name_of(constraints.rows[place])
        found[name] = max(found.get(name, 0.0), float(over[place]))
    return found
