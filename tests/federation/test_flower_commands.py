"""`fcfl flower new`, `certs` and `up`, short of starting anything."""

import importlib.util
import ipaddress
import os
import shlex
import ssl
import stat
import tomllib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fcfl.engines.flower.app_folder import read_app_config, write_app_config
from fcfl.errors import FCFLError
from fcfl.runs.site_config import CONFIG, SitesConfig
from hospital import fcfl, only_error, stays, written


def test_new_writes_an_app_whose_settings_are_a_run(tmp_path):
    folder = tmp_path / "my app"
    outcome = fcfl(
        "flower", "new", folder, "--sites", "north,south", "--label", "died", "--sensitive", "race",
        "--budget", "0.05",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    flwr = tomllib.loads(text)["tool"]["flwr"]["app"]
    assert list(flwr["config"]) == list(CONFIG)
    run = SitesConfig.from_run_config(flwr["config"])
    assert run.sites == ("north", "south") and run.experiment.budget == 0.05
    assert run.folder == folder / "runs" / "run"
    for meaning in (meaning for _, meaning in CONFIG.values()):
        assert f"# {meaning}" in text
    for component in flwr["components"].values():
        module, _, _ = component.partition(":")
        compile((folder / f"{module}.py").read_text(encoding="utf-8"), module, "exec")


def test_only_the_apps_own_files_travel(tmp_path):
    fcfl("flower", "new", tmp_path / "app")
    table = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text(encoding="utf-8"))
    included = table["tool"]["flwr"]["app"]["fab-include"]
    assert sorted(included) == ["README.md", "client_app.py", "server_app.py"]


def test_new_does_not_overwrite_unless_told(tmp_path):
    fcfl("flower", "new", tmp_path / "app")
    (tmp_path / "app" / "server_app.py").write_text("mine")
    assert "already exists" in only_error(fcfl("flower", "new", tmp_path / "app"))
    assert (tmp_path / "app" / "server_app.py").read_text() == "mine"
    assert fcfl("flower", "new", tmp_path / "app", "--overwrite").exit_code == 0
    assert (tmp_path / "app" / "server_app.py").read_text() != "mine"


def test_certificates_are_signed_named_and_private(tmp_path):
    outcome = fcfl(
        "flower",
        "certs",
        tmp_path,
        "--sites",
        "north,Hospital 7",
        "--host",
        "link.example,10.0.0.5",
    )
    assert outcome.exit_code == 0, outcome.output
    place = tmp_path / "certs"
    ca = x509.load_pem_x509_certificate((place / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((place / "server.pem").read_bytes())
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["link.example", "localhost"]
    addresses = names.get_values_for_type(x509.IPAddress)
    assert addresses == [ipaddress.ip_address("10.0.0.5"), ipaddress.ip_address("127.0.0.1")]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "server.pem", place / "server.key")
    for site in ("north", "Hospital 7"):
        key = load_ssh_private_key((place / site).read_bytes(), None)
        assert key.curve.name == "secp384r1"
        public = load_ssh_public_key((place / f"{site}.pub").read_bytes())
        assert public == key.public_key()
    if os.name == "posix":
        private = ("ca.key", "server.key", "north", "Hospital 7")
        modes = {name: stat.S_IMODE((place / name).stat().st_mode) for name in private}
        assert set(modes.values()) == {0o600}


def test_keys_that_are_there_are_kept_and_a_site_can_be_added(tmp_path):
    fcfl("flower", "certs", tmp_path, "--sites", "north")
    before = {path.name: path.read_bytes() for path in (tmp_path / "certs").iterdir()}
    outcome = fcfl("flower", "certs", tmp_path, "--sites", "north,south")
    assert outcome.exit_code == 0
    after = {path.name: path.read_bytes() for path in (tmp_path / "certs").iterdir()}
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"south", "south.pub"}
    outcome = fcfl("flower", "certs", tmp_path, "--sites", "north")
    assert "Everything is in" in outcome.output


def test_a_host_that_was_forgotten_is_added_and_nothing_changes_at_the_sites(tmp_path):
    fcfl("flower", "certs", tmp_path, "--sites", "north")
    place = tmp_path / "certs"
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    added = ("flower", "certs", tmp_path, "--sites", "north", "--host", "link.example,10.0.0.5")
    assert fcfl(*added).exit_code == 0
    after = {path.name: path.read_bytes() for path in place.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"server.pem"}
    server = x509.load_pem_x509_certificate(after["server.pem"])
    server.verify_directly_issued_by(x509.load_pem_x509_certificate(after["ca.crt"]))
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["link.example", "localhost"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "server.pem", place / "server.key")
    assert "Everything is in" in fcfl(*added).output
    (place / "ca.key").unlink()
    outcome = fcfl("flower", "certs", tmp_path, "--sites", "north", "--host", "other.example")
    assert "ca.key' is missing; without it nothing is signed" in only_error(outcome)


def test_a_bound_node_is_written_into_the_app_and_its_comments_stay(tmp_path):
    app = tmp_path / "app"
    made = ("--sites", "north,south", "--label", "died", "--sensitive", "race")
    fcfl("flower", "new", app, *made)
    before = (app / "pyproject.toml").read_text(encoding="utf-8")
    write_app_config(app, "nodes", "north=18446744073709551615,south=7")
    after = (app / "pyproject.toml").read_text(encoding="utf-8")
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert changed == ['nodes = "north=18446744073709551615,south=7"']
    run = SitesConfig.from_run_config(read_app_config(app))
    assert run.nodes == {"north": 2**64 - 1, "south": 7}
    with pytest.raises(FCFLError, match="has no key `x`"):
        write_app_config(app, "x", 1)


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ("north", "`nodes` must be NAME=ID, separated by commas, got 'north'"),
        ("north=x,south=2", "`nodes` must be NAME=ID"),
        ("north=2,south=2", "`nodes` must name every site and every node once"),
        ("north=1,north=2", "`nodes` must name every site and every node once"),
        ("north=1", "`nodes` must have the node of every site, or of none; 'south' has none"),
    ],
)
def test_nodes_that_bind_no_names_are_refused(tmp_path, nodes, sentence):
    given = {"sites": "north,south", "label": "died", "sensitive": "race", "out": str(tmp_path)}
    with pytest.raises(ValueError, match=sentence):
        SitesConfig.from_run_config(given | {"nodes": nodes})


def test_register_needs_a_public_key(tmp_path):
    fcfl("flower", "new", tmp_path / "app")
    outcome = fcfl("flower", "register", tmp_path / "app", "hospitals", "--sites", "north")
    assert "Site 'north' has no public key" in only_error(outcome)


@pytest.mark.parametrize(
    ("command", "options", "sentence"),
    [
        ("new", ["--sites", "a,a"], "`--sites` must name every site once, got 'a' twice"),
        ("new", ["--sites", " , "], "`--sites` must name the sites of the run"),
        ("new", ["--budget", "2"], "`--budget` must be a number from 0 to 1, got 2.0"),
        ("certs", ["--sites", "a,a"], "`--sites` must name every site once, got 'a' twice"),
        ("certs", ["--sites", ""], "`--sites` must name the sites of the run"),
    ],
)
def test_wrong_sites_and_budgets_are_told_before_anything_is_written(
    tmp_path, command, options, sentence
):
    outcome = fcfl("flower", command, tmp_path / "app", *options)
    assert sentence in only_error(outcome, code=2)
    assert not (tmp_path / "app").exists()


@pytest.mark.parametrize(
    "name", ["../x", ".hidden", "ca.crt", "ca.key", "server.pem", "server.key"]
)
def test_a_name_that_cannot_be_a_file_is_refused(tmp_path, name):
    told = [
        only_error(fcfl("flower", command, tmp_path, "--sites", f"north,{name}"))
        for command in ("new", "certs")
    ]
    assert told == [f"The site's name {name!r} cannot be the name of a key file."] * 2
    assert not list(tmp_path.iterdir())


def test_the_command_that_new_suggests_can_be_pasted(tmp_path):
    outcome = fcfl("flower", "new", tmp_path / "my app", "--sites", "no rth,<script>")
    (suggested,) = [line for line in outcome.stdout.splitlines() if line.startswith("Next: ")]
    words = shlex.split(suggested.removeprefix("Next: fcfl "))
    assert words == ["flower", "certs", str(tmp_path / "my app"), "--sites", "<script>,no rth"]
    assert fcfl(*words).exit_code == 0


@pytest.mark.parametrize("begun", [False, True])
def test_the_command_that_up_prints_when_stopped_can_be_pasted(tmp_path, monkeypatch, begun):
    app, file = tmp_path / "my app", written(stays(20), tmp_path / "north.csv")
    fcfl("flower", "new", app)
    given = [
        "flower", "up", str(app), "--sites", f"no rth={file}", "--label", "died", "--sensitive",
        "race", "--max-age", "2", "--set", "l2=0.1", "--set", "seed=3", "--insecure",
    ]  # fmt: skip

    def stop(folder, certificates, nodes, config, written, on_message):
        if begun:
            run = SitesConfig.from_run_config(read_app_config(folder) | config)
            run.folder.mkdir(parents=True)
            (run.folder / "experiment.toml").write_text(run.experiment.to_toml())
        raise KeyboardInterrupt

    monkeypatch.setattr("fcfl.cli.flower.rehearse", stop)
    told = only_error(fcfl(*given, "--overwrite"))
    words = shlex.split(told.removeprefix("Stopped. Continue with: fcfl "))
    assert words == [*given, "--resume" if begun else "--overwrite"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--sites", "north"], "`--sites` must be NAME=FILE"),
        (["--sites", "north=absent.csv"], "there is no file 'absent.csv'"),
        (["--sites", "{north},{north}"], "`--sites` must name every site once"),
        (["--sites", "{north}"], "`--label` and `--sensitive` must name columns"),
        (["--sites", "{north}", "--label", "y", "--sensitive", "r", "--set", "l2=-1"], "`l2`"),
        (
            ["--sites", "{north}", "--set", "lookback=1"],
            "Unknown key `lookback` in the run config. Known: 'sites', ",
        ),
        (["--sites", "{north}", "--set", "l2"], "`--set` must be KEY=VALUE"),
        (["--sites", "{north}", "--set", "resume=7"], "`--resume` must be true or false"),
        (
            ["--sites", "{north}", "--label", "y", "--sensitive", "r", "--site-policy", "x={file}"],
            "`--site-policy` names 'x', which is not among `--sites`",
        ),
    ],
)
def test_up_refuses_wrong_usage_before_anything_is_started(tmp_path, arguments, sentence):
    fcfl("flower", "new", tmp_path / "app")
    file = written(stays(20), tmp_path / "north.csv")
    given = [text.format(north=f"north={file}", file=file) for text in arguments]
    outcome = fcfl("flower", "up", tmp_path / "app", *given)
    assert sentence in only_error(outcome, code=2)
    assert not (tmp_path / "app" / "rehearsal").exists()


def test_up_needs_an_app_and_a_key_for_every_site(tmp_path):
    file = written(stays(20), tmp_path / "north.csv")
    outcome = fcfl("flower", "up", tmp_path / "app", "--sites", f"north={file}")
    assert "There is no app in" in only_error(outcome)
    fcfl("flower", "new", tmp_path / "app", "--label", "died", "--sensitive", "race")
    fcfl("flower", "certs", tmp_path / "app", "--sites", "south")
    outcome = fcfl("flower", "up", tmp_path / "app", "--sites", f"north={file}")
    assert "Site 'north' has no key in" in only_error(outcome)


@pytest.mark.parametrize("command", ["certs", "up"])
def test_without_flower_one_sentence_says_how_to_get_it(tmp_path, monkeypatch, command):
    found = importlib.util.find_spec
    hidden = ("flwr", "cryptography")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in hidden else found(name)
    )
    outcome = fcfl("flower", command, tmp_path, "--sites", "north=x.csv")
    assert "pip install 'fcfl[flower]'" in only_error(outcome)


def test_help_has_examples():
    for command in ("new", "certs", "up"):
        outcome = fcfl("flower", command, "--help")
        assert outcome.exit_code == 0 and f"fcfl flower {command} app" in outcome.output
