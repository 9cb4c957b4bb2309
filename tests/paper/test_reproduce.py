"""The paper's items again: files, plans, runs that are kept, numbers added up, words, figures."""

import json
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fcfl.cli.reproduce import compact
from fcfl.errors import DataError
from fcfl.paper.reproduction import (
    Run,
    Scale,
    find_items,
    plan_runs,
    read_item,
    run_plan,
    summarise,
)
from fcfl.paper.reproduction.choosing import choose, promised
from fcfl.paper.reproduction.drawings import figures_of
from fcfl.paper.reproduction.glance import glance
from fcfl.paper.reproduction.items import Case
from fcfl.paper.reproduction.lines import LINES
from fcfl.paper.reproduction.over_runs import pareto_front, row_of
from fcfl.paper.reproduction.page import markdown, read_item_files, screen_of, write_reproduction
from fcfl.paper.reproduction.page_tables import number, share, spread, tables_of
from fcfl.paper.reproduction.plan import QUICK
from fcfl.paper.reproduction.run_tables import eicu_source, pooled_adult, stand_ins
from fcfl.paper.reproduction.wording import chance, difference, readings
from fcfl.runs.method_comparison import over_seeds
from hospital import fcfl, only_error, stays, written

HERE = Path(__file__).parents[2] / "experiments"
MINI = """
title = "Two stays, one budget"
of = "figure 0"
paper = "Nothing."
chosen = "nothing was chosen"
figure = "{figure}"
table = "{table}"
protocols = ["partitions"]
lines = ["fedavg", "two-stage", "sqp-max"]

[[case]]
name = "budget .1"
options = {{ client = "hospital", label = "died", sensitive = ["race"], budget = 0.1 }}

[[case.given]]
label = "somebody"
numbers = {{ accuracy = 0.7, worst_accuracy = 0.6, local = 0.1 }}
"""
FRONT = """
title = "Paths"
of = "figure 3"
paper = "Nothing."
chosen = "nothing was chosen"
figure = "front"
table = "synthetic"
protocols = ["starts"]
lines = ["sqp"]

[[case]]
name = "start exceeds the budget, 0.4"
options = { budget = 0.4, start = "uniform" }

[[case]]
name = "start keeps the budget, 0.4"
options = { budget = 0.4, start = "zero" }
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return str(written(stays(120), tmp_path_factory.mktemp("stays") / "stays.parquet"))


@pytest.fixture
def item(tmp_path, table):
    """An item on a small table."""
    path = tmp_path / "mini.toml"
    path.write_text(MINI.format(figure="clients", table=table), encoding="utf-8")
    return read_item(path)


def a_run(table, method, **settings):
    columns = {"client": "hospital", "label": "died", "sensitive": ("race",), "seed": 0}
    return Run({"table": table, **columns, "method": method, **settings})


# --- items and plans ---


def test_every_item_of_the_paper_is_there_and_its_settings_fit():
    """A wrong setting in a file would show only after an hour; here it shows at once."""
    items = {item.name: item for item in find_items(["all"], HERE)}
    assert set(items) == {
        "fig3", "adult-race", "adult-sex", "adult-race-specific", "adult-sex-specific", "adult-eo",
        "adult-unconstrained", "adult-5-clients", "eicu-los", "eicu-specific",
        "eicu-unconstrained",
    }  # fmt: skip
    for item in items.values():
        for scale in (QUICK, Scale(2, 2)):
            for run in plan_runs(item, scale, stand_ins(None)).values():
                assert run.experiment("table.csv").method == run.settings["method"]


def test_settings_are_the_authors_own_where_they_are_known():
    """Step sizes and rounds of the runs whose figures are quoted."""
    case = find_items(["adult-race"], HERE)[0].cases[0]
    assert case.of_line["two-stage"] == {"step_size": 0.03, "rounds": (800, 1500)}
    assert case.given[0]["accuracy"] == {"phd": 0.7293, "non-phd": 0.8196}


def test_a_method_without_budgets_runs_once_for_all_budgets():
    item = find_items(["adult-race"], HERE)[0]
    plan = plan_runs(item, Scale(1, 3), {})
    keys = {line: {r.key for p, r in plan.items() if p.line == line} for line in ("fedavg", "sqp")}
    assert len(keys["fedavg"]) == 1 + 3
    assert len(keys["sqp"]) == 2 * (1 + 3)


def test_a_tighter_budget_keeps_what_was_chosen_under_the_looser():
    item = find_items(["adult-race"], HERE)[0]
    plan = plan_runs(item, Scale(1, 1), {})
    runs = {(p.case, p.line): run for p, run in plan.items() if p.protocol == "resplits"}
    assert runs["budget .05", "sqp"].settled_by is None
    assert runs["budget .01", "sqp"].settled_by == runs["budget .05", "sqp"]
    assert runs["budget .01", "sqp-tenth"].settled_by == runs["budget .01", "sqp"]
    assert runs["budget .01", "sqp-tenth"].settings["budget"] == pytest.approx(0.001)
    assert runs["budget .01", "sqp-max"].settled_by is None


def test_the_key_names_the_settings(table):
    run = a_run(table, "fedavg")
    assert run.key == a_run(table, "fedavg").key
    assert run.key != a_run(table, "afl").key
    assert run.key != replace(run, settled_by=a_run(table, "sqp")).key


def test_the_same_rows_are_pooled_whoever_is_compared():
    """All rows of both files; only the way race is told differs."""
    race, sex = pooled_adult("race"), pooled_adult("sex")
    assert len(race) == len(sex) == 48_842
    assert (race["client"] == "phd").sum() == 413 + 181
    assert set(race["race"]) == {"White", "Non-White"}
    assert race["sex"].equals(sex["sex"])


def test_eicu_is_what_the_folder_holds(tmp_path):
    assert eicu_source(None) == "simulated"
    (tmp_path / "patient.csv.gz").touch()
    assert eicu_source(tmp_path) == "demo"
    for name in ("nurseCharting.csv.gz", "lab.csv"):
        (tmp_path / name).touch()
    assert eicu_source(tmp_path) == "own"
    with pytest.raises(DataError, match="There is no folder"):
        eicu_source(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("figure = [", "Cannot read the item"),
        ('colour = "red"', "`colour` in .* is no setting of an item"),
    ],
)
def test_a_wrong_item_is_told(tmp_path, text, sentence):
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        read_item(tmp_path / "a.toml")


def test_a_wrong_line_is_told(tmp_path, table):
    text = MINI.format(figure="clients", table=table).replace('"fedavg"', '"fedavgg"')
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"There is no line 'fedavgg'.*fedavg"):
        read_item(tmp_path / "a.toml")


# --- runs ---


def test_finished_runs_are_not_run_again(item, table, tmp_path):
    plan = plan_runs(item, QUICK, {})
    told = []
    first = run_plan(plan.values(), {table: table}, tmp_path, on_round=lambda *a: told.append(a))
    again = run_plan(plan.values(), {table: table}, tmp_path, on_round=lambda *a: told.append(a))
    assert len(told) == len(first.records) == again.n_read == 3
    assert json.loads(json.dumps(first.records)) == again.records
    fresh = run_plan(plan.values(), {table: table}, tmp_path, fresh=True)
    assert fresh.n_read == 0


def test_stopped_it_goes_on_where_it_was(item, table, tmp_path):
    plan = plan_runs(item, QUICK, {})

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plan(plan.values(), {table: table}, tmp_path, on_round=stop)
    assert run_plan(plan.values(), {table: table}, tmp_path).n_read == 1


def test_a_stopped_command_says_how_to_go_on(monkeypatch, tmp_path):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fcfl.cli.reproduce.run_plan", stop)
    outcome = fcfl("reproduce", "fig3", "--out", tmp_path)
    assert outcome.exit_code == 1
    assert "finished runs are kept. Go on with the same command." in outcome.stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failed_run_stops_no_other_and_is_tried_again(table, tmp_path, jobs):
    """Also a run that waits for it says so; in one process and in several."""
    bad = a_run(table, "sqp", drop=("nowhere",), l2=0.01, objective="max")
    waiting = replace(a_run(table, "sqp", confidence=0.9, budget=0.1), settled_by=bad)
    good = a_run(table, "fedavg", rounds=(5,))
    found = run_plan([bad, waiting, good], {table: table}, tmp_path, jobs=jobs).records
    assert "nowhere" in found[bad.key]["message"]
    assert "takes its settings from failed" in found[waiting.key]["message"]
    assert found[good.key]["rounds"] == 5
    assert run_plan([bad, good], {table: table}, tmp_path).n_read == 1


def test_a_run_takes_the_settings_chosen_by_another(table, tmp_path):
    chosen = a_run(table, "sqp", budget=0.2, l2=0.02, objective=0.3)
    taking = replace(a_run(table, "sqp", budget=0.2, confidence=0.6), settled_by=chosen)
    found = run_plan([taking], {table: table}, tmp_path).records
    assert (found[taking.key]["l2"], found[taking.key]["objective"]) == (0.02, 0.3)
    assert found[taking.key]["chosen"] is None


# --- adding up ---


def record(disparities, smooth=0.04, accuracies=(0.7, 0.8), rows=(200, 300)):
    def part(accuracy, disparity):
        groups = [[rows[0], 40], [rows[1], 90]]
        return {
            "loss": 0.5, "accuracy": accuracy, "disparity": disparity, "smooth": smooth,
            "budget": None, "groups": groups,
        }  # fmt: skip

    clients = {
        name: {"train": part(a, d), "test": part(a, d), "rows": {"train": 500, "test": 100}}
        for name, a, d in zip(("phd", "non-phd"), accuracies, disparities, strict=True)
    }
    told = {"status": "converged", "rounds": 10, "seconds": 1.0, "l2": 0.1, "objective": "max"}
    both = part(0.78, max(disparities))
    return told | {"clients": clients, "global": {"train": both, "test": both}}


CASE = Case("budget .05", {"budget": 0.05}, ("sqp",), {}, ())


def a_row(line, *records, case=CASE):
    return row_of(case, "resplits", line, list(enumerate(records)))


def test_a_row_counts_how_often_held_out_disparities_are_within():
    row = a_row("sqp", record((0.06, 0.01)), record((0.05, 0.02)), record((0.0, 0.06)))
    assert row["share_within"]["phd"] == pytest.approx(2 / 3)
    assert row["share_within"]["non-phd"] == pytest.approx(2 / 3)
    assert row["share_within"]["all"] == pytest.approx(1 / 3)
    assert row["share_met_in_training"] == 1.0
    assert row["worst_accuracy"]["mean"] == pytest.approx(0.7)


def test_budgets_are_met_in_training_by_smooth_disparities():
    row = a_row("sqp", record((0.0, 0.0), smooth=0.06), record((0.2, 0.2), smooth=0.05))
    assert row["share_met_in_training"] == 0.5


def test_failed_runs_are_listed_and_not_counted():
    row = a_row("sqp", record((0.0, 0.0)), {"status": "failed", "message": "why"})
    assert row["n_runs"] == 1
    assert row["failures"] == ["why"]


def test_the_loosest_budget_that_training_rows_promise_is_chosen():
    """A disparity of .01 is promised within .1 by hundreds of rows, within .04 by no such few."""
    loose, tight = record((0.09, 0.0)), record((0.01, 0.0))
    assert choose([loose, tight], {"local": 0.1, "global": 0.1}) is tight
    assert choose([loose, tight], {"local": 0.5, "global": 0.5}) is loose
    assert choose([loose, tight], {"local": 0.0, "global": 0.0}) is tight
    spread_of_ten = promised(record((0.0, 0.0), rows=(100, 100))["clients"]["phd"])
    assert spread_of_ten > promised(record((0.0, 0.0), rows=(1000, 1000))["clients"]["phd"]) > 0


def test_the_front_joins_the_two_minimisers():
    front = pareto_front()
    assert front[0] == [pytest.approx(1 - 2.718281828**-4, abs=1e-3), 0.0]
    assert front[-1][0] == pytest.approx(0.0, abs=1e-3)
    assert all(a[0] >= b[0] and a[1] <= b[1] for a, b in pairwise(front))


# --- words ---


def an_item(rows, *, given=(), figure="dots", protocols=("resplits",)):
    return {
        "name": "simulated", "title": "Made up", "of": "figure 0", "paper": "P.", "chosen": "c",
        "figure": figure, "limits": {}, "scale": {"quick": False}, "tables": ["adult"],
        "protocols": dict.fromkeys(protocols, "words"), "rows": rows,
        "cases": [{"name": "budget .05", "budget": 0.05, "given": list(given)}],
    }  # fmt: skip


def test_the_reading_follows_the_numbers():
    """The same sentence praises and blames, as who keeps the budget more often changes."""
    kept, broken = record((0.01, 0.01)), record((0.2, 0.01))
    ours, other = a_row("sqp", kept, kept, kept), a_row("fedavg", broken, broken, kept)
    (said, *_) = readings(an_item([ours, other]))
    assert "keeps every budget on held-out rows in 3/3" in said
    assert "More often than, at a worst-client accuracy these splits cannot tell" in said
    assert "FedAvg (1/3, .7000, .7800; may be chance)" in said
    ours, other = a_row("sqp", broken, broken, kept), a_row("fedavg", kept, kept, kept)
    assert "Less often than: FedAvg (3/3" in readings(an_item([ours, other]))[0]


def test_more_often_at_a_lower_accuracy_is_called_dearer():
    ours = [record((0.01, 0.01), accuracies=(a, 0.8)) for a in (0.60, 0.61, 0.62)]
    theirs = [record((0.2, 0.01), accuracies=(a, 0.8)) for a in (0.70, 0.71, 0.73)]
    rows = [a_row("sqp", *ours), a_row("fedavg", *theirs)]
    assert "but at a lower worst-client accuracy: FedAvg" in readings(an_item(rows))[0]
    gap, error = difference(*rows, "worst_accuracy")
    assert gap == pytest.approx(-0.31 / 3)
    assert error == pytest.approx(0.01 / 3, rel=1e-6)


def test_chance_is_the_sign_test():
    """Six splits to none is the first that fair coins give less often than one time in twenty."""
    assert chance(0, 0) == chance(1, 1) == chance(3, 3) == 1.0
    assert chance(5, 0) == pytest.approx(2 / 32)
    assert chance(0, 6) == pytest.approx(2 / 64)
    assert chance(7, 2) == pytest.approx(2 * (1 + 9 + 36) / 512)


def test_who_keeps_budgets_more_often_at_a_cost_is_told_with_the_cost():
    ours = [record((0.2, 0.01)) for _ in range(3)]
    theirs = [record((0.0, 0.0)) for _ in range(3)]
    for one in theirs:
        one["global"] = {"test": {**one["global"]["test"], "accuracy": 0.75}}
    (said, *_) = readings(an_item([a_row("sqp", *ours), a_row("fedavg", *theirs)]))
    assert "its accuracy on all rows is lower by .0300" in said


def test_noise_is_called_noise():
    rows = [a_row("sqp", record((0.0, 0.01)), record((0.1, 0.01)), record((0.2, 0.012)))]
    (told,) = [sentence for sentence in readings(an_item(rows)) if "noise" in sentence]
    assert "phd (.1000)" in told
    assert "non-phd" not in told


@pytest.mark.parametrize(
    ("accuracy", "words"),
    [(0.73, "no worse"), (0.69, "within one standard"), (0.6, "by more than one standard")],
)
def test_the_original_split_is_read_against_the_authors_figure(accuracy, words):
    """One standard deviation of 100 people at .72 is .045."""
    given = {"label": "they", "accuracy": {"phd": 0.72, "non-phd": 0.8}}
    given["disparity"] = {"phd": 0.06, "non-phd": 0.01}
    row = a_row("sqp", record((0.0, 0.0), accuracies=(accuracy, 0.8))) | {"protocol": "original"}
    said = readings(an_item([row], given=[given], protocols=("original",)))
    assert words in said[0]
    assert "exceed the budget of phd on test rows" in said[1]


def test_a_glance_says_whose_budgets_hold_and_who_is_behind():
    """Theirs is .72 of 100 people: .67 is behind by more than the .045 of one deviation."""
    given = {"label": "they", "accuracy": {"phd": 0.72, "non-phd": 0.8}}
    given["disparity"] = {"phd": 0.06, "non-phd": 0.01}
    for accuracy, verdict in ((0.68, "yes"), (0.67, "no")):
        row = a_row("sqp", record((0.0, 0.0), accuracies=(accuracy, 0.8)))
        item = an_item([row | {"protocol": "original"}], given=[given], protocols=("original",))
        (found,) = glance([item])
        assert found.rows[0][4:] == (verdict, "exceeded: phd", "met in 1/1")


def test_a_glance_shows_the_baseline_that_keeps_budgets_most_often():
    kept, broken = record((0.01, 0.01)), record((0.2, 0.01))
    rows = [a_row("sqp", kept, broken), a_row("fedavg", broken, broken), a_row("afl", kept, kept)]
    (found,) = glance([an_item(rows)])
    assert found.rows[0][1:5] == ("1/2", "–", "–", "AFL 2/2")


# --- tables and figures ---


def test_cells_are_short():
    assert number(0.05) == ".0500"
    assert number(-0.05, 2) == "-.05"
    assert number(None) == "–"
    assert share(0.7, 20) == "14/20"
    found = asdict(over_seeds([0.1, 0.2]))
    assert spread(found, "original") == ".1500 ± .0707"
    assert spread(found, "resplits") == ".1500 ± .6353"


def test_a_table_names_every_line_and_what_others_found():
    given = {"label": "they", "accuracy": {"phd": 0.72, "non-phd": 0.8}}
    rows = [a_row(line, record((0.0, 0.0))) | {"protocol": "original"} for line in ("sqp", "afl")]
    (found,) = tables_of(an_item(rows, given=[given], protocols=("original",)))
    assert [row[0] for row in found.rows] == [LINES["sqp"].label, LINES["afl"].label, "*they*"]
    widths = {line.count("|") for line in list(markdown(found))[2:]}
    assert widths == {len(found.headings) + 1}


def test_every_kind_of_figure_is_drawn_and_has_axes(item, table, tmp_path):
    """Parsed as XML; every figure has a title, a description, and names of its axes."""
    (tmp_path / "front.toml").write_text(FRONT, encoding="utf-8")
    front = read_item(tmp_path / "front.toml")
    drawn = {}
    for one, tables in ((item, {table: table}), (front, {"synthetic": "synthetic"})):
        plan = plan_runs(one, QUICK, {})
        records = run_plan(plan.values(), tables, tmp_path / "runs").records
        content = summarise(one, plan, records, QUICK, {})
        drawn |= figures_of(content)
        if one is item:
            limits = {"accuracy": 0.8, "local": 0.1, "global": 0.1}
            drawn |= figures_of({**content, "figure": "plane", "name": "plane", "limits": limits})
    dots = an_item([a_row("sqp", record((0.1, 0.0)), record((0.2, 0.0)))])
    series = {**an_item([{**dots["rows"][0], "case": "w = 0.5"}]), "figure": "series"}
    series["cases"] = [{"name": "w = 0.5", "budget": None, "given": []}]
    drawn |= figures_of(dots) | figures_of({**series, "name": "series"})
    assert len(drawn) == 5
    for name, figure in drawn.items():
        root = ElementTree.fromstring(str(figure))
        words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
        assert any(text.endswith("→") for text in words), name
        assert root.find("{http://www.w3.org/2000/svg}title").text, name


# --- the command ---


def test_the_command_lists_runs_and_writes_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "paths.toml").write_text(FRONT, encoding="utf-8")
    assert "paths" in fcfl("reproduce", "--list").stdout
    outcome = fcfl("reproduce", "paths", "--quick", "--jobs", 1, "--out", "out")
    assert outcome.exit_code == 0, outcome.output
    assert "A quick trial" in outcome.stdout
    page = (tmp_path / "out" / "reproduction.md").read_text(encoding="utf-8")
    assert "## paths" in page
    assert (tmp_path / "out" / "reproduction" / "paths.svg").exists()
    outcome = fcfl("reproduce", "all", "--jobs", 1, "--publish")
    assert outcome.exit_code == 0, outcome.output
    assert (tmp_path / "results" / "paths.json").exists()
    assert "within the budget" in (tmp_path / "docs" / "reproduction.md").read_text("utf-8")
    again = fcfl("reproduce", "paths", "--jobs", 1)
    assert "2 of 2 runs were finished before" in again.stderr


def test_compact_results_are_the_same_results():
    item = an_item([a_row("sqp", record((0.0, 0.1))), a_row("afl", record((0.1, 0.0)))])
    text = compact(json.dumps(item, indent=1))
    assert json.loads(text) == json.loads(json.dumps(item))
    assert len(text.splitlines()) == 2 + len(item["rows"])


def test_the_command_tells_wrong_names(tmp_path):
    assert "There is no item 'fig33'" in only_error(fcfl("reproduce", "fig33"), 2)
    assert "Name an item or all" in only_error(fcfl("reproduce"), 2)
    outcome = fcfl("reproduce", "all", "--quick", "--publish")
    assert "--quick shows the way" in only_error(outcome, 2)


def test_the_committed_page_is_what_the_committed_results_say(tmp_path):
    """Nobody edits the page by hand."""
    results, page = HERE.parent / "results", HERE.parent / "docs" / "reproduction.md"
    items = read_item_files(results)
    assert {item["name"] for item in items} >= {"adult-race", "adult-unconstrained", "fig3"}
    assert {item["name"] for item in items} <= {path.stem for path in HERE.glob("*.toml")}
    made = write_reproduction(items, tmp_path).read_text(encoding="utf-8")
    assert made == page.read_text(encoding="utf-8")
    for item in items:
        assert not item["scale"]["quick"]
        assert list(screen_of(item))
