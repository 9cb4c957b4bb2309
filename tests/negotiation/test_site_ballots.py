"""A negotiation over sites: the same agreement as with all rows here, and only ballots leave."""

from dataclasses import replace

import pytest

from fcfl._files import read_json
from fcfl.cli.show import finish
from fcfl.client.client import Vote
from fcfl.errors import AbsentClientError
from fcfl.policy import Ballot, Choices, Figures
from fcfl.results.negotiation import Negotiation
from fcfl.runs.site_config import CONFIG as WRITTEN
from fcfl.runs.site_config import SitesConfig
from fcfl.runs.site_run import has_begun, serve
from fcfl.sites.journal import entries_of, open_journal
from fcfl.sites.messages import (
    Ask,
    Terms,
    decode_answer,
    decode_question,
    encode_message,
)
from fcfl.sites.remote import RemoteFederation
from fcfl.sites.site import reply_to
from fcfl.sites.transport import InProcessTransport
from hospital import COLUMNS, fcfl, stays
from in_one_process import Spoiled, hospitals, node_configs, open_policy

PREFERENCES = {
    "north": "[preference]\ndisparity-per-accuracy = 3.25\n",
    "south": '[[rule]]\nmetric = "demographic_parity"\nattribute = "race"\nbudget = 0.08\n',
    "west": "[preference]\nmax-disparity = 0.3\n",
}
CHOSEN = {"budgets": "0.2,0.02", "most": 5}
CONFIG = {
    "command": "negotiate", "label": "died", "sensitive": "race", "l2": "0.01", "objective": "mean",
    "min-group-rows": 1, **CHOSEN,
}  # fmt: skip


class Wiretap(InProcessTransport):
    """Keeps every message in both directions, by site."""

    def send(self, node, content, seconds):
        name = self.configs[node]["name"]
        self.__dict__.setdefault("heard", []).append((name, content, True))
        message_id = super().send(node, content, seconds)
        self.heard.append((name, self._replies[message_id].content, False))
        return message_id


@pytest.fixture(scope="module")
def negotiated(tmp_path_factory):
    """The same negotiation over sites, listened to, and with all rows in one table."""
    folder = tmp_path_factory.mktemp("sites")
    files = hospitals(folder, stays(600))
    wishes = folder / "wishes"
    wishes.mkdir()
    for name, text in PREFERENCES.items():
        (wishes / f"{name}.toml").write_text(text)
    policies = {}
    for name, text in PREFERENCES.items():  # open sites, which answer as rows in this process do
        (folder / name).mkdir()
        policies[name] = {"policy": str(open_policy(folder / name, text))}
    tapped = Wiretap(node_configs(files, folder, **policies))
    written = {key: default for key, (default, _) in WRITTEN.items()}  # as `flower new` writes it
    config = written | {"sites": ",".join(files), "out": str(folder / "apart"), **CONFIG}
    serve(tapped, config)
    outcome = fcfl(
        "negotiate", folder / "joined.csv", *COLUMNS, "--l2", "0.01", "--objective", "mean",
        "--budgets", CHOSEN["budgets"], "--most", CHOSEN["most"], "--policies", wishes,
        "--out", folder / "joined",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    return folder, tapped


def test_sites_agree_on_what_one_table_agrees_on(negotiated):
    folder, _ = negotiated
    apart, joined = (
        read_json(folder / w / "negotiation.json", Negotiation) for w in ("apart", "joined")
    )
    assert apart.command.startswith('run config command="train" budgets="" policy="')
    assert replace(apart, table="", command="") == replace(joined, table="", command="")
    assert apart.budgets == (0.2, 0.08, 0.02)
    assert all(offer.budgets["south"] <= 0.08 for offer in apart.offers)
    agreed = [(folder / w / "agreed.toml").read_text() for w in ("apart", "joined")]
    assert agreed[0] == agreed[1]


def test_a_rehearsal_shows_what_was_agreed_and_can_continue(negotiated, capsys):
    folder, tapped = negotiated
    given = {"sites": "north,south,west", "out": str(folder / "apart"), **CONFIG}
    run = SitesConfig.from_run_config(given)
    finish(run.out)
    shown = capsys.readouterr().out
    assert "results by client" in shown and 'run config command="train"' in shown
    assert has_begun(run)
    heard = len(tapped.heard)
    before = read_json(run.written, Negotiation)
    serve(tapped, {**given, "resume": True})
    assert (
        read_json(run.written, Negotiation) == before
    )  # nothing is trained again: sites only vote
    again = {type(decode_question(c).question) for _, c, q in tapped.heard[heard:] if asks(c, q)}
    assert again == {Vote}


def asks(content, is_question):
    return is_question and isinstance(decode_question(content), Ask)


def test_preferences_do_not_leave_and_nobody_hears_what_others_are_offered(negotiated):
    _, tapped = negotiated
    votes = 0
    for name, content, is_question in tapped.heard:
        assert b"disparity_per_accuracy" not in content and b"3.25" not in content
        if is_question:
            asked = decode_question(content)
            if isinstance(asked, Ask) and isinstance(asked.question, Vote):
                assert set(asked.question.choices) == {name}
                votes += 1
    said = [decode_answer(c).content for _, c, is_question in tapped.heard if not is_question]
    assert votes == sum(isinstance(one, Ballot) for one in said) > 0


def test_ballots_are_in_the_journal(negotiated):
    folder, tapped = negotiated
    entries = entries_of(open_journal(folder / "cache-0" / "ledger"))
    asked = [c for name, c, q in tapped.heard if name == "north" and q and b"\xa4Vote" in c]
    assert sum(entry.purpose == "vote" for entry in entries) == len(asked) > 0


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"south": Choices((Figures(0.5, 0.1),), (Figures(0.5, 0.1),), (Figures(0.5, 0.1),))},
         "`choices` must be those of this site only."),
        ({"north": Choices((), (Figures(0.5, 0.1),), (Figures(0.5, 0.1),))},
         "A vote needs one or more `offers`"),
        ({"north": Choices((Figures(0.5, 0.1),), (Figures(0.5, 0.1),), ())},
         "A vote needs one or more `offers`"),
        ({"north": Choices((Figures(1e9, 0.1),), (Figures(0.5, 0.1),), (Figures(0.5, 0.1),))},
         "`accuracy` and `disparity` must lie between 0 and 1"),
        ({"north": Choices((Figures(0.5, float("nan")),), (Figures(0.5, 0),), (Figures(0.5, 0),))},
         "`accuracy` and `disparity` must lie between 0 and 1"),
    ],
)  # fmt: skip
def test_a_site_votes_on_shares_of_its_own_rows_only(negotiated, choices, sentence):
    _, tapped = negotiated
    asked = next(c for name, c, q in tapped.heard if name == "north" and q and b"\xa4Vote" in c)
    question = encode_message(replace(decode_question(asked), question=Vote(choices)))
    assert decode_answer(reply_to(question, tapped.configs[0])).content.sentence.startswith(
        sentence
    )


def test_a_ballot_that_makes_no_sense_is_rejected_by_name(negotiated):
    _, tapped = negotiated

    def both_first(name, answer, number):
        if name == "west" and isinstance(answer.content, Ballot):
            return replace(answer, content=replace(answer.content, ranks=(1.0, 1.0)))
        return answer

    spoiled = Spoiled(tapped.configs, spoil=both_first)
    sites = RemoteFederation(spoiled, ("north", "south", "west"), Terms("died", ("race",)))
    alone = (Figures(0.7, 0.1),)
    choices = Choices((Figures(0.8, 0.1), Figures(0.75, 0.1)), alone, alone)
    with pytest.raises(
        AbsentClientError, match=r"'west' did not report which budgets.* invalid place"
    ):
        sites.vote(dict.fromkeys(sites.names, choices))


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"by": "plurality"}, "`by` must be one of approval, borda, nash"),
        ({"most": "many"}, "`most` must be a whole number"),
        ({"budgets": "0.1"}, "`budgets` must be two or more numbers"),
        ({"method": "afl"}, "`method` must be left out in a negotiation, got 'afl'"),
        ({"rounds": "5,5"}, "`rounds` must be left out in a negotiation"),
        ({"confidence": 0.9}, "`confidence` must be left out in a negotiation"),
        ({"starts": 2}, "`starts` must be left out in a negotiation"),
        ({"lookahead": "0.5"}, "`lookahead` must be left out in a negotiation"),
        ({"ratio": 0.8}, "`ratio` must be left out in a negotiation"),
        ({"sites": "north"}, "two clients"),
    ],
)
def test_what_makes_no_sense_is_rejected_in_a_sentence(negotiated, tmp_path, config, sentence):
    _, tapped = negotiated
    given = {"sites": "north,south,west", "out": str(tmp_path / "out"), **CONFIG, **config}
    with pytest.raises(ValueError, match=sentence):
        serve(tapped, given)
