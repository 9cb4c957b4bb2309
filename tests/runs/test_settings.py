import math
import tomllib
from dataclasses import fields, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fcfl.methods.baselines import FedAvg
from fcfl.methods.sqp.sqp import SQP
from fcfl.methods.two_stage import TwoStage
from fcfl.rules import Difference, Ratio
from fcfl.runs.options import (
    EVERYONE_ELSE,
    read_budget,
    read_numbers,
    settings_of,
    write_pairs,
)
from fcfl.runs.settings import (
    BUDGETS,
    DATA,
    TRAINING,
    Experiment,
)
from fcfl.training.choose import OpenSettings

NAMES = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=8)
SHARES = st.floats(0, 1)


@st.composite
def experiments(draw):
    scope = draw(st.sampled_from(["client", "global", "both"]))
    by_client = st.dictionaries(NAMES, SHARES, min_size=1, max_size=3)
    one_of = [st.none(), SHARES] + ([by_client] if scope == "client" else [])
    budget = draw(st.one_of(one_of))
    method = draw(st.sampled_from(["sqp", "two-stage", "fedavg"]))
    count = st.integers(1, 10**9)
    rounds = st.tuples(count) if method == "fedavg" else st.tuples(count, count)
    sqp = method == "sqp"
    positive = st.floats(1e-300, 1e300)
    return Experiment(
        table=draw(NAMES),
        client=draw(st.none() | NAMES),
        label=draw(st.none() | NAMES),
        sensitive=tuple(draw(st.lists(NAMES, max_size=3))),
        positive=draw(st.none() | NAMES),
        drop=tuple(draw(st.lists(NAMES, max_size=3))),
        metric=draw(st.sampled_from(["demographic_parity", "equalized_odds"])),
        budget=budget,
        ratio=draw(st.none() | SHARES),
        scope=scope,
        method=method,
        published=method == "two-stage" and draw(st.booleans()),
        step_size=None if sqp else draw(st.none() | positive),
        rounds=draw(st.none() | rounds),
        l2=draw(st.none() | st.floats(0, 1e300) | st.just("auto" if sqp else 0.0)),
        objective=draw(st.sampled_from([None, "max", "mean", "auto"]) | positive) if sqp else None,
        curvature=draw(st.sampled_from(["auto", "exact", "lbfgs"])) if sqp else "auto",
        start=draw(st.sampled_from(["zero", "uniform"])),
        seed=draw(st.integers(0, 2**63 - 1)),
        test_size=draw(st.floats(0, 1, exclude_max=True)),
    )


@given(experiments())
def test_settings_survive_their_file(tmp_path_factory, experiment):
    path = tmp_path_factory.mktemp("settings") / "experiment.toml"
    path.write_bytes(experiment.to_toml().encode())
    assert Experiment.from_toml(path) == experiment


@pytest.mark.parametrize("name", ['"', "\\", "a\nb", "\x7f", "🏥", "\x00", "é=", "'", "\u2028"])
def test_awkward_names_survive_the_file(tmp_path, name):
    path = tmp_path / "experiment.toml"
    experiment = Experiment(name, client=name, sensitive=(name, "x"), budget={name: 0.5})
    path.write_bytes(experiment.to_toml().encode())
    assert Experiment.from_toml(path) == experiment


def test_unset_settings_are_not_written_and_all_others_are():
    experiment = Experiment(
        "t.csv",
        client="c",
        label="y",
        sensitive=("r",),
        method="two-stage",
        rounds=(1, 2),
        step_size=0.1,
        l2=0.1,
    )
    keys = tomllib.loads(experiment.to_toml())
    unset = {"positive", "max-levels", "budget", "relative-budget", "ratio", "objective"}
    unset |= {"policy", "confidence", "options", "min-group-rows", "starts", "missing"}
    unset |= {"max-clients", "privacy", "schema", "max-rate-shift", "new-rows"}
    assert set(keys) == {field.name.replace("_", "-") for field in fields(Experiment)} - unset


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("table = 'a'\nbugdet = 0.1", "`bugdet` in '.*'. Did you mean 'bud"),
        ("client = 'a'", "`table` is missing"),
        ("table = ", "experiment.toml"),
        ("table = 'a'\nseed = 'x'", "`seed` must be a whole number, got 'x'"),
        ("table = 'a'\nbudget = 2", "`budget`"),
        ("table = 'a'\nlabel = 2", "`label` must be text in quotes, got 2"),
        ("table = 'a'\npublished = 1", "`published` must be true or false, got 1"),
        ("table = 'a'\n[budget]\nnorth = 'x'", "`budget`"),
    ],
)
def test_bad_settings_file_names_the_key(tmp_path, text, named):
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=named):
        Experiment.from_toml(path)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("0.05", 0.05),
        (" 5e-2 ", 0.05),
        (" 0.1 %", 0.001),
        ("5%,b=7%", {EVERYONE_ELSE: 0.05, "b": 0.07}),
        ("0", 0.0),
        ("a=0.05,b=0.1", {"a": 0.05, "b": 0.1}),
        ("b=0.1,0.05", {"b": 0.1, EVERYONE_ELSE: 0.05}),
        ("a=b=0.05", {"a=b": 0.05}),
        ("St Mary = 0.05, St=John=0.1", {"St Mary": 0.05, "St=John": 0.1}),
        ("0.05,", 0.05),
    ],
)
def test_budgets_are_read(text, budget):
    assert read_budget("budget", text) == budget


@given(st.dictionaries(NAMES.map(str.strip), SHARES, min_size=1))
def test_budget_by_client_is_read_back(budgets):
    assume(not any("," in name or not name for name in budgets))
    expected = budgets[EVERYONE_ELSE] if [*budgets] == [EVERYONE_ELSE] else budgets
    assert read_budget("budget", write_pairs(budgets)) == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("abc", "`budget` .*'abc'"),
        ("a=b", "`budget` .*'a=b'"),
        ("=0.1", r"`budget` .*'=0\.1'"),
        ("a=", "'a='"),
        ("0.1;0.2", r"'0\.1;0\.2'"),
        (" , ", "`budget` is empty"),
        ("-1", r"`budget` .*-1\.0"),
        ("nan", "`budget` .*nan"),
        ("a=2", r"`budget\['a'\]` .*2\.0"),
        ("0,05", r"`budget` .*Write 0\.05 with a point"),
        ("0.1,0.2", r"`budget` .*'0\.1,0\.2'"),
        ("a=0.1,a=0.1", "`budget` .*'a=0.1,a=0.1'"),
    ],
)
def test_bad_budget_is_rejected(text, named):
    with pytest.raises(ValueError, match=named):
        read_budget("budget", text)


def test_lists_of_numbers_are_read():
    assert read_numbers("budgets", "0.2, 10%,") == (0.2, 0.1)
    with pytest.raises(ValueError, match=r"`budgets` .*'a'"):
        read_numbers("budgets", "a")


def test_budget_of_all_others_is_written_out():
    def budgets(given):
        return Experiment("t", budget=given).make_rules(["race"], "abc")[0].budget

    assert budgets({EVERYONE_ELSE: 0.1, "b": 0.2}) == {"a": 0.1, "b": 0.2, "c": 0.1}
    assert budgets({"b": 0.2}) == {"b": 0.2}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"metric": "x"}, "`metric`"),
        ({"method": "x"}, "`method`"),
        ({"scope": "x"}, "`scope` .*'x'"),
        ({"start": "x"}, "`start`"),
        ({"l2": -1.0}, "`l2`"),
        ({"l2": "x"}, "`l2`"),
        ({"test_size": 1.0}, r"`test_size` .*1\.0"),
        ({"seed": -1}, "`seed` .*-1"),
        ({"budget": 0.1, "relative_budget": 0.5}, "`budget` or `relative_budget`"),
        ({"ratio": 0.1, "relative_budget": 0.5}, "`ratio` or `relative_budget`"),
        ({"policy": "p.toml", "ratio": 0.5}, "`policy`"),
        ({"relative_budget": 0.5, "scope": "both"}, "`relative_budget` .*'both'"),
        ({"relative_budget": 0.0}, "`relative_budget`"),
        ({"ratio": 2.0}, r"`ratio` .*2\.0"),
        ({"ratio": float("nan")}, "`ratio` .*nan"),
        ({"budget": {"a": 0.1}, "scope": "global"}, "'global'"),
        ({"thresholds": "group", "scope": "both"}, "`thresholds`"),
        ({"rounds": (5,)}, "`rounds` .*5"),
        ({"rounds": (5, 5), "method": "fedavg"}, "`rounds` .*5,5"),
        ({"objective": 0.0}, "`objective` .*0.0"),
        ({"objective": "x"}, "`objective` .*'x'"),
        ({"step_size": 0.1}, "`step_size` .*'sqp'"),
        ({"l2": "auto", "method": "fedavg"}, "`l2` must be a number"),
        ({"objective": 1.0, "method": "two-stage"}, "`objective` .*'two-stage'"),
        ({"curvature": "exact", "method": "fedavg"}, "`curvature` .*'fedavg'"),
        ({"protects": "worst", "method": "fedavg"}, "`protects` .*'fedavg'"),
        ({"protects": "none", "method": "two-stage"}, "`protects`"),
        ({"protects": "worst", "method": "two-stage", "published": True}, "`protects`"),
        ({"published": True, "method": "fedavg"}, "`published` .*'fedavg'"),
        ({"options": {"q": 1}, "method": "two-stage"}, "`options` .*'two-stage'"),
        ({"options": {"k": 1}, "method": "q-ffl"}, "`k` .*'q-ffl'"),
        ({"privacy": {"epsilon": 2.0}}, "`privacy`"),
        ({"method": "private"}, "`privacy` .*'private'"),
    ],
)
def test_settings_that_do_not_fit_are_rejected(options, named):
    with pytest.raises(ValueError, match=named):
        Experiment("t.csv", **options)


def test_methods_get_their_options():
    gradient = Experiment("t", method="two-stage", rounds=(3, 4), step_size=0.2)
    assert gradient.make_method() == TwoStage(0.2, (3, 4))
    protecting = replace(gradient, protects="worst")
    assert protecting.make_method() == TwoStage(0.2, (3, 4), protects="worst")
    public = Experiment("t", method="two-stage", published=True)
    assert public.make_method() == TwoStage.published(0.03)
    fast = Experiment("t", objective=0.3, curvature="lbfgs", rounds=(5, 6))
    assert fast.make_method() == SQP(0.3, "lbfgs", (5, 6))


def test_settings_left_open_depend_on_the_method():
    assert Experiment("t").open_settings.is_open
    assert Experiment("t", l2=0.1).open_settings.is_open
    assert not Experiment("t", l2=0.1, objective="max").open_settings.is_open
    assert Experiment("t", l2=0.1, objective=0.3).open_settings == OpenSettings(0.1, 0.3)
    assert Experiment("t", method="two-stage").open_settings.l2 == 0.0


def test_fedavg_takes_one_count_of_rounds():
    assert Experiment("t", method="fedavg", rounds=(7,)).make_method() == FedAvg(rounds=7)


def test_one_rule_for_each_attribute_scope_and_kind():
    both = Experiment("t", budget=0.1, ratio=0.8, scope="both")
    rules = both.make_rules(["race", "sex"], ["a"])
    expected = {
        (kind, attribute, scope)
        for kind in (Difference, Ratio)
        for attribute in ("race", "sex")
        for scope in ("client", "global")
    }
    assert {(type(rule), rule.attribute, rule.scope) for rule in rules} == expected
    assert len(rules) == len(expected)
    assert Experiment("t", ratio=0.8).make_rules(["race"], ["a"]) == (
        Ratio("demographic_parity", "race", 0.8),
    )
    assert Experiment("t").make_rules(["race"], ["a"]) == (
        Difference("demographic_parity", "race"),
    )


def test_constrained_when_any_budget_is_given():
    assert not Experiment("t").is_constrained
    for option in ("budget", "relative_budget", "ratio"):
        assert Experiment("t", **{option: 0.5}).is_constrained


def test_the_mean_is_the_limit_of_the_smooth_maximum():
    mean = Experiment("t", objective="mean")
    assert Experiment("t", objective=math.inf) == mean
    assert tomllib.loads(mean.to_toml())["objective"] == "mean"
    assert mean.make_method().objective == "mean"


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("sensitive = 'race, sex'", {"sensitive": ("race", "sex")}),
        ("budget = '0.05,north=0.1'", {"budget": {EVERYONE_ELSE: 0.05, "north": 0.1}}),
        ("test_size = '0.2'", {"test_size": 0.2}),
        ("rounds = '5,6'", {"rounds": (5, 6)}),
        ("method = 'q-ffl'\noptions = 'q=2'", {"method": "q-ffl", "options": {"q": 2}}),
    ],
)
def test_a_file_may_have_values_as_on_the_command_line(tmp_path, text, settings):
    path = tmp_path / "experiment.toml"
    path.write_text(f"table = 't'\n{text}\n")
    assert Experiment.from_toml(path) == Experiment("t", **settings)


def test_every_field_is_an_option_with_help_and_a_group():
    assert list(settings_of(Experiment)) == [field.name for field in fields(Experiment)]
    for one in settings_of(Experiment).values():
        assert one.help.endswith(".") and one.group in (DATA, BUDGETS, TRAINING)
