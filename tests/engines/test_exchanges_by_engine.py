"""Messages that each engine carries to a site, against the exchanges of the result.

The introduction is an exchange of its own: each site gets one message in it. A message that is sent
again belongs to the exchange it repeats, and is not counted a second time.
"""

from collections import Counter
from importlib.util import find_spec

import pytest

from fcfl.results import read_result
from fcfl.sites import exchange
from hospital import stays
from in_one_process import hospitals, node_configs
from in_one_process import train as train_sites

NAMES = ("east", "north", "south")
GIVEN = {"l2": "0.003", "objective": "10", "confidence": 0.0}


class FlareTasks:
    def __init__(self, configs, folder):
        pytest.importorskip("nvflare")
        from flare_tasks import Tasks

        from fcfl.engines.nvflare.server import TaskTransport

        tasks = Tasks(configs, folder / "sites")
        self.sent, self.transport = tasks.sent, TaskTransport(tasks.names, tasks.send)


class Queries:
    """Flower's part: a Grid that hands each Message to our ClientApp.

    ``lost`` names a site whose first answer to a question expires, and ``unsent`` one to which
    the first question is not taken.
    """

    def __init__(self, configs, folder, lost=None, unsent=None):
        pytest.importorskip("flwr")
        from fcfl.engines.flower.server_app import GridTransport

        self.sent, self.configs, self.spoiled = Counter(), configs, {}
        self.lost, self.unsent, self.replies = lost, unsent, {}
        self.transport = GridTransport(self)

    def get_node_ids(self):
        return list(self.configs)

    def push_messages(self, messages):
        from flwr.app import Context, Error, Message, RecordDict

        from fcfl.engines.flower.client_app import app

        for message in messages:
            node = message.metadata.dst_node_id
            config = self.configs[node]
            name = config["name"]
            self.sent[name] += 1
            if name == self.unsent and self.sent[name] == 2:
                yield ""
                continue
            message_id = f"{name}-{self.sent[name]}"
            message.metadata.__dict__["_message_id"] = message_id
            if name == self.lost and self.sent[name] == 2:
                reply = Message(Error(code=4), reply_to=message)
            else:
                reply = app(message, Context(1, node, config, RecordDict(), {}))
            self.replies[message_id] = reply
            yield message_id

    def pull_messages(self, message_ids):
        return [self.replies.pop(key) for key in message_ids if key in self.replies]


ENGINES = {"flower": Queries, "nvflare": FlareTasks}


@pytest.fixture(autouse=True)
def of_a_run(monkeypatch):
    """Messages of Flower belong to a run, which its processes set when they start."""
    if find_spec("flwr"):
        from flwr.supercore.task_identity import TaskIdentity

        for name in ("_task_id", "_run_id", "_node_id"):
            monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return hospitals(tmp_path_factory.mktemp("tables"), stays(300, hospitals=NAMES))


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ENGINES)
def test_messages_to_every_site_are_the_exchanges_of_the_result(tmp_path, files, engine):
    at = ENGINES[engine](node_configs(files, tmp_path), tmp_path)
    train_sites(at.transport, tmp_path / "out", NAMES, l2="auto", objective="auto")
    result = read_result(tmp_path / "out" / "result.json")
    assert at.sent == Counter(dict.fromkeys(NAMES, result.exchanges.total))
    assert result.exchanges.total > 7 and "fit" in result.exchanges.by_phase


def test_a_message_that_is_sent_again_is_no_exchange_of_its_own(tmp_path, files, monkeypatch):
    monkeypatch.setattr(exchange, "_RETRY", 0.01)
    at = Queries(node_configs(files, tmp_path), tmp_path, lost="north", unsent="south")
    finished, told = train_sites(at.transport, tmp_path / "out", NAMES, **GIVEN)
    total = finished.result.exchanges.total
    assert at.sent == {"east": total, "north": total + 1, "south": total + 1}
    assert len([one for one in told if "was lost" in one]) == 2
    sites = finished.result.deployment.sites
    assert {one.messages for one in sites.values()} == {total}  # that were answered
