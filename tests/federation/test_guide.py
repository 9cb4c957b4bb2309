"""docs/deployment.md, followed literally: its commands and files are ones that work."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from fcfl.limits import Limits
from fcfl.policy_file import read_policy
from fcfl.runs.site_config import SitesConfig
from fcfl.sites.settings import SiteSettings
from hospital import fcfl, stays, written

pytest.importorskip("cryptography")
GUIDE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")
LISTINGS = ["\n".join(re.findall(r"^    (.*)$", part, re.M)) for part in GUIDE.split("\n\n")]
COMMANDS = re.findall(r"^    (fcfl .*?)(?: +#.*)?$", GUIDE, re.M)


def listing(first_words):
    """The indented block that begins with these words."""
    (found,) = [text for text in LISTINGS if text.startswith(first_words)]
    return found


def test_every_command_of_the_guide_is_one_that_there_is():
    assert len(COMMANDS) >= 7
    for command in COMMANDS:
        _, *words = shlex.split(command)
        outcome = fcfl(*words[:2], "--help")
        assert outcome.exit_code == 0, command
        for option in (word for word in words if word.startswith("--")):
            assert option in outcome.output, command


def test_the_server_of_the_guide_is_made_and_nginx_accepts_its_proxy(tmp_path):
    for command in [c for c in COMMANDS if c.startswith(("fcfl flower new", "fcfl flower certs"))]:
        words = [str(tmp_path / "app") if w == "app" else w for w in shlex.split(command)[1:]]
        again = ["--overwrite"] if words[1] == "new" else []
        outcome = fcfl(*words, *again)
        assert outcome.exit_code == 0, outcome.output
    table = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text(encoding="utf-8"))
    run = SitesConfig.from_run_config(table["tool"]["flwr"]["app"]["config"])
    assert run.sites == ("north", "south", "west") and run.experiment.budget == 0.05
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if nginx is not None:
        command = [nginx, "-t", "-e", "stderr", "-c", str(tmp_path / "app" / "nginx.conf")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert "flower-superlink --host 127.0.0.1" in GUIDE
    assert not re.search(r"flower-superlink --host 0\.0\.0\.0", GUIDE)


def test_the_files_of_a_site_are_read_and_its_status_is_shown(tmp_path):
    written(stays(60).drop(columns="hospital"), tmp_path / "north.csv")
    policy = listing("withhold-below")
    (tmp_path / "policy.toml").write_text(policy, encoding="utf-8")
    site = listing('name = "north"').replace("/srv/fcfl", str(tmp_path))
    (tmp_path / "site.toml").write_text(site, encoding="utf-8")
    settings = SiteSettings.from_file(tmp_path / "site.toml")
    assert settings.name == "north" and settings.min_group_rows == 20
    assert settings.limits == Limits() and settings.limits.seed == 0
    closed = SiteSettings("north", settings.table)  # the guide's policy is the one without a file
    assert (
        (closed.min_group_rows, closed.withhold_below)
        == (20, 10)
        == (
            settings.min_group_rows,
            settings.withhold_below,
        )
    )
    commented = re.sub(r"^# (?=\w)", "", policy, flags=re.M)  # the optional lines, too
    (tmp_path / "all.toml").write_text(commented, encoding="utf-8")
    assert read_policy(tmp_path / "all.toml").limits.modules == ("our_networks.small:mlp",)
    (status,) = [c for c in COMMANDS if c.startswith("fcfl site status")]
    words = [w.replace("/srv/fcfl", str(tmp_path)) for w in shlex.split(status)[1:]]
    outcome = fcfl(*words)
    assert outcome.exit_code == 0 and "Nothing was asked" in outcome.output


def test_the_limits_in_the_guide_are_the_defaults():
    rows = re.findall(r"^\| (`[\w-]+`(?:, `[\w-]+`)*) \| ([\d,]+(?:, [\d,]+)*) \|", GUIDE, re.M)
    said = {}
    for keys, values in rows:
        names, numbers = re.findall(r"`([\w-]+)`", keys), values.split(", ")
        said |= dict(zip(names, (float(n.replace(",", "")) for n in numbers), strict=True))
    assert len(said) >= 11
    for key, value in said.items():
        assert getattr(Limits(), key.replace("-", "_")) == value, key
