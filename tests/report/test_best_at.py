"""A comparison's headline: what each method is best at, and nothing of the majority class."""

from dataclasses import replace

from fcfl.report.comparisons import best_sentence, sweep_notes
from fcfl.results import Comparison
from fcfl.results.many_runs import Judged, MethodRun, MethodSummary, OverSeeds, SweepPoint


def line(method, kept, all_rows, largest, lowest):
    known = dict.fromkeys(
        ("exchanges", "bytes_from_clients", "seconds"), OverSeeds(),
    )  # fmt: skip
    return MethodSummary(
        method=method, what="", seeds=(0,), failed=0, clients={}, kept=kept,
        n_budgets=5, all_rows=OverSeeds(mean=all_rows), largest=OverSeeds(mean=largest),
        lowest_accuracy=OverSeeds(mean=lowest), **known,
    )  # fmt: skip


LINES = (
    line("sqp", 4, 0.01, 0.05, 0.64),
    line("fair-reg", 3, 0.02, 0.04, 0.65),
    line("fedavg", 0, 0.2, 0.25, 0.7),
    line("majority", 5, 0.0, 0.0, 0.5),
)


def said(*lines, part="test"):
    run = MethodRun(folder="1", method="sqp", seed=0, status="converged", message="", part=part)
    return best_sentence(
        Comparison(table="t.csv", confidence_over_seeds=0.95, runs=(run,), methods=lines)
    )


def test_each_method_is_named_with_what_it_is_best_at():
    assert said(*LINES) == (
        "On held-out rows sqp keeps most budgets (4 of 5) and has the smallest difference over all "
        "rows (0.010); fair-reg has the smallest difference at any client (0.040) and has the "
        "highest accuracy at the worst client (0.650) of those that keep half of the budgets; "
        "fedavg has the highest accuracy at the worst client without regard to budgets (0.700; "
        "kept: 0 of 5)."
    )


def test_equals_are_named_together_and_nothing_twice():
    assert said(LINES[0], replace(LINES[0], method="other")) == (
        "On held-out rows sqp and other keep most budgets (4 of 5), have the smallest difference "
        "over all rows (0.010), have the smallest difference at any client (0.050) and have the "
        "highest accuracy at the worst client (0.640) of those that keep half of the budgets."
    )


def test_rows_are_called_what_they_are():
    assert said(*LINES, part="train").startswith("On training rows sqp keeps most budgets")


def test_without_figures_nothing_is_said():
    assert said() == said(LINES[-1]) == ""


def test_a_sweep_calls_its_rows_what_they_are():
    point = SweepPoint(
        budget=0.1, status="converged", budgets_met=True, exchanges=1, worst_client=None,
        worst_client_train_loss=None, test_accuracy=None,
        folder="1",
        judged=Judged(kept=1, n_budgets=2),
    )  # fmt: skip
    (sentence,) = sweep_notes([point])
    assert "decisions on training rows keep 1 of 2 budgets" in sentence
    (sentence,) = sweep_notes([replace(point, test_accuracy=0.7)])
    assert "decisions on held-out rows keep 1 of 2 budgets" in sentence
