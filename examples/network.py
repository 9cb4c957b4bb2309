"""A small network for three simulated hospitals, each with a budget of .05 between two groups.

Run with: python examples/network.py
"""

import numpy as np
import torch
from torch import nn

from fcfl import Difference
from fcfl.torch import TorchClient, load_module, save_module, train_module

BUDGET = Difference("demographic_parity", "group", 0.05)


def hospital(seed, n_rows):
    """Rows whose label depends on a product of features, and on the group."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b"], n_rows)
    X = rng.normal(size=(n_rows, 5))
    X[:, 0] += group == "a"
    leaning = 1.5 * X[:, 0] + 2.0 * X[:, 1] * X[:, 2] + rng.normal(scale=0.3)
    y = (leaning + rng.logistic(size=n_rows) > 0.5).astype(float)
    return X, y, group


torch.manual_seed(1)
torch.set_num_threads(1)
module = nn.Sequential(nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 1)).double()

rows = {f"hospital {k}": hospital(k, 150 + 100 * k) for k in range(3)}
clients = {name: TorchClient(module, *some) for name, some in rows.items()}
trained = train_module(module, clients, [BUDGET], l2=0.01)

print(f"{trained.status}; decisions keep every budget: {trained.budgets_met}")
first, last = trained.history[0], trained.history[-1]
print(f"worst client's loss: {first.worst_loss:.4f} at the start, {last.worst_loss:.4f} at the end")
for name, counts in trained.counts.items():
    rates = counts.group_selected / counts.group_counts
    print(
        f"{name}: loss {trained.losses[name]:.4f}, decisions select "
        + ", ".join(
            f"{r:.3f} of group {q.group}" for q, r in zip(trained.rates, rates, strict=True)
        )
    )
dearest = trained.prices[0]
print(f"Relaxing the budget of {dearest.client} by .01 would save about {dearest.value / 100:.1e}.")

save_module(trained.module, "network", {"budget": 0.05})
again = load_module(module, "network")
X = torch.tensor(rows["hospital 0"][0])
assert torch.equal(again(X), trained.module(X))
