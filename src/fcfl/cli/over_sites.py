"""Options and files that the commands of both engines share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fcfl.errors import FCFLError
from fcfl.runs.options import read_sites
from fcfl.runs.site_config import config_text, run_config

from .console import flag, say, usage
from .settings import Given

Folder = Annotated[Path, Parameter(help="Folder of the app.")]
Sites = Annotated[str, Parameter(metavar="NAME,…", help="Names of all sites, separated by commas.")]
Replace = Annotated[bool, flag("Replace the files of an existing app.")]


def write_app(
    folder: Path,
    files: Mapping[str, str],
    given: Given,
    sites: str,
    *,
    overwrite: bool,
    without: tuple[str, ...] = (),
) -> str:
    """Write files with the settings in place of `{config}`; return the sites' names as text."""
    with usage():
        names = read_sites("sites", sites) if sites else ()
        out = (folder / "runs" / "run").absolute()
        config = run_config({**given, "sites": names, "out": out})
    if folder.exists() and not folder.is_dir():
        raise FCFLError(f"{str(folder)!r} is a file; an app needs a folder.")
    present = [name for name in files if (folder / name).exists()]
    if present and not overwrite:
        raise FCFLError(
            f"{str(folder / present[0])!r} already exists. Choose another folder, or pass "
            "`--overwrite`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        text = content.replace("{config}", config_text(config, without=without))
        (folder / name).write_text(text, encoding="utf-8")
        say(f"wrote {folder / name}")
    return ",".join(names) or "north,south"
