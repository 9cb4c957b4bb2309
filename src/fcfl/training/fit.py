"""`train`: the one way from a federation and a model to a trained one.

The command line, the estimator, `fcfl.torch`, sweeps, comparisons, the reproduction and runs over
sites all come through here. Everything is asked of the federation, so that it works wherever the
clients are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from fcfl._checks import check_fraction, check_non_negative, check_params, check_positive
from fcfl._types import Reports, Vector
from fcfl.errors import AbsentClientError
from fcfl.federation.federation import Federation
from fcfl.models.model import Model
from fcfl.results import Selection
from fcfl.results.evaluations import Evaluations
from fcfl.rules import Rule
from fcfl.server.problem import evaluate_point
from fcfl.training.margins import check_rules_to_tighten
from fcfl.training.open_settings import objective_of, open_settings
from fcfl.training.rounds import Session
from fcfl.training.run_stages import Run, Stage, prepare
from fcfl.training.trained import Trained


def train(
    federation: Federation,
    model: Model,
    rules: Sequence[Rule] = (),
    *,
    method: Any = "sqp",
    l2: float | Literal["auto"] | None = None,
    objective: float | Literal["max", "mean", "auto"] | None = None,
    confidence: float | None = None,
    relative_budget: float | None = None,
    excess_loss: bool = False,
    min_group_rows: float = 1.0,
    groups: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    start: Vector | None = None,
    session: Session = Session(),  # noqa: B008 - frozen
) -> Trained:
    """Train one model for all clients, each within its budgets.

    Parameters
    ----------
    federation : the clients
    model : what is trained
    rules : `Difference` and `Ratio`, on attributes that the clients have
        A client that insists on stricter rules of its own gets them.
    method : a name, or a method of ours or yours as an object
    l2 : weight of ``|params|**2 / 2`` in every loss
        By default cross-validated for a linear model trained by "sqp", the model's own for a
        network trained by it, 0 for other methods; with ``excess_loss`` 0.001 for a linear model.
    objective : what is minimised over clients
        "max" (the largest loss), "mean", a temperature between them, or "auto": cross-validated.
        By default that of a method that is given as an object, else as for ``l2``.
    confidence : train against tighter budgets, so that new rows keep the given ones that often
    relative_budget : budgets as this share of the disparity each client has without budgets
        They are given to the `Difference` rules that have none.
    excess_loss : compare what each client loses beyond its own best model
    min_group_rows : groups with fewer rows at a client are not compared there
    groups : the groups to compare, by attribute; by default all that any client has
    seed : draws the folds of the cross-validation
    start : first parameters, by default the model's own
    session : the folder to write to, and who is told
    """
    _check_arguments(rules, confidence, relative_budget, min_group_rows)
    session = replace(session, on_message=_once(session.on_message))
    if session.folder is not None:
        session.folder.mkdir(parents=True, exist_ok=True)
    run = prepare(federation, model, rules, method, groups, min_group_rows, session)
    settings = open_settings(method, model, l2, objective, excess_loss=excess_loss)
    first = model.start() if start is None else _check_start(start, model)
    with _naming_absent(federation):
        run = run.met(first)
        selection = run.choose(settings, seed)
        run = run.settled(settings, selection, excess_loss, seed)
        asked, rules = rules, run.setup.rules
        if relative_budget is not None:
            rules = run.measured(asked, model.start(), relative_budget)
        in_force = tuple(rules)
        notes: tuple[str, ...] = ()
        if confidence is not None:
            in_force, notes, first = run.tightened(rules, first, confidence)
        last = run.stage(in_force, first)
        found = run.evaluate(last.params, rules)
    return _trained(run, last, found, selection, notes)


def _check_arguments(
    rules: Sequence[Rule],
    confidence: float | None,
    relative_budget: float | None,
    min_group_rows: float,
) -> None:
    """Refuse what would only be found out after a whole stage."""
    check_non_negative("min_group_rows", min_group_rows)
    if confidence is not None:
        check_fraction("confidence", confidence)
        check_rules_to_tighten(rules)
    if relative_budget is not None:
        check_positive("relative_budget", relative_budget)


def _check_start(start: Vector, model: Model) -> Vector:
    params = check_params(start)
    if params.size != model.n_params:
        raise ValueError(
            f"`start` must have the model's {model.n_params} parameters, got {params.size}."
        )
    return params


def _trained(
    run: Run,
    last: Stage,
    found: Evaluations,
    selection: Selection | None,
    notes: tuple[str, ...],
) -> Trained:
    """What the last stage left, and what its model does on every client's rows."""
    reports: Reports = {client: (report,) for client, report in found.reports.items()}
    return Trained(
        model=run.setup.model,
        method=run.method,
        state=last.progress.state,
        at=evaluate_point(last.progress.state.problem, last.params, reports),
        evaluations=found,
        rules=found.rules,
        l2=run.l2,
        objective=objective_of(run.method),
        selection=selection,
        history=last.history,
        cost=last.progress.tally,
        notes=(*last.notes, *notes),
    )


def check_rules(
    federation: Federation,
    model: Model,
    rules: Sequence[Rule],
    *,
    method: Any = "sqp",
    relative: bool = False,
    min_group_rows: float = 1.0,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Refuse budgets that nothing would be held to: where no two groups can be compared.

    `train` only notes which groups are left out, so that a fold of a grid search may lack one.
    """
    run = prepare(federation, model, rules, method, groups, min_group_rows, Session())
    with _naming_absent(federation):
        run.met(model.start()).check_comparable(relative=relative)


@contextmanager
def _naming_absent(federation: Federation) -> Iterator[None]:
    """Add to an error about absent clients why they were left out."""
    try:
        yield
    except AbsentClientError as error:
        why = [
            f"Client {name!r}: {said}"
            for name, said in federation.failures.items()
            if said not in str(error)
        ]
        raise AbsentClientError(" ".join([str(error), *why])) from None


def _once(on_message: Callable[[str], None]) -> Callable[[str], None]:
    """Pass a sentence on when it is new: several stages have the same to say."""
    told: set[str] = set()

    def tell(sentence: str) -> None:
        if sentence not in told:
            told.add(sentence)
            on_message(sentence)

    return tell
