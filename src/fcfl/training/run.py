"""A run: its clients and rules, shared by all fits, and the functions that run one fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fcfl._checks import first_of
from fcfl._types import ClientId, Point, Reports, Request, Vector, brief_repr
from fcfl.audit.verdicts import compare, disparity_value
from fcfl.client.client import Introduction, Setup, all_levels, rules_in_force
from fcfl.errors import AbsentClientError, DataError
from fcfl.extras import DisclosedRows
from fcfl.federation.checkpoint import join_histories
from fcfl.federation.federation import Bound, Federation
from fcfl.federation.loop import Phase, Progress
from fcfl.federation.session import HISTORY, Session, run_rounds
from fcfl.methods import method as methods
from fcfl.methods.method import RoundInfo, traits_of
from fcfl.methods.registry import METHODS, check_method
from fcfl.models.model import Model
from fcfl.problem import Evaluation, Problem, build_problem, evaluate_point, no_rows
from fcfl.rules import LEAST_ROWS, Rule, rates_needed
from fcfl.training.margins import Pooling, pooled_rows

MAX_NOTES = 8  # largest number of notes of one kind that are listed in full


@dataclass(frozen=True)
class Stage:
    """One fit under given bounds, with the reports on its last request if they are known."""

    progress: Progress[Any]
    history: tuple[RoundInfo, ...] = ()
    folder: str = ""  # relative to the folder of the run
    reports: Reports = field(default_factory=dict)

    __repr__ = brief_repr

    @property
    def state(self) -> Any:
        """The method's last state."""
        return self.progress.state

    @property
    def params(self) -> Vector:
        """Parameters at the end of the fit."""
        params: Vector = self.progress.state.params
        return params


@dataclass
class _Recording:
    """A runtime that stores the last reports for a warm start of the next fit."""

    runtime: Bound
    last: Reports = field(default_factory=dict)

    def evaluate(self, request: Request) -> Reports:
        self.last = self.runtime.evaluate(request)
        return self.last


@dataclass(frozen=True)
class Run:
    """Settings and client data shared by all fits of a run."""

    federation: Federation
    setup: Setup
    method: Any
    session: Session
    introductions: Mapping[ClientId, Introduction]
    min_group_rows: float | None = 1.0
    counts: Reports = field(default_factory=dict)  # reports on the first request
    l2: float = 0.0
    seed: int = 0

    @property
    def clients(self) -> Bound:
        """Runtime of the training loop."""
        return self.federation.bind(self.setup)

    def met(self, params: Vector) -> "Run":
        """Return the run with every client's counts, from the reports on a first request.

        The request is the first one of SQP, so that it is sent only once.
        """
        request = Request((Point(params),))
        if traits_of(self.method).is_cross_validated:
            clients, n_rates = self.federation.names, len(self.setup.rates)
            none = no_rows(len(clients) * n_rates)
            unmet = Problem(clients, np.ones(len(clients)), n_rates, none)
            request = methods.first_state(self.method, params, unmet).request
        counts = self.clients.evaluate(request)
        if self.federation.failures:
            raise AbsentClientError("All clients must respond when a run starts or resumes.")
        return replace(self, counts=counts)

    def ask(self, points: Sequence[Point], what: str) -> Reports:
        """Evaluate points outside a fit; raise `AbsentClientError` if a client does not respond."""
        reports = self.clients.evaluate(Request(tuple(points)))
        self.federation.check_all_answered(what)
        return reports

    def decisions(self, problem: Problem, params: Vector) -> Evaluation:
        """Return the hard rates and confusion counts of a model."""
        with self.federation.phase("check"):
            reports = self.ask((Point(params, "decisions"),), "a model's decisions")
        return evaluate_point(problem, params, reports)

    def check_comparable(self, *, relative: bool, pooling: Pooling = "none") -> None:
        """Raise `DataError` if no client has two groups that a budget compares.

        Pooled estimates compare groups of any size unless a minimum number of rows is given.
        """
        rules = self.setup.rules
        bounded = tuple(rule for rule in rules if rule.budget is not None)
        if relative:  # budgets are not measured yet, so use a placeholder
            bounded = tuple(replace(rule, budget=1.0) for rule in rules)
        if traits_of(self.method).is_cross_validated:
            every, _ = self.build(bounded, self.min_group_rows or 1.0)
            if pooled_rows(every.constraints, pooling).any():
                return
        if not bounded or self.build(bounded)[0].constraints.rows:
            return
        attribute, metric = bounded[0].attribute, bounded[0].metric
        present = [client.present.get(attribute, ()) for client in self.introductions.values()]
        named = sorted({group for groups in present for group in groups})
        ways = ["name another column with `--sensitive`, or omit the budget"]
        if len(named) > 1 and all(rule.scope == "client" for rule in bounded):
            ways.insert(0, "compare all rows together with `--scope global`")
        if any(len(groups) > 1 for groups in present):
            ways.insert(0, "compare smaller groups with a lower `--min-group-rows`")
        raise DataError(
            f"No two groups of {attribute!r} have enough of the training rows that {metric} "
            f"compares. The groups are {first_of(map(repr, named))}. To train, {'; '.join(ways)}."
        )

    def build(
        self, rules: Sequence[Rule], min_group_rows: float | None = None
    ) -> tuple[Problem, tuple[str, ...]]:
        """Return the problem under ``rules``, and a note on each excluded group."""
        least = self.min_group_rows if min_group_rows is None else min_group_rows
        return build_problem(rules, self.setup.rates, self.counts, l2=self.l2, min_group_rows=least)

    def noted(
        self,
        notes: tuple[str, ...],
        what: str = "groups at clients are too small to be compared there",
    ) -> tuple[str, ...]:
        """Report notes and return them; replace a long list by its length and first note."""
        if len(notes) > MAX_NOTES:
            notes = (f"{len(notes)} {what}. The first: {notes[0]}",)
        for note in notes:
            self.session.on_message(note)
        return notes

    def plain_problem(
        self, rules: Sequence[Rule], first: Vector
    ) -> tuple[Problem, tuple[str, ...]]:
        """Return the problem of a fit without margins, and notes on its limitations."""
        problem, left_out = self.build(rules)
        notes, traits = self.noted(left_out), traits_of(self.method)
        if problem.constraints.rows and not traits.enforces_budgets:
            notes += self.noted((
                f"Method {self.method.name!r} does not enforce budgets; the model is only "
                "compared with them.",
            ))  # fmt: skip
        if traits.n_references:
            with self.federation.phase("disclose"):
                ask = partial(self.ask, what="its reference points")
                problem = with_references(problem, first, traits.n_references, self.seed, ask)
            n_rows = len(problem.references)  # type: ignore[arg-type]
            notes += self.noted((f"{n_rows} training rows are disclosed to the server.",))
        return problem, notes

    def fit(
        self, method: Any, state: Any, phase: Phase, folder: str = "", *, reports: bool = False
    ) -> Stage:
        """Run a method from a state, in the folder of the run or the subfolder ``folder``.

        With ``reports``, the last request is sent again if its reports are unknown, which happens
        after resuming and if the fit ended without a round.
        """
        session = self.session.inside(folder) if folder else self.session
        runtime = _Recording(self.clients)
        fresh = Progress(state, options=methods.options_of(method))
        with self.federation.phase(phase):
            ended, infos = run_rounds(method, fresh, runtime, session, self.federation.exchanges)
            if reports and not runtime.last:
                runtime.last = self.ask(ended.state.request.points, "the rates of a fitted model")
        return Stage(ended, infos, folder, runtime.last)

    def first_fit(
        self, method: Any, problem: Problem, first: Vector, phase: Phase, folder: str = "",
        *, reports: bool = False,
    ) -> Stage:  # fmt: skip
        """Fit from the initial parameters; SQP reuses the reports from `met`."""
        state = methods.first_state(method, first, problem)
        if traits_of(method).is_cross_validated:
            state, _ = methods.next_state(method, state, self.counts)
            state = replace(state, rounds=(0,) * len(state.rounds))
        return self.fit(method, state, phase, folder, reports=reports)

    def relative_rules(
        self, rules: Sequence[Rule], decisions: Evaluation, share: float
    ) -> tuple[Rule, ...]:
        """Set missing budgets to a share of each client's disparity without budgets.

        ``decisions`` are those of the model without budgets. Stricter rules of clients are merged
        with the result.
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

    def _disparities(self, rule: Rule, decisions: Evaluation) -> dict[ClientId, float]:
        """Return the disparity of each client with at least two groups.

        Prefer groups with the default minimum number of rows, because the rate of a group of one
        row is 0 or 1 for every model.
        """
        least = LEAST_ROWS[0] if self.min_group_rows is None else self.min_group_rows
        disparities = {}
        for client, report in zip(decisions.problem.clients, decisions.reports, strict=True):
            rows = report.group_counts
            compared = compare(rule, self.setup.rates, rows, least)
            if len(compared.pairs) == 0:
                compared = compare(rule, self.setup.rates, rows, 1.0)
            value = disparity_value(rule, compared, report.rates * rows, rows)
            if value is not None:  # replace 0 by the effect of one row of the smallest group
                disparities[client] = value or 1.0 / float(rows[[*compared.pairs.ravel()]].min())
        return disparities

    def write_history(self, stages: Sequence[Stage]) -> None:
        """Join the round histories of all fits in the folder of the run."""
        folder = self.session.folder
        if folder is not None and len(stages) > 1:
            parts = [(folder / s.folder / HISTORY, sum(s.progress.state.rounds)) for s in stages]
            join_histories(parts, folder / HISTORY)


# --- before the first fit -------------------------------------------------------------------------


def prepare(
    federation: Federation,
    model: Model,
    rules: Sequence[Rule],
    method: Any,
    groups: Mapping[str, Sequence[str]] | None,
    min_group_rows: float | None,
    session: Session,
) -> Run:
    """Collect the clients' introductions, and determine the rules in force and the rates."""
    method = as_method(method)
    methods.check_method(method)
    introductions = federation.introduce()
    adapted = model.adapt_method(method)
    merged = rules_in_force(rules, introductions)
    levels = all_levels(introductions) if groups is None else groups
    rates = rates_needed(merged, levels, traits_of(adapted).rate_kinds)
    setup = Setup(model, rates, merged, min_group_rows or 1.0)
    return Run(federation, setup, adapted, session, introductions, min_group_rows)


def as_method(method: Any) -> Any:
    """Return the method with default options for a name, or the given method object."""
    return METHODS[check_method("method", method)].method() if isinstance(method, str) else method


def with_references(
    problem: Problem,
    params: Vector,
    count: int,
    seed: int,
    ask: Callable[[Sequence[Point]], Reports],
) -> Problem:
    """Return the problem with about ``count`` training rows disclosed by its clients.

    Each client discloses at least one row, in proportion to its number of rows.
    """
    total = problem.n_rows.sum()
    shares = {
        client: max(round(count * rows / total), 1)  # a client with fewer rows discloses all
        for client, rows in zip(problem.clients, problem.n_rows, strict=True)
    }
    reports = ask((Point(params, extras=(DisclosedRows(shares, seed),)),))
    rows = np.vstack([reports[client][0].extras["rows"] for client in problem.clients])
    return replace(problem, references=rows)
