"""The run config: every key has a default and a meaning, and what does not fit is told."""

import pytest

from fcfl.methods.registry import METHODS
from fcfl.runs.site_config import CONFIG, FOR_SITES, SitesConfig, parse_settings

GIVEN = {"sites": "south, north", "label": "died", "sensitive": "race,sex", "out": "/tmp/out"}
PRIVATE = {"privacy": "epsilon=2,delta=1e-6"}


def test_defaults_are_those_of_config():
    run = SitesConfig.from_run_config(GIVEN)
    assert run.sites == ("north", "south")
    assert run.experiment.sensitive == ("race", "sex")
    assert (run.experiment.l2, run.experiment.objective) == (0.003, 10.0)
    assert run.site_timeout == 600.0 and run.max_age == 0 and not run.resume
    assert run.make_method(run.experiment).lookahead is None
    assert SitesConfig.from_run_config({k: d for k, (d, _) in CONFIG.items()} | GIVEN) == run


def test_given_values_reach_the_experiment_and_the_method():
    run = SitesConfig.from_run_config(
        GIVEN
        | {"budget": "0.05,north=0.1", "objective": "max", "l2": 0.01, "lookahead": "0.3"}
        | {"rounds": "9,4", "site-timeout": 12.5, "max-age": 3, "curvature": "lbfgs", "drop": "id"}
    )
    assert run.experiment.budget == {"*": 0.05, "north": 0.1}
    method = run.make_method(run.experiment)
    assert (method.objective, method.lookahead, method.rounds) == ("max", (0.3,), (9, 4))
    assert (method.curvature, run.site_timeout, run.max_age) == ("lbfgs", 12.5, 3)
    assert run.terms.drop == ("id",)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("sites", "", "`sites` must name the sites of the run"),
        ("sites", "a,b,a", "`sites` must name every site once, got 'a' twice"),
        ("label", "", "`label` and `sensitive` must name columns"),
        ("label", 3, "`label` must be text in quotes, got 3"),
        ("sensitive", "", "`label` and `sensitive` must name columns"),
        ("budget", "much", "`budget` must be a number or client=number"),
        ("budget", "1.5", "`budget` must be a number from 0 to 1"),
        ("method", "sgd", "`method` must be one of sqp, two-stage"),
        (
            "objective",
            "large",
            "`objective` must be a number, 'max', 'mean' or 'auto', got 'large'",
        ),
        ("rounds", "9", "`rounds` must be two counts"),
        ("lookahead", "2", "`lookahead` must hold lengths between 0 and 1"),
        ("site-timeout", 0, "`site-timeout` must be a positive number"),
        ("max-age", -1, "`max-age` must be a whole number"),
        ("out", "runs/here", "`out` must be an absolute path, got 'runs/here'"),
        ("resume", "yes", "`resume` must be true or false, got 'yes'"),
        (
            "policy",
            "policy.toml",
            "`policy` must be an absolute path, got 'policy.toml'",
        ),
        ("bugdet", "0.1", "Unknown key `bugdet` in the run config. Did you mean 'budget'"),
        ("command", "audit", "`command` must be one of train, compare, sweep"),
        ("budgets", "0.1", "`budgets` .*'train'"),
        ("relative", "0.5", "`relative` .*'train'"),
        ("most", 5, "`most` .*'train'"),
        ("methods", "sqp,afl", "`methods` .*'train'"),
    ],
)
def test_an_invalid_value_is_named_by_its_key(key, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        run = SitesConfig.from_run_config(GIVEN | {key: value})
        run.make_method(run.experiment)


def test_l2_and_objective_may_be_auto():
    run = SitesConfig.from_run_config(GIVEN | {"l2": "auto", "objective": "auto"})
    assert run.experiment.open_settings.is_open


@pytest.mark.parametrize("name", [name for name in FOR_SITES if name != "sqp"])
def test_another_method_has_its_own_defaults(name):
    """Also in an app's file, which has the defaults of the fast method written out."""
    written = {key: default for key, (default, _) in CONFIG.items()}
    run = SitesConfig.from_run_config(written | GIVEN | {"method": name})
    assert type(run.make_method(run.experiment)) is METHODS[name].method
    assert run.experiment.rounds is None and run.experiment.l2 is None


def test_privacy_chooses_its_method():
    written = {key: default for key, (default, _) in CONFIG.items()}
    given = written | GIVEN | {"privacy": "epsilon=2,delta=1e-6"}
    run = SitesConfig.from_run_config(given)
    assert run.make_method(run.experiment) == METHODS["private"].method(2.0, 1e-6)
    assert parse_settings(["privacy=epsilon=2,delta=1e-6"]) == {
        "privacy": "epsilon=2.0,delta=1e-06"
    }


def test_a_module_is_named_by_its_import_path():
    run = SitesConfig.from_run_config(GIVEN | {"module": "nets.small:mlp"})
    assert run.module == "nets.small:mlp"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"command": "compare", "methods": "sqp,sgd"}, "`methods` must be one of sqp, two-stage"),
        ({"command": "compare", "method": "afl"}, "`method` must be left out in a comparison"),
        (PRIVATE | {"command": "sweep", "budgets": "0.2"}, "`privacy` must be left out of a sweep"),
        (PRIVATE | {"command": "compare"}, "`privacy` must be left out of a comparison"),
        ({"command": "compare", "methods": "private"}, "`methods` must not have .private."),
        ({"command": "sweep"}, "requires either `budgets` or `relative`"),
        ({"command": "sweep", "budgets": "0.2", "relative": "1"}, "requires either"),
        ({"command": "sweep", "budgets": "0.2", "budget": "0.1"}, "`budget` and `ratio`"),
    ],
    ids=str,
)
def test_keys_of_other_commands_are_named(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        SitesConfig.from_run_config(GIVEN | given)


def test_a_comparison_has_all_methods_over_sites_with_their_own_rounds():
    run = SitesConfig.from_run_config(GIVEN | {"command": "compare"})
    assert run.methods == FOR_SITES
    assert run.experiment.rounds is None and run.experiment.l2 == 0.003
    sweep = SitesConfig.from_run_config(GIVEN | {"command": "sweep", "relative": "1,0.5"})
    assert sweep.swept == ((1.0, 0.5), True)


def test_a_method_whose_requests_sites_reject_raises(monkeypatch):
    monkeypatch.setattr(METHODS["afl"].method, "over_sites", False, raising=False)
    with pytest.raises(ValueError, match="`method` must be one of"):
        SitesConfig.from_run_config(GIVEN | {"method": "afl"})
