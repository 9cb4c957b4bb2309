"""The rehearsal of docs/deployment.md typed in, and its comparison: ``pytest -m deployment``."""

import re
import shlex

import pytest
from in_one_process import hospitals
from test_guide import COMMANDS, GUIDE

from hospital import fcfl, result_of, stays

pytest.importorskip("flwr")
pytestmark = pytest.mark.deployment
SHORT = ("--set", "rounds=3,2", "--set", "confidence=0.0", "--set", "starts=1")


def typed(command, *more):
    """A command of the guide."""
    outcome = fcfl(*shlex.split(command)[1:], *more)
    print(outcome.output)  # noqa: T201
    return outcome


def test_a_rehearsal_and_a_comparison_on_one_machine(tmp_path, monkeypatch):
    hospitals(tmp_path, stays(900))
    monkeypatch.chdir(tmp_path)
    new, certs, up = COMMANDS[:3]
    assert [command.split()[2] for command in (new, certs, up)] == ["new", "certs", "up"]
    assert typed(new).exit_code == typed(certs).exit_code == 0
    assert "Budgets are" in typed(up, *SHORT).output
    result = result_of(tmp_path / "app" / "runs" / "rehearsal")
    assert {*result["clients"]} == {"north", "south", "west"}
    (said,) = re.findall(r"`fcfl flower up … (--set command=compare [^`]*)`", GUIDE)
    outcome = typed(up, *shlex.split(said), *SHORT, "--overwrite")
    assert (tmp_path / "app" / "runs" / "rehearsal" / "comparison.json").exists(), outcome.output
