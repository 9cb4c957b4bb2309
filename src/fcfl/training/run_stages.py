"""One run of `train`, stage by stage: meet, choose, measure, train, evaluate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fcfl._types import Point, Reports, Request, Vector
from fcfl.client.questions import Setup
from fcfl.errors import AbsentClientError
from fcfl.federation.federation import Bound, Federation
from fcfl.federation.loop import Progress
from fcfl.models.model import Model
from fcfl.results import Selection
from fcfl.results.evaluations import AuditTerms, Evaluations, smooth_disparities
from fcfl.results.result import objective_setting
from fcfl.results.result_file import read_selection, write_selection
from fcfl.rules import Rule, rates_needed
from fcfl.server.method import RoundInfo, traits_of
from fcfl.server.problem import build_problem
from fcfl.training.client_rules import all_levels, check_comparable, rules_in_force
from fcfl.training.margins import tighten
from fcfl.training.open_settings import as_method, with_objective
from fcfl.training.own_best import with_own_best
from fcfl.training.references import ask_references, with_references
from fcfl.training.rounds import Session, run_rounds
from fcfl.training.selection import OpenSettings, select

SELECTION = "selection.json"
UNCONSTRAINED = "unconstrained"  # folder of the run that relative budgets are measured on
UNTIGHTENED = "untightened"  # folder of the run that margins are measured on


def prepare(
    federation: Federation,
    model: Model,
    rules: Sequence[Rule],
    method: Any,
    groups: Mapping[str, Sequence[str]] | None,
    min_group_rows: float,
    session: Session,
) -> "Run":
    """Meet the clients, and settle what they are asked about."""
    introductions = federation.introduce()
    adapted = model.adapt_method(as_method(method))
    merged = rules_in_force(rules, introductions)
    levels = all_levels(introductions) if groups is None else groups
    rates = rates_needed(merged, levels, traits_of(adapted).rate_kinds)
    setup = Setup(model, rates, merged, min_group_rows)
    return Run(federation, setup, adapted, session)


@dataclass(frozen=True)
class Stage:
    """One training under some rules."""

    progress: Progress[Any]
    history: tuple[RoundInfo, ...]
    notes: tuple[str, ...]

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
        least = self.setup.min_group_rows
        problem, _ = build_problem(bounded, self.setup.rates, self.counts, min_group_rows=least)
        check_comparable(bounded, problem.constraints, self.federation.introduce())

    def choose(self, settings: OpenSettings, seed: int) -> Selection | None:
        """Settle what is left to cross-validation; chosen once, it is read back on resuming."""
        if not settings.is_open:
            return None
        session = self.session
        path = None if session.folder is None else session.folder / SELECTION
        if session.resume and path is not None and path.exists():
            return read_selection(path)
        chosen = select(
            self.federation,
            self.setup,
            self.setup.rules,
            self.method,
            settings,
            seed=seed,
            on_round=session.on_round,
        )
        if path is not None:
            write_selection(path, chosen)
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

    def stage(self, rules: Sequence[Rule], first: Vector, folder: str | None = None) -> Stage:
        """Train under ``rules``, from ``first``."""
        session = self.session if folder is None else self.session.inside(folder)
        problem, notes = build_problem(
            rules,
            self.setup.rates,
            self.counts,
            l2=self.l2,
            min_group_rows=self.setup.min_group_rows,
        )
        traits = traits_of(self.method)
        if problem.constraints.rows and not traits.enforces_budgets:
            notes += (
                f"Method {self.method.name!r} does not enforce budgets; its model is only "
                "measured against them.",
            )
        if traits.n_references:
            asked = ask_references(problem, first, traits.n_references, self.seed)
            disclosed = self.clients.evaluate(asked)
            self.federation.check_all_answered("which rows are reference points")
            problem, said = with_references(problem, disclosed)
            notes += (said,)
        for note in notes:
            session.on_message(note)
        if self.excess_loss:
            problem = with_own_best(problem, self.federation, self.setup, first)
        fresh = Progress(self.method.init(first, problem))
        progress, history = run_rounds(self.method, fresh, self.clients, session)
        return Stage(progress, history, notes)

    def measured(self, rules: Sequence[Rule], first: Vector, share: float) -> tuple[Rule, ...]:
        """Train without budgets first: the disparities there are what budgets are relative to.

        ``rules`` are those of the run; what clients insist on is merged with what was measured.
        """
        tell = self.session.on_message
        tell("Training without budgets first, to measure what they are relative to.")
        free = self.stage(rules, first, UNCONSTRAINED)
        found = self.evaluate(free.params, rules)
        relative: list[Rule] = []
        for rule in rules:
            if rule.name == "difference" and rule.scope == "client" and rule.budget is None:
                values = smooth_disparities(found, rule)
                budgets = {client: min(share * value, 1.0) for client, value in values.items()}
                rule = replace(rule, budget=budgets)
                tell(_about_budgets(rule.attribute, budgets, share, alone=len(rules) == 1))
            relative.append(rule)
        return rules_in_force(relative, self.federation.introduce())

    def tightened(
        self, rules: Sequence[Rule], first: Vector, confidence: float
    ) -> tuple[tuple[Rule, ...], tuple[str, ...], Vector]:
        """Tighter rules, sentences on clients whose rows do not allow them, and where to go on.

        Margins are those of a model that is trained with the rules as they are.
        """
        plain = self.stage(rules, first, UNTIGHTENED)
        in_force, notes = tighten(rules, self.evaluate(plain.params, rules), confidence)
        for note in notes:
            self.session.on_message(note)
        return in_force, notes, plain.params

    def evaluate(self, params: Vector, rules: Sequence[Rule]) -> Evaluations:
        """What a model does on every client's rows, held against ``rules``."""
        counted = self.federation.count(self.setup, params)
        return Evaluations(
            self.setup.rates,
            tuple(rules),
            {client: said.train for client, said in counted.items()},
            {client: said.test for client, said in counted.items()},
            {client: said.report for client, said in counted.items()},
            AuditTerms(min_group_rows=self.setup.min_group_rows),
        )


def _about_budgets(
    attribute: str, budgets: Mapping[str, float], share: float, *, alone: bool
) -> str:
    whose = "" if alone else f" for {attribute}"
    listed = ", ".join(f"{c!r} {v:.4f}" for c, v in list(budgets.items())[:12])
    more = ", …" if len(budgets) > 12 else ""
    return f"Budgets{whose} are {share:g} of the smooth disparity without budgets: {listed}{more}."
