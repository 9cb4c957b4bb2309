"""NVIDIA FLARE without its processes: kits, jobs, transport, controller, what the lead does."""

import json
import os
import re
import signal
import stat
import sys
import tomllib
from contextlib import suppress
from types import SimpleNamespace

import pytest
import tomli_w

from hospital import fcfl, only_error, stays, weights_of, written
from in_one_process import BUDGET, hospitals, node_configs, train, train_joined

pytest.importorskip("nvflare")
import psutil
from flare_tasks import Tasks
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from fcfl.engines.nvflare.kits import CONTROLLER, EXECUTOR, make_kits
from fcfl.engines.nvflare.lead import Fault, Flare, write_job
from fcfl.engines.nvflare.rehearsal import LocalFlare
from fcfl.engines.nvflare.server import SETTINGS, JobAborted, TaskTransport, TrainingController
from fcfl.engines.nvflare.site import TASK, SizeLimit, answer, to_shareable
from fcfl.errors import FCFLError
from fcfl.runs.site_config import CONFIG, SitesConfig
from fcfl.sites.messages import Introduce, Refusal, Terms, decode_answer, encode_message

NAMES = ("north", "south")
GIVEN = ("--sites", "north,south", "--label", "died", "--sensitive", "race", "--budget", "0.05")


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kits")
    make_kits(folder, NAMES, "localhost", 8002)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return hospitals(tmp_path_factory.mktemp("tables"), stays(200, hospitals=NAMES))


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_kit_allows_no_code_and_only_our_classes(kits):
    for name in ("server", *NAMES):
        local = kits / "kits" / name / "local"
        permissions = read(local / "authorization.json")["permissions"]
        assert list(permissions) == ["lead"]
        allowed = {right for right, who in permissions["lead"].items() if who != "none"}
        at_server = {"get_job_log"} if name == "server" else set()
        assert allowed == {"submit_job", "manage_job", "view"} | at_server
        resources = read(local / "resources.json")
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert "/tmp/nvflare" not in json.dumps(resources)
        for path in resources["class_allow_list"]:
            module, _, class_name = path.rpartition(".")
            assert module.startswith("fcfl.") and hasattr(sys.modules[module], class_name)
    server = read(kits / "kits" / "server" / "local" / "resources.json")
    stores = re.findall(r'"(/[^"]*-storage)"', json.dumps(server))
    assert len(stores) == 2
    assert all(store.startswith(str(kits / "kits" / "server")) for store in stores)


def test_a_sites_kit_keeps_its_logs_and_limits_answers(kits):
    local = kits / "kits" / "north" / "local"
    resources = read(local / "resources.json")
    assert resources["allow_log_streaming"] is False
    assert not [part for part in resources["components"] if "log" in part["id"]]
    (scope,) = read(local / "privacy.json")["scopes"]
    assert scope["task_result_filters"][0]["args"]["most_mb"] > 0
    assert tomllib.loads((local / "site.toml").read_text())["name"] == "north"
    startup = read(local.parent / "startup" / "fed_client.json")
    assert startup["require_signed_jobs"] is True
    assert startup["client"]["connection_security"] == "mtls"


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_keys_are_private(kits):
    for path in (*kits.glob("kits/*/startup/*.key"), *kits.glob("authority/**/*.json")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_adding_a_site_keeps_the_other_kits(tmp_path):
    made = ("nvflare", "provision", tmp_path, "--host", "localhost")
    assert fcfl(*made, "--sites", "north").exit_code == 0
    keys = {path: path.read_bytes() for path in tmp_path.glob("kits/*/startup/*.key")}
    outcome = fcfl(*made, "--sites", "north,south")
    assert outcome.exit_code == 0 and outcome.output.count("wrote ") == 1
    assert all(path.read_bytes() == content for path, content in keys.items())
    roots = {path.read_bytes() for path in tmp_path.glob("kits/*/startup/rootCA.pem")}
    assert len(roots) == 1 and (tmp_path / "kits" / "south" / "startup" / "client.key").exists()
    assert "All kits exist in" in fcfl(*made, "--sites", "north,south").output
    other = fcfl(*made[:3], "--host", "elsewhere.example", "--sites", "north")
    assert "localhost:8002, not elsewhere.example:8002" in only_error(other)


@pytest.mark.parametrize(
    ("folder", "host", "site", "named"),
    [
        *(("app", "localhost", name, repr(name)) for name in ("no rth", "server", "LEAD", "nörth")),
        ("app", "localhost", "../north", "'../north'"),
        ("my app", "localhost", "north", "space"),
        ("app", "a b", "north", "--host"),
    ],
)
def test_provision_rejects_what_no_certificate_can_have(tmp_path, folder, host, site, named):
    outcome = fcfl("nvflare", "provision", tmp_path / folder, "--host", host, "--sites", site)
    assert named in only_error(outcome)
    assert not list(tmp_path.iterdir())


def test_new_writes_settings_of_a_run(tmp_path):
    folder = tmp_path / "app"
    assert fcfl("nvflare", "new", folder, *GIVEN).exit_code == 0
    config = tomllib.loads((folder / "settings.toml").read_text(encoding="utf-8"))
    assert set(CONFIG) - set(config) == {"nodes"}
    run = SitesConfig.from_run_config(config)
    assert run.sites == NAMES and run.out == folder / "runs" / "run"
    assert "already exists" in only_error(fcfl("nvflare", "new", folder))
    assert "The lead's kit" in only_error(fcfl("nvflare", "run", folder))
    assert "There is no app in" in only_error(fcfl("nvflare", "run", tmp_path))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--sites", "north"], "--sites"),
        (["--sites", "north=absent.csv"], "absent.csv"),
        (["--sites", "{north},{north}"], "--sites"),
        (["--sites", "{north}", "--set", "l2=-1"], "l2"),
        (["--sites", "{north}", "--set", "lookback=1"], "lookback"),
        (["--sites", "{north}", "--set", "l2"], "--set"),
        (["--sites", "{north}", "--set", "resume=7"], "--resume"),
        (["--sites", "{north}", "--site-policy", "x={file}"], "--site-policy"),
    ],
)
def test_up_rejects_wrong_usage_before_it_starts_anything(tmp_path, arguments, named):
    fcfl("nvflare", "new", tmp_path / "app", *GIVEN)
    file = written(stays(20), tmp_path / "north.csv")
    given = [text.format(north=f"north={file}", file=file) for text in arguments]
    assert named in only_error(fcfl("nvflare", "up", tmp_path / "app", *given), code=2)
    assert not (tmp_path / "app" / "rehearsal").exists()


def test_a_stopped_rehearsal_ends_with_the_command_that_continues(tmp_path, monkeypatch):
    app, file = tmp_path / "app", written(stays(20), tmp_path / "a north.csv")
    fcfl("nvflare", "new", app, *GIVEN)
    given = ["nvflare", "up", str(app), "--sites", f"north={file}", "--set", "seed=3"]

    def stop(folder, nodes, config, on_message):
        raise KeyboardInterrupt

    monkeypatch.setattr("fcfl.engines.nvflare.rehearsal.rehearse", stop)
    printed = only_error(fcfl(*given, "--overwrite")).partition("Continue with: fcfl ")[2]
    quoted = f"'north={file}'"
    expected = " ".join([*given, "--resume"])
    assert printed == expected.replace(f"north={file}", quoted)


def test_a_job_has_no_code_and_its_settings_stay_at_the_server(tmp_path):
    job = write_job(tmp_path, NAMES, {"sites": "north,south", "out": "/srv/out", **BUDGET})
    found = {str(path.relative_to(job)) for path in job.rglob("*") if path.is_file()}
    at_sites = [name for name in found if name.startswith("at-sites")]
    assert at_sites == ["at-sites/config/config_fed_client.json"]
    assert not [name for name in found if name.endswith(".py") or "custom" in name]
    assert read(job / "meta.json")["mandatory_clients"] == list(NAMES)
    (executor,) = read(job / at_sites[0])["executors"]
    assert executor == {"tasks": [TASK], "executor": {"path": EXECUTOR, "args": {}}}
    (workflow,) = read(job / "at-server" / "config" / "config_fed_server.json")["workflows"]
    assert workflow["path"] == CONTROLLER and workflow["args"] == {}


def test_a_run_over_tasks_equals_the_run_of_one_process(files, tmp_path):
    tasks = Tasks(node_configs(files, tmp_path), tmp_path / "sites")
    transport = TaskTransport(NAMES, tasks.send)
    train(transport, tmp_path / "out", NAMES, nodes="north=0,south=1", confidence=0.0)
    train_joined(files, tmp_path / "joined", confidence=0.0)
    assert weights_of(tmp_path / "out") == weights_of(tmp_path / "joined")
    assert not transport.unanswered


def test_an_aborted_job_stops_waiting():
    transport = TaskTransport(NAMES, lambda task, name: None, lambda: True)
    with pytest.raises(JobAborted):
        transport.receive(["0"])


def run_controller(files, folder, spoil, caplog, **config):
    """The controller's last error line, as the lead reads it in the server's log."""
    caplog.set_level("INFO", logger="fcfl")
    tasks = Tasks(node_configs(files, folder), folder / "sites")
    tasks.spoil = lambda *about: spoil(tasks, *about)
    config = {"sites": ",".join(NAMES), "out": str(folder / "out"), **BUDGET, **config}
    (folder / SETTINGS).write_text(tomli_w.dumps(config), encoding="utf-8")
    clients = [SimpleNamespace(name=name) for name in NAMES]
    context = SimpleNamespace(
        get_engine=lambda: SimpleNamespace(get_clients=lambda: clients),
        get_workspace=lambda: SimpleNamespace(get_app_config_dir=lambda job: str(folder)),
        get_job_id=lambda: "job",
    )
    controller, ends = TrainingController(), []
    controller.send = lambda task, fl_ctx, targets: tasks.send(task, *targets)
    controller.system_panic = lambda sentence, fl_ctx: ends.append(sentence)
    controller.control_flow(SimpleNamespace(triggered=False), context)
    (sentence,) = ends
    (line,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"][-1:]
    assert line.endswith(sentence)
    return line


def test_a_refusal_ends_the_run_with_the_sites_sentence(files, tmp_path, caplog):
    def spoil(tasks, name, number, result):
        if (name, number) == ("south", 4):
            tasks.site_file("south").unlink()
        return result

    line = run_controller(files, tmp_path, spoil, caplog)
    assert line.startswith("error: ") and "'south'" in line
    assert "site.toml cannot be read." in line


def test_an_answer_over_the_sites_limit_of_size_is_an_error(files, tmp_path, caplog):
    def spoil(tasks, name, number, result):
        return SizeLimit(0.001).process(result, None) if number > 4 else result

    line = run_controller(files, tmp_path, spoil, caplog)
    assert line.startswith("error: ") and "size limit" in line


def test_a_site_whose_job_dies_is_a_fault(files, tmp_path, caplog):
    def spoil(tasks, name, number, result):
        is_dead = name == "south" and number > 3
        return make_reply(ReturnCode.EXECUTION_EXCEPTION) if is_dead else result

    line = run_controller(files, tmp_path, spoil, caplog)
    assert line.startswith("fault: ") and "'south'" in line and "EXECUTION_EXCEPTION" in line


def test_a_site_answers_only_under_the_name_of_its_certificate(files, tmp_path):
    hello = encode_message(Introduce(Terms("died", ("race",), (), None, 0.3, 0)))
    place = tmp_path / "site.toml"
    place.write_text(f'table = "{files["north"]}"\nledger = "{tmp_path / "ledger"}"\n')
    assert decode_answer(answer(hello, "north", place)).content.name == "north"
    place.write_text('name = "south"\n' + place.read_text())
    reply = decode_answer(answer(hello, "north", place))
    assert reply.name == "north" and isinstance(reply.content, Refusal)
    assert "'north'" in reply.content.sentence


def test_only_our_answers_within_the_limit_leave_a_site():
    limit = SizeLimit(1)
    fits, large, other = to_shareable(bytes(2**20)), to_shareable(bytes(2**20 + 1)), Shareable()
    other["rows"] = [1, 2, 3]
    assert limit.process(fits, None) is fits
    for held_back in (large, other):
        result = limit.process(held_back, None)
        assert result.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
        assert "payload" not in result and "rows" not in result


class Server(Flare):
    """A server whose jobs end with the errors in ``ends``, or with None."""

    def __init__(self, *ends):
        self.ends, self.submitted, self.told = list(ends), [], []

    def sites(self):
        return NAMES

    def jobs(self):
        return []

    def submit(self, sites, config):
        self.submitted.append(dict(config))
        return "job"

    def follow(self, job_id, sites, seconds, on_message):
        end = self.ends.pop(0)
        if end is not None:
            raise end

    def run(self, config, tries=5):
        self.train(NAMES, config, tries=tries, seconds=1.0, on_message=self.told.append)


def test_a_lost_run_is_submitted_again_with_resume():
    server = Server(Fault("gone"), Fault("away"), None)
    config = {"out": "/x", "overwrite": True}
    server.run(config)
    first, *others = server.submitted
    assert first == config and len(others) == 2
    assert all(one["resume"] and not one["overwrite"] for one in others)
    assert server.told[0].startswith("gone ")


def test_errors_are_not_resubmitted_and_faults_only_so_often():
    server = Server(FCFLError("Site 'north' cannot take part: no."))
    with pytest.raises(FCFLError, match="'north' cannot take part"):
        server.run({})
    assert len(server.submitted) == 1
    server = Server(*[Fault("gone")] * 3)
    with pytest.raises(FCFLError, match="gone"):
        server.run({}, tries=3)
    assert len(server.submitted) == 3


class Sleepers(LocalFlare):
    """Processes that would outlive the test; a second SIGTERM comes while the first is handled."""

    def start(self, name):
        self._start_command(name, ["sleep", "30"], self.folder)

    def stop(self, name, **how):
        os.kill(os.getpid(), signal.SIGTERM)
        super().stop(name, **how)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_second_sigterm_leaves_no_process(tmp_path):
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as `up` has it
    sleepers = Sleepers(tmp_path, tmp_path)
    try:
        with sleepers:
            for name in NAMES:
                sleepers.start(name)
            started = list(sleepers.processes.values())
        assert not [process for process in started if process.is_running()]
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()
