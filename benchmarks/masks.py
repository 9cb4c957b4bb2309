"""What masked sums cost, and that they lead where sums without masks do.

`python -m benchmarks.masks [PART …] [--seeds N]`, parts:

cost     simulated sites are asked for gradients and curvature at one point after another, in turns
         with masks and without, through the messages that Flower carries. All sites and the server
         are in one process, so the seconds are those of all machines together. Keys are set up
         before the first round. `off` is how far the opened sum is from that of the curvatures
ends     training on adult-5 in one process with masks and without, objective mean and a smooth
         maximum, under rules of each client and over all rows: rounds, and how far the ends are
         apart
largest  the same for the largest loss, where weights are raised: what of the exact sums is one
         client's own, the end in the open under the same weights, and both ends' KKT conditions

It fails if sums or ends that should be the same are more than 1e-8 apart.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from benchmarks.masked_ends import compare_ends, compare_largest
from fcfl._types import ClientId, CurvatureWeights, Matrix, Point, RateId, Request, curvature_sum
from fcfl.client.client import Setup
from fcfl.models.linear import Linear
from fcfl.sites.messages import Terms
from fcfl.sites.remote import RemoteFederation
from fcfl.sites.transport import InProcessTransport

SIZES = ((5, 10), (5, 100), (5, 300), (20, 100), (50, 100))  # sites, features
ROWS = 300
ROUNDS = 5
SAME = 1e-8
SCOPES: tuple[Literal["client", "global"], ...] = ("client", "global")
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


def cost(seeds: int) -> float:
    """Seconds and bytes by sites and features; how far opened sums are off."""
    warnings.simplefilter("ignore", pd.errors.PerformanceWarning)  # many columns, on purpose
    print("per site and round: processor time, bytes to it, bytes from it, exchanges")
    return max(compare(*size) for size in SIZES)


def ends(seeds: int) -> float:
    """The mean and a smooth maximum: the same weights, so the same way."""
    return max(
        compare_ends(seed, objective, scope)
        for scope in SCOPES
        for objective in ("mean", 10.0)
        for seed in range(seeds)
    )


def largest(seeds: int) -> float:
    """The largest loss: other weights, and so another way."""
    return max(compare_largest(seed) for seed in range(seeds))


PARTS: dict[str, Callable[[int], float]] = {"cost": cost, "ends": ends, "largest": largest}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.masks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="default all")
    parser.add_argument("--seeds", type=int, default=5, help="partitions of adult-5 (default 5)")
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"parts are {', '.join(PARTS)}; got {', '.join(unknown)}.")
    off = []
    for name in options.parts or PARTS:
        print(f"\n=== {name}", flush=True)
        off.append(PARTS[name](options.seeds))
    return int(max(off) > SAME)


if __name__ == "__main__":
    sys.exit(main())
