"""Values that only a run over sites has, as they are written in its config."""

from pathlib import Path

from fcfl._types import ClientId
from fcfl.runs.options import words


def site_names(name: str, text: str) -> tuple[ClientId, ...]:
    """Names separated by commas, sorted; there is at least one, and each is there once."""
    names = words(name, text)
    if not names:
        raise ValueError(f'`{name}` must name the sites of the run: {name}="north,south".')
    twice = sorted({site for site in names if names.count(site) > 1})
    if twice:
        raise ValueError(f"`{name}` must name every site once, got {twice[0]!r} twice.")
    return tuple(sorted(names))


def site_nodes(name: str, text: str) -> dict[ClientId, int]:
    """``north=123,south=456``: the id of each site's node, which belongs to its key."""
    nodes: dict[ClientId, int] = {}
    for part in words(name, text):
        site, equals, number = (piece.strip() for piece in part.rpartition("="))
        if not (equals and site and number.isdigit()):
            raise ValueError(f"`{name}` must be NAME=ID, separated by commas, got {part!r}.")
        nodes[site] = int(number)
    if len(set(nodes.values())) < len(words(name, text)):
        raise ValueError(f"`{name}` must name every site and every node once, got {text!r}.")
    return nodes


def check_absolute(name: str, path: Path) -> None:
    """Refuse a path that depends on where an app runs."""
    if not path.is_absolute():
        raise ValueError(
            f"`{name}` must be an absolute path, got {str(path)!r}: the server's app runs in a "
            "folder of its own."
        )
