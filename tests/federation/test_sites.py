"""Sites that are absent, send invalid answers, share a name or are unknown."""

import re
from dataclasses import replace
from struct import pack

import numpy as np
import pytest

import fcfl
from fcfl._types import CurvatureWeights, Point, RateId, Request
from fcfl.client.client import Counted, Introduction, Setup
from fcfl.errors import AbsentClientError, DataError, FCFLError, ReportError
from fcfl.methods.sqp import SQP
from fcfl.models.linear import Linear
from fcfl.rules import Difference
from fcfl.runs.run import SETTINGS
from fcfl.runs.site_config import SitesConfig
from fcfl.runs.site_run import has_begun, run_sites
from fcfl.sites import exchange
from fcfl.sites.messages import Refusal, Terms
from fcfl.sites.remote import RemoteFederation
from fcfl.sites.transport import InProcessTransport, Reply
from hospital import stays, weights_of
from in_one_process import Spoiled, hospitals, node_configs
from in_one_process import train as train_fully

NAMES = ("north", "south")
QUICK = {"confidence": 0.0, "starts": 1}
CHANGES = {
    "a loss that is no number": ({"loss": float("nan")}, "non-finite loss"),
    "an infinite gradient": ({"loss_grad": np.inf}, "non-finite number in `loss_grad`"),
    "a rate of 1.7": ({"rates": np.array([1.7, 0.2])}, "a rate of 1.7"),
    "a rate too many": ({"rates": np.zeros(3)}, r"`rates` of shape \(3,\), expected \(2,\)"),
    "a short gradient": ({"loss_grad": np.zeros(2)}, r"`loss_grad` of shape \(2,\)"),
    "no curvature": ({"curvature": None}, "no `curvature`, which was requested"),
    "negative rows": ({"n_rows": -3.0}, "a row count of -3.0"),
    "text for a loss": ({"loss": "low"}, r"content\[0\].loss"),
    "a loss below zero": ({"loss": -5.0}, "a loss of -5.0; it must lie between 0"),
    "a huge loss": ({"loss": 1e300}, "a loss of 1e"),
    "a huge gradient": ({"loss_grad": 1e300}, "magnitude 1e.300 in `loss_grad`"),
    "other rows than before": ({"n_rows": 104.0}, "row count of 104 where it had sent"),
}


@pytest.fixture
def files(tmp_path):
    return hospitals(tmp_path, stays(300, hospitals=NAMES))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The weights of a run on the same rows in which nothing went wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    files = hospitals(folder, stays(300, hospitals=NAMES))
    train(InProcessTransport(node_configs(files, folder)), folder / "out", NAMES)
    return weights_of(folder / "out")


def train(transport, folder, names, **config):
    return train_fully(transport, folder, names, **QUICK, **config)


def spoiled(files, tmp_path, spoil):
    return Spoiled(node_configs(files, tmp_path), spoil=spoil)


def from_answer(number, change):
    """Spoil every answer of the south from its n-th on."""

    def spoil(name, answer, count):
        return change(answer) if name == "south" and count >= number else answer

    return spoil


def with_report(changes):
    def change(answer):
        if not isinstance(answer.content, tuple):
            return answer
        report, *others = answer.content
        given = dict(changes)
        if isinstance(given.get("loss_grad"), float):
            given["loss_grad"] = np.full_like(report.loss_grad, given["loss_grad"])
        return replace(answer, content=(replace(report, **given), *others))

    return change


def with_counts(changes):
    def change(answer):
        said = answer.content
        if not isinstance(said, Counted):
            return answer
        return replace(answer, content=replace(said, **changes(said)))

    return change


# --- invalid answers ------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "reason"), CHANGES.values(), ids=CHANGES)
def test_an_invalid_report_is_rejected_by_name(files, tmp_path, changes, reason):
    sites = asked_once(spoiled(files, tmp_path, from_answer(3, with_report(changes))))
    answers = sites.report(*a_request(sites))
    assert set(answers) == {"north"} and set(sites.failures) == {"south"}
    assert re.match(f"its response was rejected: .*{reason}", sites.failures["south"])


def asked_once(transport):
    """Sites that have introduced themselves and answered a first question."""
    sites = RemoteFederation(transport, NAMES, Terms("died", ("race",)))
    assert set(sites.report(*a_request(sites))) == set(NAMES) and not sites.failures
    return sites


def a_request(sites):
    model = Linear(sites.agreement.schema.n_features)
    rates = tuple(RateId("selection", "race", group) for group in ("black", "white"))
    weights = dict.fromkeys(NAMES, CurvatureWeights(1.0, np.zeros(2)))
    return Setup(model, rates), Request((Point(model.start(), "curvature", weights),))


def test_a_run_with_an_invalid_answer_stops_by_name_and_resumes(files, tmp_path, undisturbed):
    transport = spoiled(files, tmp_path, from_answer(5, with_report({"loss": float("nan")})))
    with pytest.raises(
        AbsentClientError, match=r"'south'.*: its response was rejected: .*non-finite"
    ):
        train(transport, tmp_path / "out", NAMES)
    whole = InProcessTransport(node_configs(files, tmp_path))
    train(whole, tmp_path / "out", NAMES, resume=True)
    assert weights_of(tmp_path / "out") == undisturbed


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda answer: replace(answer, name="north"),
            "of site 'south' sent a response named 'north'",
        ),
        (lambda answer: replace(answer, name=5), "$.name"),
        (lambda answer: b"nonsense", "was not written by fcfl"),
        (lambda answer: replace(answer, content=()), "sent 0 reports for a request of"),
        (lambda answer: replace(answer, content=None), "$.content"),
        (lambda answer: replace(answer, content=({},) * 5), "$.content[0]"),
        (
            lambda answer: replace(answer, content=Introduction("south", {}, {})),
            "sent one Introduction, expected a tuple of reports",
        ),
        (
            lambda answer: replace(answer, content=Refusal("The disk\n\x1b is full.")),
            "The disk is full.",
        ),
    ],
)
def test_an_unreadable_answer_is_rejected_by_name(files, tmp_path, change, reason):
    transport = spoiled(files, tmp_path, from_answer(4, change))
    with pytest.raises(AbsentClientError, match=f"Client 'south'.*: .*{re.escape(reason)}"):
        train(transport, tmp_path / "out", NAMES)


def trained_over(transport, max_age):
    """A plain fit over the sites, and what was told."""
    told = []
    sites = RemoteFederation(transport, NAMES, Terms("died", ("race",)), on_message=told.append)
    trained = fcfl.train(
        sites,
        Linear(sites.agreement.schema.n_features),
        [Difference("demographic_parity", "race", 0.05)],
        method=SQP(10.0),
        l2=0.003,
        confidence=0.0,
        starts=1,
        session=fcfl.Session(max_age=max_age),
    )
    return trained, told


@pytest.mark.parametrize("away", [(5,), (5, 6), (4, 6), (5, 7, 9)], ids=str)
def test_with_max_age_the_last_report_stays_in_force_until_the_site_returns(files, tmp_path, away):
    wrong = with_report({"loss": float("nan")})

    def spoil(name, answer, count):
        return wrong(answer) if name == "south" and count in away else answer

    trained, told = trained_over(spoiled(files, tmp_path, spoil), max_age=2)
    absent = [line for line in told if "Site 'south' is absent" in line and "non-finite" in line]
    assert len(absent) == len(away)
    assert trained.status == "converged" and trained.largest_violation <= 1e-6


def test_a_site_absent_longer_than_max_age_stops_the_run(files, tmp_path):
    gone = from_answer(5, with_report({"loss": float("nan")}))
    with pytest.raises(AbsentClientError, match=r"last report is 3 rounds old.*`max_age` is 2"):
        trained_over(spoiled(files, tmp_path, gone), max_age=2)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: {"train": replace(c.train, true_positive=-1)},
        lambda c: {"train": replace(c.train, true_positive=0.5)},
        lambda c: {"test": replace(c.test, group_counts=c.test.group_counts + 1e6)},
        lambda c: {"test": replace(c.test, group_selected=c.test.group_counts + 1)},
        lambda c: {"test": replace(c.test, group_counts=c.test.group_counts[:1])},
        lambda c: {"train": replace(c.train, loss_sum=float("inf"))},
        lambda c: {"train": replace(c.train, true_negative=2**63)},
        lambda c: {"train": None},
    ],
)
def test_invalid_counts_are_rejected_by_name(files, tmp_path, change):
    transport = spoiled(files, tmp_path, from_answer(1, with_counts(change)))
    sites = RemoteFederation(transport, NAMES, Terms("died", ("race",)))
    setup, request = a_request(sites)
    with pytest.raises(AbsentClientError, match=r"'south'.*(invalid counts|content\.train)"):
        sites.count(setup, request.points[0].params)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"labels": (1, 2)}, "content.labels"),
        ({"levels": {"race": (3,)}}, "content.levels"),
        ({"present": {"race": (3,)}}, "content.present"),
        ({"version": 3}, "content.version"),
        ({"min_group_rows": 0}, "Client 'south' sent invalid policy counts"),
        ({"withhold_below": 0.5}, "content.withhold_below"),
        ({"policy_sha256": 7}, "content.policy_sha256"),
        ({"rules": ("none",)}, "content.rules"),
        ({"statistics": None}, "Client 'south' sent invalid statistics"),
        ({"statistics": Refusal("none")}, "content.statistics"),
        ({"checksum": 5}, "content.checksum"),
        ({"labels": 5}, "content.labels"),
        ({"levels": None}, "content.levels"),
        ({"rules": None}, "content.rules"),
    ],
    ids=str,
)
def test_an_invalid_introduction_is_rejected_by_name(files, tmp_path, change, what):
    def spoil(answer):
        said = answer.content
        if not isinstance(said, Introduction):
            return answer
        return replace(answer, content=replace(said, **change))

    sentence = f"Site 'south' cannot take part: .*{what}"
    with pytest.raises(ReportError, match=sentence):
        train(spoiled(files, tmp_path, from_answer(1, spoil)), tmp_path / "out", NAMES)


@pytest.mark.parametrize(("summary", "value"), [("n", -1), ("missing", -1), ("m2", -1.0)])
def test_invalid_statistics_are_rejected_by_column(files, tmp_path, summary, value):
    def spoil(answer):
        said = answer.content
        if not isinstance(said, Introduction):
            return answer
        age = replace(said.statistics.columns["age"], **{summary: value})
        columns = {**said.statistics.columns, "age": age}
        said = replace(said, statistics=replace(said.statistics, columns=columns))
        return replace(answer, content=said)

    with pytest.raises(ReportError, match=r"'south' sent invalid statistics of column 'age'"):
        train(spoiled(files, tmp_path, from_answer(1, spoil)), tmp_path / "out", NAMES)


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.drop(columns="ward"), "'north' and 'south'.*only one of them has 'ward'"),
        (lambda f: f.rename(columns={"ward": "unit"}), "only one of them has 'unit', 'ward'. Ren"),
        (lambda f: f.assign(age="old"), "Column 'age' is a number at client 'north' and text at"),
        (lambda f: f.drop(columns="died"), "Site 'south' cannot take part: `label`.*'died'"),
        (
            lambda f: f.assign(died=f["died"].map({"yes": "dead", "no": "alive"})),
            "same two values at all sites, got 'north' 'no' and 'yes', 'south' 'alive' and 'dead'",
        ),
    ],
)
def test_a_site_whose_columns_differ_stops_the_run_by_name(files, tmp_path, change, sentence):
    frame = stays(150, hospitals=("south",)).drop(columns="hospital")
    change(frame).to_csv(files["south"], index=False)
    transport = InProcessTransport(node_configs(files, tmp_path))
    with pytest.raises((DataError, ReportError), match=sentence):
        train(transport, tmp_path / "out", NAMES)


# --- names ----------------------------------------------------------------------------------------


def test_two_sites_with_one_name_are_rejected(files, tmp_path):
    configs = node_configs(files, tmp_path)
    configs[7] = configs[1] | {"table": str(files["north"])}
    with pytest.raises(FCFLError, match="Two nodes have the same `name`, 'south'"):
        train(InProcessTransport(configs), tmp_path / "out", NAMES)


def test_a_second_site_with_the_same_name_is_rejected_during_the_run(files, tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "_LOOK", 0.0)
    configs = node_configs(files, tmp_path)
    transport = InProcessTransport(dict(configs))

    def on_round(info, share):
        if info.round == 2:
            transport.configs[7] = configs[1]

    given = {"sites": "north,south", "out": str(tmp_path / "out")}
    given |= {"label": "died", "sensitive": "race", "budget": "0.05", **QUICK}
    with pytest.raises(FCFLError, match="Two nodes have the same `name`, 'south'"):
        run_sites(transport, given, on_round=on_round, on_message=lambda sentence: None)


def test_an_unknown_site_is_left_out_with_a_message(files, tmp_path, undisturbed):
    configs = node_configs(files, tmp_path)
    configs[7] = configs[0] | {"name": "east"}
    _, told = train(InProcessTransport(configs), tmp_path / "out", NAMES)
    strangers = [line for line in told if "Node 7 is left out: it reports the name 'east'" in line]
    assert len(strangers) == 1
    assert weights_of(tmp_path / "out") == undisturbed


def test_a_known_name_at_an_unbound_node_is_left_out(files, tmp_path):
    configs = node_configs(files, tmp_path)
    stolen = {7: configs[1] | {"table": str(files["north"])}}  # calls itself south, too
    told = []
    sites = RemoteFederation(
        InProcessTransport(configs | stolen),
        NAMES,
        Terms("died", ("race",)),
        nodes={"north": 0, "south": 1},
        on_message=told.append,
    )
    assert told == ["Node 7 is left out: its key is not bound to a site of this run."]
    sites.report(*a_request(sites))
    assert sites.traffic["south"].messages == 2 and not sites.failures


def test_a_bound_node_with_another_sites_name_is_rejected(files, tmp_path):
    configs = node_configs(files, tmp_path)
    configs[1] = configs[1] | {"name": "north"}
    with pytest.raises(
        ReportError, match=r"'south' cannot take part: .*node reports the name 'north'"
    ):
        RemoteFederation(
            InProcessTransport(configs),
            NAMES,
            Terms("died", ("race",)),
            nodes={"north": 0, "south": 1},
        )


# --- absence and return ---------------------------------------------------------------------------


class Unreliable(InProcessTransport):
    """The south is offline in its n-th exchange, loses a message, or changes its node."""

    def __init__(self, configs, away=(), lost=()):
        super().__init__(dict(configs))
        self.away, self.lost, self.messages = away, lost, 0

    def send(self, node, content, seconds):
        message_id = super().send(node, content, seconds)
        if self.configs[node]["name"] == "south":
            self.messages += 1
            if self.messages in self.away:
                self._replies.pop(message_id)
            if self.messages in self.lost:
                self._replies[message_id] = Reply(message_id, None, "the node is gone", True)
        return message_id


def test_a_site_slower_than_the_timeout_is_absent_by_name(files, tmp_path):
    transport = Unreliable(node_configs(files, tmp_path), away=(5, 6))
    sentence = "Client 'south' did not (answer|say).* it did not respond within 0.5 s"
    with pytest.raises(AbsentClientError, match=sentence):
        train(transport, tmp_path / "out", NAMES, **{"site-timeout": 0.5})


def test_a_site_that_never_connects_is_named(files, tmp_path):
    configs = node_configs(files, tmp_path)
    with pytest.raises(AbsentClientError, match=r"within 0.5 s; missing: 'east', 'west'"):
        transport = InProcessTransport(configs)
        train(transport, tmp_path / "out", (*NAMES, "east", "west"), **{"site-timeout": 0.5})


def test_a_lost_message_is_sent_again(files, tmp_path, undisturbed, monkeypatch):
    monkeypatch.setattr(exchange, "_RETRY", 0.0)
    transport = Unreliable(node_configs(files, tmp_path), lost=(1, 4, 5, 9))
    _, told = train(transport, tmp_path / "out", NAMES)
    assert len([line for line in told if "was lost: the node is gone" in line]) == 4
    assert weights_of(tmp_path / "out") == undisturbed


def test_an_unanswered_message_is_sent_again_once(files, tmp_path, undisturbed):
    transport = Unreliable(node_configs(files, tmp_path), away=(1, 4))
    train(transport, tmp_path / "out", NAMES, **{"site-timeout": 1.0})
    assert weights_of(tmp_path / "out") == undisturbed
    transport = Unreliable(node_configs(files, tmp_path), away=range(4, 99))
    with pytest.raises(AbsentClientError, match="did not respond within 1 s"):
        train(transport, tmp_path / "gone", NAMES, **{"site-timeout": 1.0})
    assert transport.messages == 5


def test_a_site_that_returns_as_another_node_continues(files, tmp_path, undisturbed, monkeypatch):
    monkeypatch.setattr(exchange, "_LOOK", 0.0)
    transport = Unreliable(node_configs(files, tmp_path))
    moved = transport.configs[1]

    def on_round(info, share):
        if info.round == 2 and 1 in transport.configs:
            del transport.configs[1]
            transport.configs[99] = moved

    given = {"sites": "north,south", "out": str(tmp_path / "out")}
    given |= {"label": "died", "sensitive": "race", "budget": "0.05", **QUICK}
    run_sites(transport, given, on_round=on_round, on_message=lambda sentence: None)
    assert weights_of(tmp_path / "out") == undisturbed


@pytest.mark.parametrize("killed_after", [1, 5])
def test_a_killed_server_resumes_to_the_same_bits(files, tmp_path, undisturbed, killed_after):
    class Killed(Exception):
        """As a kill: nothing in the package catches it."""

    def on_round(info, share):
        if info.round == killed_after:
            raise Killed

    given = {"sites": "north,south", "out": str(tmp_path / "out")}
    given |= {"label": "died", "sensitive": "race", "budget": "0.05", **QUICK}
    transport = InProcessTransport(node_configs(files, tmp_path))
    with pytest.raises(Killed):
        run_sites(transport, given, on_round=on_round, on_message=lambda sentence: None)
    run_sites(transport, given | {"resume": True}, on_message=lambda sentence: None)
    assert weights_of(tmp_path / "out") == undisturbed


def test_a_run_has_begun_whatever_its_number_of_rounds(tmp_path):
    given = {"sites": "north,south", "out": str(tmp_path), "label": "died", "sensitive": "race"}
    run = SitesConfig.from_run_config(given | {"rounds": "5,5"})
    (tmp_path / SETTINGS).write_text(run.experiment.to_toml(), encoding="utf-8")
    assert has_begun(SitesConfig.from_run_config(given | {"rounds": "9,9"}))
    assert not has_begun(SitesConfig.from_run_config(given | {"budget": "0.1"}))


def test_a_run_is_not_resumed_with_other_rows(files, tmp_path):
    refuse = from_answer(5, lambda answer: replace(answer, content=Refusal("Not now.")))
    transport = spoiled(files, tmp_path, refuse)
    with pytest.raises(AbsentClientError, match="Not now"):
        train(transport, tmp_path / "out", NAMES)
    stays(100, hospitals=("south",)).drop(columns="hospital").to_csv(files["south"], index=False)
    with pytest.raises(FCFLError, match="rows"):
        train(
            InProcessTransport(node_configs(files, tmp_path)), tmp_path / "out", NAMES, resume=True
        )


# --- policies -------------------------------------------------------------------------------------


def policy(tmp_path, text):
    path = tmp_path / "site-policy.toml"
    path.write_text(f"min-group-rows = 1\nwithhold-below = 1\n{text}")
    return {"policy": str(path)}


RULE = '[[rule]]\nmetric = "{}"\nattribute = "{}"\nbudget = {}\n'


def test_a_stricter_policy_of_a_site_wins_and_a_looser_one_does_not(files, tmp_path):
    for own, expected in ((0.03, 0.03), (0.5, 0.05)):
        place = tmp_path / f"own-{own}"
        insisted = policy(tmp_path, RULE.format("demographic_parity", "race", own))
        configs = node_configs(files, tmp_path, south=insisted)
        del configs[0]["policy"]  # that of the north
        finished, _ = train(InProcessTransport(configs), place, NAMES)
        clients = finished.result.clients
        assert clients["south"].train.disparities[0].budget == expected
        assert clients["north"].train.disparities[0].budget == 0.05
        assert finished.budgets_met
        assert clients["south"].train.disparities[0].value <= expected + 1e-6
        sites = finished.result.deployment.sites
        assert len(sites["south"].policy_sha256) == 64
        assert sites["north"].policy_sha256 is None


def test_a_rule_that_only_a_site_has_binds_that_site(files, tmp_path):
    insisted = policy(tmp_path, RULE.format("equal_opportunity", "race", 0.02))
    configs = node_configs(files, tmp_path, south=insisted)
    finished, _ = train(InProcessTransport(configs), tmp_path / "out", NAMES)
    for name, budgets in (("north", [0.05, None]), ("south", [0.05, 0.02])):
        found = finished.result.clients[name].train.disparities
        assert [entry.budget for entry in found] == budgets
    assert finished.budgets_met


def test_a_policy_on_a_column_that_is_not_compared_stops_the_run(files, tmp_path):
    insisted = policy(tmp_path, RULE.format("demographic_parity", "sex", 0.02))
    configs = node_configs(files, tmp_path, south=insisted)
    with pytest.raises(DataError, match=r"Client 'south' has a policy on 'sex'.*got 'race'"):
        train(InProcessTransport(configs), tmp_path / "out", NAMES)


# --- what a site receives -------------------------------------------------------------------------


def test_a_site_receives_no_name_or_budget_of_another(files, tmp_path):
    messages = {name: [] for name in NAMES}

    class Listening(InProcessTransport):
        def send(self, node, content, seconds):
            messages[self.configs[node]["name"]].append(content)
            return super().send(node, content, seconds)

    transport = Listening(node_configs(files, tmp_path))
    train(transport, tmp_path / "out", NAMES, budget="north=0.0625,south=0.03125")
    for name, budget, other, others in (
        ("north", pack(">d", 0.0625), b"south", pack(">d", 0.03125)),
        ("south", pack(">d", 0.03125), b"north", pack(">d", 0.0625)),
    ):
        assert len(messages[name]) > 3
        assert any(budget in message for message in messages[name])
        assert not any(other in message or others in message for message in messages[name])
