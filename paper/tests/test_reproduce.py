"""The paper's items: files, plans, runs that are kept, aggregated numbers, text, figures."""

from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fcfl.errors import DataError
from fcfl.results import RowCounts
from fcfl.runs.many_runs import over_seeds
from fcfl_paper.reproduction.aggregate import (
    aggregate,
    choose,
    pareto_front,
    predicted_disparity,
    row_of,
)
from fcfl_paper.reproduction.figures import write_figures
from fcfl_paper.reproduction.items import (
    LINES,
    PROTOCOLS,
    QUICK,
    Case,
    Run,
    Scale,
    find_items,
    plan_runs,
    read_item,
)
from fcfl_paper.reproduction.page import (
    page_text,
    plots_of,
    screen_of,
    write_reproduction,
)
from fcfl_paper.reproduction.readings import difference, readings, sign_test
from fcfl_paper.reproduction.records import (
    AllRowsRecord,
    CaseResult,
    ClientRecord,
    FailedRun,
    ItemResult,
    PartRecord,
    Published,
    RunRecord,
    item_text,
    read_item_result,
    read_item_results,
)
from fcfl_paper.reproduction.runs import (
    eicu_source,
    experiment_of,
    pooled_adult,
    run_plan,
    substitutes,
)
from fcfl_paper.reproduction.tables import glance, number, share, spread, tables_of
from hospital import fcfl, only_error, stays, written

ROOT = Path(__file__).parents[1]
HERE = ROOT / "experiments"
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
SVG = "{http://www.w3.org/2000/svg}"
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
    columns = {
        "client": "hospital",
        "label": "died",
        "sensitive": ("race",),
        "seed": 0,
        "min_group_rows": 1,
    }
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
            for run in plan_runs(item, scale, substitutes(None)).values():
                assert experiment_of(run, "table.csv").method == run.settings["method"]


def test_settings_are_the_authors_own_where_they_are_known():
    """Step sizes and rounds of the runs whose figures are quoted."""
    case = find_items(["adult-race"], HERE)[0].cases[0]
    assert case.of_line["two-stage"] == {"step_size": 0.03, "rounds": (800, 1500)}
    assert case.given[0].accuracy == {"phd": 0.7293, "non-phd": 0.8196}


def test_a_method_without_budgets_runs_once_for_all_budgets():
    item = find_items(["adult-race"], HERE)[0]
    plan = plan_runs(item, Scale(1, 3), {})
    keys = {line: {r.key for p, r in plan.items() if p.line == line} for line in ("fedavg", "sqp")}
    assert len(keys["fedavg"]) == 1 + 3
    assert len(keys["sqp"]) == 2 * (1 + 3)


def test_a_tighter_budget_uses_the_settings_chosen_under_the_looser():
    item = find_items(["adult-race"], HERE)[0]
    plan = plan_runs(item, Scale(1, 1), {})
    runs = {(p.case, p.line): run for p, run in plan.items() if p.protocol == "resplits"}
    assert runs["budget .05", "sqp"].tuned_by is None
    assert runs["budget .01", "sqp"].tuned_by == runs["budget .05", "sqp"]
    assert runs["budget .01", "sqp-tenth"].tuned_by == runs["budget .01", "sqp"]
    assert runs["budget .01", "sqp-tenth"].settings["budget"] == pytest.approx(0.001)
    assert runs["budget .01", "sqp-max"].tuned_by is None


def test_the_key_names_the_settings(table):
    run = a_run(table, "fedavg")
    assert run.key == a_run(table, "fedavg").key
    assert run.key != a_run(table, "afl").key
    assert run.key != replace(run, tuned_by=a_run(table, "sqp")).key


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
        ('colour = "red"', "Unknown key `colour` in "),
    ],
)
def test_a_wrong_setting_of_an_item_is_reported(tmp_path, text, sentence):
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        read_item(tmp_path / "a.toml")


def test_a_wrong_line_is_reported(tmp_path, table):
    text = MINI.format(figure="clients", table=table).replace('"fedavg"', '"fedavgg"')
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"There is no line 'fedavgg'.*fedavg"):
        read_item(tmp_path / "a.toml")


# --- runs ---


def test_finished_runs_are_not_run_again(item, table, tmp_path):
    plan = plan_runs(item, QUICK, {})
    told = []
    first = run_plan(plan.values(), {table: table}, tmp_path, on_run=lambda *a: told.append(a))
    again = run_plan(plan.values(), {table: table}, tmp_path, on_run=lambda *a: told.append(a))
    assert len(told) == len(first.records) == again.n_read == 3
    assert first.records == again.records
    fresh = run_plan(plan.values(), {table: table}, tmp_path, fresh=True)
    assert fresh.n_read == 0


def test_a_stopped_plan_continues_where_it_was(item, table, tmp_path):
    plan = plan_runs(item, QUICK, {})

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plan(plan.values(), {table: table}, tmp_path, on_run=stop)
    assert run_plan(plan.values(), {table: table}, tmp_path).n_read == 1


def test_a_stopped_command_says_how_to_continue(monkeypatch, tmp_path):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fcfl_paper.cli.reproduce.run_plan", stop)
    outcome = fcfl("reproduce", "fig3", "--out", tmp_path)
    assert outcome.exit_code == 1
    assert "finished runs are kept. Continue with the same command." in outcome.stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failed_run_stops_no_other_run_and_is_tried_again(table, tmp_path, jobs):
    """Also a run that waits for it says so; in one process and in several."""
    bad = a_run(table, "sqp", drop=("nowhere",), l2=0.01, objective="max")
    waiting = replace(a_run(table, "sqp", confidence=0.9, budget=0.1), tuned_by=bad)
    good = a_run(table, "fedavg", rounds=(5,))
    found = run_plan([bad, waiting, good], {table: table}, tmp_path, jobs=jobs).records
    assert "nowhere" in found[bad.key].message
    assert "takes its settings from failed" in found[waiting.key].message
    assert found[good.key].rounds == 5
    assert run_plan([bad, good], {table: table}, tmp_path).n_read == 1


def test_a_run_takes_the_settings_chosen_by_another(table, tmp_path):
    chosen = a_run(table, "sqp", budget=0.2, l2=0.02, objective=0.3)
    taking = replace(a_run(table, "sqp", budget=0.2, confidence=0.6), tuned_by=chosen)
    found = run_plan([taking], {table: table}, tmp_path).records
    assert (found[taking.key].l2, found[taking.key].objective) == (0.02, 0.3)
    assert found[taking.key].chosen is None


# --- adding up ---


def record(disparities, smooth=0.04, accuracies=(0.7, 0.8), rows=(200, 300), overall=0.78):
    def part(accuracy, disparity):
        groups = ((rows[0], 40), (rows[1], 90))
        return PartRecord(0.5, accuracy, disparity, smooth, None, groups)

    clients = {
        name: ClientRecord(part(a, d), part(a, d), RowCounts(500, 100))
        for name, a, d in zip(("phd", "non-phd"), accuracies, disparities, strict=True)
    }
    both = part(overall, max(disparities))
    all_rows = AllRowsRecord(both, both)
    return RunRecord("converged", True, 10, 1.0, 0.1, "max", None, clients, all_rows)


CASE = Case("budget .05", {"budget": 0.05}, ("sqp",), {}, ())


def a_row(line, *records, case=CASE):
    return row_of(case, "resplits", line, list(enumerate(records)))


def test_a_row_counts_how_often_held_out_disparities_are_within():
    row = a_row("sqp", record((0.06, 0.01)), record((0.05, 0.02)), record((0.0, 0.06)))
    assert row.share_within["phd"] == pytest.approx(2 / 3)
    assert row.share_within["non-phd"] == pytest.approx(2 / 3)
    assert row.share_within["all"] == pytest.approx(1 / 3)
    assert row.share_met_in_training == 1.0
    assert row.worst_accuracy.mean == pytest.approx(0.7)


def test_budgets_are_met_in_training_by_smooth_disparities():
    row = a_row("sqp", record((0.0, 0.0), smooth=0.06), record((0.2, 0.2), smooth=0.05))
    assert row.share_met_in_training == 0.5


def test_failed_runs_are_listed_and_not_counted():
    row = a_row("sqp", record((0.0, 0.0)), FailedRun("why"))
    assert row.n_runs == 1
    assert row.failures == ("why",)


@pytest.mark.parametrize("figure", ["dots", "series", "front", "plane", "clients"])
def test_an_item_without_a_finished_run_still_has_a_page(figure):
    item = an_item([a_row("sqp", FailedRun("why"))], figure=figure)
    page = page_text([replace(item, limits={"accuracy": 0.8, "local": 0.1, "global": 0.1})])
    assert "* No run finished." in page
    assert "1 failed: why" in page
    assert "![" not in page


def test_the_loosest_budget_that_training_rows_support_is_chosen():
    """Hundreds of rows support a disparity of .01 within .1, and none within 0."""
    loose, tight = record((0.09, 0.0)), record((0.01, 0.0))
    assert choose([loose, tight], {"local": 0.1, "global": 0.1}) is tight
    assert choose([loose, tight], {"local": 0.5, "global": 0.5}) is loose
    assert choose([loose, tight], {"local": 0.0, "global": 0.0}) is tight

    def predicted(n_rows):
        client = record((0.0, 0.0), rows=(n_rows, n_rows)).clients["phd"]
        return predicted_disparity(client.train, client.test)

    assert predicted(100) > predicted(1000) > 0


def test_the_front_joins_the_two_minimisers():
    front = pareto_front()
    assert front[0] == (pytest.approx(1 - 2.718281828**-4, abs=1e-3), 0.0)
    assert front[-1][0] == pytest.approx(0.0, abs=1e-3)
    assert all(a[0] >= b[0] and a[1] <= b[1] for a, b in pairwise(front))


# --- words ---


def an_item(rows, *, given=(), figure="dots", protocols=("resplits",)):
    return ItemResult(
        schema=1, name="simulated", title="Simulated", of="figure 0", paper="P.", chosen="c",
        figure=figure, limits={}, scale=Scale(), tables=("adult",),
        protocols=dict.fromkeys(protocols, "words"),
        cases=(CaseResult("budget .05", 0.05, tuple(given)),), rows=tuple(rows),
    )  # fmt: skip


THEIRS = Published("they", {"phd": 0.72, "non-phd": 0.8}, {"phd": 0.06, "non-phd": 0.01})


def test_the_reading_follows_the_numbers():
    """The same sentence praises and blames, as who meets the budget more often changes."""
    kept, broken = record((0.01, 0.01)), record((0.2, 0.01))
    ours, other = a_row("sqp", kept, kept, kept), a_row("fedavg", broken, broken, kept)
    (said, *_) = readings(an_item([ours, other]))
    assert "is within every budget on held-out rows in 3/3" in said
    assert "More often than, at a worst-client accuracy not measurably lower" in said
    assert "FedAvg (1/3, .7000, .7800; may be chance)" in said
    ours, other = a_row("sqp", broken, broken, kept), a_row("fedavg", kept, kept, kept)
    assert "Less often than: FedAvg (3/3" in readings(an_item([ours, other]))[0]


def test_more_often_at_a_lower_accuracy_is_reported_as_such():
    ours = [record((0.01, 0.01), accuracies=(a, 0.8)) for a in (0.60, 0.61, 0.62)]
    theirs = [record((0.2, 0.01), accuracies=(a, 0.8)) for a in (0.70, 0.71, 0.73)]
    rows = [a_row("sqp", *ours), a_row("fedavg", *theirs)]
    assert "but at a lower worst-client accuracy: FedAvg" in readings(an_item(rows))[0]
    gap, error = difference(*rows, "worst_accuracy")
    assert gap == pytest.approx(-0.31 / 3)
    assert error == pytest.approx(0.01 / 3, rel=1e-6)


def test_the_sign_test_is_exact():
    """Six splits to none is the first that fair coins give less often than one time in twenty."""
    assert sign_test(0, 0) == sign_test(1, 1) == sign_test(3, 3) == 1.0
    assert sign_test(5, 0) == pytest.approx(2 / 32)
    assert sign_test(0, 6) == pytest.approx(2 / 64)
    assert sign_test(7, 2) == pytest.approx(2 * (1 + 9 + 36) / 512)


def test_the_cost_of_meeting_budgets_more_often_is_reported():
    ours = [record((0.2, 0.01)) for _ in range(3)]
    theirs = [record((0.0, 0.0), overall=0.75) for _ in range(3)]
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
    row = a_row("sqp", record((0.0, 0.0), accuracies=(accuracy, 0.8)))
    item = an_item([replace(row, protocol="original")], given=[THEIRS], protocols=("original",))
    said = readings(item)
    assert words in said[0]
    assert "exceed the budget of phd on test rows" in said[1]


def test_a_glance_shows_whose_budgets_are_met_and_who_is_behind():
    """Theirs is .72 of 100 people: .67 is behind by more than the .045 of one deviation."""
    for accuracy, verdict in ((0.68, "yes"), (0.67, "no")):
        row = a_row("sqp", record((0.0, 0.0), accuracies=(accuracy, 0.8)))
        rows = [replace(row, protocol="original")]
        item = an_item(rows, given=[THEIRS], protocols=("original",))
        (found,) = glance([item])
        assert found.rows[0][4:] == (verdict, "exceeded: phd", "met in 1/1")


def test_a_glance_shows_the_baseline_that_meets_budgets_most_often():
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
    found = over_seeds([0.1, 0.2])
    assert spread(found, "original") == ".1500 ± .0707"
    assert spread(found, "resplits") == ".1500 ± .6353"


def test_a_table_names_every_line_and_what_others_found():
    rows = [replace(a_row(n, record((0.0, 0.0))), protocol="original") for n in ("sqp", "afl")]
    (found,) = tables_of(an_item(rows, given=[THEIRS], protocols=("original",)))
    assert [row[0] for row in found.rows] == [LINES["sqp"].label, LINES["afl"].label, "*they*"]
    assert {len(row) for row in found.rows} == {len(found.headings)}


def test_every_kind_of_figure_is_drawn_with_names_of_its_axes(item, table, tmp_path):
    """Parsed as XML; every figure has a title, a description, and its text as text."""
    (tmp_path / "front.toml").write_text(FRONT, encoding="utf-8")
    front = read_item(tmp_path / "front.toml")
    results = []
    for one, tables in ((item, {table: table}), (front, {"synthetic": "synthetic"})):
        plan = plan_runs(one, QUICK, {})
        records = run_plan(plan.values(), tables, tmp_path / "runs").records
        results.append(aggregate(one, plan, records, QUICK, {}))
    limits = {"accuracy": 0.8, "local": 0.1, "global": 0.1}
    results.append(replace(results[0], figure="plane", name="plane", limits=limits))
    dots = an_item([a_row("sqp", record((0.1, 0.0)), record((0.2, 0.0)))])
    rows = tuple(replace(dots.rows[0], case=f"w = {w}") for w in (1.0, 0.5))
    cases = tuple(CaseResult(row.case, None, ()) for row in rows)
    results += [dots, replace(dots, name="series", figure="series", rows=rows, cases=cases)]
    plots = [plot for result in results for plot in plots_of(result)]
    assert len(plots) == 5
    write_figures(plots, tmp_path / "figures")
    for plot in plots:
        root = ElementTree.parse(tmp_path / "figures" / plot.file_name).getroot()
        texts = {element.text for element in root.iter(f"{SVG}text")}
        assert texts & {
            "held-out disparity", "first objective", "largest local disparity, held out",
            "disparity, a mark for each client; dashed: budget",
            "w (budget as a share of the disparity without budgets)",
        }, plot.file_name  # fmt: skip
        assert root.find(f"{SVG}title").text == plot.title
        assert root.find(f"{SVG}desc").text == plot.description


def test_a_figure_is_the_same_bytes_every_time(tmp_path):
    plots = plots_of(an_item([a_row("sqp", record((0.1, 0.0)), record((0.2, 0.0)))]))
    for folder in ("once", "again"):
        write_figures(plots, tmp_path / folder)
    once, again = (tmp_path / folder / plots[0].file_name for folder in ("once", "again"))
    assert once.read_bytes() == again.read_bytes()


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


def test_without_matplotlib_results_and_tables_are_still_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fcfl_paper.reproduction.page.find_spec", lambda name: None)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "paths.toml").write_text(FRONT, encoding="utf-8")
    outcome = fcfl("reproduce", "paths", "--quick", "--jobs", 1, "--out", "out")
    assert outcome.exit_code == 0, outcome.output
    assert "which need matplotlib: pip install matplotlib" in outcome.stderr
    assert read_item_results(tmp_path / "out")[0].name == "paths"
    page = (tmp_path / "out" / "reproduction.md").read_text(encoding="utf-8")
    assert "| start, budget: method |" in page
    assert "![" not in page
    refused = fcfl("reproduce", "paths", "--publish")
    assert "--publish draws figures, which need matplotlib" in only_error(refused, 2)


def test_a_result_file_is_read_back_as_it_was(tmp_path):
    item = an_item([a_row("sqp", record((0.0, 0.1))), a_row("afl", record((0.1, 0.0)))])
    (tmp_path / "simulated.json").write_text(item_text(item), encoding="utf-8")
    assert read_item_result(tmp_path / "simulated.json") == item
    assert len(item_text(item).splitlines()) == 2 + len(item.rows)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', '{"cases": 3}'])
def test_another_file_among_the_results_is_named(tmp_path, text):
    (tmp_path / "other.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"other.json' is not the result file of an item"):
        read_item_results(tmp_path)


def test_the_command_reports_wrong_names():
    assert "There is no item 'fig33'" in only_error(fcfl("reproduce", "fig33"), 2)
    assert "Name an item or all" in only_error(fcfl("reproduce"), 2)
    outcome = fcfl("reproduce", "all", "--quick", "--publish")
    assert "--quick numbers are not worth publishing" in only_error(outcome, 2)


# --- what is committed ---


def test_the_committed_results_are_of_the_committed_items():
    """Read and written again they are the same bytes, and their text is that of the items."""
    items = {item.name: item for item in find_items(["all"], HERE)}
    results = read_item_results(ROOT / "results")
    assert {result.name for result in results} >= {"adult-race", "adult-unconstrained", "fig3"}
    for result in results:
        item = items[result.name]
        assert not result.scale.quick
        path = ROOT / "results" / f"{result.name}.json"
        assert item_text(result) == path.read_text(encoding="utf-8")
        assert (result.title, result.of, result.paper, result.chosen) == (
            item.title, item.of, item.paper, item.chosen,
        )  # fmt: skip
        assert result.protocols == {name: PROTOCOLS[name] for name in item.protocols}
        assert tuple(case.given for case in result.cases) == tuple(c.given for c in item.cases)


def test_the_committed_page_is_what_the_committed_results_say():
    """Nobody edits the page by hand."""
    items = read_item_results(ROOT / "results")
    page = ROOT / "docs" / "reproduction.md"
    assert page_text(items) == page.read_text(encoding="utf-8")
    drawn = {plot.file_name for item in items for plot in plots_of(item)}
    assert drawn == {path.name for path in (ROOT / "docs" / "reproduction").iterdir()}
    for item in items:
        assert list(screen_of(item))


def pinned_matplotlib():
    lines = (ROOT.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("matplotlib==")).split("==")[1]


@pytest.mark.skipif(
    version("matplotlib") != pinned_matplotlib(),
    reason="another version of matplotlib draws other bytes",
)
def test_the_committed_figures_are_drawn_from_the_committed_results(tmp_path):
    write_reproduction(read_item_results(ROOT / "results"), tmp_path)
    for path in (tmp_path / "reproduction").iterdir():
        committed = ROOT / "docs" / "reproduction" / path.name
        assert path.read_bytes() == committed.read_bytes(), path.name
