"""Settings: dataclasses whose fields are options of the command line and keys of a TOML file.

To add an option, add a field with a default and a docstring to the settings class of its group:
`DataSettings`, `BudgetSettings`, `TrainingSettings` or `AuditSettings`. Nothing else is needed for
``--name`` with help, choices and completion, for the key ``name`` of the settings file, and for the
check of a value. The docstring is the help. The type gives the choices (``Literal``), and how text
is read (``tuple[str, ...]`` is separated by commas). Add to the annotation what the type cannot
say: a check, ``Annotated[float, check_share]``, or a `Written`. A command that has only a part of
the options names them, ``@takes(Experiment, "metric")``, and a key that a run over sites also has
is listed in ``fcfl.runs.site_config``.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fcfl._checks import check_choice, check_keys


@dataclass(frozen=True)
class Written:
    """What the type of a field does not say: how its value is written, read and shown.

    ``read`` takes the option's name and a text. ``choices`` are those of a type that is not a
    ``Literal``. ``help`` replaces the docstring, ``flag`` the option's name. An option that is
    ``repeated`` adds to the values before; of others the last one counts.
    """

    metavar: str = ""
    read: Callable[[str, str], Any] | None = None
    choices: tuple[str, ...] = ()
    help: str = ""
    flag: str = ""
    repeated: bool = False


def one_of(choices: Iterable[str], **more: Any) -> Written:
    """Return the choices of a text, such as the names in a registry."""
    return Written(choices=tuple(choices), **more)


@dataclass(frozen=True)
class Setting:
    """One field of a settings class, and all that its annotation and docstring say."""

    name: str
    types: tuple[Any, ...]
    checks: tuple[Callable[[str, Any], object], ...]
    written: Written
    default: Any
    help: str
    group: str

    @property
    def key(self) -> str:
        """Its name in a file or on the command line."""
        return self.name.replace("_", "-")

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that it may be, if no other value is allowed."""
        literal = all(get_origin(one) is Literal for one in self.types)
        return self.written.choices or (self._literals if literal else ())

    @property
    def is_flag(self) -> bool:
        """Whether it is true or false."""
        return self.types == (bool,)

    @property
    def is_list(self) -> bool:
        """Whether it holds several values, separated by commas."""
        return get_origin(self.types[0]) is tuple

    @property
    def _literals(self) -> tuple[str, ...]:
        return tuple(text for one in self.types for text in get_args(one) if text is not ...)

    def read(self, text: str, name: str = "") -> Any:
        """Return the value that a text stands for; ``name`` is the option's name in an error."""
        name = name or self.name
        if self.written.read is not None:
            return self.written.read(name, text)
        if self.is_list:
            (kind, _) = get_args(self.types[0])
            return tuple(_read_one((kind,), name, word) for word in words(name, text))
        return text if self.choices else _read_one(self.types, name, text)

    def check(self, value: Any, name: str) -> None:
        """Raise if ``value`` is not one that the field may have."""
        if self.is_flag and not isinstance(value, bool):
            raise ValueError(f"`{name}` must be true or false, got {value!r}.")
        if self.types == (tuple[str, ...],):
            check_words(name, value)
        for check in self.checks:
            check(name, value)
        if self.choices:
            check_choice(name, value, self.choices)


def settings_of(settings: Any) -> Mapping[str, Setting]:
    """Return the fields of a settings class that have a docstring, by name.

    A field's group is the ``GROUP`` of the class that declares the field.
    """
    return _settings_of(settings)


@cache
def _settings_of(settings: Any) -> Mapping[str, Setting]:
    hints = get_type_hints(settings, include_extras=True)
    found = {}
    for field in fields(settings):
        owner: Any = next(c for c in settings.__mro__ if field.name in inspect.get_annotations(c))
        if field.name not in _docstrings(owner):
            continue
        types, extras = _taken_apart(hints[field.name])
        written = next((extra for extra in extras if isinstance(extra, Written)), Written())
        found[field.name] = Setting(
            field.name,
            tuple(one for one in types if one is not NoneType),
            tuple(extra for extra in extras if callable(extra)),
            written,
            field.default,
            " ".join((written.help or _docstrings(owner)[field.name]).split()),
            getattr(owner, "GROUP", ""),
        )
    return found


def chosen(settings: type, *names: str) -> dict[str, Setting]:
    """Return the fields named, alone or by their group; by default all."""
    return {
        name: one
        for name, one in settings_of(settings).items()
        if not names or name in names or one.group in names
    }


def _taken_apart(hint: Any) -> tuple[list[Any], list[Any]]:
    """The types that a hint allows, and what is annotated anywhere in it."""
    if get_origin(hint) is Annotated:
        types, extras = _taken_apart(hint.__origin__)
        return types, [*hint.__metadata__, *extras]
    if get_origin(hint) in (Union, UnionType):
        parts = [_taken_apart(part) for part in get_args(hint)]
        return [one for types, _ in parts for one in types], [x for _, more in parts for x in more]
    return [hint], []


@cache
def _docstrings(settings: Any) -> dict[str, str]:
    """The texts below the fields of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    return dict(_documented(tree))


def _documented(tree: Any) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(tree.body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            yield ast.unparse(field.target), ast.literal_eval(text.value)


def check_fields(settings: Any, separator: str = "_") -> None:
    """Check every value that is set."""
    for name, one in settings_of(type(settings)).items():
        value = getattr(settings, name)
        if value is not None:
            one.check(value, name.replace("_", separator))


# --- TOML -----------------------------------------------------------------------------------------


def read_value(one: Setting, value: object, name: str = "") -> Any:
    """Return a field's value from what TOML makes of it: text as on the command line, or typed."""
    if isinstance(value, str):
        return one.read(value, name)
    if str in one.types and not one.is_list:
        raise ValueError(f"`{name or one.name}` must be text in quotes, got {value!r}.")
    return tuple(value) if isinstance(value, list) else value


def check_table_keys(settings: type, table: Mapping[str, object], where: str) -> None:
    """Raise if a TOML table has an unknown key, or lacks a key without a default."""
    given = [key.replace("_", "-") for key in table]
    keys = {one.key: one for one in settings_of(settings).values()}
    check_keys(given, keys, where)
    for key, one in keys.items():
        if one.default is MISSING and key not in given:
            raise ValueError(f"The key `{key}` is missing in {where}.")


def read_table(settings: type, table: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments of a settings class that a TOML table with known keys gives."""
    known = settings_of(settings)
    given = {key.replace("-", "_"): value for key, value in table.items()}
    return {name: read_value(known[name], value, known[name].key) for name, value in given.items()}


def plain_table(settings: Any) -> dict[str, object]:
    """Return the values that are set, by key, as TOML writes them."""
    values = {one.key: getattr(settings, one.name) for one in settings_of(type(settings)).values()}
    return {
        key: dict(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


# --- text -----------------------------------------------------------------------------------------

_READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    bool: ("true or false", lambda text: {"true": True, "false": False}[text]),
    int: ("a whole number", int),
    float: ("a number", float),
    Path: ("a path", Path),
    str: ("text", str),
}


def _read_one(types: tuple[Any, ...], name: str, text: str) -> Any:
    """The value that a text stands for, as the first of the types that can hold it."""
    allowed = []
    for kind in types:
        if get_origin(kind) is Literal:
            if text in get_args(kind):
                return text
            allowed += [repr(word) for word in get_args(kind)]
            continue
        described, read = _READERS[kind]
        try:
            return read(text)
        except (ValueError, KeyError):
            allowed.append(described)
    *first, last = allowed
    wanted = f"{', '.join(first)} or {last}" if first else last
    raise ValueError(f"`{name}` must be {wanted}, got {text!r}.")


def words(name: str, text: str) -> tuple[str, ...]:
    """``race, sex`` as names."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def check_words(name: str, value: object) -> None:
    """Raise if ``value`` is not a list of texts."""
    if not isinstance(value, (tuple, list)) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"`{name}` must be a list of names, got {value!r}.")
