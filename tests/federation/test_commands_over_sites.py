"""compare and sweep over sites: the numbers of one process, through the real messages."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from fcfl.errors import AbsentClientError
from fcfl.federation.session import Session
from fcfl.runs import Experiment
from fcfl.runs.many_runs import run_comparison, run_sweep
from fcfl.runs.site_run import serve
from fcfl.sites.transport import InProcessTransport
from hospital import stays, weights_of
from in_one_process import BUDGET, hospitals, node_configs

NAMES = ("east", "north", "south", "west")
COMPARE = {"command": "compare", "methods": "sqp,fair-reg,afl", "rounds": "5,3", "starts": 1}
COMPARE |= {"confidence": 0.0}
SWEEP = {"command": "sweep", "budgets": "0.2,0.1", "budget": "", "rounds": "5,3", "starts": 1}
SWEEP |= {"confidence": 0.0}
SHORT = {"rounds": "2,1", "starts": 2, "confidence": 0.0}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return hospitals(tmp_path_factory.mktemp("four"), stays(480, hospitals=NAMES))


@dataclass
class Leaving(InProcessTransport):
    """Sites of which one is gone twenty messages after a file is there."""

    after: Path | None = None
    left: int = 20

    def send(self, node, content, seconds):
        message_id = super().send(node, content, seconds)
        if self.after is not None and self.after.exists():
            self.left -= 1
            if self.left < 0 and node == 0:
                self._replies.pop(message_id)
        return message_id


def over_sites(files, folder, out, after=None, **config):
    transport = Leaving(node_configs(files, folder), after=after)
    given = {"sites": ",".join(files), "out": str(out), **BUDGET, **config}
    serve(transport, given)


def experiment(files, **settings):
    table = next(iter(files.values())).parent / "joined.csv"
    columns = {"client": "hospital", "label": "died", "sensitive": ("race",), "min_group_rows": 1}
    fixed = {"l2": 0.003, "objective": 10.0, "rounds": (5, 3), "starts": 1, "confidence": 0.0}
    return Experiment(table=str(table), **columns, **fixed, **settings)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def without_times(content):
    """The same without seconds, exchanges, and what names the table: sites are met once."""
    if isinstance(content, dict):
        left_out = ("seconds", "table", "exchanges")
        return {key: without_times(v) for key, v in content.items() if key not in left_out}
    return [without_times(part) for part in content] if isinstance(content, list) else content


@pytest.mark.thorough
def test_a_comparison_over_four_sites_equals_one_in_process(files, tmp_path):
    folder = tmp_path / "sites"
    with pytest.raises(AbsentClientError, match="'east'"):
        first = folder / "sqp" / "result.json"
        over_sites(files, tmp_path, folder, after=first, **COMPARE, **{"site-timeout": 2.0})
    assert not (folder / "afl" / "result.json").exists()
    before = (folder / "sqp" / "result.json").stat().st_mtime_ns
    over_sites(files, tmp_path, folder, resume=True, **COMPARE)
    assert (folder / "sqp" / "result.json").stat().st_mtime_ns == before
    session = Session(tmp_path / "joined")
    run_comparison(experiment(files, budget=0.05), ("sqp", "fair-reg", "afl"), [0], session)
    ours, theirs = (
        without_times(read(place / "comparison.json")) for place in (tmp_path / "joined", folder)
    )
    assert [one["method"] for one in ours["runs"]] == ["sqp", "fair-reg", "afl", "fedavg"]
    assert theirs == ours
    for one in ours["runs"]:
        places = [place / one["folder"] for place in (tmp_path / "joined", folder)]
        assert weights_of(places[0]) == weights_of(places[1])
        assert (places[1] / "report.html").exists()
    assert "majority" in (folder / "report.html").read_text(encoding="utf-8")
    exchanges = [read(folder / n / "result.json")["exchanges"]["total"] for n in ("afl", "sqp")]
    assert all(5 < count < 40 for count in exchanges)  # each run's own, not their sum


def test_a_sweep_over_sites_equals_one_in_process(files, tmp_path):
    folder = tmp_path / "sites"
    with pytest.raises(AbsentClientError, match="'east'"):
        first = folder / "budget-0.2" / "result.json"
        over_sites(files, tmp_path, folder, after=first, **SWEEP, **{"site-timeout": 2.0})
    assert not (folder / "budget-0.1" / "result.json").exists()
    over_sites(files, tmp_path, folder, resume=True, **SWEEP)
    session = Session(tmp_path / "joined")
    run_sweep(experiment(files), [0.2, 0.1], session, relative=False)
    ours, theirs = (
        without_times(read(place / "sweep.json")) for place in (tmp_path / "joined", folder)
    )
    assert theirs == ours
    for name in ("budget-0.2", "budget-0.1"):
        assert weights_of(tmp_path / "joined" / name) == weights_of(folder / name)
    assert "0.1" in (folder / "report.html").read_text(encoding="utf-8")


def test_the_log_names_the_purpose_of_each_exchange(files, tmp_path, caplog):
    caplog.set_level("INFO", logger="fcfl")
    two = {name: files[name] for name in ("east", "north")}
    over_sites(two, tmp_path, tmp_path / "run", l2="auto", objective="mean", **SHORT)
    said = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("choosing l2 and objective, exchange 1, ") for line in said)
    assert any(line.startswith("comparing starts, exchange 1, ") for line in said)
    assert any(line.startswith("round 1: worst loss 0.") for line in said)
    assert not [line for line in said if "nan" in line]
