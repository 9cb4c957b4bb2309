"""NVIDIA FLARE's part without its processes: a Task reaches our executor in its own thread."""

import threading
from collections import Counter
from types import SimpleNamespace

import tomli_w

from fcfl.engines.nvflare.site import SITE_FILE, SiteExecutor


class Tasks:
    """Sites in ``folder``/NAME; ``spoil(name, number, result)`` may change the n-th result."""

    def __init__(self, configs, folder, spoil=lambda name, number, result: result):
        self.sent, self.folder, self.spoil = Counter(), folder, spoil
        self.names = sorted(config["name"] for config in configs.values())
        for config in configs.values():
            (folder / config["name"]).mkdir(parents=True)
            self.site_file(config["name"]).write_text(tomli_w.dumps(config), encoding="utf-8")

    def site_file(self, name):
        return self.folder / name / SITE_FILE

    def send(self, task, name):
        self.sent[name] += 1
        number = self.sent[name]
        place = SimpleNamespace(get_site_config_dir=lambda: str(self.folder / name))
        context = SimpleNamespace(get_identity_name=lambda: name, get_workspace=lambda: place)

        def work():
            result = SiteExecutor().execute(task.name, task.data, context, None)
            result = self.spoil(name, number, result)
            task.result_received_cb(SimpleNamespace(result=result), None)

        threading.Thread(target=work).start()
