"""Options of the commands for sites, read and checked before anything is started."""

import importlib.util
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fcfl._checks import did_you_mean
from fcfl.errors import FCFLError
from fcfl.runs.site_config import CONFIG

from .console import words

CERTIFICATES = "certs"
REHEARSAL = "rehearsal"


def certificates_of(folder: Path, sites: list[str], insecure: bool) -> Path | None:
    """The folder of certificates, if there is one and it is to be used."""
    place = folder / CERTIFICATES
    if insecure or not place.exists():
        return None
    for name in sites:
        if not (place / name).exists():
            raise FCFLError(
                f"Site {name!r} has no key in {str(place)!r}. Make it: fcfl flower certs {folder} "
                f"--sites {','.join(sites)}"
            )
    return place


def node_configs(
    files: Mapping[str, Path], policies: Mapping[str, Path], folder: Path
) -> dict[str, dict[str, str]]:
    """Each site's node config; its encoded rows are kept apart from everybody else's."""
    for name in policies:
        if name not in files:
            raise ValueError(f"`site-policy` names {name!r}, which is not among `sites`.")
    return {
        name: {
            "name": name,
            "table": str(path),
            "cache": str((folder / REHEARSAL / "cache" / str(position)).absolute()),
            **({"policy": str(policies[name])} if name in policies else {}),
        }
        for position, (name, path) in enumerate(files.items())
    }


def named_files(option: str, text: str) -> dict[str, Path]:
    """``north=a.csv,south=b.csv`` as absolute paths of files that are there."""
    found: dict[str, Path] = {}
    for part in words(text):
        name, equals, path = part.partition("=")
        if not (equals and name.strip() and path.strip()):
            raise ValueError(f"`{option}` must be NAME=FILE with commas, got {part!r}.")
        if name.strip() in found:
            raise ValueError(f"`{option}` must name every site once, got {name.strip()!r} twice.")
        found[name.strip()] = Path(path.strip()).absolute()
        if not found[name.strip()].is_file():
            raise ValueError(f"`{option}`: there is no file {path.strip()!r}.")
    return found


def settings_of(pairs: list[str]) -> dict[str, Any]:
    """``key=value``, with the type the key has in an app's settings."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"`set` must be KEY=VALUE, got {pair!r}.")
        if key not in CONFIG:
            raise ValueError(f"`{key}` is no key of a run. {did_you_mean(key, CONFIG)}")
        settings[key] = _typed(key, value, type(CONFIG[key][0]))
    return settings


def _typed(key: str, value: str, kind: type) -> Any:
    if kind is bool and value in ("true", "false"):
        return value == "true"
    try:
        return value if kind is str else {int: int, float: float}[kind](value)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ValueError(f"`{key}` must be {wanted}, got {value!r}.") from None


def app_config(folder: Path) -> dict[str, Any]:
    """The settings in an app's pyproject.toml."""
    path = folder / "pyproject.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return dict(table["tool"]["flwr"]["app"]["config"])
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise FCFLError(f"{str(path)!r} is no app of fcfl ({error}).") from None


def check_installed(package: str) -> None:
    """Say how to get what only the extra brings."""
    if importlib.util.find_spec(package) is None:
        raise FCFLError("This needs Flower, which is not installed: pip install 'fcfl[flower]'")
