"""A rehearsal of an app on this machine: its sites' files and keys, and the run itself."""

from collections.abc import Callable, Mapping
from pathlib import Path

from fcfl.engines.flower.local_cluster import LocalCluster
from fcfl.engines.rehearsal_files import REHEARSAL
from fcfl.errors import FCFLError
from fcfl.sites.settings import Config

CERTIFICATES = "certs"


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
