"""Tables and the headline from hand-made results."""

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from fcfl.data.builtin import ClientDescription, GroupDescription
from fcfl.report.terminal import (
    MAX_CLIENTS,
    comparison_table,
    federation_table,
    print_result,
    result_tables,
    short_names,
)
from fcfl.report.words import finding_sentences, number, plain, title_of, trained_sentence
from fcfl.results import ClientResult, Disparity, Exchanges, Part, Result, RowCounts
from fcfl.results.result import WorstClient


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
    exceeded = {
        f"{name!r} ({one.metric}, {one.attribute})": one.value - one.budget
        for name, (_, entries) in clients.items()
        for one in entries
        if None not in (one.value, one.budget) and one.value > one.budget
    }
    return Result(
        method="two-stage", status="stopped", message="All rounds taken.", rounds={},
        exceeded=exceeded, objective="max", fcfl_version="0.0", clients=found,
        worst_client=WorstClient(worst, clients[worst][0], 0.75),
        overall=ClientResult(RowCounts(70, 30), part(0.5, together), part(0.5, together)),
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
    assert trained_sentence(result).startswith("1 of 2 budgets")
    assert title_of(result).startswith("1 of 2 budgets is exceeded")
    (told,) = finding_sentences(result)
    assert "b by 0.011 (race difference 0.0612, budget 0.05)" in told


def test_the_worst_served_client_comes_first():
    result = simulated_result({name: (loss, [entry(0.1, 0.2)]) for name, loss in
                             {"low": 0.1, "high": 0.9, "middle": 0.5}.items()})  # fmt: skip
    lines = shown(result).splitlines()
    order = [line.split()[0] for line in lines if line.startswith(("low", "high", "middle"))]
    assert order == ["high", "middle", "low"]


INTERVAL = {"low": 0.0, "high": 0.19}


def hospitals(names, budgets=(0.05,)):
    """A result whose clients have these names and undetermined budgets in turn."""
    return simulated_result({
        name: (0.5 - i / 100, [entry(0.04, budgets[i % len(budgets)], verdict="undetermined",
                                     **INTERVAL)])
        for i, name in enumerate(names)
    })  # fmt: skip


NAMES = {
    "short": ["north", "südstadt-klinikum", "st-mary-hospital-of-the-lake", "e", "harbour"],
    "alike at both ends": [f"hospital of the northern ward {i} of the region" for i in "abcdefghi"],
    "wide": ["東京大学医学部附属病院第一内科", "東京大学附属病院第二内科", "Ἀσκληπιεῖον Ἐπιδαύρου"],
    "many": [f"northfield-general-{i:02}" for i in range(40)],
}  # fmt: skip


@pytest.mark.parametrize("budgets", [(0.05,), (0.05, 0.0525)], ids=["one budget", "several"])
@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_a_table_fits_the_screen_and_breaks_no_name_number_or_verdict(names, width, budgets):
    (table,) = result_tables(hospitals(names, budgets), width)
    lines = shown(table, width=width).splitlines()
    assert max(map(cell_len, lines)) <= width
    rows = [line for line in lines if "undetermined" in line]
    assert len(rows) == len(names)  # a line for each client, its verdict whole
    assert all("0.040" in row for row in rows)
    told = [re.match(r"(.+?) +(30|0\.\d+) ", row)[1] for row in rows]
    assert len(set(told)) == len(names)
    for name, short in zip(names, told, strict=True):
        head, *_, tail = short.split("…") if "…" in short else (short, "")
        assert name.startswith(head) and name.endswith(tail)
        assert all(part in name for part in short.split("…"))
        assert short == name or "…" in short


def test_wide_screens_show_whole_names():
    (table,) = result_tables(hospitals(NAMES["short"]), 100)
    assert all(name in shown(table, width=100) for name in NAMES["short"])


@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=40), st.integers(6, 20))
def test_short_names_fit_and_differ(names, width):
    short = short_names(names, width)
    assert all(cell_len(name) <= width for name in short)
    assert len({*map(plain, names)}) >= len({*short})
    fits = [plain(name) for name in names if cell_len(plain(name)) <= width]
    assert {*fits} <= {*short}


def test_names_that_differ_anywhere_are_told_apart():
    names = [f"{'x' * i}-{'long' * 8}" for i in range(12)] + ["a" * 40, "a" * 41]
    assert len({*short_names(names, 9)}) == len(names)


def test_equal_budgets_are_in_the_title_and_others_in_a_column():
    (one,) = result_tables(hospitals(["a", "b"]))
    assert "race, budget 0.05" in shown(one) and "0.0525" not in shown(one)
    (several,) = result_tables(hospitals(["a", "b"], (0.05, 0.0525)))
    assert "race\n" in shown(several).replace(" ", "") and "0.0525" in shown(several)


def test_a_run_of_five_clients_fits_a_small_screen():
    result = hospitals(NAMES["short"])
    prices = {
        name: replace(client, train=replace(client.train, disparities=tuple(
            replace(one, value=0.0612, price=0.4) for one in client.train.disparities)))
        for name, client in result.clients.items()
    }  # fmt: skip
    assert len(shown(result).splitlines()) <= 20
    over = {f"{name!r} (demographic_parity, race)": 0.0112 for name in prices}
    text = shown(result.replace(clients=prices, exceeded=over))
    assert "Exit code 3" in text and len(text.splitlines()) <= 24


def test_the_share_selected_is_on_the_screen_where_it_is_known():
    result = hospitals(["a", "b"])
    assert "lected" not in shown(result)
    counted = {
        name: replace(client, test=replace(client.test, selected=11, positives=20))
        for name, client in result.clients.items()
    }
    text = shown(result.replace(clients=counted))
    assert text.count("0.367") == 2 and "lected" in text and "posi-" not in text
    wide = shown(result.replace(clients=counted), width=100)
    assert wide.count("0.367") == 2 and wide.count("0.667") == 2 and "posi-" in wide


def test_headings_say_ratio_where_a_ratio_is_compared():
    text = shown(simulated_result({"a": (0.1, [entry(0.9, 0.8, "ratio")])}))
    assert "demographic parity ratio, race" in text
    assert "difference" not in text


def test_many_clients_are_cut_and_counted():
    clients = {f"client-{i}": (0.5, [entry(0.1, 0.2)]) for i in range(MAX_CLIENTS + 7)}
    text = shown(simulated_result(clients))
    assert text.count("client-") == MAX_CLIENTS + 1  # the headline names one
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


def test_the_cost_is_told_by_phase_and_only_where_clients_were_asked():
    result = simulated_result({"north": (0.5, ())})
    assert "xchanges" not in shown(result)
    result = result.replace(exchanges=Exchanges.of({"meet": 2, "fit": 1200, "other": 1}))
    told = " ".join(shown(result).split())
    assert "Exchanges with all clients: 1,203 (2 to meet, 1,200 to train, 1 other)." in told
