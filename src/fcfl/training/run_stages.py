"""One run of `train`, stage by stage: meet, choose, measure, train, evaluate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fcfl._brief import brief_repr
from fcfl._checks import first_of
from fcfl._types import ClientId, Point, Reports, Request, Vector
from fcfl.audit.disparities import compare, disparity_value
from fcfl.client.questions import Counted, Introduction, Setup
from fcfl.errors import AbsentClientError
from fcfl.federation.checkpoint import checkpoint_path, previous_path
from fcfl.federation.exchange_count import EXCHANGES, Phase
from fcfl.federation.federation import Bound, Federation
from fcfl.federation.history import join_histories
from fcfl.federation.loop import Progress
from fcfl.models.model import Model
from fcfl.results import Selection, Start
from fcfl.results.evaluations import AuditTerms, Evaluations
from fcfl.results.result import objective_setting
from fcfl.results.result_file import read_selection, write_selection
from fcfl.rules import LEAST_ROWS, Rule, rates_needed
from fcfl.server.method import RoundInfo, traits_of
from fcfl.server.method_checks import check_method, first_state
from fcfl.server.method_options import options_of
from fcfl.server.problem import Problem, build_problem
from fcfl.training.client_rules import all_levels, check_comparable, rules_in_force
from fcfl.training.few_rows import briefly
from fcfl.training.open_settings import as_method, with_objective
from fcfl.training.own_best import with_own_best
from fcfl.training.references import ask_references, with_references
from fcfl.training.rounds import HISTORY, Session, run_rounds
from fcfl.training.selection import OpenSettings, select
from fcfl.training.starts import Starts, best_of
from fcfl.training.trait_checks import check_traits

SELECTION = "selection.json"
FITTED = "selection.npz"  # what a cross-validation that was stopped had fitted
UNCONSTRAINED = "unconstrained"  # folder of the run that relative budgets are measured on
_TURNS = "turn-*"  # folders of the turns after the first fit


def forget(folder: Path) -> None:
    """Remove what a run in this folder left to go on from, when another begins there."""
    for place in (folder, folder / UNCONSTRAINED, *sorted(folder.glob(_TURNS))):
        for name in (HISTORY, SELECTION, FITTED, EXCHANGES):
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
    """Meet the clients, and settle what they are asked about."""
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
    """One training under some bounds."""

    progress: Progress[Any]
    history: tuple[RoundInfo, ...]
    folder: str = ""  # inside that of the run

    __repr__ = brief_repr

    @property
    def params(self) -> Vector:
        """Where it ended."""
        params: Vector = self.progress.state.params
        return params


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
        """The same with everybody's counts."""
        counts = self.clients.evaluate(Request((Point(params),)))
        if self.federation.failures:
            raise AbsentClientError("A run begins, or goes on, with all its clients.")
        return replace(self, counts=counts)

    def check_comparable(self, *, relative: bool) -> None:
        """Refuse budgets that nothing would be held to."""
        rules = self.setup.rules
        bounded = tuple(rule for rule in rules if rule.budget is not None)
        if relative:  # yet to be measured: any number will do
            bounded = tuple(replace(rule, budget=1.0) for rule in rules)
        problem, _ = self._build(bounded, 0.0)
        check_comparable(bounded, problem.constraints, self.introductions)

    def choose(
        self, settings: OpenSettings, seed: int, rules: Sequence[Rule] | None = None
    ) -> Selection | None:
        """Settle what is left to cross-validation; chosen once, it is read back on resuming."""
        if not settings.is_open:
            return None
        session = self.session
        path = None if session.folder is None else session.folder / SELECTION
        if session.resume and path is not None and path.exists():
            return read_selection(path)
        with self.federation.phase("choose"):
            chosen = select(
                self.federation,
                self.setup,
                self.setup.rules if rules is None else rules,
                self.method,
                settings,
                seed=seed,
                min_group_rows=self.min_group_rows,
                on_round=session.on_round,
                progress_file=None if session.folder is None else session.folder / FITTED,
            )
        if path is not None:
            write_selection(path, chosen)
            (path.parent / FITTED).unlink(missing_ok=True)
        session.on_message(chosen.sentence)
        return chosen

    def settled(
        self, settings: OpenSettings, chosen: Selection | None, excess_loss: bool, seed: int
    ) -> "Run":
        """The same with what was left open chosen."""
        l2: Any = settings.l2 if chosen is None else chosen.l2
        objective = settings.objective if chosen is None else objective_setting(chosen.objective)
        method = with_objective(self.method, objective)
        return replace(self, method=method, l2=float(l2), excess_loss=excess_loss, seed=seed)

    def _build(self, rules: Sequence[Rule], l2: float) -> tuple[Problem, tuple[str, ...]]:
        return build_problem(
            rules, self.setup.rates, self.counts, l2=l2, min_group_rows=self.min_group_rows
        )

    def problem(self, rules: Sequence[Rule], first: Vector) -> tuple[Problem, tuple[str, ...]]:
        """What is solved under ``rules``, and sentences on what is left out of it."""
        problem, left_out = self._build(rules, self.l2)
        notes = briefly(left_out, "groups at clients are too small to be compared there")
        traits = traits_of(self.method)
        if problem.constraints.rows and not traits.enforces_budgets:
            notes += (
                f"Method {self.method.name!r} does not enforce budgets; its model is only "
                "measured against them.",
            )
        if traits.n_references:
            asked = ask_references(problem, first, traits.n_references, self.seed)
            with self.federation.phase("disclose"):
                disclosed = self.clients.evaluate(asked)
            self.federation.check_all_answered("which rows are reference points")
            problem, said = with_references(problem, disclosed)
            notes += (said,)
        for note in notes:
            self.session.on_message(note)
        if self.excess_loss:
            with self.federation.phase("alone"):
                problem = with_own_best(problem, self.federation, self.setup, first)
        return problem, notes

    def train(
        self,
        problem: Problem,
        first: Vector,
        folder: str | None = None,
        method: Any = None,
        phase: Phase = "fit",
    ) -> Stage:
        """Solve ``problem`` from ``first``, in the run's folder or one inside it."""
        session = self.session if folder is None else self.session.inside(folder)
        method = self.method if method is None else method
        fresh = Progress(first_state(method, first, problem), options=options_of(method))
        with self.federation.phase(phase):
            return Stage(*run_rounds(method, fresh, self.clients, session), folder or "")

    def best_start(
        self, problem: Problem, first: Vector, count: int
    ) -> tuple[Vector, tuple[Start, ...]]:
        """The end of the best of several starts, and what became of all of them."""
        free, _ = self._build((), self.l2)
        others = self.setup.model.other_starts(count - 2, self.seed)
        starts = Starts(self.method, problem, free)
        with self.federation.phase("starts"):
            ends = starts.screen(first, others, self.clients, self.session.on_round)
        return best_of(ends).params, tuple(end.entry for end in ends)

    def measured(self, rules: Sequence[Rule], first: Vector, share: float) -> tuple[Rule, ...]:
        """Train without budgets first: the disparities there are what budgets are relative to.

        ``rules`` are those of the run; what clients insist on is merged with what was measured.
        """
        tell = self.session.on_message
        tell("Training without budgets first, to measure what they are relative to.")
        problem, _ = self.problem(rules, first)
        free = self.train(problem, first, UNCONSTRAINED, phase="reference")
        with self.federation.phase("reference"):
            decisions = self.clients.evaluate(Request((Point(free.params, "decisions"),)))
        self.federation.check_all_answered("how a model without budgets decides")
        relative: list[Rule] = []
        for rule in rules:
            if rule.name == "difference" and rule.scope == "client" and rule.budget is None:
                values = self._disparities(rule, decisions)
                budgets = {client: min(share * value, 1.0) for client, value in values.items()}
                rule = replace(rule, budget=budgets)
                tell(_about_budgets(rule.attribute, budgets, share, alone=len(rules) == 1))
            relative.append(rule)
        return rules_in_force(relative, self.introductions)

    def _disparities(self, rule: Rule, reports: Reports) -> dict[ClientId, float]:
        """Each client's disparity, where it has one.

        Between groups with enough rows to be compared, as far as that is known before there are
        budgets: that of a group of one row is 0 or 1, whatever the model.
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
                found[client] = value or 1.0 / float(rows[np.unique(compared.pairs)].min())
        return found

    def write_history(self, stages: Sequence[Stage]) -> None:
        """Append the rounds of later stages, each in a folder of its own, to those of the first."""
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
        """What a model does on every client's rows, held against ``rules``."""
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


def _about_budgets(
    attribute: str, budgets: Mapping[str, float], share: float, *, alone: bool
) -> str:
    whose = "" if alone else f" for {attribute}"
    listed = first_of((f"{c!r} {v:.4f}" for c, v in budgets.items()), 12)
    return f"Budgets{whose} are {share:g} of the disparity without budgets: {listed}."
