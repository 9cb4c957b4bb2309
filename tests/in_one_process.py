"""Sites in one process: the same messages, without a network."""

from dataclasses import dataclass, field

from fcfl.runs import Experiment, run_experiment
from fcfl.runs.site_run import run_sites
from fcfl.sites.messages import decode_answer, encode_message
from fcfl.sites.site import reply_to
from fcfl.sites.transport import InProcessTransport
from hospital import stays, written

BUDGET = {"label": "died", "sensitive": "race", "budget": "0.05", "min-group-rows": 1}


def hospitals(folder, frame=None):
    """Every hospital's own file, and all of them in one."""
    frame = stays(600) if frame is None else frame
    written(frame, folder / "joined.csv")
    return {
        name: written(rows.drop(columns="hospital"), folder / f"{name}.csv")
        for name, rows in frame.groupby("hospital")
    }


OPEN = """min-group-rows = 1
withhold-below = 1
[limits]
"""


def open_policy(folder, more=""):
    """A policy by which a site answers as a client in one process does."""
    path = folder / "open-policy.toml"
    path.write_text(OPEN + more, encoding="utf-8")
    return str(path)


def node_configs(files, folder, **more):
    """Node configs as SuperNodes would have them; ``more`` by site. Sites are open."""
    policy = open_policy(folder)
    return {
        number: {"name": name, "table": str(path), "cache": str(folder / f"cache-{number}")}
        | {"policy": policy}
        | more.get(name, {})
        for number, (name, path) in enumerate(files.items())
    }


def train(transport, folder, names, **config):
    """A run over the transport; returns what finished and what was told."""
    told = []
    given = {"sites": ",".join(names), "out": str(folder), **BUDGET, **config}
    return run_sites(transport, given, on_message=told.append), told


def train_joined(files, folder, **settings):
    """The same run with all rows in this process."""
    given = {
        "client": "hospital",
        "label": "died",
        "sensitive": ("race",),
        "budget": 0.05,
        "min_group_rows": 1,
    }
    given |= {"l2": 0.003, "objective": 10.0, **settings}
    table = next(iter(files.values())).parent / "joined.csv"
    experiment = Experiment(table=str(table), **given)
    return run_experiment(experiment, folder)


@dataclass
class Spoiled(InProcessTransport):
    """Sites that misbehave: ``spoil(name, answer, number)`` changes or drops the n-th answer."""

    spoil: object = None
    sent: dict = field(default_factory=dict)

    def send(self, node, content, seconds):
        name = self.configs[node]["name"]
        number = self.sent[name] = self.sent.get(name, 0) + 1
        answer = self.spoil(name, decode_answer(reply_to(content, self.configs[node])), number)
        self.answer = lambda *_: answer if isinstance(answer, bytes) else encode_message(answer)
        message_id = super().send(node, content, seconds)
        if answer is None:
            self._replies.pop(message_id)
        return message_id
