"""The wording of page, terminal and cards: all of it in one golden file, ``wording.txt``.

After a change of wording run this file as a script and read the difference.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fcfl.audit import audit_clients, gate
from fcfl.client.counts import Counts
from fcfl.report import words
from fcfl.report.comparisons import best_sentence, sweep_notes, too_small_sentence
from fcfl.report.comparisons import tradeoff_sentence as tradeoff
from fcfl.report.terminal import leading_sentences, summary_sentences
from fcfl.results import Comparison, OverSeeds
from fcfl.results.findings import margin_notes, pooling_notes
from fcfl.results.many_runs import Judged, MethodRun, MethodSummary, SweepPoint
from fcfl.results.result import Degenerate, DegenerateRows, MarginSummary, PoolingSummary
from fcfl.rules import Difference, Ratio, rates_needed
from simulated import SWEEP, client, judged, parsed, result, two_clients

GOLDEN = Path(__file__).with_name("wording.txt")
POOLING = PoolingSummary(
    {"race": 0.02}, {"north": 0.3, "south": 0.95}, ("south",), ("north",), ("north",)
)
FEW = {"groups": (("a", 5, 4), ("b", 5, 2))}
RATIO = judged(0.9, 0.7, 0.95, 0.8, "undetermined", rule="ratio", smallest=0.75)
LOW_RATIO = judged(0.5, 0.4, 0.6, 0.8, "exceeded", rule="ratio")
OVER = judged(0.3, 0.2, 0.4, 0.1, "exceeded", groups=(("White", 2000, 1801), ("Black", 240, 150)))


def degenerate():
    found = Degenerate((DegenerateRows("north", "nobody", 108, 40, 1),), 0.5, 0.12, 38)
    return parsed(two_clients()).replace(degenerate=found, threshold=0.5)


def priced(**more):
    def step(accuracy, selected):
        share = {"accuracy": accuracy, "selected": selected}
        return share | {"clients": {"north": share, "south": share}}

    steps = {"without_budgets": step(0.84, 0.3), "with_budgets": step(0.8, 0.28)}
    return two_clients(
        price=steps | {"with_margins": step(0.78, 0.26), "lost": 0.06},
        margins={"confidence": 0.9, "cut_to": None, "rows_short": {"north": 3.2}},
        prices=[{"client": "north", "rule": "difference", "metric": "demographic_parity",
                 "attribute": "race", "value": 0.4}],
        **more,
    )  # fmt: skip


def exceeded(**more):
    content = two_clients(**more)
    for name, value in {"north": 0.0612, "south": 0.3}.items():
        content["clients"][name]["train"]["disparities"][0]["value"] = value
    return content


PRIVACY = {
    "clients": {"north": {"epsilon": 1.0, "delta": 1e-6}}, "neighbours": "add-remove",
    "not_covered": ["row counts"],
}  # fmt: skip
RESULTS = {
    "one budget met, one open": two_clients(),
    "a ratio by an audit": result({"a": client(RATIO)}, method="audit"),
    "a ratio exceeded": result({"a": client(LOW_RATIO)}),
    "exceeded on audited rows": result({"a": client(OVER)}, method="audit"),
    "exceeded on held-out rows": result({"a": client(OVER), "b": client(OVER)}),
    "near its budget, and too few": result({
        "near": client(judged(0.046, 0.031, 0.059, 0.05, "undetermined", smallest=0.017)),
        "few": client(judged(0.15, 0.0, 0.38, 0.05, "undetermined", smallest=0.2, **FEW)),
    }),
    "one group alone": result({"a": client(judged(None, None, None, 0.1, "undetermined"))}),
    "no budget": result({"a": client(judged(0.2, 0.1, 0.3, None, "unconstrained"))}),
    "not judged": result({"a": client(judged(0.2, None, None, 0.3, "unconstrained"))}),
    "equal rates": result({"a": client(judged(0.0, 0.0, 0.1, 0.2, "met",
                                              groups=(("a", 30, 10), ("b", 60, 20))))}),
    "a high price": priced(),
    "a high price, with thresholds": priced(threshold=0.1, objective=10.0),
    "exceeded in training": exceeded(),
    "exceeded by fedavg": exceeded(method="fedavg"),
    "a collapse": priced() | {"price": priced()["price"] | {
        "with_margins": priced()["price"]["with_margins"] | {"selected": 0.1}}},
    "rates shift too far": two_clients(exceeded={"all clients together (rate shift, race)": 0.03}),
    "private": two_clients(privacy=PRIVACY, exchanges={"total": 5, "by_phase": {"fit": 5}}),
}  # fmt: skip


def sentences_of(found):
    yield words.title_of(found)
    yield from words.detail_sentences(found)
    yield from (f"next: {step}" for step in words.next_steps(found))
    yield from (
        f"terminal: {line}" for line in (*leading_sentences(found), *summary_sentences(found))
    )
    yield f"card: {words.standing(found)}"


def method(name, kept, all_rows, largest, lowest):
    nothing = dict.fromkeys(("exchanges", "bytes_from_clients", "seconds"), OverSeeds())
    return MethodSummary(
        method=name, what="", seeds=(0,), failed=0, clients={}, kept=kept, n_budgets=5,
        all_rows=OverSeeds(all_rows), largest=OverSeeds(largest), lowest_accuracy=OverSeeds(lowest),
        too_small=("tiny",), **nothing,
    )  # fmt: skip


METHODS = (
    method("sqp", 4, 0.01, 0.05, 0.64), method("fair-reg", 3, 0.02, 0.04, 0.65),
    method("fedavg", 0, 0.2, 0.25, 0.7), method("majority", 5, 0.0, 0.0, 0.5),
)  # fmt: skip


def compared(*methods, part="test"):
    run = MethodRun(folder="1", method="sqp", seed=0, status="converged", message="", part=part)
    return Comparison(table="t.csv", confidence_over_seeds=0.95, runs=(run,), methods=methods)


def comparison_sentences():
    yield best_sentence(compared(*METHODS))
    yield best_sentence(compared(METHODS[0], replace(METHODS[0], method="other"), part="train"))
    yield too_small_sentence(compared(*METHODS))
    points = [
        SweepPoint(**{**point, "judged": Judged(**point["judged"])}) for point in reversed(SWEEP)
    ]
    yield tradeoff(points)
    yield from sweep_notes([replace(one, budgets_met=False, degenerate=True) for one in points])


def audit_sentences():
    rules = [
        Difference("demographic_parity", "race", 0.05),
        Ratio("demographic_parity", "race", 0.8),
    ]
    counts = {
        name: Counts(40, 10, 20, 30, 1.0, np.array(rows, float), np.array(selected, float))
        for name, rows, selected in (
            ("large", [5000, 5000], [1500, 1505]), ("far", [5000, 5000], [1500, 2500]),
            ("small", [20, 30], [10, 14]), ("alone", [50, 0], [10, 0]),
        )
    }  # fmt: skip
    audit = audit_clients(
        rules, rates_needed(rules, {"race": ("a", "b")}), counts, min_group_rows=25
    )
    yield from repr(audit).split("\n")
    yield from (f"failed: {line}" for line in gate(audit, "undetermined"))
    yield from audit.notes()
    yield audit.statement


def wording():
    """All sentences, under the names of their cases."""
    cases = {name: sentences_of(parsed(content)) for name, content in RESULTS.items()}
    cases["nearly nobody selected"] = sentences_of(degenerate())
    cases["nearly nobody selected, in Python"] = [degenerate().degenerate.in_python]
    cases["margins cut"] = margin_notes(
        MarginSummary(0.9, 0.5, {"a": 3.2, "b": None}), "", pools=False
    )
    cases["budgets kept by estimates"] = pooling_notes(POOLING)
    cases["comparison and sweep"] = comparison_sentences()
    cases["audit"] = audit_sentences()
    return "\n\n".join("\n".join([f"# {name}", *lines]) for name, lines in cases.items()) + "\n"


def test_every_sentence_is_that_of_the_golden_file():
    assert wording() == GOLDEN.read_text(encoding="utf-8")


def test_no_sentence_claims_more_than_a_met_budget():
    assert not [word for word in ("fair ", "unbiased", "debias") if word in wording().lower()]


if __name__ == "__main__":
    GOLDEN.write_text(wording(), encoding="utf-8")
