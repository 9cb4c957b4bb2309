"""Pages made from the program itself: commands and options, public names, the glossary."""

import inspect
import re
from importlib.resources import files
from typing import Any, ClassVar

from cyclopts import App
from cyclopts.argument import Argument
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import fcfl
from fcfl.cli.commands import COMMANDS, make_app

SECTIONS = {
    "To train": ("train", "FCFLClassifier", "Difference", "Ratio", "Trained", "Session", "Result"),
    "Clients and models": (
        "Federation", "RemoteFederation", "Client", "LocalClient", "ClientData", "Linear", "Model",
        "Opaque", "Loss", "CrossEntropy", "Hinge", "Squared",
    ),
    "Our methods": ("SQP", "TwoStage"),
    "Baselines": ("FedAvg", "FairReg", "QFFL", "AFL"),
}  # fmt: skip
REST = "For methods, clients and transports of your own"


class CommandLine(SphinxDirective):
    """``{fcfl-commands}``: every command with its arguments and options."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """One section a command."""
        lines = [line for name in COMMANDS for line in _described(name, make_app(name)[name])]
        text = "\n".join(lines)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def _described(name: str, app: App, level: int = 2) -> list[str]:
    lines = [f"{'#' * level} fcfl {name}", "", *_plain(inspect.cleandoc(app.help)), ""]
    if app.default_command:
        found = [one for one in app.assemble_argument_collection() if one.show]
        words = [f"{one.name}…" if one.is_var_positional() else one.name for one in found
                 if one.is_var_positional() or one.is_positional_only()]  # fmt: skip
        lines += ["```text", " ".join(["fcfl", name, *words, "[OPTIONS]"]), "```", ""]
        for one in found:
            if one.name.startswith("--"):
                lines += [*_option(one), ""]
    for child in app:
        if not child.startswith("-"):
            lines += _described(f"{name} {child}", app[child], level + 1)
    return lines


def _option(one: Argument) -> list[str]:
    """A definition: the flags, then what they mean."""
    choices = one.get_choices()
    kind = "|".join(choices) if choices else one.parameter.metavar or "VALUE"
    default = one.show_default
    value = one.field_info.default if default is True else default
    said = f" Default: `{value}`." if default and not one.is_flag() else ""
    flags = ", ".join(f"`{flag}`" for flag in one.names)
    kind = "" if one.is_flag() else f" `{kind}`"
    return [f"{flags}{kind}", f": {' '.join(_plain(one.parameter.help or ''))}{said}"]


def _plain(text: str) -> list[str]:
    """Without the marks of the terminal."""
    return text.replace("\b", "").replace("<", "&lt;").splitlines()


class PublicNames(SphinxDirective):
    """``{public-names}``: what ``from fcfl import`` gives, by purpose, with its docstrings."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """One section a purpose; names that no section claims come last, so that none is missed."""
        claimed = {name for names in SECTIONS.values() for name in names}
        rest = [name for name in fcfl.__all__ if name not in claimed and name != "__version__"]
        lines = []
        for title, names in {**SECTIONS, REST: tuple(rest)}.items():
            lines += [f"## {title}", "", "```{eval-rst}"]
            for name in names:
                lines += [_documented(name), ""]
            lines += ["```", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


# scikit-learn's own words, which refer to its own pages
_ROUTING = (
    "get_metadata_routing", "set_fit_request", "set_predict_request", "set_score_request",
)  # fmt: skip


def _documented(name: str) -> str:
    public = getattr(fcfl, name)
    if inspect.isclass(public):
        options = ["   :members:", f"   :exclude-members: {', '.join(_ROUTING)}"]
        return "\n".join([f".. autoclass:: fcfl.{name}", *options])
    if inspect.isfunction(public):
        return f".. autofunction:: fcfl.{name}"
    return f".. py:data:: fcfl.{name}\n\n   An alias for annotations: ``{public}``."


class Glossary(SphinxDirective):
    """``{fcfl-glossary}``: the words at the end of every page that a run writes."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """A definition list."""
        page = files("fcfl.report").joinpath("templates/glossary.html").read_text(encoding="utf-8")
        words = re.findall(r"<dt>(.*)</dt><dd>(.*)</dd>", page)
        text = "\n\n".join(f"{word}\n: {meaning}" for word, meaning in words)
        return self.parse_text_to_nodes(text)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("fcfl-commands", CommandLine)
    app.add_directive("public-names", PublicNames)
    app.add_directive("fcfl-glossary", Glossary)
    return {"parallel_read_safe": True}
