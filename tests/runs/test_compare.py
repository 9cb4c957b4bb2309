import json
import shutil

import numpy as np
import pytest

from fcfl.errors import Interrupted
from fcfl.federation.session import Session
from fcfl.results.many_runs import MAJORITY, OverSeeds
from fcfl.runs.many_runs import (
    COMPARED,
    for_method,
    over_seeds,
    run_comparison,
)
from fcfl.runs.opening import open_table
from fcfl.runs.settings import Experiment
from hospital import COLUMNS, fcfl, only_error, result_of, stays, written

MOST = ["sqp", "fedavg", "q-ffl"]
FEW = ("--methods", "fedavg,afl")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return written(stays(), tmp_path_factory.mktemp("stays") / "stays.csv")


@pytest.fixture(scope="module")
def compared(table, tmp_path_factory):
    """All methods but the slowest on a small table."""
    folder = tmp_path_factory.mktemp("compare") / "all"
    options = ("--budget", "0.05", "--l2", "0.01", "--methods", ",".join(MOST))
    outcome = fcfl("compare", table, *COLUMNS, *options, "--out", folder)
    assert outcome.exit_code == 0, outcome.output
    return folder, outcome


def content_of(folder):
    return json.loads((folder / "comparison.json").read_text(encoding="utf-8"))


def test_every_method_has_a_line_a_folder_and_a_result(compared):
    folder, outcome = compared
    content = content_of(folder)
    assert [method["method"] for method in content["methods"]] == [*MOST, MAJORITY]
    for run in content["runs"]:
        assert run["status"] in ("converged", "stopped"), run
        result = result_of(folder / run["folder"])
        assert result["method"] == run["method"] == run["folder"]
        assert run["bytes_from_clients"] == result["bytes_from_clients"] > 0
        assert (folder / run["folder"] / "report.html").exists()
    lines = [line.split() for line in outcome.stdout.splitlines() if line]
    assert [line[0] for line in lines if line[0] in MOST][: len(MOST)] == MOST


def test_a_line_states_what_the_results_state(compared):
    folder, _ = compared
    for run in content_of(folder)["runs"]:
        result = result_of(folder / run["folder"])
        tests = {client: who["test"] for client, who in result["clients"].items()}
        assert {name: who["accuracy"] for name, who in run["clients"].items()} == {
            name: test["accuracy"] for name, test in tests.items()
        }
        for name, test in tests.items():
            entry = test["disparities"][0]
            assert run["clients"][name]["value"] == entry["value"]
            assert run["clients"][name]["verdict"] == entry["verdict"]
        assert run["judged"]["accuracy"] == result["global"]["test"]["accuracy"]
        assert run["judged"]["all_rows"] == result["global"]["test"]["disparities"][0]["value"]


def test_the_majority_line_is_what_predicting_one_label_gives(compared, table):
    folder, _ = compared
    found = content_of(folder)["methods"][-1]
    rows = open_table(Experiment(str(table), client="hospital", label="died", sensitive=("race",)))
    label = np.concatenate([data.y for data in rows.train.values()]).mean() >= 0.5
    right = {name: (data.y == label).mean() for name, data in rows.test.items()}
    assert {name: one["accuracy"]["mean"] for name, one in found["clients"].items()} == (
        pytest.approx(right)
    )
    assert found["all_rows"]["mean"] == 0


def test_a_run_that_stopped_states_how_far_it_still_moved(compared):
    folder, outcome = compared
    for run in content_of(folder)["runs"]:
        history = (folder / run["folder"] / "history.jsonl").read_text().splitlines()
        losses = [json.loads(line)["worst_loss"] for line in history]
        if run["status"] == "converged":
            assert run["still_moving"] == ""
            continue
        last = max(len(losses) // 10, 1)
        change = abs(losses[-1] - losses[-1 - last])
        assert f"still changed by {change:.2g} in the last" in run["still_moving"]
        assert f"{run['method']}: worst loss still changed by" in outcome.stdout


def test_a_comparison_is_shown_again_from_its_folder(compared):
    folder, _ = compared
    page = (folder / "report.html").read_bytes()
    outcome = fcfl("report", folder)
    assert outcome.exit_code == 0, outcome.output
    assert (folder / "report.html").read_bytes() == page


def test_all_methods_see_the_same_rows(compared):
    folder, _ = compared
    assert len({result_of(folder / name)["data"]["sha256"] for name in MOST}) == 1


def test_a_method_without_budgets_states_so_in_its_result(compared):
    folder, _ = compared
    for name in MOST:
        told = any("does not enforce budgets" in note for note in result_of(folder / name)["notes"])
        assert told == (name not in ("sqp", "two-stage"))


def test_seeds_give_means_with_intervals(table, tmp_path):
    command = ("compare", table, *COLUMNS, "--methods", "fedavg", "--seeds", "2")
    outcome = fcfl(*command, "--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    content = content_of(tmp_path)
    assert [run["folder"] for run in content["runs"]] == [
        f"{method}-seed-{seed}" for method in ("fedavg",) for seed in range(2)
    ]
    for method in content["methods"][:-1]:
        runs = [run for run in content["runs"] if run["method"] == method["method"]]
        mean = np.mean([run["judged"]["lowest_accuracy"] for run in runs])
        found = method["lowest_accuracy"]
        assert found["mean"] == pytest.approx(mean) and found["low"] < mean < found["high"]
        assert {result_of(tmp_path / run["folder"])["settings"]["start"] for run in runs} == {
            "uniform"
        }
    assert "±" in outcome.stdout


def test_resumed_it_keeps_what_is_finished(table, tmp_path):
    command = ("compare", table, *COLUMNS, *FEW, "--out", tmp_path, "--resume")
    assert fcfl(*command).exit_code == 0
    before = content_of(tmp_path)
    kept = (tmp_path / "fedavg" / "result.json").read_bytes()
    shutil.rmtree(tmp_path / "afl")
    assert fcfl(*command).exit_code == 0
    assert (tmp_path / "fedavg" / "result.json").read_bytes() == kept
    again = content_of(tmp_path)
    for left, right in zip(before["runs"], again["runs"], strict=True):
        assert {k: v for k, v in left.items() if k != "seconds"} == {
            k: v for k, v in right.items() if k != "seconds"
        }


def test_resumed_with_more_rounds_only_an_unfinished_run_continues(table, tmp_path):
    columns = {"client": "hospital", "label": "died", "sensitive": ("race",)}
    seen = []

    def rounds(of_both, *, stop_at=99):
        def on_round(info, share):
            seen.append(info.round)
            if info.round == stop_at:
                raise KeyboardInterrupt

        session = Session(tmp_path, resume=True, on_round=on_round)
        given = Experiment(str(table), **columns, rounds=of_both)
        run_comparison(given, ("fedavg",), [0], session)

    with pytest.raises(Interrupted):
        rounds((2, 1), stop_at=2)
    rounds((2, 2))
    assert seen == [1, 2, 3, 4]
    rounds((2, 2))  # read back
    assert seen == [1, 2, 3, 4]
    rounds((3, 2))
    assert seen[4:] == [1, 2, 3, 4, 5]


def test_with_another_budget_a_comparison_is_rejected_or_overwritten(table, tmp_path):
    command = ("compare", table, *COLUMNS, "--methods", "fedavg", "--out", tmp_path)
    assert fcfl(*command, "--budget", "0.05").exit_code == 0
    for more in ((), ("--resume",)):
        told = only_error(fcfl(*command, "--budget", "0.3", *more))
        assert "holds a run with other settings" in told
    assert fcfl(*command, "--budget", "0.3", "--overwrite").exit_code == 0
    assert result_of(tmp_path / "fedavg")["settings"]["budget"] == 0.3


def test_a_method_that_fails_is_listed_and_the_others_run(table, tmp_path):
    (tmp_path / "afl").write_text("in the way")
    outcome = fcfl("compare", table, *COLUMNS, *FEW, "--out", tmp_path)
    assert outcome.exit_code == 1
    assert "afl failed: " in outcome.stderr and "the file" in outcome.stderr
    runs = {run["method"]: run for run in content_of(tmp_path)["runs"]}
    assert runs["afl"]["status"] == "failed" and "the file" in runs["afl"]["message"]
    assert result_of(tmp_path / "fedavg")["method"] == "fedavg"
    assert "3 methods on " in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--methods", "fedavg,fedsgd"), "`--methods`"),
        (("--methods", "sqp,private"), "'private'"),
        (("--methods", ","), "`--methods`"),
        (("--budget", "2"), "`--budget`"),
    ],
)
def test_wrong_options_are_one_line(table, options, sentence):
    assert sentence in only_error(fcfl("compare", table, *COLUMNS, *options), code=2)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty"),
        ("hospital,race,died\n", "has no rows, only a header"),
        ("ward,race,died\na,x,1\nb,y,0\n", "`--client` must be a column of the table"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_line_before_the_first_run(tmp_path, content, sentence):
    path = tmp_path / "t.csv"
    path.write_text(content)
    outcome = fcfl("compare", path, *COLUMNS, *FEW, "--out", tmp_path / "out")
    assert sentence in only_error(outcome)
    assert "run 1 of" not in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_one_group_everywhere_is_reported_once(tmp_path):
    table = written(stays().assign(race="white"), tmp_path / "one.csv")
    outcome = fcfl("compare", table, *COLUMNS, *FEW, "--budget", "0.1", "--out", tmp_path / "out")
    assert "two groups of 'race'" in only_error(outcome)
    assert not (tmp_path / "out").exists()


def test_the_synthetic_problem_has_no_rows():
    assert "no rows to compare" in only_error(fcfl("compare", "synthetic"), code=2)


def test_what_a_method_cannot_take_is_left_to_those_that_can():
    given = Experiment("a.csv", protects="worst", l2=0.1)
    each = {name: for_method(given, name, 0) for name in COMPARED}
    taken = [name for name, one in each.items() if one.protects == "worst"]
    assert taken == ["sqp", "two-stage"]


def test_methods_that_cannot_be_made_are_reported_before_the_rows_are_opened(tmp_path):
    opened = []
    with pytest.raises(ValueError, match="private"):
        run_comparison(
            Experiment("a.csv"), ("sqp", "private"), [0], Session(tmp_path), opener=opened.append
        )
    assert opened == []


def test_the_interval_over_seeds_is_students():
    found = over_seeds([1.0, 2.0, 3.0, None])
    assert found.mean == 2.0 and found.sd == 1.0
    assert found.high - 2.0 == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)
    assert over_seeds([5.0]) == OverSeeds(5.0)
    assert over_seeds([None]).mean is None


# --- options that only one baseline knows ---


def test_an_option_reaches_its_method_and_is_part_of_the_settings(table, tmp_path):
    options = (
        "--method",
        "q-ffl",
        "--option",
        "q=0.5",
        "--option",
        "local-epochs=3",
        "--rounds",
        "4",
    )
    assert fcfl("train", table, *COLUMNS, *options, "--out", tmp_path).exit_code == 0
    method = Experiment.from_toml(tmp_path / "experiment.toml").make_method()
    assert (method.q, method.local_epochs, method.rounds) == (0.5, 3, 4)
    assert result_of(tmp_path)["settings"]["options"] == {"q": 0.5, "local_epochs": 3}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("afl", "q=1"), "Unknown key `q`"),
        (("fedavg", "batch-row=1"), "Did you mean 'batch_rows'?"),
        (
            ("sqp", "q=1"),
            "`--option`",
        ),
        (("q-ffl", "q"), "`--option`"),
        (("q-ffl", "q=many"), "got 'q=many'."),
        (
            ("fedavg", "local-epochs=1.5"),
            "`local_epochs`",
        ),
        (("q-ffl", "step-size=1"), "Unknown key `step_size`"),
        (("fedavg", "tolerance=nan"), "`tolerance`"),
    ],
)
def test_a_wrong_option_is_one_line(table, options, sentence):
    method, option = options
    outcome = fcfl("train", table, *COLUMNS, "--method", method, "--option", option)
    assert sentence in only_error(outcome, code=2)
