"""Settings whose fields are also options: a value's help, text form and check, said once.

A settings class is a dataclass whose fields are made by `option`, which puts an `Option` into their
metadata. The command line makes its options from it, TOML files and Flower's run config take their
keys from it. Whichever way a value comes, `read_value` reads it and `check_fields` checks it.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any

from fcfl._checks import check_choice, check_fraction, check_keys

Parse = Callable[[str, str], Any]
"""The option's name and the text given for it, to its value."""
Check = Callable[[str, Any], object]
"""The option's name and its value; raises when it does not fit."""

_KEY = "option"


@dataclass(frozen=True)
class Kind:
    """How values are written: a placeholder in ``--help``, how text is read, what is refused.

    Without ``parse``, text is taken as it is.
    """

    metavar: str = ""
    parse: Parse | None = None
    check: Check | None = None


TEXT = Kind()


@dataclass(frozen=True)
class Option:
    """What a field says about itself.

    ``group`` is the heading in ``--help``. A run over sites can be configured with it where
    ``over_sites``. ``flag`` names the option where it is not named like the field; a ``repeated``
    one may be given several times; an ``argument`` has no name at all.
    """

    help: str
    kind: Kind
    group: str = ""
    over_sites: bool = False
    flag: str = ""
    repeated: bool = False
    argument: bool = False


def option(help: str, kind: Kind = TEXT, *, default: object = MISSING, **details: Any) -> Any:
    """A dataclass field that is an option."""
    return field(default=default, metadata={_KEY: Option(help, kind, **details)})


def like(settings: type, name: str, **changes: Any) -> Any:
    """Another class's field of this name, with its default unless another is given."""
    (known,) = option_fields(settings, name)
    default = changes.pop("default", known.default)
    return field(default=default, metadata={_KEY: replace(option_of(known), **changes)})


def option_of(known: Field[Any]) -> Option:
    """What the field says about itself."""
    found: Option = known.metadata[_KEY]
    return found


def option_fields(settings: type, *names: str) -> tuple[Field[Any], ...]:
    """The options among the fields: those named, alone or by their group; by default all."""
    return tuple(
        known
        for known in fields(settings)
        if _KEY in known.metadata
        and (not names or known.name in names or option_of(known).group in names)
    )


def default_of(known: Field[Any]) -> Any:
    """The field's default; none when it must be given."""
    return None if known.default is MISSING else known.default


def key_of(known: Field[Any]) -> str:
    """The field's name in a file or on the command line."""
    return known.name.replace("_", "-")


def read_value(known: Field[Any], value: object, name: str) -> Any:
    """The field's value from what a person wrote: text, or what TOML makes of it."""
    parse = option_of(known).kind.parse
    if isinstance(value, str):
        return value if parse is None else parse(name, value)
    if parse is None:
        raise ValueError(f"`{name}` must be text in quotes, got {value!r}.")
    return tuple(value) if isinstance(value, list) else value


def check_table_keys(settings: type, table: Mapping[str, object], where: str) -> None:
    """Refuse a TOML table with a key that is no option, or without one that must be given."""
    given = [key.replace("_", "-") for key in table]
    keys = {key_of(known): known for known in option_fields(settings)}
    check_keys(given, keys, where)
    for key, known in keys.items():
        if known.default is MISSING and key not in given:
            raise ValueError(f"The key `{key}` is missing in {where}.")


def read_table(settings: type, table: Mapping[str, object]) -> dict[str, Any]:
    """Arguments of a settings class, from a TOML table with known keys."""
    known = {key_of(one): one for one in option_fields(settings)}
    given = {key.replace("_", "-"): value for key, value in table.items()}
    return {known[key].name: read_value(known[key], value, key) for key, value in given.items()}


def check_fields(settings: Any, separator: str = "_") -> None:
    """Check every value that is set, each by its own field's check."""
    for known in option_fields(type(settings)):
        value, check = getattr(settings, known.name), option_of(known).kind.check
        if check is not None and value is not None:
            check(known.name.replace("_", separator), value)


def plain_table(settings: Any) -> dict[str, object]:
    """The values that are set, by key, as TOML writes them."""
    values = {key_of(f): getattr(settings, f.name) for f in option_fields(type(settings))}
    return {
        key: dict(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


# --- texts of the common kinds of values ----------------------------------------------------------


def words(name: str, text: str) -> tuple[str, ...]:
    """``race, sex`` as names."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def number(name: str, text: str) -> float:
    """Text as a number."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"`{name}` must be a number, got {text!r}.") from None


def numbers(name: str, text: str) -> tuple[float, ...]:
    """``0.5, 0.2`` as numbers."""
    return tuple(number(name, word) for word in words(name, text))


def whole_number(name: str, text: str) -> int:
    """Text as a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"`{name}` must be a whole number, got {text!r}.") from None


def counts(name: str, text: str) -> tuple[int, ...]:
    """``800,1500`` as whole numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"`{name}` must be counts such as 800,1500, got {text!r}.") from None


def truth(name: str, text: str) -> bool:
    """``true`` or ``false``."""
    if text not in ("true", "false"):
        raise ValueError(f"`{name}` must be true or false, got {text!r}.")
    return text == "true"


def number_or(*allowed: str) -> Parse:
    """A number, or one of a few words."""
    *first, last = ["a number", *map(repr, allowed)]

    def parse(name: str, text: str) -> float | str:
        if text in allowed:
            return text
        try:
            return float(text)
        except ValueError:
            raise ValueError(
                f"`{name}` must be {', '.join(first)} or {last}, got {text!r}."
            ) from None

    return parse


def check_truth(name: str, value: object) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be true or false, got {value!r}.")


def check_words(name: str, value: object) -> None:
    """Refuse what is not a list of texts."""
    if not isinstance(value, (tuple, list)) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"`{name}` must be a list of names, got {value!r}.")


# --- common kinds of values -----------------------------------------------------------------------

COLUMN = Kind("COLUMN")
COLUMNS = Kind("COLUMN,…", words, check_words)
FLAG = Kind("", truth, check_truth)
SHARE = Kind("SHARE", number, check_fraction)


def one_of(*allowed: str) -> Kind:
    """One of a few words."""
    return Kind("NAME", check=lambda name, value: check_choice(name, value, allowed))
