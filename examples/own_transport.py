"""A transport of your own: sites in processes of their own, connected by pipes.

Run with: python examples/own_transport.py
A transport lists the nodes that can be reached, sends bytes and returns replies; `reply_to` is all
that runs at a site. Rows never leave the site.
"""

import itertools
import multiprocessing
import tempfile
from pathlib import Path

import fcfl
from fcfl.data import load_adult_frames


def site(pipe, config):
    while (message := pipe.recv_bytes()) != b"stop":
        pipe.send_bytes(fcfl.reply_to(message, config))


class Pipes:
    def __init__(self, configs):
        context, self.ids = multiprocessing.get_context("spawn"), itertools.count()
        self.pipes, self.waiting = {}, {}
        for node, config in enumerate(configs):
            self.pipes[node], theirs = context.Pipe()
            context.Process(target=site, args=(theirs, config), daemon=True).start()

    def nodes(self):
        return self.pipes.keys()

    def send(self, node, content, seconds):
        self.pipes[node].send_bytes(content)
        self.waiting[message_id := str(next(self.ids))] = self.pipes[node]
        return message_id

    def receive(self, message_ids):
        ready = [key for key in message_ids if self.waiting[key].poll(0.01)]
        return [fcfl.Reply(key, self.waiting.pop(key).recv_bytes()) for key in ready]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        rows, configs = load_adult_frames()[0], []
        for name, some in rows.groupby(rows["education-num"] > 12):
            table, cache = Path(place) / f"{name}.csv", Path(place) / f"cache-{name}"
            some.to_csv(table, index=False)
            configs.append({"name": f"college {name}", "table": str(table), "cache": str(cache)})
        names = [config["name"] for config in configs]
        sites = fcfl.RemoteFederation(Pipes(configs), names, fcfl.Terms("income", ("sex",)))
        model = fcfl.Linear(sites.agreement.schema.n_features)
        rule = fcfl.Difference("demographic_parity", "sex", 0.05)
        trained = fcfl.train(sites, model, [rule], method=fcfl.SQP("max"), l2=0.01)
    kilobytes = sum(traffic.bytes_from for traffic in sites.traffic.values()) / 1000
    exchanges = sum(trained.exchanges.values())
    print(f"{trained.status} in {exchanges} exchanges, {kilobytes:.0f} kB from the sites.")
    print(f"Decisions keep every budget: {trained.budgets_met}")
    print({name: round(loss, 4) for name, loss in trained.losses.items()})
