"""Options of commands: fields of settings classes, and options that commands share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from types import MappingProxyType
from typing import Annotated, Any, Literal, Required, TypedDict, TypeVar

from cyclopts import ArgumentCollection, Group, Parameter, validators

from fcfl.runs.options import Setting, chosen, read_numbers, settings_of
from fcfl.runs.settings import BUDGETS, DATA, TRAINING, Experiment

from .console import WrongUsage

Command = TypeVar("Command", bound=Callable[..., None])
Given = Mapping[str, Any]
"""Values of the options that the user gave, by field name."""
NOTHING: Given = MappingProxyType({})
_GROUPS = (DATA, BUDGETS, TRAINING, "Audit")
_PANELS = {name: Group(name, sort_key=place) for place, name in enumerate(_GROUPS)}
_METAVARS = {int: "N", float: "X"}


def table_argument(more: str = "") -> Parameter:
    """Return the argument for tables; ``more`` is appended to its help."""
    help = settings_of(Experiment)["table"].help
    return Parameter(help=f"{help} {more}".strip(), metavar="TABLE")


def out_folder(default: str) -> Parameter:
    """Return the option for the folder to write; the help shows ``default``."""
    return Parameter(help=f"Folder to write. Default: runs/{default}.")


def numbers(help: str, *groups: Group) -> Parameter:
    """Return an option for numbers separated by commas."""

    def read(_: Any, tokens: Sequence[Any]) -> tuple[float, ...]:
        return read_numbers("budgets", ",".join(token.value for token in tokens))

    return Parameter(metavar="X,X,…", converter=read, help=help, group=groups or None)


def not_both(name: str) -> Group:
    """Return a group of mutually exclusive options; ``name`` is not shown."""

    def check(arguments: ArgumentCollection) -> None:
        given = [one.name for one in arguments if one.tokens]
        if len(given) > 1:
            raise WrongUsage(f"Give {given[0]} or {given[1]}, not both.")

    return Group(name, show=False, validator=check)


def _flag(help: str) -> Parameter:
    return Parameter(help=help, show_default=False, group=(OPTIONS, _AGAIN))


OPTIONS, _AGAIN = Group("Options"), not_both("again")
Tables = Annotated[str, table_argument()]
AtLeastOne = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Resume = Annotated[bool, _flag("Continue interrupted runs in --out and keep finished runs.")]
Overwrite = Annotated[bool, _flag("Replace runs in --out, even if their settings differ.")]


def takes(settings: type, *names: str, into: str = "given") -> Callable[[Command], Command]:
    """Add options of a settings class to a command: the given names or groups, by default all.

    The command receives the options that the user gave in its parameter named ``into``. Options
    that were not given are absent from this mapping.
    """
    options = {name: _option(one) for name, one in chosen(settings, *names).items()}
    options.pop("table", None)  # a positional argument

    def mark(function: Command) -> Command:
        kind = TypedDict("Given", options, total=False)  # type: ignore[misc]
        function.__annotations__[into] = Annotated[kind, Parameter(name="*")]
        return function

    return mark


def _option(one: Setting) -> Any:
    """Return the type of an option, annotated with its help, choices and reader."""

    def read(_: Any, tokens: Sequence[Any]) -> Any:
        return one.read(",".join(token.value for token in tokens))

    kind: Any = (
        tuple[str, ...] if one.written.repeated else Literal[one.choices] if one.choices else str
    )
    has_default = one.default not in (None, (), MISSING)
    parameter = Parameter(
        name=one.written.flag or None,
        help=one.help,
        group=_PANELS.get(one.group),
        metavar=one.written.metavar or _METAVARS.get(one.types[0]),
        show_choices=not one.written.help,
        show_default=f"{one.default}" if has_default and not one.is_flag else False,
        converter=None if one.is_flag else read,
    )
    if one.default is MISSING:
        kind = Required[kind]
    return Annotated[bool if one.is_flag else kind, parameter]
