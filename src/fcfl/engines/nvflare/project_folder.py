"""The folder of a project over NVIDIA FLARE: the run's settings, kits, results."""

import tomllib
from pathlib import Path

from fcfl.engines.rehearsal_files import write_new
from fcfl.errors import FCFLError
from fcfl.sites.settings import ConfigValue

SETTINGS = "settings.toml"
FILES = (SETTINGS, "README.md", ".gitignore")

_HEAD = "# Every key can be set for one run: fcfl nvflare run FOLDER --set KEY=VALUE\n"
_README = """\
# One model for several sites

Made by `fcfl nvflare new`. The whole way, from kits to a trained model, is in fcfl's
`docs/nvflare.md`; in short:

    fcfl nvflare up . --sites north=north.csv,south=south.csv     # a rehearsal on one machine
    fcfl nvflare provision . --sites north,south --host server.example.org

gives a kit to the server, to each site and to the person who starts runs, in `kits`. Keep
`authority`, which has the CA's key, to yourself. Then `fcfl nvflare run .` trains, and goes on
after a fault.
"""
_IGNORED = "authority/\nkits/\nrehearsal/\nruns/\n"


def write_project(folder: Path, config: str, *, overwrite: bool = False) -> list[Path]:
    """Write the folder; ``config`` is the run config as TOML, with comments."""
    contents = (_HEAD + config, _README, _IGNORED)
    files = dict(zip(FILES, contents, strict=True))
    return write_new(folder, "a project", files, overwrite=overwrite)


def read_settings(folder: Path) -> dict[str, ConfigValue]:
    """The run config of a project."""
    path = folder / SETTINGS
    if not path.exists():
        raise FCFLError(f"There is no project in {str(folder)!r}. Make it: fcfl nvflare new")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FCFLError(f"{str(path)!r} is not TOML: {error}.") from None
