"""Commands that take settings: their options are made from the settings' own fields."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field
from typing import Annotated, Any, TypeVar, get_args

import click
import typer
from click.core import ParameterSource

from fcfl.runs.option_fields import key_of, option_fields, option_of, read_value

from .console import Debug, one_line_errors, usage

Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a run with other settings in --out.")
]
Command = TypeVar("Command", bound=Callable[..., None])


class Options:
    """In the annotation of a command's parameter: the options that it is made of.

    ``settings: Annotated[Experiment, Options(Experiment, DATA, "l2")]`` has the options of the
    group and of the field named, and the command gets an Experiment. With ``without_table``, which
    says what that means, the table may be left out; the command then gets None. With ``as_given``
    it gets a dictionary of the values that were given, and no defaults. Fields in ``fixed`` have
    the value given there.
    """

    def __init__(
        self,
        settings: type,
        *names: str,
        without_table: str = "",
        as_given: bool = False,
        **fixed: object,
    ) -> None:
        self.settings, self.as_given, self.fixed = settings, as_given, fixed
        self.without_table = without_table
        self.fields = option_fields(settings, *names)

    def parameters(self) -> list[inspect.Parameter]:
        """What typer is to see."""
        return [self._parameter(field) for field in self.fields]

    def take(self, given: dict[str, object]) -> Any:
        """The settings, from the texts that typer got; these are taken out of ``given``."""
        texts = {field: given.pop(field.name) for field in self.fields}
        if self.without_table and any(f.name == "table" and not texts[f] for f in texts):
            return None
        with usage():
            values = {
                field.name: read_value(field, _joined(text), field.name)
                for field, text in texts.items()
                if was_given(field.name)
            }
            return values if self.as_given else self.settings(**self.fixed | values)

    def _parameter(self, field: Field[Any]) -> inspect.Parameter:
        known = option_of(field)
        help, metavar = known.help, known.kind.metavar or None
        default: Any = None if self.as_given and field.type is not bool else field.default
        if known.argument:
            if self.without_table:
                help += f" {self.without_table}"
                default = None
            metavar = f"{field.name.upper()}…" if known.repeated else None
            info = typer.Argument(show_default=False, help=help, metavar=metavar)
        else:
            flag = known.flag or f"--{key_of(field)}"
            panel = known.group or None
            info = typer.Option(flag, rich_help_panel=panel, help=help, metavar=metavar)
        kind: Any = str | None
        if field.type is bool:
            kind = bool
        elif known.repeated:
            kind = list[str] | None
        elif default is not MISSING:
            default = _text(default)
        return inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is MISSING else default,
            annotation=Annotated[kind, info],
        )


def command(target: typer.Typer, **details: Any) -> Callable[[Command], Command]:
    """Register a command; it also gets ``--debug``, and an error of it is one line."""

    def register(function: Command) -> Command:
        target.command(**details)(_with_options(function))
        return function

    return register


def was_given(name: str) -> bool:
    """Whether a parameter of the running command was given, not left at its default."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not None and source is not ParameterSource.DEFAULT


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """The same command, with the options in place of the settings."""
    found: dict[str, Options] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        options = next((a for a in get_args(parameter.annotation) if isinstance(a, Options)), None)
        if options is None:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        else:
            found[parameter.name] = options
            parameters += options.parameters()
    parameters.append(
        inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
    )

    def run(**given: Any) -> None:
        with one_line_errors(given.pop("debug")):
            for name, options in found.items():
                given[name] = options.take(given)
            function(**given)

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def _joined(text: object) -> object:
    """An option that may be repeated, as one text."""
    return ",".join(text) if isinstance(text, (list, tuple)) else text


def _text(value: Any) -> str | None:
    """A default as a person would write it; nothing is shown for nothing."""
    return None if value in (None, ()) else str(value)
