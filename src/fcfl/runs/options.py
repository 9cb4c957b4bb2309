"""Settings: dataclasses whose fields are options of the command line and keys of a TOML file.

To add an option, add a field with a default and a docstring to its group's class in
``fcfl.runs.settings``. This creates the option ``--name`` with help, completion and checks, and
the key ``name`` of the settings file. The docstring is the help. The type determines the choices
(``Literal``) and the parsing of text (``tuple[str, ...]`` is separated by commas). Other properties
are annotations: a check, as in ``Annotated[float, check_share]``, or a `Written`. A command with
some of the options lists them, as in ``@takes(Experiment, "metric")``. If runs over sites have the
option, too, add it to the list in ``fcfl.runs.site_config``.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from fcfl._checks import check_budget, check_choice, check_keys
from fcfl._types import ClientId

EVERYONE_ELSE = "*"  # key of a budget mapping for all clients that are not named
_DECIMAL_COMMA = re.compile(r"([01]?),(\d+)")

_DESCRIBED = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text in quotes",
}

T = TypeVar("T")


@dataclass(frozen=True)
class Written:
    """Properties of a field that its type does not express.

    ``read`` is a function of the option's name and a text that returns the value. ``choices`` lists
    the allowed texts if the type is not a ``Literal``. ``help`` replaces the docstring, and
    ``flag`` the option's name. If ``repeated``, all values of the option are joined; otherwise the
    last value replaces earlier ones.
    """

    metavar: str = ""
    read: Callable[[str, str], Any] | None = None
    choices: tuple[str, ...] = ()
    help: str = ""
    flag: str = ""
    repeated: bool = False


def one_of(choices: Iterable[str], **more: Any) -> Written:
    """Return the annotation of a text with fixed choices, such as the names in a registry."""
    return Written(choices=tuple(choices), **more)


@dataclass(frozen=True)
class Setting:
    """A field of a settings class, with its types, checks, default and help."""

    name: str
    types: tuple[Any, ...]
    checks: tuple[Callable[[str, Any], object], ...]
    written: Written
    default: Any
    help: str
    group: str

    @property
    def key(self) -> str:
        """Return the field's name in a file and on the command line."""
        return self.name.replace("_", "-")

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the allowed texts, or none if any text is allowed."""
        literal = all(get_origin(kind) is Literal for kind in self.types)
        return self.written.choices or (get_args(self.types[0]) if literal else ())

    @property
    def is_flag(self) -> bool:
        """Return whether the field is a truth value."""
        return self.types == (bool,)

    @property
    def is_list(self) -> bool:
        """Return whether the field holds several values, separated by commas."""
        return get_origin(self.types[0]) is tuple

    def read(self, text: str, name: str = "") -> Any:
        """Return the value that a text stands for; errors name the option ``name``."""
        name = name or self.name
        if self.written.read is not None:
            return self.written.read(name, text)
        if self.choices:
            return text
        value: object = words(text) if self.is_list else text
        if float in self.types:
            with suppress(ValueError):
                value = float(text)  # also of ``.5``
        return self._converted(value, name, strict=False)

    def from_toml(self, value: object) -> Any:
        """Return the value of a TOML key; text is read as on the command line."""
        if isinstance(value, str):
            return self.read(value, self.key)
        return self._converted(value, self.key, strict=True)

    def _converted(self, value: object, name: str, *, strict: bool) -> Any:
        try:
            return msgspec.convert(value, Union[self.types], strict=strict)  # noqa: UP007
        except msgspec.ValidationError:
            kinds = get_args(self.types[0])[:1] if self.is_list else self.types
            allowed = [word for kind in kinds for word in _described(kind)]
            listed = " or ".join(filter(None, [", ".join(allowed[:-1]), allowed[-1]]))
            wanted = f"a list, each {listed}" if self.is_list else listed
            given = ",".join(map(str, value)) if isinstance(value, tuple) else value
            raise ValueError(f"`{name}` must be {wanted}, got {given!r}.") from None

    def check(self, value: Any, name: str) -> None:
        """Raise `ValueError` if the value is not allowed."""
        if self.is_flag or self.types == (tuple[str, ...],):
            self._converted(value, name, strict=True)
        for check in self.checks:
            check(name, value)
        if self.choices:
            check_choice(name, value, self.choices)


def _described(kind: Any) -> list[str]:
    """Return descriptions of the values of a type, for errors."""
    if get_origin(kind) is Literal:
        return [repr(text) for text in get_args(kind)]
    return [_DESCRIBED.get(kind, "a table of numbers by name")]


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
        documented = _docstrings(owner)
        if field.name not in documented:
            continue
        types, extras = _taken_apart(hints[field.name])
        written = next((extra for extra in extras if isinstance(extra, Written)), Written())
        found[field.name] = Setting(
            field.name,
            tuple(kind for kind in types if kind is not NoneType),
            tuple(extra for extra in extras if callable(extra)),
            written,
            field.default,
            " ".join((written.help or documented[field.name]).split()),
            getattr(owner, "GROUP", ""),
        )
    return found


def chosen(settings: type, *names: str) -> dict[str, Setting]:
    """Return the fields with the given names or in the given groups; by default all fields."""
    return {
        name: one
        for name, one in settings_of(settings).items()
        if not names or name in names or one.group in names
    }


def _taken_apart(hint: Any) -> tuple[list[Any], list[Any]]:
    """Return the types in a type hint, without ``Annotated`` and unions, and all annotations."""
    if get_origin(hint) is Annotated:
        types, extras = _taken_apart(hint.__origin__)
        return types, [*hint.__metadata__, *extras]
    if get_origin(hint) in (Union, UnionType):
        parts = [_taken_apart(part) for part in get_args(hint)]
        return [one for types, _ in parts for one in types], [x for _, more in parts for x in more]
    return [hint], []


@cache
def _docstrings(settings: Any) -> dict[str, str]:
    """Return the docstrings of a class's fields, by field name."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    return {
        ast.unparse(field.target): ast.literal_eval(text.value)
        for field, text in pairwise(getattr(tree, "body", ()))
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def check_fields(settings: Any, separator: str = "_") -> None:
    """Raise `ValueError` if a field that is not None has an invalid value."""
    for name, one in settings_of(type(settings)).items():
        value = getattr(settings, name)
        if value is not None:
            one.check(value, name.replace("_", separator))


def read_table(settings: type, table: Mapping[str, object], where: str) -> dict[str, Any]:
    """Return the arguments for a settings class from a TOML table.

    Raise `ValueError` if a key is unknown, or if a key without a default is missing.
    """
    known = settings_of(settings)
    given = {key.replace("_", "-"): value for key, value in table.items()}
    check_keys(given, [one.key for one in known.values()], where)
    for one in known.values():
        if one.default is MISSING and one.key not in given:
            raise ValueError(f"The key `{one.key}` is missing in {where}.")
    return {one.name: one.from_toml(given[one.key]) for one in known.values() if one.key in given}


def plain_table(settings: Any) -> dict[str, object]:
    """Return the values that are not None, by key, as types of TOML."""
    values = {one.key: getattr(settings, one.name) for one in settings_of(type(settings)).values()}
    return {
        key: dict(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


# --- values as text -------------------------------------------------------------------------------


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text such as ``race, sex``, separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def read_numbers(name: str, text: str) -> tuple[float, ...]:
    """Return the numbers in a text such as ``0.2,0.1,5%``."""
    try:
        return tuple(map(read_share, words(text)))
    except ValueError:
        raise ValueError(
            f"`{name}` must be numbers separated by commas, such as 0.2,0.1,0.05, got {text!r}."
        ) from None


def read_share(text: str) -> float:
    """Return the number that a text such as ``0.05`` or ``5%`` stands for."""
    text = text.strip()
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def read_pairs(
    name: str,
    text: str,
    read: Callable[[str], T],
    expected: str,
    unnamed: str = "",
) -> dict[str, T]:
    """Return the values by name in a text such as ``a=1,b=2``.

    A value without a name has the name ``unnamed``. Raise `ValueError`, with the ``expected`` form,
    if a part cannot be read or the text is empty.
    """
    found: dict[str, T] = {}
    for part in words(text):
        key, equals, value = (piece.strip() for piece in part.rpartition("="))
        key = key if equals else unnamed
        if key in found:
            raise ValueError(f"`{name}` must have one value per name, got {text!r}.")
        try:
            found[key] = read(value)
        except ValueError:
            key = ""
        if not key:
            raise ValueError(f"`{name}` must be {expected}, got {part!r}.")
    if not found:
        raise ValueError(f"`{name}` is empty; it must be {expected}.")
    return found


def write_pairs(pairs: Mapping[str, float]) -> str:
    """Return numbers by name as a text for `read_pairs`."""
    named = {"" if key == EVERYONE_ELSE else f"{key}=": value for key, value in pairs.items()}
    return ",".join(f"{key}{value!r}" for key, value in named.items())


def read_budget(name: str, text: str) -> float | dict[ClientId, float]:
    """Return the budget in a text: ``0.05``, ``north=0.05,south=0.1`` or ``0.05,south=0.1``."""
    comma = _DECIMAL_COMMA.fullmatch(text.strip())
    if comma:
        raise ValueError(
            f"`{name}` must not have two numbers without a client, got {text!r}. "
            f"Write {comma[1]}.{comma[2]} with a point."
        )
    expected = "a number or client=number. Example: 0.05, 5% or north=0.05,south=0.1"
    budgets = read_pairs(name, text, read_share, expected, unnamed=EVERYONE_ELSE)
    check_budgets(name, budgets)
    return budgets[EVERYONE_ELSE] if [*budgets] == [EVERYONE_ELSE] else budgets


def check_budgets(name: str, budget: float | Mapping[ClientId, float]) -> None:
    """Raise `ValueError` if a budget is not a valid bound on a disparity."""
    given = budget if isinstance(budget, Mapping) else {EVERYONE_ELSE: budget}
    for client, value in given.items():
        check_budget(name if client == EVERYONE_ELSE else f"{name}[{client!r}]", value)


def read_options(name: str, text: str) -> dict[str, float]:
    """Return numbers by name from ``q=10,local-epochs=5``; those without a point are integers."""
    pairs = read_pairs(name, text, _whole_or_not, "NAME=NUMBER, such as q=10")
    return {key.replace("-", "_"): value for key, value in pairs.items()}


def _whole_or_not(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and "." not in text else value


def read_privacy(name: str, text: str) -> dict[str, float]:
    """Return numbers by name from ``epsilon=2,delta=1e-6``."""
    return read_pairs(name, text, float, "epsilon=E,delta=D with numbers")


def read_sites(name: str, text: str) -> tuple[ClientId, ...]:
    """Return the sorted names in a text; raise `ValueError` if it is empty or repeats a name."""
    names = words(text)
    if not names:
        raise ValueError(f'`{name}` must name the sites of the run: {name}="north,south".')
    twice = sorted({site for site in names if names.count(site) > 1})
    if twice:
        raise ValueError(f"`{name}` must name every site once, got {twice[0]!r} twice.")
    return tuple(sorted(names))


def read_nodes(name: str, text: str) -> dict[ClientId, int]:
    """Return node ids by site from ``north=123,south=456``; a node's id belongs to its key."""
    nodes = read_pairs(name, text, int, "NAME=ID, separated by commas")
    if len(set(nodes.values())) < len(nodes):
        raise ValueError(f"`{name}` must name every site and every node once, got {text!r}.")
    return nodes
