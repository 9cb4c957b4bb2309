"""Facts for a card that no result contains: a small TOML file that a person fills in."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from fcfl._checks import did_you_mean
from fcfl.errors import DataError

NOT_STATED = "Not stated."
Facts: TypeAlias = Mapping[str, str]


def facts_template(kind: str) -> str:
    """Return the file to fill in, with a comment on each field."""
    return files("fcfl.cards").joinpath(f"templates/{kind}.toml").read_text(encoding="utf-8")


def fields_of(kind: str) -> dict[str, Any]:
    """Return the fields of a kind of card."""
    return tomllib.loads(facts_template(kind))


def read_facts(kind: str, path: Path | None) -> Facts:
    """Read the facts that a file states; raise `DataError` for a key that the card lacks."""
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"There is no file {str(path)!r}. Write one with `--template`.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{str(path)!r} is not TOML: {error}.") from None
    fields = fields_of(kind)
    for key, value in content.items():
        if key not in fields:
            advice = did_you_mean(key, fields)
            raise DataError(f"{str(path)!r} has the unknown key {key!r}. {advice}")
        if not isinstance(value, str):
            raise DataError(f"`{key}` in {str(path)!r} must be text in quotes, got {value!r}.")
    return {key: value.strip() for key, value in content.items() if value.strip()}
