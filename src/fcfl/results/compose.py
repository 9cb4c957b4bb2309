"""Counts, reports, audits, prices and a method's last state, put together as a `Result`."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from fcfl import __version__
from fcfl._types import ClientId
from fcfl.federation.loop import Tally
from fcfl.methods.method import State
from fcfl.models.group_thresholds import GroupThresholds
from fcfl.problem.evaluation import Evaluation, Problem
from fcfl.problem.prices import Price, budget_prices, price_of

from .client_result import ClientResult, Part
from .degenerate import Degenerate
from .evaluations import RowSections
from .result import (
    DataSource,
    EvaluationCounts,
    Exchanges,
    Result,
    Selection,
    Start,
    objective_name,
)

WEIGHT_SHOWN = 1e-3  # share in the worst loss above which a client is named


def has_prices(state: State) -> bool:
    """Whether a method's state says what budgets cost: multipliers, and who the worst clients are.

    A state says so with ``prices``, one multiplier for each constraint row, and ``worst_weights``,
    one weight for each client.
    """
    return hasattr(state, "prices") and hasattr(state, "worst_weights")


def compose_result(
    rows: RowSections,
    state: State,
    *,
    method: str,
    l2: float,
    objective: str | float | None,
    seed: int,
    start: str,
    starts: Sequence[Start] | None = None,
    rounds: Sequence[int] | None = None,
    settings: Mapping[str, object],
    data: DataSource,
    cost: Tally,
    exchanges: Mapping[str, int],
    notes: Sequence[str] = (),
    selection: Selection | None = None,
    threshold: float | None = None,
    thresholds: GroupThresholds | None = None,
    degenerate: Degenerate | None = None,
) -> Result:
    """Everything ``result.json`` says of a training run but prices; see `with_prices`.

    Parameters
    ----------
    rows : what the trained model does for each client; see `row_sections`
    state : the method's last state
    objective : "max", "mean" or a temperature (infinite: the mean), None for other methods
    start : the name of the start, such as "zero"
    starts : what became of several, by default of this one
    rounds : rounds of each stage, by default those of the state
    settings : the run's options by name; those that are None are left out
    threshold : the probability from which on rows are selected
    thresholds : those of decisions, where they are by client and group
    degenerate : set if the model selects nearly nobody or nearly everybody
    cost : of training, to each client and to all of them
    exchanges : requests to all clients, by phase
    """
    return Result(
        method=method,
        status=state.status,
        message=state.message,
        rounds={f"stage{i + 1}": count for i, count in enumerate(rounds or state.rounds)},
        exchanges=Exchanges.of(exchanges),
        evaluations=EvaluationCounts(cost.values, cost.gradients, cost.curvatures),
        bytes_from_clients=cost.bytes_from_clients,
        seconds=None,
        kkt_residual=_finite(getattr(state, "kkt", None)),
        l2=l2,
        objective=objective_name(objective),
        own_best_losses=_own_best_losses(state.problem),
        selection=selection,
        threshold=threshold,
        thresholds=thresholds,
        degenerate=degenerate,
        seed=seed,
        fcfl_version=__version__,
        worst_client=rows.worst_client,
        clients=rows.clients,
        overall=rows.overall,
        starts=tuple(starts or (_start(start, rows.clients),)),
        audit=rows.audit,
        settings=_written(settings),
        data=data,
        versions=versions(),
        notes=tuple(notes),
    )


def _written(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings that are given; an infinite temperature, which JSON has not, by its name."""
    return {
        key: "mean" if key == "objective" and value == np.inf else value
        for key, value in settings.items()
        if value is not None
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def _own_best_losses(problem: Problem) -> dict[ClientId, float] | None:
    """The lowest loss each client could have on its own, where losses count from there."""
    if problem.own_best_losses is None:
        return None
    return dict(zip(problem.clients, problem.own_best_losses.tolist(), strict=True))


def _start(name: str, clients: Mapping[ClientId, ClientResult]) -> Start:
    losses = [client.train.loss for client in clients.values() if client.train.loss is not None]
    if not losses:
        return Start(name, None, None)
    return Start(name, max(losses), sum(losses) / len(losses))


def with_prices(result: Result, state: Any, at: Evaluation) -> Result:
    """What each budget costs, also at each disparity of training rows, and who pays.

    ``at`` is the problem evaluated at ``state.params``. Nothing for methods without prices.
    """
    if not has_prices(state):
        return result
    prices = budget_prices(at, state.prices)
    weights = zip(state.problem.clients, state.worst_weights, strict=True)
    clients = {
        name: replace(client, train=_priced(client.train, name, prices))
        for name, client in result.clients.items()
    }
    overall = replace(result.overall, train=_priced(result.overall.train, None, prices))
    return replace(
        result,
        clients=clients,
        overall=overall,
        prices=tuple(prices),
        worst_clients={c: float(w) for c, w in weights if w > WEIGHT_SHOWN},
    )


def _priced(part: Part, client: ClientId | None, prices: Sequence[Price]) -> Part:
    entries = tuple(
        replace(entry, price=price_of(prices, client, entry.rule, entry.metric, entry.attribute))
        for entry in part.disparities
    )
    return replace(part, disparities=entries)


def versions() -> dict[str, str]:
    """What computed a result."""
    packages = ("numpy", "scipy", "pandas")
    python = platform.python_version()
    return {"fcfl": __version__, "python": python} | {name: version(name) for name in packages}
