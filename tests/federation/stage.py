"""Real processes on loopback: an app, certificates, a SuperLink and SuperNodes, all bounded."""

import os
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

from in_one_process import open_policy

from fcfl.engines.flower.app_folder import write_app
from fcfl.engines.flower.certificates import make_certificates
from fcfl.engines.flower.local_cluster import SUPERLINK, LocalCluster
from fcfl.engines.processes import descendants
from fcfl.runs.site_config import config_text

FAULTY_CLIENT = """
import os, time
from pathlib import Path
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from fcfl.engines.flower.client_app import from_record, log_to_stderr, to_record
from fcfl.sites.site import reply_to

FAULTS = Path({faults!r})
app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    log_to_stderr()
    name = context.node_config["name"]
    (FAULTS / f"{{name}}.busy").touch()
    raises, sleeps = FAULTS / f"{{name}}.raises", FAULTS / f"{{name}}.sleeps"
    if raises.exists():
        raises.unlink()
        raise RuntimeError("made to raise")
    if sleeps.exists():
        seconds = float(sleeps.read_text())
        sleeps.unlink()
        time.sleep(seconds)
    content = reply_to(from_record(message.content), context.node_config)
    return Message(to_record(content), reply_to=message)
"""


class Stage:
    """A rehearsal that goes wrong on purpose.

    A file ``NAME.raises`` or ``NAME.sleeps`` (with seconds in it) in ``faults`` spoils that
    site's next answer; ``NAME.busy`` says that it has one in hand.
    """

    def __init__(self, folder, files, local_cluster, app):
        self.folder, self.files, self.local_cluster, self.app = folder, files, local_cluster, app
        self.faults = folder / "faults"
        self.faults.mkdir()
        self.over = threading.Event()
        self.supervisors = []

    def config(self, name):
        cache = self.folder / "cache" / name
        own = {"cache": str(cache), "policy": open_policy(self.folder)}
        return {"name": name, "table": str(self.files[name]), **own}

    def start(self, *options, register=True):
        self.local_cluster.start_superlink(*options)
        for name in self.files:
            if register and self.local_cluster.certificates is not None:
                self.local_cluster.register(name)
        for name in self.files:
            if name not in self.local_cluster.processes:
                self.local_cluster.start_site(name, self.config(name))

    def supervise(self, name):
        """Start a site again and again until it stays, as systemd would.

        A SuperLink that still takes a killed node for alive refuses its key for up to a minute.
        """

        def keep_up():
            while not self.over.wait(5):
                if self.local_cluster.processes[name].poll() is not None:
                    self.local_cluster.start_site(name, self.config(name))

        self.local_cluster.start_site(name, self.config(name))
        self.supervisors.append(threading.Thread(target=keep_up, daemon=True))
        self.supervisors[-1].start()

    def run(self, **config):
        """The lines of a run that fcfl itself wrote, as they come."""
        for line in self.local_cluster.run(self.app, config):
            _, marker, sentence = line.partition("fcfl: ")
            if marker:
                yield sentence

    def spoil(self, name, fault, content=""):
        draft = self.faults / "draft"
        draft.write_text(content)
        draft.rename(self.faults / f"{name}.{fault}")

    def server_app_pids(self):
        """The server app's process, which the SuperLink has started."""
        return [
            pid
            for pid in descendants(self.local_cluster.processes[SUPERLINK].pid)
            if "flwr-serverapp" in command_line(pid)
        ]


@contextmanager
def staged(folder, files, seconds, *, secure=True, faulty=False, **config):
    """A stage on which nothing outlasts ``seconds``, or the test."""
    app = folder / "app"
    settings = {
        "sites": ",".join(files),
        "label": "died",
        "sensitive": "race",
        "budget": "0.05",
        "out": str(folder / "out"),
        **config,
    }
    write_app(app, config_text(settings))
    certificates = None
    if secure:
        certificates = app / "certs"
        make_certificates(certificates, list(files))
    with LocalCluster(folder / "local_cluster", certificates) as local_cluster:
        stage = Stage(folder, files, local_cluster, app)
        if faulty:
            text = FAULTY_CLIENT.format(faults=str(stage.faults))
            (app / "client_app.py").write_text(text, encoding="utf-8")
        bell = threading.Timer(seconds, _end, [local_cluster])
        bell.start()
        try:
            yield stage
        finally:
            stage.over.set()
            for supervisor in stage.supervisors:
                supervisor.join()
            bell.cancel()


def _end(local_cluster):
    for process in list(local_cluster.processes.values()):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def command_line(pid):
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def is_running(pid):
    """Whether there is such a process, other than one that has ended and was not buried."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
