"""Results are written and read back; what cannot be read is said in one sentence."""

import copy
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from fcfl.errors import DataError
from fcfl.report.page import write_page
from fcfl.results import (
    Comparison,
    Expected,
    Privacy,
    PrivacyLoss,
    Start,
    read_result,
    read_selection,
    result_from_json,
    result_to_json,
    write_result,
)
from fcfl.results.result import objective_name, objective_setting
from fcfl.results.result_file import read_comparison, write_comparison_file
from hospital import COLUMNS, fcfl, result_of, stays, written

OLD = Path(__file__).with_name("schema_1.json")  # 90 simulated rows, trained by fcfl at f5cad7f


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    table = written(stays(), folder / "stays.csv")
    options = ("--budget", "0.05", "--l2", "0.01", "--objective", "max", "--out", folder / "run")
    assert fcfl("train", table, *COLUMNS, *options).exit_code == 0
    return folder / "run"


def old_content():
    return json.loads(OLD.read_text(encoding="utf-8"))


# --- schema 2 -------------------------------------------------------------------------------------


def test_a_file_is_read_and_written_to_the_same_bytes(trained, tmp_path):
    result = read_result(trained / "result.json")
    write_result(tmp_path / "again.json", result)
    assert (tmp_path / "again.json").read_bytes() == (trained / "result.json").read_bytes()
    assert read_result(tmp_path / "again.json") == result


def test_a_result_of_schema_2_has_every_key(trained):
    content = result_of(trained)
    assert next(iter(content)) == "schema" and content["schema"] == 2
    assert content["objective"] == "max" and content["privacy"] is None
    names = [start["start"] for start in content["starts"]]
    assert names == ["unconstrained optimum", "first"]
    assert all(start["worst_loss"] >= start["mean_loss"] > 0 for start in content["starts"])
    holders = [*content["clients"].values(), content["global"]]
    entries = [e for who in holders for part in ("train", "test") for e in who[part]["disparities"]]
    assert {entry["verdict"] for entry in entries} <= {
        "met", "exceeded", "undetermined", "unconstrained",
    }  # fmt: skip
    trained = [e for who in holders for e in who["train"]["disparities"]]
    for expected in (entry["expected"] for entry in trained):
        assert expected["low"] <= expected["value"] <= expected["high"]
    assert all(e["expected"] is None for who in holders for e in who["test"]["disparities"])
    assert "deployment" not in content and "sweep" not in content


def test_what_a_later_version_adds_is_read_too(trained):
    result = read_result(trained / "result.json")
    (entry, *others) = result.clients["north"].test.disparities
    entry = replace(entry, expected=Expected(0.1, 0.0, 0.2, 0.9))
    north = result.clients["north"]
    north = replace(north, test=replace(north.test, disparities=(entry, *others)))
    more = replace(
        result,
        clients={**result.clients, "north": north},
        starts=(*result.starts, Start("uniform", 0.5, 0.4)),
        privacy=Privacy({"north": PrivacyLoss(1.0, 1e-6)}, "add-remove", ("sites",)),
    )
    content = json.loads(json.dumps(result_to_json(more)))
    assert result_from_json(content) == more
    assert result_from_json({**content, "unheard_of": 1}) == more


def test_no_number_in_the_file_is_infinite(trained, tmp_path):
    result = replace(read_result(trained / "result.json"), seconds=math.inf, l2=math.nan)
    write_result(tmp_path / "result.json", result)

    def refuse(word):
        raise AssertionError(word)

    text = (tmp_path / "result.json").read_text(encoding="utf-8")
    content = json.loads(text, parse_constant=refuse)
    assert content["seconds"] is None and content["l2"] is None


def test_an_infinite_temperature_is_the_mean():
    assert objective_name(math.inf) == "mean" and objective_setting("mean") == math.inf
    for objective in ("max", 0.3, None):
        assert objective_name(objective) == objective
    assert objective_setting("max") == "max" and objective_setting(0.3) == 0.3


def test_the_mean_is_called_so_in_result_settings_and_page(tmp_path):
    table = written(stays(), tmp_path / "stays.csv")
    options = ("--budget", "0.1", "--l2", "0.01", "--objective", "inf", "--out", tmp_path / "run")
    assert fcfl("train", table, *COLUMNS, *options).exit_code == 0
    content = result_of(tmp_path / "run")
    assert content["objective"] == content["settings"]["objective"] == "mean"


# --- what cannot be read --------------------------------------------------------------------------


def changed(content, *path, value):
    content = copy.deepcopy(content)
    place = content
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return content


FIRST = ("clients", "north", "train", "disparities", 0)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("method",), None, "`method` is missing."),
        (("method",), 3, "`method` must be text, got 3."),
        (("clients",), [], "`clients` must be an object, got []."),
        (("clients", "north", "rows", "train"), 1.5,
         "`clients.north.rows.train` must be a whole number, got 1.5."),
        (("clients", "north", "rows", "train"), True, "must be a whole number, got True."),
        ((*FIRST, "value"), "much",
         "`clients.north.train.disparities[0].value` must be a number, got 'much'."),
        ((*FIRST, "verdict"), "kept",
         "must be 'met' or 'exceeded' or 'undetermined' or 'unconstrained', got 'kept'."),
        ((*FIRST, "groups"), {}, "`clients.north.train.disparities[0].groups` must be a list"),
        (("objective",), "median", "must be 'max' or 'mean' or a number, got 'median'."),
        (("clients", "north", "test", "accuracy_interval"), [0.1],
         "`clients.north.test.accuracy_interval` must have 2 entries, got 1."),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_by_file_and_key(trained, tmp_path, path, value, sentence):
    file = tmp_path / "result.json"
    file.write_text(json.dumps(changed(result_of(trained), *path, value=value)))
    with pytest.raises(DataError) as error:
        read_result(file)
    assert sentence in str(error.value)
    assert str(error.value).startswith(f"{str(file)!r} cannot be read: ")


@pytest.mark.parametrize("content", [{}, {"schema": 3}, {"schema": "2"}, [], None])
def test_another_schema_is_refused(content):
    with pytest.raises(DataError, match="must be a result of schema 1 or 2, got "):
        result_from_json(content)


# --- schema 1 -------------------------------------------------------------------------------------


def test_messages_of_sites_were_called_letters_in_schema_1():
    site = {
        "policy_sha256": None, "min_group_rows": 1, "withhold_below": 1, "fcfl_version": "0.1",
        "letters": 7, "bytes_to": 1, "bytes_from": 2, "slowest_seconds": 0.1,
    }  # fmt: skip
    cost = {"budgets_met": True, "exchanges": 7, "bytes_to_sites": 1, "bytes_from_sites": 2}
    old = old_content() | {"deployment": cost | {"sites": {"north": site}}}
    assert result_from_json(old).deployment.sites["north"].messages == 7


def test_a_file_of_schema_1_is_upgraded():
    result, old = read_result(OLD), old_content()
    assert old["schema"] == 1 and result.objective == old["consistency"] == "max"
    assert result.settings["objective"] == "max" and "consistency" not in result.settings
    assert result.selection.objective == old["selection"]["consistency"]
    assert [line.objective for line in result.selection.table] == [
        line["consistency"] for line in old["selection"]["table"]
    ]
    new = result_to_json(result)
    assert new["schema"] == 2 and new["starts"] == [] and new["privacy"] is None
    renewed = {"schema", "consistency", "selection", "settings", "clients", "global", "audit"}
    same = old.keys() - renewed
    assert {key: new[key] for key in same} == {key: old[key] for key in same}


def test_old_words_for_the_mean_and_for_no_verdict_are_understood():
    content = old_content()
    content["consistency"] = content["settings"]["consistency"] = None
    content["clients"]["south"]["test"]["disparities"][0]["verdict"] = None
    result = result_from_json(content)
    assert result.objective == result.settings["objective"] == "mean"
    assert result.clients["south"].test.disparities[0].verdict == "unconstrained"
    content["method"] = "fedavg"  # a method without one: null was not a temperature
    assert result_from_json(content).objective is None


def test_a_folder_of_schema_1_is_shown(tmp_path):
    (tmp_path / "result.json").write_bytes(OLD.read_bytes())
    outcome = fcfl("report", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    old = old_content()
    assert f"Worst served: {old['worst_client']['name']}" in outcome.stdout
    assert old["message"] in outcome.stdout
    page = write_page(tmp_path).read_text(encoding="utf-8")
    assert "--objective" in page and "--consistency" not in page
    assert old["data"]["sha256"] in page


def test_a_choice_of_an_unfinished_run_of_schema_1_is_understood(tmp_path):
    selection = old_content()["selection"]
    (tmp_path / "selection.json").write_text(json.dumps(selection))
    assert read_selection(tmp_path / "selection.json").objective == selection["consistency"]


# --- other files ----------------------------------------------------------------------------------


def test_a_comparison_is_read_as_it_was_written(tmp_path):
    table = written(stays(), tmp_path / "stays.csv")
    command = ("compare", table, *COLUMNS, "--methods", "fedavg,afl", "--seeds", "2")
    assert fcfl(*command, "--budget", "0.1", "--out", tmp_path / "c").exit_code == 0
    comparison = read_comparison(tmp_path / "c" / "comparison.json")
    assert isinstance(comparison, Comparison) and len(comparison.runs) == 4
    write_comparison_file(tmp_path / "again.json", comparison)
    stored = (tmp_path / "c" / "comparison.json").read_bytes()
    assert (tmp_path / "again.json").read_bytes() == stored
