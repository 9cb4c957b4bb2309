"""What a method needs to know before its first round: which rates, and the problem to solve."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fcfl._types import ClientId, RateId, Reports
from fcfl.data import ClientData
from fcfl.rules import Rule, rates_needed
from fcfl.runs.settings import Experiment
from fcfl.server.method import traits_of
from fcfl.server.problem import Problem, build_problem
from fcfl.training.references import reference_rows


def rates_for(
    experiment: Experiment, rules: Sequence[Rule], levels: Mapping[str, Sequence[str]]
) -> tuple[RateId, ...]:
    """The rates that the rules compare, and those the method wants besides."""
    return rates_needed(rules, levels, traits_of(experiment.make_method()).rate_kinds)


def pose(
    experiment: Experiment,
    rules: Sequence[Rule],
    rates: Sequence[RateId],
    counted: Reports,
    train: Mapping[ClientId, ClientData],
    *,
    l2: float,
    min_group_rows: float = 1.0,
) -> tuple[Problem, tuple[str, ...]]:
    """The problem, and sentences on what the method or a group too small leaves out.

    ``counted`` has one report of every client; only its counts are used.
    """
    problem, notes = build_problem(rules, rates, counted, l2=l2, min_group_rows=min_group_rows)
    method = experiment.make_method()
    traits = traits_of(method)
    if not traits.enforces_budgets and problem.constraints.rows:
        notes += (f"Method {method.name!r} does not enforce budgets; they are only measured.",)
    n_references = traits.n_references
    if not n_references:
        return problem, notes
    rows = reference_rows(train, n_references, experiment.seed)
    told = f"{rows.shape[0]} training rows are reference points: the server sees them."
    return replace(problem, references=rows), (*notes, told)
