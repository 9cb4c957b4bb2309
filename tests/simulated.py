"""Results simulated by hand: as the JSON of their files, and read by `parsed`."""

import json

import msgspec

from fcfl.results import Result, RoundInfo


def judged(
    value, low, high, budget, verdict, *, rule="difference", attribute="race", price=None,
    smooth=None, smallest=0.05, groups=(("a", 30, 12), ("b", 24, 9)), left_out=(),
):  # fmt: skip
    return {
        "metric": "demographic_parity", "attribute": attribute, "rule": rule, "value": value,
        "smooth": smooth, "low": low, "high": high, "budget": budget, "verdict": verdict,
        "price": price, "smallest_verifiable": smallest,
        "groups": [
            {"rate": "selection", "group": g, "rows": n, "selected": k,
             "is_compared": value is not None and (g, n, k) not in left_out}
            for g, n, k in (*groups, *left_out)
        ],
    }  # fmt: skip


def part(entries, loss=0.5, accuracy=0.75):
    return {
        "loss": loss, "accuracy": accuracy, "accuracy_interval": [accuracy - 0.1, accuracy + 0.1],
        "balanced_accuracy": 0.7, "balanced_accuracy_interval": [0.6, 0.8], "disparities": entries,
    }  # fmt: skip


def within(entry):
    """A value on training rows that keeps the budget."""
    value, budget = entry["value"], entry["budget"]
    if value is None or budget is None:
        return value
    return max(value, budget) if entry["rule"] == "ratio" else min(value, budget)


def client(*entries, rows=54, loss=0.5, accuracy=0.75):
    trained = [entry | {"smooth": 0.04, "value": within(entry)} for entry in entries]
    return {
        "rows": {"train": 2 * rows, "test": rows},
        "train": part(trained, loss, accuracy),
        "test": part(list(entries), loss, accuracy),
    }


def result(clients, together=(), **more):
    worst = max(clients, key=lambda name: clients[name]["train"]["loss"])
    return {
        "method": "sqp", "status": "converged", "message": "Done.",
        "rounds": {"stage1": 3, "stage2": 2},
        "evaluations": {"value": 1, "gradient": 5, "curvature": 0}, "bytes_from_clients": 12345,
        "seconds": 1.5, "kkt_residual": 1e-7, "l2": 0.001, "objective": "max", "selection": None,
        "seed": 0, "fcfl_version": "0.0",
        "worst_client": {
            "name": worst,
            "train_loss": clients[worst]["train"]["loss"],
            "test_accuracy": clients[worst]["test"]["accuracy"],
        },
        "clients": clients,
        "global": {
            "rows": {
                key: sum(who["rows"][key] for who in clients.values()) for key in ("train", "test")
            },
            "train": part(list(together)),
            "test": part(list(together)),
        },
        "audit": {
            "confidence": 0.95, "simultaneous": "bonferroni", "min_group_rows": 1,
            "statement": "Two-sided intervals that hold together.",
        },
        "settings": {"table": "stays.csv", "budget": {"north": 0.05}, "drop": []},
        "data": {"table": "stays.csv", "sha256": "ab" * 32},
        "notes": ["Label 'died': 'yes' is the positive value."],
        **more,
    }  # fmt: skip


def parsed(content):
    """The result that the file would be read as."""
    return msgspec.convert(with_exceeded(content), Result)


def with_exceeded(content):
    """The same with what training disparities exceed, unless that is given."""
    found = {}
    everybody = {repr(name): who for name, who in content["clients"].items()}
    for name, who in (everybody | {"all clients together": content["global"]}).items():
        for entry in who["train"]["disparities"]:
            value, budget = entry["value"], entry["budget"]
            if value is None or budget is None:
                continue
            excess = budget - value if entry["rule"] == "ratio" else value - budget
            if excess > 1e-9:
                found[f"{name} ({entry['metric']}, {entry['attribute']})"] = excess
    return {"exceeded": found} | content


def two_clients(**more):
    return result(
        {
            "north": client(judged(0.1, 0.0, 0.19, 0.05, "undetermined", price=0.4, smallest=0.19)),
            "south": client(judged(0.01, 0.0, 0.04, 0.05, "met", price=0.0), rows=5000),
        },
        [judged(0.02, 0.0, 0.03, None, "unconstrained")],
        **more,
    )


def write(folder, content, history=(), sweep=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(with_exceeded(content)), encoding="utf-8")
    if history:
        lines = "".join(json.dumps(line) + "\n" for line in history)
        (folder / "history.jsonl").write_text(lines, encoding="utf-8")
    if sweep is not None:
        (folder / "sweep.json").write_text(json.dumps({"points": sweep}), encoding="utf-8")
    return folder


HISTORY = [
    {
        "round": i + 1, "stage": 1 + (i >= 3), "worst_client": "north", "worst_loss": 0.7 - i / 20,
        "mean_loss": 0.5, "largest_violation": 0.1 - i / 30, "step": 1.0, "note": "",
    }
    for i in range(5)
]  # fmt: skip
ROUNDS = [RoundInfo(**line) for line in HISTORY]
SWEEP = [
    {
        "budget": budget, "status": "converged", "budgets_met": True, "exchanges": 19,
        "worst_client": "north", "worst_client_train_loss": 0.6 - budget,
        "test_accuracy": 0.8,
        "folder": f"budget-{budget}",
        "judged": {
            "all_rows": budget * 0.9, "low": budget * 0.5, "high": budget * 1.5,
            "accuracy": 0.8 + budget, "lowest_accuracy": 0.7 + budget, "median": budget,
            "largest": budget * 1.1, "kept": 2, "n_budgets": 3, "clients": ["south"],
            "too_small": ["north"],
        },
    }
    for budget in (0.01, 0.05, 0.1)
]  # fmt: skip
