"""Runs with masked sums: through real messages, with sites that are killed, resumed, and closed."""

import re
from dataclasses import dataclass, field, replace
from itertools import combinations, cycle
from pathlib import Path

import numpy as np
import pytest

from fcfl import train
from fcfl._types import Point, Request
from fcfl.client.client import Counted, Setup
from fcfl.errors import AbsentClientError, DataError, FCFLError
from fcfl.federation.federation import Federation
from fcfl.federation.masks.messages import MaskedAsk
from fcfl.models.linear import Linear
from fcfl.policy_file import read_policy
from fcfl.rules import Difference, rates_needed
from fcfl.sites.messages import (
    Ask,
    Introduce,
    Terms,
    decode_answer,
    decode_question,
    encode_message,
)
from fcfl.sites.remote import RemoteFederation
from fcfl.sites.rows import open_rows
from fcfl.sites.settings import SiteSettings
from fcfl.sites.site import reply_to
from fcfl.sites.transport import InProcessTransport, Reply
from fcfl.training.session import Session
from hospital import fcfl, only_error, stays
from in_one_process import hospitals, node_configs, open_policy
from in_one_process import train as train_sites

pytest.importorskip("cryptography")

from fcfl.federation.masks.sums import level_weights

NAMES = ("east", "mid", "north", "south", "west")
TERMS = Terms("died", ("race",), masked=True)
RULES = (Difference("demographic_parity", "race", 0.1),)


@dataclass
class Listening(InProcessTransport):
    """Keeps questions and answers; ``away`` has who is killed by which kind of question."""

    away: dict = field(default_factory=dict)
    heard: list = field(default_factory=list)

    def send(self, node, content, seconds):
        asked = decode_question(content)
        kind = type(asked.question if isinstance(asked, Ask) else asked).__name__
        message_id = super().send(node, content, seconds)
        if self.configs[node]["name"] in self.away.get(kind, ()):
            self._replies[message_id] = Reply(message_id, None, "it was killed.", False)
        else:
            self.heard.append((kind, self._replies[message_id].content))
        return message_id

    def kinds(self):
        return [kind for kind, _ in self.heard]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return hospitals(tmp_path_factory.mktemp("tables"), stays(500, hospitals=NAMES))


@pytest.fixture
def transport(files, tmp_path):
    return Listening(node_configs(files, tmp_path))


@pytest.fixture(scope="module")
def undisturbed(files, tmp_path_factory):
    """What a run without masks ends with, and how many reports it took."""
    transport = Listening(node_configs(files, tmp_path_factory.mktemp("open")))
    end = trained(RemoteFederation(transport, NAMES, replace(TERMS, masked=False)))
    return end.params, transport.kinds().count("Evaluate")


def federation(transport, **given):
    return RemoteFederation(transport, NAMES, TERMS, timeout=5.0).masked(**given)


def trained(clients, **given):
    model = Linear(clients.agreement.schema.n_features)
    options = {"l2": 0.003, "objective": 10.0, "confidence": 0.0, "starts": 1, **given}
    rules = options.pop("rules", RULES)
    return train(clients, model, rules, min_group_rows=1, **options)


def test_the_optimum_is_that_of_a_run_without_masks_and_no_curvature_was_seen(
    transport, undisturbed
):
    params, n_reports = undisturbed
    assert np.abs(trained(federation(transport)).params - params).max() < 1e-8
    kinds = transport.kinds()
    n_masked = kinds.count("MaskedAsk")
    assert n_masked >= 3 * len(NAMES)
    assert n_masked + kinds.count("Evaluate") == n_reports
    assert kinds.count("PrepareMasks") == len(NAMES)
    assert kinds.count("Unmask") <= n_masked  # one exchange more for each
    for _, content in transport.heard:
        said = decode_answer(content).content
        reports = getattr(said, "answer", said)
        reports = reports if isinstance(reports, tuple) else ()
        assert all(report.curvature is None for report in reports)


def test_in_one_process_the_same_code_ends_at_the_same_optimum(transport):
    sites = RemoteFederation(transport, NAMES, TERMS)
    clients = Federation.from_rows(rows_of(transport, sites.agreement))
    model = Linear(sites.agreement.schema.n_features)
    given = {"l2": 0.003, "objective": "mean", "confidence": 0.0, "starts": 1}
    ends = [train(one, model, RULES, **given).params for one in (clients, clients.masked())]
    assert np.abs(ends[0] - ends[1]).max() < 1e-8
    with pytest.raises(FCFLError, match="at least 3 clients, got 2"):
        two = Federation({name: clients._clients[name] for name in NAMES[:2]}).masked()
        train(two, model, RULES, **given)
    together = [replace(RULES[0], scope="global")]
    pooled = train(clients.masked(), model, together, confidence=0.0, starts=1)
    assert pooled.status == "converged"


class Levelled(Federation):
    """Clients in the open, asked under the weights that masks let the server ask for."""

    raised = 0

    def report(self, setup, request):
        points = []
        for point in request.points:
            if point.want == "curvature":
                weights = level_weights(point.curvature_weights)[0]
                asked = point.curvature_weights
                self.raised += any(weights[name].loss > asked[name].loss for name in weights)
                point = replace(point, curvature_weights=weights)
            points.append(point)
        return super().report(setup, Request(tuple(points)))


def test_for_the_largest_loss_only_the_weights_make_another_way(transport):
    """Exact ones are mostly one client's; masks themselves change nothing but the last digits."""
    sites = RemoteFederation(transport, NAMES, TERMS)
    clients = Federation.from_rows(rows_of(transport, sites.agreement))
    model, opened = Linear(sites.agreement.schema.n_features), Levelled(clients._clients)
    given = {"l2": 0.003, "objective": "max", "confidence": 0.0, "starts": 1}
    ends = [train(one, model, RULES, **given) for one in (opened, clients.masked())]
    assert np.abs(ends[0].params - ends[1].params).max() < 1e-8
    assert ends[0].state.rounds == ends[1].state.rounds
    assert opened.raised > 3


def rows_of(transport, agreement):
    rows = {}
    for config in transport.configs.values():
        table = open_rows(SiteSettings.from_node_config(config), TERMS)
        encoded = table.encode(agreement.schema, agreement.levels, agreement.labels)
        rows[table.name] = encoded.train[table.name]
    return rows


def told_groups(transport):
    """The rows by group in everything that sites said."""
    for _, content in transport.heard:
        said = decode_answer(content).content
        said = getattr(said, "answer", said)
        if isinstance(said, Counted):
            said = (said.report, said.train, said.test)
        parts = said if isinstance(said, tuple) else ()
        yield from (one.group_counts for one in parts if hasattr(one, "group_counts"))


def test_under_a_global_rule_no_count_and_no_rate_of_a_site_is_seen(files, tmp_path):
    together = (Difference("demographic_parity", "race", 0.1, scope="global"),)
    ends = []
    for terms in (replace(TERMS, masked=False), TERMS):
        transport = Listening(node_configs(files, tmp_path))
        sites = RemoteFederation(transport, NAMES, terms)
        sites = sites.masked() if terms.masked else sites
        transport.heard.clear()
        ends.append(trained(sites, rules=together))
    assert np.abs(ends[0].params - ends[1].params).max() < 1e-8
    groups = list(told_groups(transport))
    assert len(groups) > 20 and not any(counts.any() for counts in groups)
    plain, masked = (end.evaluations.audits for end in ends)
    for part in ("train", "test"):
        assert masked[part].overall == plain[part].overall
        assert masked[part].overall.disparities[0].value is not None
        assert not masked[part].client_rules and plain[part].client_rules
    transport.away = {"MaskedAsk": ("mid",)}
    with pytest.raises(AbsentClientError, match=r"over all rows together needs .* missing: 'mid'"):
        trained(sites, rules=together)


def test_counts_that_a_rule_of_the_clients_compares_are_told(transport):
    """Then they are known anyway."""
    rates = rates_needed(RULES, {"race": ("black", "white")})
    both = (*RULES, replace(RULES[0], scope="global", budget=0.05))
    for rules, told in ((both, True), (both[1:], False)):
        sites = federation(transport)
        model = Linear(sites.agreement.schema.n_features)
        asked = Request((Point(np.zeros(model.n_params)),))
        transport.heard.clear()
        reports = sites.report(Setup(model, rates, rules), asked)
        assert told == any(counts.any() for counts in told_groups(transport))
        rows = np.sum([said[0].group_counts for said in reports.values()], axis=0)
        assert rows.sum() > 300


@pytest.mark.parametrize("step", ["PrepareMasks", "MaskedAsk", "Unmask"])
def test_without_two_of_five_a_run_that_needs_all_stops_by_name(transport, step):
    transport.away = {step: ("mid", "west")}
    with pytest.raises(AbsentClientError) as error:
        trained(federation(transport))
    assert "'mid'" in str(error.value) and "'west'" in str(error.value)
    assert step != "MaskedAsk" or "Unmask" not in transport.kinds()


def test_another_two_of_five_may_be_killed_whenever_a_sum_is_opened(transport, undisturbed):
    """Three are enough; every round two others are gone."""
    pairs, killed = cycle(combinations(NAMES, 2)), []

    def kill(info, share):
        killed.append(next(pairs))
        transport.away = {"Unmask": killed[-1]}

    kill(None, 0.0)
    again = trained(federation(transport, threshold=3), session=Session(on_round=kill))
    assert np.abs(again.params - undisturbed[0]).max() < 1e-8
    assert len(set(killed)) > 5


def test_two_of_five_may_be_killed_before_they_answer_where_old_reports_may_stand_in(
    transport, undisturbed
):
    """Their last reports stand in, and the sum is over the others; then they are back."""
    rounds = []

    def kill(info, share):
        rounds.append(info)
        transport.away = {"MaskedAsk": ("mid", "west")} if len(rounds) == 3 else {}

    clients = federation(transport, threshold=3, needs_all=False)
    again = trained(clients, session=Session(on_round=kill, max_age=2))
    assert len(rounds) > 4 and again.status == "converged"
    assert np.abs(again.params - undisturbed[0]).max() < 1e-4  # of fits to a residual of 1e-4


def test_a_stopped_run_is_resumed_with_new_keys(transport, tmp_path, undisturbed):
    config = {"masked": True, "starts": 1, "confidence": 0.0, "budget": "0.1"}
    send = transport.send

    def stop(node, content, seconds):
        n_opened = transport.kinds().count("Unmask")
        transport.away = {"Unmask": ("east", "mid")} if n_opened > 2 * len(NAMES) else {}
        return send(node, content, seconds)

    transport.send = stop
    with pytest.raises(AbsentClientError, match="needs 4 clients to be opened"):
        train_sites(transport, tmp_path / "out", NAMES, **config)
    transport.send, transport.away, transport.heard = send, {}, []
    finished, _ = train_sites(transport, tmp_path / "out", NAMES, resume=True, **config)
    assert transport.kinds().count("PrepareMasks") == len(NAMES)
    assert np.abs(finished.params - undisturbed[0]).max() < 1e-8


def test_a_masked_run_chooses_and_has_margins_as_one_without_masks(files, tmp_path):
    given = {"l2": "auto", "objective": "auto", "confidence": 0.9}
    configs = node_configs(files, tmp_path)
    plain = trained(
        RemoteFederation(Listening(configs), NAMES, replace(TERMS, masked=False)), **given
    )
    masked = trained(federation(Listening(configs)), **given)
    assert np.abs(masked.params - plain.params).max() < 1e-9
    assert masked.selection.l2 == plain.selection.l2
    assert masked.margins == plain.margins and masked.exceeded.keys() == plain.exceeded.keys()


def test_where_a_site_sends_no_spread_of_gradients_margins_do_without(files, tmp_path):
    policy = tmp_path / "closed.toml"
    policy.write_text('min-group-rows = 1\nwithhold-below = 1\n[limits]\ncurvature = "masked"\n')
    closed = Listening(node_configs(files, tmp_path, south={"policy": str(policy)}))
    done = trained(federation(closed), confidence=0.9)
    assert done.margins.confidence == 0.9 and done.evaluations.drifts is None


def test_a_site_that_gives_curvature_under_masks_only_refuses_it_otherwise(files, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('[limits]\ncurvature = "masked"\n')
    closed = Listening(node_configs(files, tmp_path, south={"policy": str(policy)}))
    with pytest.raises(AbsentClientError, match="as part of a masked sum only"):
        trained(RemoteFederation(closed, NAMES, replace(TERMS, masked=False)))
    policy.write_text("[masks]\nleast = 6\n")
    with pytest.raises(AbsentClientError, match="at least 6 clients, got 5"):
        trained(federation(closed))


@pytest.mark.parametrize("change", ["rows", "small groups"])
def test_a_key_is_not_used_again_where_the_rows_of_a_site_have_changed(files, tmp_path, change):
    """Under the same masks the difference of two answers would be that of single rows."""
    table, policy = tmp_path / "south.csv", Path(open_policy(tmp_path))
    table.write_bytes(files["south"].read_bytes())
    config = {"name": "south", "table": str(table), "policy": str(policy)}
    transport, asked = InProcessTransport(node_configs(files, tmp_path, south=config)), []

    def listen(content, config):
        question = decode_question(content)
        if config["name"] == "south" and isinstance(question, Ask):
            asked.append((question, config))
        return reply_to(content, config)

    transport.answer = listen
    trained(federation(transport))
    own, site = next(one for one in asked if isinstance(one[0].question, MaskedAsk))

    def said(question):
        return decode_answer(reply_to(encode_message(question), site)).content

    assert said(own).words.tobytes() == said(own).words.tobytes()
    if change == "rows":
        table.write_bytes(b"\n".join(table.read_bytes().splitlines()[:-1]) + b"\n")
    else:
        policy.write_text(policy.read_text().replace("min-group-rows = 1", "min-group-rows = 9"))
    checksums = {**own.agreement.checksums, "south": said(Introduce(TERMS)).checksum}
    assert (checksums != own.agreement.checksums) == (change == "rows")
    again = said(replace(own, agreement=replace(own.agreement, checksums=checksums)))
    assert "was used before, for another question" in again.sentence


def test_pinned_keys_are_printed_at_one_site_and_checked_at_another(files, tmp_path):
    keys = {}
    for number, config in node_configs(files, tmp_path).items():
        site = tmp_path / f"site-{number}.toml"
        site.write_text("".join(f'{key} = "{value}"\n' for key, value in config.items()))
        shown = fcfl("site", "key", site)
        assert shown.exit_code == 0
        keys[config["name"]] = shown.output.split()[-1]
    policy = tmp_path / "policy.toml"
    others = "".join(f'{name} = "{key}"\n' for name, key in keys.items() if name != "south")
    known = f'[limits]\ncurvature = "masked"\n\n[masks]\nleast = 5\n\n[masks.peers]\n{others}'
    policy.write_text(known)
    configs = node_configs(files, tmp_path, south={"policy": str(policy)})
    assert trained(federation(Listening(configs))).status == "converged"
    policy.write_text(known.replace(keys["mid"], "ab" * 32))
    with pytest.raises(AbsentClientError, match=r"south.*key given for '…' is not the one"):
        trained(federation(Listening(configs)))


def test_where_no_curvature_is_summed_the_option_is_refused():
    refused = only_error(fcfl("train", "synthetic", "--masked", "--budget", "0.1"))
    assert "one client, no sum" in refused
    refused = only_error(fcfl("train", "adult", "--masked", "--method", "fedavg"), code=2)
    assert "`--masked` belongs to method 'sqp', got 'fedavg'" in refused


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[masks]\nleast = 2\n", "`masks.least`"),
        ('[masks.peers]\nnorth = "key"\n', "`masks.peers"),
        ("[masks]\nmost = 3\n", "Unknown key `most`"),
        ('[limits]\ncurvature = "some"\n', "`limits.curvature`"),
    ],
)
def test_a_policy_on_masks_that_cannot_be_is_refused(tmp_path, text, sentence):
    policy = tmp_path / "policy.toml"
    policy.write_text(text)
    with pytest.raises(DataError, match=re.escape(sentence)):
        read_policy(policy)
