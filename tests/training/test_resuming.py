"""A run that is stopped anywhere and resumed ends as the uninterrupted one, to the last bit."""

import pytest

from fcfl import Difference
from fcfl.errors import Interrupted
from fcfl.federation.federation import Federation
from fcfl.federation.loop import ExchangeCount
from fcfl.federation.session import Session
from fcfl.models.linear import Linear
from fcfl.training.train import train
from helpers import simulated_clients

RULES = (Difference("demographic_parity", "race", budget=0.1),)
PHASES = {"meet", "choose", "fit", "check", "tighten", "project"}


def run(folder, *, resume=False):
    clients = Federation.from_rows(simulated_clients(0))
    session = Session(folder, resume=resume)
    return train(clients, Linear(4), RULES, min_group_rows=1, session=session)


@pytest.mark.thorough
def test_a_run_stopped_at_any_exchange_ends_with_the_same_bits(tmp_path, monkeypatch):
    whole, stopped_in = run(tmp_path / "whole"), set()
    real = ExchangeCount.add
    for number in range(3, sum(whole.exchanges.values()) + 1):  # before, there is no folder
        asked = 0

        def add(self, last=number):
            nonlocal asked
            asked += 1
            if asked == last:
                stopped_in.add(self.phase)
                raise KeyboardInterrupt
            real(self)

        folder = tmp_path / str(number)
        with monkeypatch.context() as patched:
            patched.setattr(ExchangeCount, "add", add)
            with pytest.raises((KeyboardInterrupt, Interrupted)):
                run(folder)
        resumed = run(folder, resume=True)
        assert resumed.params.tobytes() == whole.params.tobytes()
        assert (resumed.selection, resumed.price) == (whole.selection, whole.price)
        assert [stage.state.rounds for stage in resumed.turns] == [
            stage.state.rounds for stage in whole.turns
        ]
    assert stopped_in == PHASES
