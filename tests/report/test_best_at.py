"""A comparison's headline: what each method is best at, and nothing of the majority class."""

from dataclasses import replace

from fcfl.report.method_tables import best_sentence
from fcfl.results import Comparison, MethodSummary, OverSeeds


def line(method, kept, all_rows, largest, lowest):
    known = dict.fromkeys(
        ("worst_accuracy", "accuracy", "worst_train_loss", "largest_disparity", "rounds",
         "bytes_from_clients", "seconds"), OverSeeds(),
    )  # fmt: skip
    return MethodSummary(
        method=method, what="", seeds=(0,), failed=0, verdicts={}, clients={}, kept=kept,
        n_budgets=5, all_rows=OverSeeds(mean=all_rows), largest=OverSeeds(mean=largest),
        lowest_accuracy=OverSeeds(mean=lowest), **known,
    )  # fmt: skip


LINES = (
    line("sqp", 4, 0.01, 0.05, 0.64),
    line("fair-reg", 3, 0.02, 0.04, 0.65),
    line("fedavg", 0, 0.2, 0.25, 0.7),
    line("majority", 5, 0.0, 0.0, 0.5),
)


def said(*lines):
    return best_sentence(
        Comparison(table="t.csv", confidence_over_seeds=0.95, runs=(), methods=lines)
    )


def test_each_method_is_named_with_what_it_is_best_at():
    assert said(*LINES) == (
        "On held-out rows sqp keeps most budgets (4 of 5), has the smallest difference over all "
        "rows (0.010); fair-reg has the smallest difference at any client (0.040), has the highest "
        "accuracy at the worst client (0.650) of those that keep half of the budgets; fedavg has "
        "the highest without regard to budgets (0.700; kept: 0 of 5)."
    )


def test_equals_are_both_named_and_without_figures_nothing_is_said():
    both = said(LINES[0], replace(LINES[0], method="other"))
    assert both.count("keeps most budgets (4 of 5)") == 2
    assert said() == said(LINES[-1]) == ""
