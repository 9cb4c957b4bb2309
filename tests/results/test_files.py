"""Results are written and read back; an error names the file and the key that is wrong."""

import copy
import json
import math
from dataclasses import replace

import msgspec
import pytest

from fcfl._files import read_json, to_json, write_json
from fcfl.audit.verdicts import Forecast
from fcfl.errors import DataError
from fcfl.results import read_comparison, read_result
from fcfl.results.result import (
    Privacy,
    PrivacyLoss,
    Result,
    Selection,
    Start,
    objective_name,
    objective_setting,
)
from hospital import COLUMNS, fcfl, result_of, stays, written


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    table = written(stays(), folder / "stays.csv")
    options = ("--budget", "0.05", "--l2", "0.01", "--objective", "inf", "--out", folder / "run")
    assert fcfl("train", table, *COLUMNS, *options).exit_code == 0
    return folder / "run"


def test_a_file_is_read_and_written_to_the_same_content(trained, tmp_path):
    result = read_result(trained / "result.json")
    write_json(tmp_path / "again.json", result)
    again = json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))
    assert again == result_of(trained)
    assert read_result(tmp_path / "again.json") == result


def test_result_file_follows_the_contract(trained):
    content = result_of(trained)
    assert content["objective"] == content["settings"]["objective"] == "mean"
    assert content["privacy"] is None and "overall" not in content
    starts = content["starts"]
    assert [start["start"] for start in starts] == ["unconstrained optimum", "first"]
    assert all(start["worst_loss"] >= start["mean_loss"] > 0 for start in starts)
    holders = [*content["clients"].values(), content["global"]]
    for holder in holders:
        assert holder["rows"]["train"] > 0
        for entry in holder["train"]["disparities"]:
            expected = entry["expected"]
            assert expected["low"] <= expected["value"] <= expected["high"]
        assert all(entry["expected"] is None for entry in holder["test"]["disparities"])


def test_every_section_survives_a_round_trip(trained):
    result = read_result(trained / "result.json")
    (entry, *others) = result.clients["north"].test.disparities
    entry = replace(entry, expected=Forecast(0.1, 0.0, 0.2, 0.9))
    north = result.clients["north"]
    north = replace(north, test=replace(north.test, disparities=(entry, *others)))
    more = result.replace(
        clients={**result.clients, "north": north},
        starts=(*result.starts, Start("uniform", 0.5, 0.4)),
        privacy=Privacy({"north": PrivacyLoss(1.0, 1e-6)}, "add-remove", ("sites",)),
        selection=Selection(l2=0.1, objective=0.3, sentence="Chosen."),
    )
    content = json.loads(to_json(more))
    assert msgspec.convert(content, Result) == more
    assert msgspec.convert({**content, "unheard_of": 1}, Result) == more


def test_nan_and_infinity_become_null(trained, tmp_path):
    result = read_result(trained / "result.json").replace(seconds=math.inf, l2=math.nan)
    write_json(tmp_path / "result.json", result)
    again = read_result(tmp_path / "result.json")
    assert again.seconds is None and again.l2 is None


def test_an_infinite_temperature_is_the_mean():
    assert objective_name(math.inf) == "mean" and objective_setting("mean") == math.inf
    for objective in ("max", 0.3, None):
        assert objective_name(objective) == objective
    assert objective_setting("max") == "max" and objective_setting(0.3) == 0.3


FIRST = ("clients", "north", "train", "disparities", 0)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("method",), None, "method"),
        (("method",), 3, "method"),
        (("clients",), [], "clients"),
        (("clients", "north", "rows", "train"), 1.5, "rows.train"),
        (("clients", "north", "rows", "train"), True, "rows.train"),
        ((*FIRST, "value"), "much", "train.disparities[0].value"),
        ((*FIRST, "verdict"), "kept", "verdict"),
        ((*FIRST, "groups"), {}, "train.disparities[0].groups"),
        (("objective",), "median", "objective"),
        (("clients", "north", "test", "accuracy_interval"), [0.1], "test.accuracy_interval"),
        (("global",), 3, "global"),
    ],
)
def test_a_wrong_value_is_named_by_file_and_key(trained, tmp_path, path, value, named):
    content = copy.deepcopy(result_of(trained))
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    if value is None:
        del place[path[-1]]
    file = tmp_path / "result.json"
    file.write_text(json.dumps(content))
    with pytest.raises(DataError) as error:
        read_result(file)
    assert repr(str(file)) in str(error.value) and named in str(error.value)


@pytest.mark.parametrize("content", [b"", b'{"method": "sq', b"[1]", b"\xff{}", b"{}"])
def test_a_file_of_another_kind_is_rejected(tmp_path, content):
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        read_json(tmp_path / "result.json", Result)


@pytest.mark.thorough
def test_a_comparison_is_read_as_it_was_written(tmp_path):
    table = written(stays(), tmp_path / "stays.csv")
    command = ("compare", table, *COLUMNS, "--methods", "fedavg,afl", "--seeds", "2")
    assert fcfl(*command, "--budget", "0.1", "--out", tmp_path / "c").exit_code == 0
    comparison = read_comparison(tmp_path / "c" / "comparison.json")
    assert len(comparison.runs) == 4
    write_json(tmp_path / "again.json", comparison)
    stored = (tmp_path / "c" / "comparison.json").read_bytes()
    assert (tmp_path / "again.json").read_bytes() == stored
