"""Tables and the headline from hand-made results."""

import io

import pytest
from rich.console import Console

from fcfl.data.catalog import ClientDescription, GroupDescription
from fcfl.report.terminal import (
    MOST_CLIENTS,
    comparison_table,
    federation_table,
    print_result,
)
from fcfl.report.words import finding_sentences, number, plain, title_of, trained_sentence
from fcfl.results import (
    ClientResult,
    Disparity,
    EvaluationCounts,
    Overall,
    Part,
    Result,
    RowCounts,
    WorstClient,
)


def entry(value, budget, rule="difference", attribute="race", **more):
    return Disparity("demographic_parity", attribute, rule, value, value, budget=budget, **more)


def part(loss, entries):
    return Part(loss, 0.75, None, 0.7, None, tuple(entries))


def simulated_result(clients, together=()):
    """A result whose clients have the given training losses and entries."""
    found = {
        name: ClientResult(RowCounts(70, 30), part(loss, entries), part(loss, entries))
        for name, (loss, entries) in clients.items()
    }
    worst = max(clients, key=lambda name: clients[name][0])
    return Result(
        method="two-stage", status="stopped", message="All rounds taken.", rounds={},
        evaluations=EvaluationCounts(), bytes_from_clients=0, seconds=None, kkt_residual=None,
        l2=0.0, objective="max", seed=0, fcfl_version="0.0", clients=found,
        worst_client=WorstClient(worst, clients[worst][0], 0.75),
        overall=Overall(part(0.5, together), part(0.5, together)),
    )  # fmt: skip


def shown(*things, width=80):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    for thing in things:
        if isinstance(thing, Result):
            print_result(console, thing)
        else:
            console.print(thing)
    return console.file.getvalue()


def test_training_budgets_are_counted_once():
    result = simulated_result(
        {"a": (0.6, [entry(0.04, 0.05)]), "b": (0.5, [entry(0.0612, 0.05)])}, [entry(0.2, None)]
    )
    assert trained_sentence(result) == "1 of 2 budgets met on the training rows."
    assert title_of(result) == ("1 of 2 budgets is exceeded on the training rows (exit code 3).")
    (told,) = finding_sentences(result)
    assert "b by 0.011 (demographic parity difference by race 0.0612, budget 0.05)." in told


def test_the_training_sentence_names_what_is_missing():
    assert trained_sentence(simulated_result({"a": (0.6, [entry(0.1, None)])})) == (
        "No budget was set."
    )
    assert trained_sentence(simulated_result({"a": (0.6, [entry(None, 0.1)])})) == (
        "0 of 1 budgets met on the training rows, 1 has no two groups to compare."
    )


def test_the_worst_served_client_comes_first():
    result = simulated_result({name: (loss, [entry(0.1, 0.2)]) for name, loss in
                             {"low": 0.1, "high": 0.9, "middle": 0.5}.items()})  # fmt: skip
    lines = shown(result).splitlines()
    order = [line.split()[0] for line in lines if line.startswith(("low", "high", "middle"))]
    assert order == ["high", "middle", "low"]


def test_a_table_fits_80_columns_and_no_number_is_cut():
    name = "Sankt-Katharinen-Krankenhaus " * 4
    interval = {"low": 0.0, "high": 0.19}
    clients = {
        name: (0.123456, [entry(0.04, 0.0525, verdict="undetermined", **interval)]),
        "b": (0.2, [entry(0.01, 0.05, verdict="met", **interval)]),
    }
    text = shown(simulated_result(clients, [entry(0.1, 0.3)]))
    assert max(map(len, text.splitlines())) <= 80
    for cell in ("0.1235", "0.040", "0.0525", "0.750", ".000–.190"):
        assert cell in text
    assert "undetermined" in text and " met" in text and "smooth" not in text
    assert "…" not in text
    first_column = "".join(line.split("  ")[0] for line in text.splitlines())
    assert "Krankenhaus" in first_column.replace(" ", "")


def test_headings_say_ratio_where_a_ratio_is_compared():
    text = shown(simulated_result({"a": (0.1, [entry(0.9, 0.8, "ratio")])}))
    assert "demographic parity ratio, race" in text
    assert "difference" not in text


def test_many_clients_are_cut_and_counted():
    clients = {f"client-{i}": (0.5, [entry(0.1, 0.2)]) for i in range(MOST_CLIENTS + 7)}
    text = shown(simulated_result(clients))
    assert text.count("client-") == MOST_CLIENTS + 1  # the headline names one
    assert "… and 7 more clients in result.json" in text


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[/]", "<script>", "[link=a]b", "back\\"])
def test_markup_in_names_is_shown_and_not_obeyed(name):
    result = simulated_result({name: (0.9, [entry(0.1, 0.2, attribute=name)]), "b": (0.1, [])})
    assert shown(result).count(name) == 3  # title, row, headline
    group = GroupDescription(name, name, rows=2, positive_rate=None)
    described = ClientDescription(name, 1, 1, 0.5, (group,))
    assert shown(federation_table(name, [described])).count(name) == 4


def test_control_characters_do_not_reach_the_terminal():
    assert plain("a\x1b[31mb\nc") == "a\\x1b[31mb\\x0ac"
    assert plain("Zürich 🏥 [x]") == "Zürich 🏥 [x]"


def test_runs_are_compared_side_by_side():
    one = simulated_result({"a": (0.6, [entry(0.125, 0.2)])})
    two = simulated_result({"a": (0.5, [entry(0.25, None)])})
    text = shown(comparison_table({"one": one, "two": two}))
    (row,) = [line.split() for line in text.splitlines() if line.startswith("a ")]
    assert row == ["a", "30", "0.7500", "0.7500", "0.1250", "0.2500", "0.200"]


def test_a_missing_number_is_a_dash():
    assert number(None) == "–"
    assert number(0.12345) == "0.1235"
    assert number(0.5, 1) == "0.5"
