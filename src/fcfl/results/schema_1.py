"""Results of schema 1, as fcfl wrote them before 0.2, in the form of schema 2."""

from collections.abc import Iterator
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]


def upgrade(content: JsonObject) -> JsonObject:
    """The same result in schema 2.

    ``consistency`` is called ``objective``, and its null, which stood for an infinite temperature
    of method sqp, is "mean". A verdict of null is "unconstrained", a site's ``letters`` are its
    ``messages``. What schema 1 did not know, such as the starts, stays unknown.
    """
    new = _renamed(content, is_tempered=content.get("method") == "sqp")
    if isinstance(new.get("settings"), dict):
        new["settings"] = _renamed(new["settings"], is_tempered=True)
    if isinstance(new.get("selection"), dict):
        new["selection"] = upgrade_selection(new["selection"])
    for entry in _disparities(new):
        if entry.get("verdict") is None:
            entry["verdict"] = "unconstrained"
    for site in _sites(new):
        if "letters" in site:
            site["messages"] = site.pop("letters")
    return new


def upgrade_selection(content: JsonObject) -> JsonObject:
    """A choice by cross-validation, and each setting that it tried."""
    new = _renamed(content, is_tempered=True)
    for name in ("best", "chosen"):
        if isinstance(new.get(name), dict):
            new[name] = _renamed(new[name], is_tempered=True)
    new["table"] = [_renamed(line, is_tempered=True) for line in new.get("table", ())]
    return new


def _renamed(content: JsonObject, *, is_tempered: bool) -> JsonObject:
    new = {"objective" if key == "consistency" else key: item for key, item in content.items()}
    if is_tempered and new.get("objective", "max") is None:
        new["objective"] = "mean"
    return new


def _disparities(result: JsonObject) -> Iterator[JsonObject]:
    clients = result.get("clients")
    everyone = [*(clients.values() if isinstance(clients, dict) else ()), result.get("global")]
    for who in everyone:
        for part in ("train", "test"):
            found = who.get(part) if isinstance(who, dict) else None
            if isinstance(found, dict) and isinstance(found.get("disparities"), list):
                yield from (entry for entry in found["disparities"] if isinstance(entry, dict))


def _sites(result: JsonObject) -> Iterator[JsonObject]:
    deployment = result.get("deployment")
    sites = deployment.get("sites") if isinstance(deployment, dict) else None
    if isinstance(sites, dict):
        yield from (site for site in sites.values() if isinstance(site, dict))
