"""Compose a `Result` from the results of clients, a method's last state, and prices."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from fcfl import __version__
from fcfl._types import ClientId
from fcfl.audit.auditing import Part
from fcfl.federation.loop import Tally
from fcfl.methods.method import State
from fcfl.problem.evaluation import Evaluation
from fcfl.problem.prices import Price, budget_prices, price_of

from .evaluations import RowSections
from .result import (
    EvaluationCounts,
    Exchanges,
    Result,
    Start,
    objective_name,
)

WEIGHT_SHOWN = 1e-3  # share in the worst loss above which a client is named


def has_prices(state: State) -> bool:
    """Return whether a method's state has prices of budgets.

    Such a state has ``prices``, one multiplier for each constraint row, and ``worst_weights``, one
    weight for each client.
    """
    return hasattr(state, "prices") and hasattr(state, "worst_weights")


def compose_result(
    rows: RowSections,
    state: State,
    *,
    cost: Tally,
    exchanges: Mapping[str, int],
    objective: str | float | None,
    settings: Mapping[str, object],
    start: str,
    starts: Sequence[Start] = (),
    rounds: Sequence[int] | None = None,
    **facts: Any,
) -> Result:
    """Return the result of a training run, without prices; see `with_prices`.

    Parameters
    ----------
    rows : result of the trained model for each client; see `row_sections`
    state : the method's last state
    cost : of training, to each client and to all of them
    exchanges : requests to all clients, by phase
    objective : "max", "mean" or a temperature (infinite: the mean), None for other methods
    settings : the run's options by name; those that are None are left out
    start : the name of the start, such as "zero"
    starts : the losses of several, by default of this one
    rounds : rounds of each stage, by default those of the state
    facts : all other fields of `Result`
    """
    losses = [who.train.loss for who in rows.clients.values() if who.train.loss is not None]
    only = Start(start, max(losses, default=None), sum(losses) / len(losses) if losses else None)
    kkt = getattr(state, "kkt", None)
    return Result(
        status=state.status,
        message=state.message,
        rounds={f"stage{i + 1}": count for i, count in enumerate(rounds or state.rounds)},
        exchanges=Exchanges.of(exchanges),
        evaluations=EvaluationCounts(cost.values, cost.gradients, cost.curvatures),
        bytes_from_clients=cost.bytes_from_clients,
        kkt_residual=None if kkt is None or not np.isfinite(kkt) else float(kkt),
        objective=objective_name(objective),
        fcfl_version=__version__,
        worst_client=rows.worst_client,
        clients=rows.clients,
        overall=rows.overall,
        starts=tuple(starts) or (only,),
        audit=rows.audit,
        settings={
            key: "mean" if key == "objective" and value == np.inf else value
            for key, value in settings.items()
            if value is not None
        },
        versions=versions(),
        **facts,
    )


def with_prices(result: Result, state: Any, at: Evaluation) -> Result:
    """Return the result with the price of each budget, also at its disparity, and who pays.

    ``at`` is the problem evaluated at ``state.params``. Methods without prices leave it unchanged.
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
    return result.replace(
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
    """Return the versions that computed a result."""
    packages = ("numpy", "scipy", "pandas")
    python = platform.python_version()
    return {"fcfl": __version__, "python": python} | {name: version(name) for name in packages}
