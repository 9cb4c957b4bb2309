"""The files of an app or project and of its rehearsal on this machine, whatever the engine."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from fcfl.errors import FCFLError

REHEARSAL = "rehearsal"


def write_new(folder: Path, what: str, files: Mapping[str, str], *, overwrite: bool) -> list[Path]:
    """Write ``files`` by name; ``what`` needs a folder, and replaces nothing unless told to."""
    if folder.exists() and not folder.is_dir():
        raise FCFLError(f"{str(folder)!r} is a file; {what} needs a folder.")
    present = [name for name in files if (folder / name).exists()]
    if present and not overwrite:
        raise FCFLError(
            f"{str(folder / present[0])!r} already exists. Choose another folder, or pass "
            "`--overwrite`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in files]


def named_files(option: str, text: str) -> dict[str, Path]:
    """``north=a.csv,south=b.csv`` as absolute paths of files that are there."""
    found: dict[str, Path] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, path = part.partition("=")
        if not (equals and name.strip() and path.strip()):
            raise ValueError(f"`{option}` must be NAME=FILE, separated by commas, got {part!r}.")
        if name.strip() in found:
            raise ValueError(f"`{option}` must name every site once, got {name.strip()!r} twice.")
        found[name.strip()] = Path(path.strip()).absolute()
        if not found[name.strip()].is_file():
            raise ValueError(f"`{option}`: there is no file {path.strip()!r}.")
    return found


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


def default_out(folder: Path) -> str:
    """Where a run of the app in this folder writes, unless its config says otherwise."""
    return str((folder / "runs" / "run").absolute())


def check_installed(package: str, extra: str = "flower", engine: str = "Flower") -> None:
    """Say how to get what only an extra brings."""
    if importlib.util.find_spec(package) is None:
        raise FCFLError(f"This needs {engine}, which is not installed: pip install 'fcfl[{extra}]'")
