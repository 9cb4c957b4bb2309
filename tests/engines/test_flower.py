"""`fcfl flower new`: an app of settings, whose code is installed."""

import tomllib
from importlib import import_module

import pytest

from fcfl.runs.site_config import CONFIG, SitesConfig
from hospital import fcfl, only_error

GIVEN = ("--sites", "north,south", "--label", "died", "--sensitive", "race", "--budget", "0.05")


def app_of(folder):
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    return text, tomllib.loads(text)["tool"]["flwr"]["app"]


def test_new_writes_the_settings_of_a_run_with_comments(tmp_path):
    folder = tmp_path / "my app"
    outcome = fcfl("flower", "new", folder, *GIVEN)
    assert outcome.exit_code == 0, outcome.output
    text, app = app_of(folder)
    assert list(app["config"]) == list(CONFIG)
    run = SitesConfig.from_run_config(app["config"])
    assert run.sites == ("north", "south") and run.experiment.budget == 0.05
    assert run.out == folder / "runs" / "run"
    assert all(f"# {meaning}" in text for _, meaning in CONFIG.values())
    assert "'" + str(folder) + "'" in outcome.output  # the next command can be pasted


def test_an_app_has_no_code_of_its_own(tmp_path):
    pytest.importorskip("flwr")
    fcfl("flower", "new", tmp_path / "app")
    _, app = app_of(tmp_path / "app")
    assert app["fab-include"] == ["pyproject.toml"]
    for component in app["components"].values():
        module, _, name = component.partition(":")
        assert module.startswith("fcfl.") and hasattr(import_module(module), name)


def test_new_overwrites_only_when_asked(tmp_path):
    file = tmp_path / "app" / "pyproject.toml"
    fcfl("flower", "new", tmp_path / "app")
    file.write_text("mine")
    assert "already exists" in only_error(fcfl("flower", "new", tmp_path / "app"))
    assert file.read_text() == "mine"
    assert fcfl("flower", "new", tmp_path / "app", "--overwrite").exit_code == 0
    assert file.read_text() != "mine"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--sites", "a,a"], "--sites"),
        (["--sites", " , "], "--sites"),
        (["--budget", "2"], "--budget"),
    ],
)
def test_new_rejects_wrong_values_before_it_writes(tmp_path, options, named):
    outcome = fcfl("flower", "new", tmp_path / "app", *options)
    assert named in only_error(outcome, code=2)
    assert not (tmp_path / "app").exists()


@pytest.mark.parametrize(
    "nodes", ["north", "north=x,south=2", "north=2,south=2", "north=1,north=2", "north=1"]
)
def test_nodes_bind_each_site_to_a_node_of_its_own(tmp_path, nodes):
    given = {"sites": "north,south", "label": "died", "sensitive": "race", "out": str(tmp_path)}
    with pytest.raises(ValueError, match="nodes"):
        SitesConfig.from_run_config(given | {"nodes": nodes})
    bound = SitesConfig.from_run_config(given | {"nodes": f"north={2**64 - 1},south=7"})
    assert bound.nodes == {"north": 2**64 - 1, "south": 7}


@pytest.mark.parametrize(("engine", "command"), [("nvflare", "provision"), ("nvflare", "up")])
def test_a_missing_engine_is_named_with_the_command_that_installs_it(
    tmp_path, monkeypatch, engine, command
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    more = ["--host", "localhost"] if command == "provision" else []
    outcome = fcfl(engine, command, tmp_path, "--sites", "north=x.csv", *more)
    assert f"pip install 'fcfl[{engine}]'" in only_error(outcome)
