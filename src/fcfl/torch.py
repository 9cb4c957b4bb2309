"""Any torch module with one logit under each client's budget.

>>> import numpy as np, torch
>>> from fcfl import Difference
>>> from fcfl.torch import TorchClient, train_module
>>> rng, _ = np.random.default_rng(0), torch.manual_seed(0)
>>> def rows(n):
...     X, group = rng.normal(size=(n, 3)), rng.choice(["a", "b"], n)
...     return X, (X[:, 0] + (group == "a") + rng.logistic(size=n) > 0.5).astype(float), group
>>> module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
>>> clients = {site: TorchClient(module, *rows(80)) for site in ("north", "south")}
>>> trained = train_module(module, clients, [Difference("demographic_parity", "group", 0.05)])
>>> trained.largest_violation <= 1e-6
True

Needs the extra ``fcfl[torch]``; ``import fcfl`` alone does not import torch.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load, save

from fcfl._files import replace_file
from fcfl._types import ClientId, Point, RateId, Request, Vector
from fcfl.client.counts import Counts, count_rows
from fcfl.errors import DataError
from fcfl.federation.in_process import InProcess
from fcfl.federation.loop import Progress, run
from fcfl.models.torch_module import TorchClient
from fcfl.models.torch_params import Network, as_network, load_state, state_arrays
from fcfl.rules import Rule, check_budget_clients, rates_needed
from fcfl.server.method import RoundInfo
from fcfl.server.prices import Price, budget_prices
from fcfl.server.problem import build_problem, evaluate_point
from fcfl.server.sqp.sqp import SQP

__all__ = ["TorchClient", "TrainedModule", "load_module", "save_module", "suited", "train_module"]

NETWORK_L2 = 3e-3  # see docs/networks.md
_ROUGH_TOLERANCE = 1e-5
_KIND = "fcfl-torch-1"


@dataclass(frozen=True)
class TrainedModule:
    """What training left: the module, every round, and what the model does for each client.

    ``module`` is a copy with the trained weights, in evaluation mode. ``kkt`` is how far it is from
    optimal, None for methods that do not say. ``losses`` and ``largest_violation`` are those of
    training, on training rows and smooth rates, the L2 term left out; ``counts`` are hard counts of
    the same rows, in the order of ``rates``. ``prices`` has the most expensive budget first,
    nothing for methods without multipliers. ``notes`` name groups too small to be compared.
    """

    module: Any
    params: Vector
    status: str
    message: str
    rounds: tuple[int, ...]
    kkt: float | None
    history: tuple[RoundInfo, ...]
    prices: tuple[Price, ...]
    losses: Mapping[ClientId, float]
    largest_violation: float
    rates: tuple[RateId, ...]
    counts: Mapping[ClientId, Counts]
    notes: tuple[str, ...]


def train_module(
    module: Any,
    clients: Mapping[ClientId, TorchClient],
    rules: Sequence[Rule],
    *,
    method: Any = None,
    l2: float = NETWORK_L2,
    min_group_rows: float = 1.0,
    on_round: Callable[[RoundInfo], None] | None = None,
) -> TrainedModule:
    """Train ``module`` from its own weights so that every client's budgets are met.

    Parameters
    ----------
    module : nn.Module
        The one the clients hold; it is not changed.
    clients : mapping from name to TorchClient
    rules : `Difference` and `Ratio`, on attributes that the clients have
    method : by default ``SQP()``: the worst client's loss, then the mean; see `suited`
    l2 : weight of ``|params|**2 / 2`` in every loss
    min_group_rows : a group with fewer rows at a client is left out of its comparison
    on_round : called after every round
    """
    if not clients:
        raise ValueError("`clients` must name at least one client, got none.")
    network = as_network(module)
    for name, client in clients.items():
        if client.network.module is not module:
            raise ValueError(
                f"`clients` must hold the module that is trained, but client {name!r} has another."
            )
    check_budget_clients(rules, list(clients))
    rates = rates_needed(rules, _all_levels(clients), getattr(method, "rate_kinds", ()))
    runtime = InProcess({name: client.asked(name, rates) for name, client in clients.items()})
    start = network.first_params()
    counted = runtime.evaluate(Request((Point(start),)))
    problem, notes = build_problem(rules, rates, counted, l2=l2, min_group_rows=min_group_rows)
    how = suited(SQP() if method is None else method, network)
    state: Any = how.init(start, problem)
    history = []
    for progress, info in run(how, Progress(state), runtime):
        state = progress.state
        history.append(info)
        if on_round is not None:
            on_round(info)
    at = evaluate_point(problem, state.params, runtime.evaluate(Request((Point(state.params),))))
    multipliers = getattr(state, "prices", None)
    return TrainedModule(
        module=network.restored(state.params),
        params=state.params,
        status=state.status,
        message=state.message,
        rounds=state.rounds,
        kkt=getattr(state, "kkt", None),
        history=tuple(history),
        prices=() if multipliers is None else tuple(budget_prices(at, multipliers)),
        losses={name: report.loss for name, report in zip(clients, at.reports, strict=True)},
        largest_violation=at.largest_violation,
        rates=rates,
        counts={
            name: count_rows(client.logits(state.params), client.data, rates)
            for name, client in runtime.clients.items()
            if isinstance(client, TorchClient)
        },
        notes=notes,
    )


def suited(method: Any, network: Network) -> Any:
    """The method with what a network can afford, where the choice was left open.

    A linear model's Hessian costs one product, a network's one backward pass per parameter: its
    curvature is learnt. A second point with gradients costs as much as the first. In float32
    gradients are not known well enough for a KKT residual of 1e-6.
    """
    if not isinstance(method, SQP):
        return method
    curvature = "lbfgs" if method.curvature == "auto" else method.curvature
    n_full = method.n_full_points
    rough = method.tolerance is None and not network.is_double
    return replace(
        method,
        curvature=curvature,
        n_full_points=1 if n_full is None and curvature == "lbfgs" else n_full,
        tolerance=_ROUGH_TOLERANCE if rough else method.tolerance,
    )


def _all_levels(clients: Mapping[ClientId, TorchClient]) -> dict[str, tuple[str, ...]]:
    """The groups of each attribute, of all clients together, in the order they are met."""
    found: dict[str, dict[str, None]] = {}
    for client in clients.values():
        for attribute, levels in client.data.levels.items():
            found.setdefault(attribute, {}).update(dict.fromkeys(levels))
    return {attribute: tuple(levels) for attribute, levels in found.items()}


def save_module(module: Any, folder: Path | str, about: Mapping[str, Any] | None = None) -> None:
    """Write ``model.safetensors`` (all weights and buffers) and ``model.json``, which describes it.

    ``about`` is kept in the JSON file as it is.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    arrays = state_arrays(module)
    weights = save(arrays)
    described = {name: [str(a.dtype), list(a.shape)] for name, a in arrays.items()}
    content = {
        "kind": _KIND,
        "weights": "model.safetensors",
        "sha256": hashlib.sha256(weights).hexdigest(),
        "module": repr(module),
        "tensors": described,
        "about": dict(about or {}),
    }
    replace_file(place / "model.safetensors", weights)
    replace_file(place / "model.json", (json.dumps(content, indent=1) + "\n").encode())


def load_module(module: Any, folder: Path | str) -> Any:
    """A copy of ``module`` with the weights of a folder, in evaluation mode.

    ``module`` must be built as the saved one was; its own weights do not matter.
    """
    path = Path(folder) / "model.json"
    if not path.exists():
        raise DataError(f"There is no model at {str(path)!r}. Write one with `save_module`.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["kind"] != _KIND:
            raise DataError(f"{str(path)!r} holds a model of unknown kind {content['kind']!r}.")
        weights = (path.parent / "model.safetensors").read_bytes()
        if hashlib.sha256(weights).hexdigest() != content["sha256"]:
            raise DataError(f"The weights beside {str(path)!r} are not those it describes.")
        arrays = load(weights)
    except (KeyError, TypeError, json.JSONDecodeError, SafetensorError, OSError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else error
        raise DataError(f"{str(path)!r} is not a whole model written by fcfl ({why}).") from None
    return load_state(module, arrays, str(path))
