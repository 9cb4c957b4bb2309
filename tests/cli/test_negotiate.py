"""fcfl negotiate from the command line: files, the promise of the policy file, bad input."""

import shlex
from dataclasses import replace

import pytest

from fcfl._files import read_json
from fcfl.negotiation import bargaining
from fcfl.report.negotiation import headline
from fcfl.results.negotiation import Negotiation
from fcfl.runs import Experiment, run_experiment
from hospital import COLUMNS, fcfl, only_error, stays, written

SETTLED = ("--l2", "0.01", "--objective", "inf", "--budgets", "0.2,0.08,0.02", "--most", "14")


@pytest.fixture(scope="module")
def negotiated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("negotiation")
    table = written(stays(900), folder / "stays.csv")
    wishes = folder / "wishes"
    wishes.mkdir()
    (wishes / "north.toml").write_text("[preference]\ndisparity-per-accuracy = 3.0\n")
    (wishes / "west.toml").write_text("[preference]\nmax-disparity = 0.3\n")
    outcome = fcfl(
        "negotiate", table, *COLUMNS, *SETTLED, "--policies", wishes, "--out", folder / "out"
    )
    assert outcome.exit_code == 0, outcome.output
    return folder, outcome


def test_it_writes_what_was_found_a_page_and_a_policy(negotiated):
    folder, outcome = negotiated
    found = read_json(folder / "out" / "negotiation.json", Negotiation)
    assert found.clients == ("north", "south", "west") and found.part == "test"
    assert found.objective == "mean"  # an infinite temperature
    assert 3 <= len(found.offers) <= 14
    assert found.agreed in found.on_ballot
    assert headline(found) in outcome.stdout and found.command in outcome.stdout
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "Who wins under which rule" in page
    wins = [one.winner for one in found.elections]
    assert len(found.elections) == 3 and any(w is not None for w in wins)


def test_the_policy_file_trains_to_the_figures_that_were_promised(negotiated):
    folder, _ = negotiated
    found = read_json(folder / "out" / "negotiation.json", Negotiation)
    words = shlex.split(found.command)
    assert words[:2] == ["fcfl", "train"] and words[-2:] == ["--confidence", "0"]
    assert words[words.index("--policy") + 1] == str(folder / "out" / "agreed.toml")
    experiment = Experiment(
        str(folder / "stays.csv"), client="hospital", label="died", sensitive=("race",),
        policy=str(folder / "out" / "agreed.toml"), l2=found.l2, objective=found.objective,
        confidence=0.0,
    )  # fmt: skip
    result = run_experiment(experiment, folder / "trained").result
    promised = found.offers[found.agreed]
    for name, client in result.clients.items():
        assert client.test.accuracy == pytest.approx(promised.views[name].accuracy, abs=1e-9)
        (entry,) = client.test.disparities
        assert entry.budget == promised.budgets[name]
        assert entry.value == pytest.approx(promised.views[name].disparity, abs=1e-9)


def test_a_negotiation_that_is_stopped_continues_to_the_same_end(negotiated, monkeypatch):
    folder, _ = negotiated
    options = (*COLUMNS, *SETTLED, "--policies", folder / "wishes", "--out", folder / "stopped")
    trained = []

    def stops(*arguments, **settings):
        trained.append(settings)
        if len(trained) == 20:
            raise KeyboardInterrupt
        return train(*arguments, **settings)

    train = bargaining.train
    monkeypatch.setattr(bargaining, "train", stops)
    told = only_error(fcfl("negotiate", folder / "stays.csv", *options))
    assert told.startswith("Stopped. Continue with: fcfl negotiate ")
    assert told.endswith(f"--out {folder / 'stopped'} --resume")
    assert fcfl("negotiate", folder / "stays.csv", *options, "--resume").exit_code == 0
    whole, resumed = (
        read_json(folder / place / "negotiation.json", Negotiation) for place in ("out", "stopped")
    )
    command = whole.command.replace(str(folder / "out"), str(folder / "stopped"))
    assert resumed == replace(whole, command=command)
    n_models = 1 + 3 * (1 + len(whole.budgets)) + len(whole.offers)
    assert len(trained) == n_models + 1  # the one that was stopped is trained again, no other
    other = fcfl("negotiate", folder / "stays.csv", *options, "--resume", "--l2", "0.02")
    assert "holds a run with other settings (l2 is 0.01, got 0.02)" in only_error(other)


def test_preferences_stay_out_of_every_file(negotiated):
    folder, _ = negotiated
    for path in [path for path in (folder / "out").rglob("*") if path.is_file()]:
        content = path.read_bytes()  # the journal is an SQLite file
        assert b"disparity-per-accuracy" not in content
        assert b"disparity_per_accuracy" not in content


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--by", "plurality"), "--by"),
        (("--budgets", "0.1"), "`--budgets`"),
        (("--budgets", "0.1,x"), "`--budgets`"),
        (("--most", "0"), "`--most`"),
    ],
)
def test_wrong_usage_is_one_sentence(tmp_path, options, sentence):
    table = written(stays(60), tmp_path / "stays.csv")
    outcome = fcfl("negotiate", table, *COLUMNS, *options)
    assert sentence in only_error(outcome, code=2)


def test_one_client_cannot_negotiate(tmp_path):
    table = written(stays(90, hospitals=("north",)), tmp_path / "stays.csv")
    assert "two clients" in only_error(fcfl("negotiate", table, *COLUMNS))
