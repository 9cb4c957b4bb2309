"""The folder of a Flower app that trains with fcfl."""

import tomllib
from pathlib import Path

import tomli_w

from fcfl import __version__
from fcfl._files import replace_file
from fcfl.engines.flower.proxy import proxy_configuration
from fcfl.engines.rehearsal_files import write_new
from fcfl.errors import FCFLError
from fcfl.sites.settings import ConfigValue

FILES = (
    "pyproject.toml", "server_app.py", "client_app.py", "nginx.conf", "README.md", ".gitignore",
)  # fmt: skip

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fcfl-sites"
version = "1.0.0"
description = "One model for several sites, each within its disparity budget"
license = "Apache-2.0"
# Install these at the server and at every site; nothing is installed by a run.
dependencies = ["fcfl[flower]=={version}"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fcfl"
# Only these files travel; keys, results and tables never do.
fab-include = ["server_app.py", "client_app.py", "README.md"]

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

# Every key can be set for one run: flwr run . CONNECTION --run-config 'budget="0.02"'
[tool.flwr.app.config]
{config}"""

_SERVER = '''\
"""The server's part: train over the sites, write the folder `out` and its report."""

from fcfl.engines.flower.server_app import server_app
from fcfl.runs.serving import serve

app = server_app(serve)
'''

_CLIENT = '''\
"""A site's part: answer questions about its own table, which its node config names."""

from fcfl.engines.flower.client_app import app

__all__ = ["app"]
'''

_README = """\
# One model for several sites

Made by `fcfl flower new`. The whole way, from certificates to a trained model, is in fcfl's
`docs/deployment.md`; in short:

    fcfl flower certs . --sites {sites} --host superlink.example.org
    fcfl flower up . --sites {tables}     # a rehearsal on one machine

At the server: `flower-superlink` on 127.0.0.1 with the certificates, `nginx -c …/nginx.conf` before
it, `fcfl flower register . CONNECTION --sites {sites}` for the sites' public keys, then
`flwr run . CONNECTION --stream`.

At a site: a file `site.toml`

    name = "{first}"                       # as in `sites` of pyproject.toml
    table = "/srv/fcfl/{first}.csv"        # read here, never sent
    policy = "/srv/fcfl/policy.toml"     # what this site insists on, and its limits
    ledger = "/srv/fcfl/ledger"          # what it has answered: fcfl site status site.toml

and `flower-supernode … --node-config site.toml`.
"""

_IGNORED = "certs/\nrehearsal/\nruns/\nproxy*\n.proxy*\n__pycache__/\n*.fab\n"


def write_app(folder: Path, config: str, *, overwrite: bool = False) -> list[Path]:
    """Write the app; ``config`` is its run config as TOML, with comments."""
    pyproject = _PYPROJECT.replace("{version}", __version__).replace("{config}", config)
    readme = _readme(str(tomllib.loads(config).get("sites", "")))
    contents = (pyproject, _SERVER, _CLIENT, proxy_configuration(folder), readme, _IGNORED)
    files = dict(zip(FILES, contents, strict=True))
    return write_new(folder, "an app", files, overwrite=overwrite)


def _readme(sites: str) -> str:
    """The way from here on, with the names of the sites where they are known."""
    names = [name.strip() for name in sites.split(",") if name.strip()] or ["north", "south"]
    tables = ",".join(f"{name}={name}.csv" for name in names)
    filled = _README.replace("{sites}", ",".join(names)).replace("{tables}", tables)
    return filled.replace("{first}", names[0])


def read_app_config(folder: Path) -> dict[str, ConfigValue]:
    """The run config in an app's pyproject.toml."""
    path = folder / "pyproject.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return dict(table["tool"]["flwr"]["app"]["config"])
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise FCFLError(f"{str(path)!r} is not an app of fcfl ({error}).") from None


def write_app_config(folder: Path, key: str, value: ConfigValue) -> None:
    """Change one key of the run config in an app's pyproject.toml; comments stay."""
    path = folder / "pyproject.toml"
    if key not in read_app_config(folder):
        raise FCFLError(f"{str(path)!r} has no key `{key}`. Write the app anew: fcfl flower new")
    head, marker, config = path.read_text(encoding="utf-8").partition("[tool.flwr.app.config]\n")
    lines = [
        tomli_w.dumps({key: value}).rstrip("\n") if line.startswith(f"{key} = ") else line
        for line in config.split("\n")
    ]
    replace_file(path, (head + marker + "\n".join(lines)).encode())
