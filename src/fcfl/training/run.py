"""What all fits of a run share: its clients, its rules, and how one fit is run and stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fcfl._checks import first_of
from fcfl._types import ClientId, Point, Reports, Request, Vector, brief_repr
from fcfl.audit.verdicts import compare, disparity_value
from fcfl.client.client import Counted, Introduction, Setup
from fcfl.errors import AbsentClientError, DataError
from fcfl.extras import DisclosedRows
from fcfl.federation.checkpoint import checkpoint_path, previous_path
from fcfl.federation.exchange_count import EXCHANGES
from fcfl.federation.federation import Bound, Federation
from fcfl.federation.history import join_histories
from fcfl.federation.loop import Progress, Runtime
from fcfl.methods.method import RoundInfo, first_state, options_of, traits_of
from fcfl.models.model import Model
from fcfl.policy import stricter
from fcfl.problem.constraints import no_rows
from fcfl.problem.evaluation import Problem, build_problem
from fcfl.results.evaluations import AuditTerms, Evaluations
from fcfl.rules import LEAST_ROWS, Rule, check_budget_clients, rates_needed
from fcfl.training.margins import Pooling, pooled_rows
from fcfl.training.session import HISTORY, Session, run_rounds
from fcfl.training.settings import as_method, check_traits

SELECTION = "selection.json"
FREE = "without-budgets"  # folder of the fit that a run with budgets begins with
_FITS = "fit-*"  # folders of the fits after the first one under budgets
MAX_NOTES = 8  # sentences of one kind


def forget(folder: Path) -> None:
    """Remove what an earlier run left in this folder to resume from."""
    for place in (folder, folder / FREE, *sorted(folder.glob(_FITS))):
        for name in (HISTORY, SELECTION, EXCHANGES):
            (place / name).unlink(missing_ok=True)
        checkpoint_path(place).unlink(missing_ok=True)
        previous_path(place).unlink(missing_ok=True)


@dataclass(frozen=True)
class Stage:
    """One fit under some bounds, and the reports on its last request where they are known."""

    progress: Progress[Any]
    history: tuple[RoundInfo, ...] = ()
    folder: str = ""  # inside that of the run
    reports: Reports | None = None

    __repr__ = brief_repr

    @property
    def state(self) -> Any:
        """The method's last state."""
        return self.progress.state

    @property
    def params(self) -> Vector:
        """Where the fit ended."""
        params: Vector = self.progress.state.params
        return params


@dataclass
class Recording:
    """A runtime that keeps the last reports, from which another fit may begin."""

    runtime: Runtime
    last: Reports | None = None

    def evaluate(self, request: Request) -> Reports:
        """Return every client's reports."""
        self.last = self.runtime.evaluate(request)
        return self.last


@dataclass(frozen=True)
class Run:
    """What all fits of a run share."""

    federation: Federation
    setup: Setup
    method: Any
    session: Session
    introductions: Mapping[ClientId, Introduction]
    min_group_rows: float | None = 1.0
    counts: Reports = field(default_factory=dict)  # of these reports only the counts are used
    l2: float = 0.0
    seed: int = 0

    @property
    def clients(self) -> Bound:
        """The loop's runtime."""
        return self.federation.bind(self.setup)

    def met(self, params: Vector) -> "Run":
        """Return the run with every client's counts, from the reports on a first request.

        SQP begins with that request, so that it is sent once.
        """
        request = Request((Point(params),))
        if traits_of(self.method).is_cross_validated:
            clients, n_rates = self.federation.names, len(self.setup.rates)
            unmet = Problem(
                clients, np.ones(len(clients)), n_rates, no_rows(len(clients) * n_rates)
            )
            request = first_state(self.method, params, unmet).request
        counts = self.clients.evaluate(request)
        if self.federation.failures:
            raise AbsentClientError("A run begins, or continues, with all its clients.")
        return replace(self, counts=counts)

    def ask(self, points: Sequence[Point], what: str) -> Reports:
        """Evaluate some points outside a fit; all clients must answer."""
        reports = self.clients.evaluate(Request(tuple(points)))
        self.federation.check_all_answered(what)
        return reports

    def check_comparable(self, *, relative: bool, pooling: Pooling = "none") -> None:
        """Raise `DataError` if no client has two groups that a budget compares.

        Estimates over clients compare groups of any number of rows, unless a minimum is given.
        """
        rules = self.setup.rules
        bounded = tuple(rule for rule in rules if rule.budget is not None)
        if relative:  # not measured yet: any number will do
            bounded = tuple(replace(rule, budget=1.0) for rule in rules)
        if traits_of(self.method).is_cross_validated:
            every, _ = self.build(bounded, self.min_group_rows or 1.0)
            if pooled_rows(every.constraints, pooling).any():
                return
        if bounded and not self.build(bounded)[0].constraints.rows:
            raise DataError(self._nothing_to_compare(bounded))

    def _nothing_to_compare(self, bounded: Sequence[Rule]) -> str:
        attribute = bounded[0].attribute
        introduced = self.introductions.values()
        present = {g for said in introduced for g in said.present.get(attribute, ())}
        way_out = "Name another column with `--sensitive`, or leave the budget out."
        if len(present) == 1:
            return (
                f"The only group of {attribute!r} among the training rows is {present.pop()!r}: a "
                f"budget needs two to compare. {way_out}"
            )
        where = "Among the training rows"
        if all(rule.scope == "client" for rule in bounded):
            where = "Among the training rows of each client with a budget"
            way_out = f"Compare all rows together with `--scope global`. {way_out}"
        if any(len(said.present.get(attribute, ())) > 1 for said in introduced):
            way_out = f"Compare smaller groups with a lower `--min-group-rows`. {way_out}"
        return (
            f"{where} there are no two groups of {attribute!r} with the rows that "
            f"{bounded[0].metric} compares. {way_out}"
        )

    def build(
        self, rules: Sequence[Rule], min_group_rows: float | None = None
    ) -> tuple[Problem, tuple[str, ...]]:
        """Build the problem under ``rules``, and sentences on groups that are left out."""
        least = self.min_group_rows if min_group_rows is None else min_group_rows
        return build_problem(rules, self.setup.rates, self.counts, l2=self.l2, min_group_rows=least)

    def noted(self, left_out: tuple[str, ...]) -> tuple[str, ...]:
        """Report which groups are left out of comparisons, in few sentences."""
        notes = briefly(left_out, "groups at clients are too small to be compared there")
        for note in notes:
            self.session.on_message(note)
        return notes

    def plain_problem(
        self, rules: Sequence[Rule], first: Vector
    ) -> tuple[Problem, tuple[str, ...]]:
        """Return what a method other than SQP solves, and sentences on what is left out of it."""
        problem, left_out = self.build(rules)
        notes, traits = self.noted(left_out), traits_of(self.method)
        if problem.constraints.rows and not traits.enforces_budgets:
            notes += self.noted((
                f"Method {self.method.name!r} does not enforce budgets; its model is only "
                "measured against them.",
            ))  # fmt: skip
        if traits.n_references:
            asked = ask_references(problem, first, traits.n_references, self.seed)
            with self.federation.phase("disclose"):
                disclosed = self.ask(asked.points, "which rows are reference points")
            problem, said = with_references(problem, disclosed)
            notes += self.noted((said,))
        return problem, notes

    def fit(self, method: Any, state: Any, folder: str = "") -> Stage:
        """Run a method from a state, in the run's folder or one inside it."""
        session = self.session if not folder else self.session.inside(folder)
        recording = Recording(self.clients)
        fresh = Progress(state, options=options_of(method))
        progress, history = run_rounds(method, fresh, recording, session, self.federation.exchanges)
        return Stage(progress, history, folder, recording.last)

    def fit_from(self, problem: Problem, first: Vector, folder: str = "") -> Stage:
        """Run the run's own method from parameters."""
        return self.fit(self.method, first_state(self.method, first, problem), folder)

    def reports_of(self, stage: Stage) -> Reports:
        """Return the reports on a fit's last request.

        They are requested again after resuming, and where the fit ended without a round.
        """
        if stage.reports is not None:
            return stage.reports
        return self.ask(stage.state.request.points, "how the model does where its fit ended")

    def relative_rules(
        self, rules: Sequence[Rule], decisions: Reports, share: float
    ) -> tuple[Rule, ...]:
        """Give rules without budgets this share of each client's disparity without budgets.

        ``decisions`` are hard rates of the model without budgets. The stricter rules of clients
        are merged with the result.
        """
        relative: list[Rule] = []
        for rule in rules:
            if rule.name == "difference" and rule.scope == "client" and rule.budget is None:
                values = self._disparities(rule, decisions)
                budgets = {client: min(share * value, 1.0) for client, value in values.items()}
                rule = replace(rule, budget=budgets)
                whose = "" if len(rules) == 1 else f" for {rule.attribute}"
                listed = first_of((f"{c!r} {v:.4f}" for c, v in budgets.items()), 12)
                self.session.on_message(
                    f"Budgets{whose} are {share:g} of the disparity without budgets: {listed}."
                )
            relative.append(rule)
        return rules_in_force(relative, self.introductions)

    def _disparities(self, rule: Rule, reports: Reports) -> dict[ClientId, float]:
        """Return each client's disparity, where it has one.

        Only groups with enough rows are compared, as far as that is known before there are
        budgets: the rate of a group of one row is 0 or 1, whatever the model.
        """
        least = LEAST_ROWS[0] if self.min_group_rows is None else self.min_group_rows
        found = {}
        for client, (report,) in reports.items():
            rows = report.group_counts
            compared = compare(rule, self.setup.rates, rows, least)
            if len(compared.pairs) == 0:
                compared = compare(rule, self.setup.rates, rows, 1.0)
            value = disparity_value(rule, compared, report.rates * rows, rows)
            if value is not None:  # one of 0 is known to one row of the smallest group
                found[client] = value or 1.0 / float(rows[[*compared.pairs.ravel()]].min())
        return found

    def write_history(self, stages: Sequence[Stage]) -> None:
        """Write the rounds of all fits, each in a folder of its own, as those of one run."""
        folder = self.session.folder
        if folder is not None and len(stages) > 1:
            parts = [(folder / s.folder / HISTORY, sum(s.progress.state.rounds)) for s in stages]
            join_histories(parts, folder / HISTORY)

    def evaluations(
        self, counted: Mapping[ClientId, Counted], rules: Sequence[Rule]
    ) -> Evaluations:
        """Return what a model does on every client's rows, compared with ``rules``."""
        return Evaluations(
            self.setup.rates,
            tuple(rules),
            {client: said.train for client, said in counted.items()},
            {client: said.test for client, said in counted.items()},
            {client: said.report for client, said in counted.items()},
            AuditTerms(min_group_rows=self.min_group_rows),
        )


def prepare(
    federation: Federation,
    model: Model,
    rules: Sequence[Rule],
    method: Any,
    groups: Mapping[str, Sequence[str]] | None,
    min_group_rows: float | None,
    session: Session,
) -> Run:
    """Ask clients to introduce themselves, and settle what is requested of them."""
    method = as_method(method)
    check_traits(method)
    introductions = federation.introduce()
    adapted = model.adapt_method(method)
    merged = rules_in_force(rules, introductions)
    levels = all_levels(introductions) if groups is None else groups
    rates = rates_needed(merged, levels, traits_of(adapted).rate_kinds)
    setup = Setup(model, rates, merged, min_group_rows or 1.0)
    return Run(federation, setup, adapted, session, introductions, min_group_rows)


def ask_references(problem: Problem, params: Vector, count: int, seed: int) -> Request:
    """Return a request for about ``count`` training rows, of each client in proportion."""
    total = problem.n_rows.sum()
    shares = {
        client: max(round(count * rows / total), 1)  # a client with fewer rows gives all
        for client, rows in zip(problem.clients, problem.n_rows, strict=True)
    }
    return Request((Point(params, extras=(DisclosedRows(shares, seed),)),))


def with_references(problem: Problem, reports: Reports) -> tuple[Problem, str]:
    """Return the problem with the rows that clients disclosed, and a sentence on them."""
    rows = np.vstack([reports[client][0].extras["rows"] for client in problem.clients])
    said = f"{rows.shape[0]} training rows are reference points: the server sees them."
    return replace(problem, references=rows), said


def rules_in_force(
    rules: Sequence[Rule], introductions: Mapping[ClientId, Introduction]
) -> tuple[Rule, ...]:
    """Return the stricter of the run's rules and each client's own."""
    names = list(introductions)
    check_budget_clients(rules, names)
    merged = tuple(rules)
    for name, said in introductions.items():
        own: list[Rule] = []
        for rule in said.rules:
            if rule.attribute not in said.levels:
                known = ", ".join(map(repr, said.levels))
                raise DataError(
                    f"Client {name!r} has a policy on {rule.attribute!r}, which must be one of the "
                    f"run's sensitive columns, got {known}."
                )
            if rule.scope != "global":  # binds this client and nobody else
                budget = rule.budget_of(name)
                rule = replace(rule, budget=None if budget is None else {name: budget})
            own.append(rule)
        merged = stricter(merged, tuple(own), names)
    return merged


def all_levels(introductions: Mapping[ClientId, Introduction]) -> dict[str, tuple[str, ...]]:
    """Return the groups of each attribute at all clients, in the order in which they are met."""
    found: dict[str, dict[str, None]] = {}
    for said in introductions.values():
        for attribute, levels in said.levels.items():
            found.setdefault(attribute, {}).update(dict.fromkeys(levels))
    return {attribute: tuple(levels) for attribute, levels in found.items()}


def briefly(sentences: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return the sentences, or where there are many, how many of ``what`` and the first."""
    if len(sentences) <= MAX_NOTES:
        return sentences
    return (f"{len(sentences)} {what}. The first: {sentences[0]}",)
