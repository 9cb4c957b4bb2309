"""The parts of the second engine, without its processes: kits, jobs, transport, answers."""

import json
import os
import re
import stat
import threading
import tomllib
from types import SimpleNamespace

import pytest
from in_one_process import BUDGET, hospitals, node_configs, train, train_joined

from fcfl.errors import FCFLError
from hospital import fcfl, only_error, stays, weights_of

pytest.importorskip("nvflare")
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from fcfl.engines.nvflare.flare_session import Ended, Flare, ServerStatus, ServerUnreachable
from fcfl.engines.nvflare.job_folder import write_job
from fcfl.engines.nvflare.kits import make_kits
from fcfl.engines.nvflare.recovery import Patience, run_through_faults
from fcfl.engines.nvflare.site_executor import SizeLimit, answer
from fcfl.engines.nvflare.task_transport import JobAborted, TaskTransport, to_shareable
from fcfl.runs.site_config import CONFIG, SitesConfig
from fcfl.sites.messages import Introduce, Refusal, Terms, decode_answer, encode_message
from fcfl.sites.transport import InProcessTransport

NAMES = ("north", "south")


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kits")
    make_kits(folder, NAMES, "localhost", 8002)
    return folder


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_kit_lets_nobody_bring_code_and_names_our_classes_only(kits):
    for name in ("server", *NAMES):
        local = kits / "kits" / name / "local"
        permissions = read(local / "authorization.json")["permissions"]
        assert list(permissions) == ["lead"]
        allowed = {right for right, who in permissions["lead"].items() if who != "none"}
        at_server = {"get_job_log"} if name == "server" else set()
        assert allowed == {"submit_job", "manage_job", "view"} | at_server
        resources = read(local / "resources.json")
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert all(path.startswith("fcfl.") for path in resources["class_allow_list"])
        assert "/tmp/nvflare" not in json.dumps(resources)
    server = read(kits / "kits" / "server" / "local" / "resources.json")
    stores = re.findall(r'"(/[^"]*-storage)"', json.dumps(server))
    assert len(stores) == 2
    assert all(store.startswith(str(kits / "kits" / "server")) for store in stores)


def test_a_sites_kit_keeps_its_logs_and_limits_what_leaves(kits):
    local = kits / "kits" / "north" / "local"
    resources = read(local / "resources.json")
    assert resources["allow_log_streaming"] is False
    assert not [part for part in resources["components"] if "log" in part["id"]]
    (scope,) = read(local / "privacy.json")["scopes"]
    assert scope["task_result_filters"][0]["args"] == {"most_mb": 128}
    assert tomllib.loads((local / "site.toml").read_text())["name"] == "north"
    startup = read(local.parent / "startup" / "fed_client.json")
    assert startup["require_signed_jobs"] is True
    assert startup["client"]["connection_security"] == "mtls"


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_kits_and_the_authoritys_key_are_private(kits):
    for path in (*kits.glob("kits/*/startup/*.key"), *kits.glob("authority/**/*.json")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_site_is_added_and_other_kits_stay(tmp_path):
    made = ("nvflare", "provision", tmp_path, "--host", "localhost")
    assert fcfl(*made, "--sites", "north").exit_code == 0
    keys = {path: path.read_bytes() for path in tmp_path.glob("kits/*/startup/*.key")}
    outcome = fcfl(*made, "--sites", "north,south")
    assert outcome.exit_code == 0 and outcome.output.count("wrote ") == 1
    assert all(path.read_bytes() == content for path, content in keys.items())
    roots = {path.read_bytes() for path in tmp_path.glob("kits/*/startup/rootCA.pem")}
    assert len(roots) == 1 and (tmp_path / "kits" / "south" / "startup" / "client.key").exists()
    assert "Everything is in" in fcfl(*made, "--sites", "north,south").output
    other = fcfl(*made[:3], "--host", "elsewhere.example", "--sites", "north")
    assert "are for the server localhost:8002, not elsewhere.example:8002" in only_error(other)


@pytest.mark.parametrize("name", ["no rth", "server", "lead", "../north", "nörth"])
def test_names_that_no_certificate_can_have_are_refused(tmp_path, name):
    outcome = fcfl("nvflare", "provision", tmp_path, "--host", "localhost", "--sites", name)
    assert f"site's name {name!r} cannot be that of a kit" in only_error(outcome)
    assert not list(tmp_path.iterdir())


def test_a_path_with_a_space_and_a_host_that_is_none_are_refused(tmp_path):
    place = tmp_path / "my app"
    outcome = fcfl("nvflare", "provision", place, "--host", "localhost", "--sites", "north")
    assert "the path has a space in it" in only_error(outcome)
    outcome = fcfl("nvflare", "provision", tmp_path, "--host", "a b", "--sites", "north")
    assert "`--host` must be the server's name or address, got 'a b'" in only_error(outcome)


def test_new_writes_settings_that_are_a_run(tmp_path):
    folder = tmp_path / "app"
    made = ("--sites", "north,south", "--label", "died", "--sensitive", "race", "--budget", "0.05")
    assert fcfl("nvflare", "new", folder, *made).exit_code == 0
    text = (folder / "settings.toml").read_text(encoding="utf-8")
    config = tomllib.loads(text)
    assert set(CONFIG) - set(config) == {"nodes"}
    run = SitesConfig.from_run_config(config)
    assert run.sites == NAMES and run.folder == folder / "runs" / "run"
    assert "already exists" in only_error(fcfl("nvflare", "new", folder))
    assert "There is no lead's kit" in only_error(fcfl("nvflare", "run", folder))
    assert "There is no project in" in only_error(fcfl("nvflare", "run", tmp_path))


def test_a_job_brings_no_code_and_tells_the_sites_nothing_of_the_run(tmp_path):
    job = write_job(tmp_path, NAMES, {"sites": "north,south", "out": "/srv/out", **BUDGET})
    files = {str(path.relative_to(job)) for path in job.rglob("*") if path.is_file()}
    at_sites = [name for name in files if name.startswith("at-sites")]
    assert at_sites == ["at-sites/config/config_fed_client.json"]
    assert not [name for name in files if name.endswith(".py") or "custom" in name]
    assert read(job / "meta.json")["mandatory_clients"] == list(NAMES)
    assert read(job / at_sites[0])["max_runner_sync_timeout"] > 60  # the engine's own
    executor = read(job / at_sites[0])["executors"][0]["executor"]
    assert executor["args"] == {} and executor["path"].endswith(".SiteExecutor")


class Engine:
    """What the engine does with Tasks: another thread answers, and a callback files the result."""

    def __init__(self, configs, spoil=lambda name, result: result):
        self.configs = {config["name"]: config for config in configs.values()}
        self.spoil = spoil

    def send(self, task, name):
        def work():
            inside = InProcessTransport({0: self.configs[name]})
            inside.send(0, task.data["payload"], 1.0)
            (reply,) = inside.receive(["0"])
            result = self.spoil(name, to_shareable(reply.content))
            task.result_received_cb(SimpleNamespace(result=result), None)

        threading.Thread(target=work).start()


def test_a_run_over_tasks_is_the_run_of_one_process(tmp_path):
    files = hospitals(tmp_path, stays(200, hospitals=NAMES))
    transport = TaskTransport(NAMES, Engine(node_configs(files, tmp_path)).send)
    train(transport, tmp_path / "out", NAMES, nodes="north=0,south=1", confidence=0.0)
    train_joined(files, tmp_path / "joined", confidence=0.0)
    assert weights_of(tmp_path / "out") == weights_of(tmp_path / "joined")


def test_a_site_whose_part_fails_is_named(tmp_path):
    files = hospitals(tmp_path, stays(60, hospitals=NAMES))

    def spoil(name, result):
        return make_reply(ReturnCode.EXECUTION_EXCEPTION) if name == "south" else result

    transport = TaskTransport(NAMES, Engine(node_configs(files, tmp_path), spoil).send)
    message_id = transport.send(1, b"question", 1.0)
    (reply,) = transport.receive([message_id])
    assert reply.content is None and "EXECUTION_EXCEPTION" in reply.failure and not reply.can_retry


def test_a_job_that_is_aborted_stops_waiting():
    transport = TaskTransport(NAMES, lambda task, name: None, lambda: True)
    with pytest.raises(JobAborted):
        transport.receive(["0"])


def test_a_site_answers_under_the_name_of_its_certificate_only(tmp_path):
    files = hospitals(tmp_path, stays(60, hospitals=NAMES))
    hello = encode_message(Introduce(Terms("died", ("race",), (), None, 0.3, 0)))
    place = tmp_path / "site.toml"
    place.write_text(f'table = "{files["north"]}"\nledger = "{tmp_path / "ledger"}"\n')
    assert decode_answer(answer(hello, "north", place)).content.name == "north"
    place.write_text('name = "south"\n' + place.read_text())
    said = decode_answer(answer(hello, "north", place))
    assert said.name == "north" and isinstance(said.content, Refusal)
    assert "must be that of the certificate, 'north'" in said.content.sentence
    place.unlink()
    said = decode_answer(answer(hello, "north", place))
    assert said.content.sentence == "site.toml cannot be read."


def test_nothing_but_answers_of_ours_leaves_and_none_that_is_too_large():
    limit = SizeLimit(1)
    fits, large, other = to_shareable(bytes(2**20)), to_shareable(bytes(2**20 + 1)), Shareable()
    other["rows"] = [1, 2, 3]
    assert limit.process(fits, None) is fits
    for held_back in (large, other):
        result = limit.process(held_back, None)
        assert result.get_return_code() == ReturnCode.TASK_RESULT_FILTER_ERROR
        assert "payload" not in result and "rows" not in result


class Server(Flare):
    """A server whose jobs end as they are told to."""

    def __init__(self, *ends):
        self.ends, self.submitted, self.waited = list(ends), [], 0

    def status(self):
        return ServerStatus(NAMES, ())

    def wait_for_sites(self, sites, seconds):
        self.waited += 1

    def submit(self, sites, config):
        self.submitted.append(dict(config))
        return "job"

    def follow(self, job_id, on_message, shown=0):
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


def test_a_run_that_was_lost_is_submitted_again_with_resume():
    server = Server(Ended("gone", True), ServerUnreachable("away"), Ended())
    told = []
    config = {"out": "/x", "overwrite": True}
    run_through_faults(server, NAMES, config, Patience(), told.append)
    first, *others = server.submitted
    assert first == config and len(others) == 2
    assert all(one["resume"] and not one["overwrite"] for one in others)
    assert told[0].startswith("gone Going on as soon as")


def test_an_error_of_the_run_ends_it_and_faults_end_it_after_so_many_tries():
    server = Server(Ended("Site 'north' cannot take part: no."))
    with pytest.raises(FCFLError, match="'north' cannot take part"):
        run_through_faults(server, NAMES, {}, Patience(), print)
    assert len(server.submitted) == 1
    server = Server(*[Ended("gone", True)] * 3)
    with pytest.raises(FCFLError, match="gone"):
        run_through_faults(server, NAMES, {}, Patience(tries=3), lambda line: None)
    assert len(server.submitted) == 3
