"""What masked sums cost: processor seconds and bytes of a round beside one without masks.

`python -m benchmarks.masks` asks simulated sites for gradients and curvature at one point after
another, in turns with masks and without, through the messages that Flower carries. All sites and
the server are in one process, so the seconds are those of all machines together. Keys are set up
before the first round. ``off`` is how far the opened sum is from that of the curvatures. Then it
trains on adult-5 in one process, with masks and without: rounds, and how far the ends are apart,
under rules of each client and over all rows, and for the largest loss also from where the run
without masks ended, and without budgets.
"""

import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fcfl import train
from fcfl._types import ClientId, CurvatureWeights, Matrix, Point, RateId, Request, curvature_sum
from fcfl.client.questions import Setup
from fcfl.data import load_builtin
from fcfl.federation.federation import Federation
from fcfl.federation.messages import Terms
from fcfl.federation.remote import RemoteFederation
from fcfl.federation.transport import InProcessTransport
from fcfl.models.linear import Linear
from fcfl.rules import Difference
from fcfl.server.sqp import SQP

SIZES = ((5, 10), (5, 100), (5, 300), (20, 100), (50, 100))  # sites, features
ROWS = 300
ROUNDS = 5
TERMS = Terms("label", ("group",), masked=True)
RATES = tuple(RateId("selection", "group", group) for group in ("a", "b"))


@dataclass(frozen=True)
class Cost:
    """One round of all sites: processor seconds, bytes to and from them, exchanges."""

    seconds: float
    bytes_to: float
    bytes_from: float
    exchanges: float


def simulated_sites(folder: Path, n_sites: int, n_features: int) -> InProcessTransport:
    rng = np.random.default_rng(n_sites)
    configs = {}
    for number in range(n_sites):
        columns = {f"x{i}": rng.normal(size=ROWS) for i in range(n_features)}
        columns |= {"group": rng.choice(["a", "b"], ROWS), "label": rng.choice(["n", "y"], ROWS)}
        path = folder / f"{number}.parquet"
        pd.DataFrame(columns).to_parquet(path)
        name, cache = f"site {number:03}", str(folder / f"cache-{number}")
        configs[number] = {"name": name, "table": str(path), "cache": cache}
    return InProcessTransport(configs)


def asked(sites: RemoteFederation, at: float) -> tuple[Setup, Request]:
    model = Linear(sites.agreement.schema.n_features)
    weight = CurvatureWeights(1.0 / len(sites.names), np.full(len(RATES), 0.05))
    weights: dict[ClientId, CurvatureWeights] = dict.fromkeys(sites.names, weight)
    point = Point(np.full(model.n_params, at), "curvature", weights)
    return Setup(model, RATES), Request((point,))


def cost_of(sites: RemoteFederation, at: float) -> tuple[Cost, Matrix]:
    before, exchanges = bytes_of(sites), sites.exchanges
    question = asked(sites, at)
    began = time.process_time()
    reports = sites.report(*question)
    seconds = time.process_time() - began
    total = curvature_sum(reports, 0)
    if total is None:
        total = np.sum([said[0].curvature for said in reports.values()], axis=0)
    after = bytes_of(sites)
    sent = (after[0] - before[0], after[1] - before[1])
    return Cost(seconds, *sent, sites.exchanges - exchanges), total


def bytes_of(sites: RemoteFederation) -> tuple[int, int]:
    traffic = sites.traffic.values()
    return sum(one.bytes_to for one in traffic), sum(one.bytes_from for one in traffic)


def compare(n_sites: int, n_features: int) -> float:
    """Show one size; how far the opened sum was from the one without masks at most."""
    with tempfile.TemporaryDirectory() as folder:
        transport = simulated_sites(Path(folder), n_sites, n_features)
        names = [str(config["name"]) for config in transport.configs.values()]
        plain = RemoteFederation(transport, names, TERMS)
        masked = plain.masked()
        off = 0.0
        costs: dict[str, list[Cost]] = {"plain": [], "masked": []}
        for sites in (plain, masked):  # rows are encoded, keys are made
            cost_of(sites, 0.0)
        for number in range(1, ROUNDS + 1):
            one, open_sum = cost_of(plain, 0.01 * number)
            other, hidden_sum = cost_of(masked, 0.01 * number)
            costs["plain"].append(one)
            costs["masked"].append(other)
            off = max(off, float(np.abs(open_sum - hidden_sum).max()))
    cells = []
    for name, found in costs.items():
        seconds = np.median([cost.seconds for cost in found]) / n_sites
        to = np.mean([cost.bytes_to for cost in found]) / n_sites / 1e3
        back = np.mean([cost.bytes_from for cost in found]) / n_sites / 1e3
        exchanges = np.mean([cost.exchanges for cost in found])
        cells.append(f"{name} {1e3 * seconds:6.1f} ms {to:6.1f} kB {back:7.1f} kB {exchanges:g}")
    print(f"{n_sites:4} sites {n_features:4} features   {'   '.join(cells)}   off {off:.1e}")
    return off


def compare_ends(seed: int, objective: str | float, scope: Literal["client", "global"]) -> float:
    """Train with masks and without; how far apart the parameters are at the end."""
    table = load_builtin("adult-5", sensitive=("sex",), seed=seed)
    clients = Federation.from_rows(table.train, table.test)
    plain, masked = (
        trained(one, table.schema.n_features, objective, scope)
        for one in (clients, clients.masked())
    )
    off = float(np.abs(plain.params - masked.params).max())
    losses = [float(end.at.losses.max()) for end in (plain, masked)]
    print(
        f"adult-5, seed {seed}, objective {objective!s:4}, scope {scope}   rounds "
        f"{plain.state.rounds} and {masked.state.rounds}   parameters apart {off:.1e}   largest "
        f"loss higher by {losses[1] - losses[0]:+.1e}",
        flush=True,
    )
    return off


def compare_max(seed: int) -> float:
    """The same for the largest loss: from the same start, from where the other ended, and free."""
    compare_ends(seed, "max", "client")
    table = load_builtin("adult-5", sensitive=("sex",), seed=seed)
    clients, n_features = Federation.from_rows(table.train, table.test), table.schema.n_features
    plain = trained(clients, n_features, "max", "client")
    there = trained(clients.masked(), n_features, "max", "client", start=plain.params)
    free = [trained(one, n_features, "max", None) for one in (clients, clients.masked())]
    stayed = float(np.abs(there.params - plain.params).max())
    apart = float(np.abs(free[0].params - free[1].params).max())
    print(
        f"    from the end without masks: {there.state.rounds} rounds, apart {stayed:.1e}; without "
        f"budgets: {free[0].state.rounds} and {free[1].state.rounds} rounds, apart {apart:.1e}",
        flush=True,
    )
    return max(stayed, apart)


def trained(
    clients: Federation, n_features: int, objective: str | float, scope: Any, start: Any = None
) -> Any:
    rules = (Difference("demographic_parity", "sex", 0.05, scope=scope),) if scope else ()
    method, settled = SQP(tolerance=1e-10), {"confidence": 0.0, "starts": 1, "start": start}
    return train(
        clients, Linear(n_features), rules, method=method, l2=0.001, objective=objective, **settled
    )  # type: ignore[arg-type]


def main() -> int:
    warnings.simplefilter("ignore", pd.errors.PerformanceWarning)  # many columns, on purpose
    print("per site and round: processor time, bytes to it, bytes from it, exchanges")
    largest = max(compare(*size) for size in SIZES)
    apart = [
        compare_ends(seed, objective, scope)
        for scope in ("client", "global")
        for objective in ("mean", 10.0)
        for seed in range(5)
    ]
    apart += [compare_max(seed) for seed in range(5)]  # weights are levelled: another path
    return int(max(largest, *apart) > 1e-8)


if __name__ == "__main__":
    sys.exit(main())
