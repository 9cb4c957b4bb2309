"""What all fits of a run share: its clients, its folder, and how one fit is run and stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fcfl._checks import first_of
from fcfl._types import ClientId, Point, Reports, Request, Vector, brief_repr
from fcfl.audit.verdicts import compare, disparity_value
from fcfl.client.questions import Counted, Introduction, Setup
from fcfl.errors import AbsentClientError
from fcfl.federation.checkpoint import checkpoint_path, previous_path
from fcfl.federation.exchange_count import EXCHANGES
from fcfl.federation.federation import Bound, Federation
from fcfl.federation.history import join_histories
from fcfl.federation.loop import Progress, Runtime
from fcfl.methods.method import RoundInfo, traits_of
from fcfl.methods.method_checks import check_method, first_state
from fcfl.methods.method_options import options_of
from fcfl.models.model import Model
from fcfl.problem.constraints import no_rows
from fcfl.problem.evaluation import Problem, build_problem
from fcfl.results.evaluations import AuditTerms, Evaluations
from fcfl.rules import LEAST_ROWS, Rule, rates_needed
from fcfl.training.client_rules import all_levels, check_comparable, rules_in_force
from fcfl.training.margins import Pooling, pooled_rows
from fcfl.training.open_settings import as_method
from fcfl.training.own_best import with_own_best
from fcfl.training.references import ask_references, with_references
from fcfl.training.rounds import HISTORY, Session, run_rounds
from fcfl.training.trait_checks import check_traits

SELECTION = "selection.json"
FREE = "without-budgets"  # folder of the fit that a run with budgets begins with
_FITS = "fit-*"  # folders of the fits after the first one under budgets
MOST_TOLD = 8  # sentences of one kind


def forget(folder: Path) -> None:
    """Remove what a run in this folder left to resume from, when another begins there."""
    for place in (folder, folder / FREE, *sorted(folder.glob(_FITS))):
        for name in (HISTORY, SELECTION, EXCHANGES):
            (place / name).unlink(missing_ok=True)
        checkpoint_path(place).unlink(missing_ok=True)
        previous_path(place).unlink(missing_ok=True)


def prepare(
    federation: Federation,
    model: Model,
    rules: Sequence[Rule],
    method: Any,
    groups: Mapping[str, Sequence[str]] | None,
    min_group_rows: float | None,
    session: Session,
) -> "Run":
    """Meet the clients, and settle what is requested of them."""
    method = as_method(method)
    check_method(method)
    check_traits(method)
    introductions = federation.introduce()
    adapted = model.adapt_method(method)
    merged = rules_in_force(rules, introductions)
    levels = all_levels(introductions) if groups is None else groups
    rates = rates_needed(merged, levels, traits_of(adapted).rate_kinds)
    setup = Setup(model, rates, merged, min_group_rows or 1.0)
    return Run(federation, setup, adapted, session, introductions, min_group_rows)


@dataclass(frozen=True)
class Stage:
    """One fit under some bounds, and the reports on its last request where they are known."""

    progress: Progress[Any]
    history: tuple[RoundInfo, ...]
    folder: str = ""  # inside that of the run
    reports: Reports | None = None

    @property
    def state(self) -> Any:
        """The method's last state."""
        return self.progress.state

    __repr__ = brief_repr

    @property
    def params(self) -> Vector:
        """Where it ended."""
        params: Vector = self.progress.state.params
        return params


@dataclass
class Recording:
    """A runtime that keeps the last reports, from which another fit may begin."""

    runtime: Runtime
    last: Reports | None = None

    def evaluate(self, request: Request) -> Reports:
        """Every client's reports."""
        self.last = self.runtime.evaluate(request)
        return self.last


@dataclass(frozen=True)
class Run:
    """What all stages of a run share."""

    federation: Federation
    setup: Setup
    method: Any
    session: Session
    introductions: Mapping[ClientId, Introduction]
    min_group_rows: float | None = 1.0
    counts: Reports = field(default_factory=dict)  # of these reports only the counts are used
    l2: float = 0.0
    excess_loss: bool = False
    seed: int = 0

    @property
    def clients(self) -> Bound:
        """The loop's runtime."""
        return self.federation.bind(self.setup)

    def met(self, params: Vector) -> "Run":
        """Return the same with every client's counts, from the reports on a first request.

        SQP begins with that request: nothing is asked twice.
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

        Estimates over clients compare groups of any number of rows, if no other is given.
        """
        rules = self.setup.rules
        bounded = tuple(rule for rule in rules if rule.budget is not None)
        if relative:  # yet to be measured: any number will do
            bounded = tuple(replace(rule, budget=1.0) for rule in rules)
        if traits_of(self.method).is_cross_validated:
            every, _ = self.build(bounded, self.min_group_rows or 1.0)
            if pooled_rows(every.constraints, pooling).any():
                return
        problem, _ = self.build(bounded)
        check_comparable(bounded, problem.constraints, self.introductions)

    def build(
        self, rules: Sequence[Rule], min_group_rows: float | None = None
    ) -> tuple[Problem, tuple[str, ...]]:
        """Build the problem under ``rules``, and sentences on groups that are left out."""
        least = self.min_group_rows if min_group_rows is None else min_group_rows
        return build_problem(rules, self.setup.rates, self.counts, l2=self.l2, min_group_rows=least)

    def told(self, left_out: tuple[str, ...]) -> tuple[str, ...]:
        """Report which groups are left out of comparisons, in few sentences."""
        notes = briefly(left_out, "groups at clients are too small to be compared there")
        for note in notes:
            self.session.on_message(note)
        return notes

    def plain_problem(
        self, rules: Sequence[Rule], first: Vector
    ) -> tuple[Problem, tuple[str, ...]]:
        """What a method other than SQP solves, and sentences on what is left out of it."""
        problem, left_out = self.build(rules)
        notes = self.told(left_out)
        traits = traits_of(self.method)
        if problem.constraints.rows and not traits.enforces_budgets:
            notes += self.told((
                f"Method {self.method.name!r} does not enforce budgets; its model is only "
                "measured against them.",
            ))  # fmt: skip
        if traits.n_references:
            asked = ask_references(problem, first, traits.n_references, self.seed)
            with self.federation.phase("disclose"):
                disclosed = self.ask(asked.points, "which rows are reference points")
            problem, said = with_references(problem, disclosed)
            notes += self.told((said,))
        return self.own_best(problem, first), notes

    def own_best(self, problem: Problem, first: Vector) -> Problem:
        """The problem in excess losses where that is asked for."""
        if not self.excess_loss:
            return problem
        with self.federation.phase("alone"):
            return with_own_best(problem, self.federation, self.setup, first)

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

    def answered(self, stage: Stage) -> Stage:
        """Return the fit with the reports on its last request, so that they are requested once."""
        return replace(stage, reports=self.reports_of(stage))

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

        ``decisions`` are hard rates of the model without budgets. What clients insist on is merged
        with what was measured.
        """
        relative: list[Rule] = []
        for rule in rules:
            if rule.name == "difference" and rule.scope == "client" and rule.budget is None:
                values = self._disparities(rule, decisions)
                budgets = {client: min(share * value, 1.0) for client, value in values.items()}
                rule = replace(rule, budget=budgets)
                alone = len(rules) == 1
                self.session.on_message(_about_budgets(rule.attribute, budgets, share, alone=alone))
            relative.append(rule)
        return rules_in_force(relative, self.introductions)

    def _disparities(self, rule: Rule, reports: Reports) -> dict[ClientId, float]:
        """Each client's disparity, where it has one.

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
        if folder is None or len(stages) == 1:
            return
        parts = [
            (folder / stage.folder / HISTORY, sum(stage.progress.state.rounds)) for stage in stages
        ]
        join_histories(parts, folder / HISTORY)

    def evaluations(
        self, counted: Mapping[ClientId, Counted], rules: Sequence[Rule]
    ) -> Evaluations:
        """What a model does on every client's rows, compared with ``rules``."""
        return Evaluations(
            self.setup.rates,
            tuple(rules),
            {client: said.train for client, said in counted.items()},
            {client: said.test for client, said in counted.items()},
            {client: said.report for client, said in counted.items()},
            AuditTerms(
                min_group_rows=self.min_group_rows, together=self.federation.together(self.setup)
            ),
        )


def briefly(sentences: tuple[str, ...], what: str) -> tuple[str, ...]:
    """The sentences, or where there are many, how many of ``what`` and the first."""
    if len(sentences) <= MOST_TOLD:
        return sentences
    return (f"{len(sentences)} {what}. The first: {sentences[0]}",)


def _about_budgets(
    attribute: str, budgets: Mapping[str, float], share: float, *, alone: bool
) -> str:
    whose = "" if alone else f" for {attribute}"
    listed = first_of((f"{c!r} {v:.4f}" for c, v in budgets.items()), 12)
    return f"Budgets{whose} are {share:g} of the disparity without budgets: {listed}."
