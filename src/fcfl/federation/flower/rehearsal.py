"""A rehearsal of an app on this machine: its sites' files and keys, and the run itself."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from fcfl.errors import FCFLError
from fcfl.federation.flower.local_cluster import LocalCluster
from fcfl.federation.site_settings import Config

CERTIFICATES = "certs"
REHEARSAL = "rehearsal"


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


def rehearse(
    folder: Path,
    certificates: Path | None,
    nodes: Mapping[str, Mapping[str, str]],
    config: Config,
    result: Path,
    on_message: Callable[[str], None],
) -> None:
    """Start a server and the sites, pass on what the run says, stop everything.

    The run went well where it told of no error and has written the file ``result``.
    """
    before = result.stat().st_mtime_ns if result.exists() else None
    error = ""
    place = folder / REHEARSAL
    with LocalCluster(place, certificates) as cluster:
        secure = "without TLS" if certificates is None else "with TLS and node keys"
        on_message(
            f"Starting a server and {len(nodes)} sites on 127.0.0.1, {secure}; logs in {place}"
        )
        cluster.start_superlink()
        bound = {} if certificates is None else {name: cluster.register(name) for name in nodes}
        for name, node in nodes.items():
            cluster.start_site(name, node)
        text = ",".join(f"{name}={number}" for name, number in bound.items())
        for line in cluster.run(folder, {**config, "nodes": text}):
            _, marker, sentence = line.partition("fcfl: ")
            if marker and sentence.startswith("error: "):
                error = sentence.removeprefix("error: ")
            elif marker:
                on_message(sentence)
    if error or not result.exists() or result.stat().st_mtime_ns == before:
        error = error or "It ended without a result."
        raise FCFLError(f"{error} See {str(place / 'run.log')!r}, and the other logs beside it.")


def check_installed(package: str) -> None:
    """Say how to get what only the extra brings."""
    if importlib.util.find_spec(package) is None:
        raise FCFLError("This needs Flower, which is not installed: pip install 'fcfl[flower]'")
