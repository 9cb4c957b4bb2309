"""Draw the picture of the README: each client's disparity on held-out rows, before and after.

Run::

fcfl train adult-5 --sensitive sex --method fedavg --out runs/before
fcfl train adult-5 --sensitive sex --budget 0.05 --out runs/after
python docs/figures/before_after.py runs/before runs/after docs/pages/before-after.png
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from fcfl.results import Disparity, Result, read_result

COLOURS = {"before": "#8a8f98", "after": "#1b6ca8"}


def main(before: str, after: str, out: str) -> None:
    """Draw clients whose groups can be compared, the largest first."""
    runs = {
        name: read_result(Path(run) / "result.json")
        for name, run in (("before", before), ("after", after))
    }
    clients = sorted(_compared(runs["after"]), key=lambda c: _rows(runs["after"], c))
    figure, axes = plt.subplots(figsize=(8, 1.1 + 0.62 * len(clients)), layout="constrained")
    budget = _disparity(runs["after"], clients[0]).budget
    axes.axvspan(0, budget, color="#1b6ca8", alpha=0.08)
    axes.axvline(budget, color="#1b6ca8", linewidth=1, linestyle="--")
    axes.text(budget, len(clients) - 0.42, f" budget {budget:g}", color="#1b6ca8", fontsize=9)
    for height, client in enumerate(clients):
        for name, shift in (("before", 0.16), ("after", -0.16)):
            found, at = _disparity(runs[name], client), height + shift
            label = {"before": "plain FedAvg", "after": "fcfl"}[name] if height == 0 else None
            axes.plot([found.low, found.high], [at, at], color=COLOURS[name], linewidth=2.5)
            axes.plot(found.value, at, "o", color=COLOURS[name], markersize=7, label=label)
    names = [f"{client}\n{_rows(runs['after'], client):,} people" for client in clients]
    axes.set_yticks(range(len(clients)), names)
    axes.set_xlim(left=0)
    axes.set_xlabel("difference of selection rates by sex, held-out people, with 95 % intervals")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.32))
    figure.savefig(out, dpi=130)


def _disparity(result: Result, client: str) -> Disparity:
    return result.clients[client].test.disparities[0]


def _compared(result: Result) -> list[str]:
    return [name for name in result.clients if _disparity(result, name).value is not None]


def _rows(result: Result, client: str) -> int:
    return int(result.clients[client].rows.test)


if __name__ == "__main__":
    main(*sys.argv[1:])
