import hashlib
import textwrap
from dataclasses import FrozenInstanceError

import pytest

import fcfl.policy
from fcfl.errors import DataError
from fcfl.policy import Limits, Preference, compare_only, read_policy, stricter
from fcfl.rules import Difference, Ratio

RULE = '[[rule]]\nmetric = "demographic_parity"\nattribute = "race"\n'


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "policy.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refused(path):
    with pytest.raises(DataError) as caught:
        read_policy(path)
    sentence = str(caught.value)
    assert "policy.toml" in sentence
    return sentence


def test_the_documented_example(write):
    block = fcfl.policy.__doc__.split("::\n")[1].split("\nA rule requires only")[0]
    path = write(textwrap.dedent(block))
    policy = read_policy(path)
    assert policy.min_group_rows == 20
    assert policy.groups == {"race": ("Black", "White")}
    assert policy.rules(["Hospital 1", "Hospital 7"]) == (
        Difference("demographic_parity", "race", {"Hospital 1": 0.05, "Hospital 7": 0.1}),
        Ratio("equal_opportunity", "sex", 0.8, scope="global"),
    )
    assert policy.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert policy.limits == Limits(largest_answer_mb=64, curvature=False)


def test_defaults(write):
    policy = read_policy(write(RULE))
    assert policy.rules(["a"]) == (Difference("demographic_parity", "race"),)
    assert policy.min_group_rows == 1 and policy.groups == {}


def test_a_rule_for_named_clients_only(write):
    policy = read_policy(write(RULE + "[rule.clients]\na = 0.1\n"))
    (rule,) = policy.rules(["a", "b"])
    assert rule.budget == {"a": 0.1} and rule.budget_of("b") is None


def test_a_policy_is_frozen(write):
    with pytest.raises(FrozenInstanceError):
        read_policy(write(RULE)).min_group_rows = 3


def test_a_budget_for_an_unknown_client(write):
    policy = read_policy(write(RULE + 'budget = 0.1\n[rule.clients]\n"Hospital 7" = 0.1\n'))
    with pytest.raises(DataError, match=r"policy.toml'.*'Hospital 7'.*Did you mean 'Hospital 1'"):
        policy.rules(["Hospital 1"])


def test_groups_of_the_data(write):
    policy = read_policy(write('[groups]\nrace = ["b", "a"]\n' + RULE))
    levels = {"race": ("a", "b", "c"), "sex": ("f", "m")}
    assert policy.levels(levels) == {"race": ("b", "a"), "sex": ("f", "m")}
    with pytest.raises(DataError, match=r"policy.toml': `groups` of 'race' must be in the data"):
        policy.levels({"race": ("a", "c")})
    with pytest.raises(DataError, match="`groups` must be of sensitive columns, got 'race'"):
        compare_only({"sex": ("f", "m")}, {"race": ["a", "b"]})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (RULE + "bugdet = 0.05", "`bugdet`. Did you mean 'budget'?"),
        ("min_group_rows = 5\n" + RULE, "unknown key `min_group_rows`"),
        (RULE + "budget = 7", "`rule 1`: `budget` must be a number from 0 to 1, got 7."),
        (RULE + 'budget = "low"', "`rule 1.budget`"),
        (RULE + "budget = true", "`rule 1.budget`"),
        (RULE + "budget = nan", "`rule 1`: `budget` must be a number from 0 to 1, got nan."),
        (RULE + 'kind = "gap"', "`rule 1`: `kind` must be one of difference, ratio, got 'gap'."),
        (RULE + 'scope = "all"', "`rule 1`: `scope` must be one of client, global, got 'all'."),
        (RULE + "kind = 3", "`rule 1.kind`"),
        (RULE + "[rule.clients]\na = 2", "`rule 1`: `clients.'a'` must be a number from 0 to 1, g"),
        (RULE + "clients = 2", "`rule 1.clients`"),
        (
            RULE + 'scope = "global"\n[rule.clients]\na = 0.2',
            "`rule 1`: `clients`",
        ),
        (
            RULE + "budget = {a = 0.1}",
            "`rule 1.budget`",
        ),
        (RULE + RULE, "`rule 2` compares the same"),
        ('[[rule]]\nmetric = "x"\nattribute = "race"', "`rule 1`: `metric` must be one of demo"),
        ('[[rule]]\nmetric = "equalized_odds"', "`attribute`"),
        ("", "`rule` must be one or more [[rule]] tables"),
        ("rule = 3", "`rule`"),
        ("min-group-rows = 0\n" + RULE, "`min-group-rows`"),
        ("min-group-rows = true\n" + RULE, "`min-group-rows`"),
        ("groups = 3\n" + RULE, "`groups`"),
        ('[groups]\nrace = ["a"]\n' + RULE, "`groups"),
        ('[groups]\nrace = ["a", "a"]\n' + RULE, "`groups.race`"),
        ("[groups]\nrace = [1, 2]\n" + RULE, "`groups"),
        ("rule = [", "not TOML"),
    ],
)
def test_bad_files_get_one_sentence(write, text, sentence):
    assert sentence in refused(write(text))


def test_files_that_cannot_be_read(write, tmp_path):
    assert "No such file" in refused(tmp_path / "no-policy.toml")
    path = write("")
    path.write_bytes(b"\xff\xfe")
    assert "not TOML" in refused(path)


def test_the_stricter_of_two_budgets():
    ours = [Difference("demographic_parity", "race", 0.1), Ratio("equal_opportunity", "sex", 0.7)]
    theirs = [
        Difference("demographic_parity", "race", 0.05),
        Ratio("equal_opportunity", "sex", 0.8),
    ]
    assert stricter(ours, theirs, ["a"]) == tuple(theirs)
    assert stricter(theirs, ours, ["a"]) == tuple(theirs)


def test_stricter_by_client():
    ours = [Difference("demographic_parity", "race", {"a": 0.1, "b": 0.02})]
    theirs = [Difference("demographic_parity", "race", 0.05)]
    (rule,) = stricter(ours, theirs, ["a", "b", "c"])
    assert rule.budget == {"a": 0.05, "b": 0.02, "c": 0.05}
    some = [Difference("demographic_parity", "race", {"c": 0.3})]
    (rule,) = stricter(ours, some, ["a", "b", "c", "d"])
    assert rule.budget == {"a": 0.1, "b": 0.02, "c": 0.3}


def test_stricter_keeps_what_only_one_has():
    one = Difference("demographic_parity", "race", 0.1)
    two = Difference("demographic_parity", "race", 0.2, scope="global")
    three = Ratio("demographic_parity", "race", 0.8)
    assert stricter([one], [two, three], ["a"]) == (one, two, three)
    unbounded = Difference("demographic_parity", "race")
    assert stricter([unbounded], [one], ["a"]) == (one,)


def test_a_site_may_have_limits_and_no_rules(write):
    policy = read_policy(write("[limits]\nlargest-answer-mb = 3\ncurvature = false\n"))
    assert policy.rules(["north"]) == ()
    assert policy.limits == Limits(largest_answer_mb=3, curvature=False)


@pytest.mark.parametrize("of_site", [True, False])
def test_a_site_is_closed_where_its_policy_sets_nothing(write, of_site):
    policy = read_policy(write("[preference]\nmin-accuracy = 0.5\n"), of_site=of_site)
    assert (policy.min_group_rows, policy.withhold_below) == ((20, 10) if of_site else (1, 1))
    assert policy.preference == Preference(min_accuracy=0.5)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[limits]\nlargest-answer-m = 3", "policy.toml.*limits.*largest-answer-m`.*Did you mean"),
        ("[limits]\nlargest-answer-mb = 0", "largest-answer-mb"),
        ("[limits]\nlargest-answer-mb = true", "largest-answer-mb"),
        ("[limits]\ncurvature = 1", "limits.curvature"),
        ("[limits]\nmodules = [1]", "limits.modules"),
        ("limits = 3", "limits"),
        ("[preference]\nmin-accuracy = 2", "min-accuracy"),
        ("[privacy]\nepsilon = 1", "privacy"),
        ('[privacy]\nepsilon = -1\ndelta = 1e-6\nschema = "/x"', "epsilon"),
        (
            'min-group-rows = 5\n[privacy]\nepsilon = 1\ndelta = 1e-6\nschema = "/x"',
            "min-group-rows",
        ),
    ],
)
def test_an_entry_of_a_sites_policy_that_cannot_be_is_named(write, text, named):
    with pytest.raises(DataError, match=named):
        read_policy(write(text + "\n"))
