"""The folder of a Flower app that trains with fcfl: its settings; the code is installed."""

from fcfl import __version__

PYPROJECT = "pyproject.toml"
_TEMPLATE = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fcfl-sites"
version = "1.0.0"
description = "One model for several sites, each within its disparity budget"
license = "Apache-2.0"
# Install these at the server and at every site; a run installs nothing.
dependencies = ["fcfl[flower]=={version}"]

[tool.flwr.app]
publisher = "fcfl"
fab-include = ["pyproject.toml"]  # only this file is sent: both apps come with fcfl

[tool.flwr.app.components]
serverapp = "fcfl.engines.flower.server_app:app"
clientapp = "fcfl.engines.flower.client_app:app"

# Every key can be set for one run: flwr run . CONNECTION --run-config 'budget="0.02"'
[tool.flwr.app.config]
{config}"""


def app_files(config: str) -> dict[str, str]:
    """Return the files of an app by name; ``config`` is its run config as TOML, with comments."""
    return {PYPROJECT: _TEMPLATE.format(version=__version__, config=config)}
