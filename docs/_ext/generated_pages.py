"""Pages generated from the program: commands, options, settings, public names, the glossary."""

import importlib
import inspect
import re
from collections.abc import Collection
from importlib.resources import files
from types import ModuleType
from typing import Any, ClassVar

from cyclopts import App
from cyclopts.argument import Argument
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import fcfl
from fcfl.cli import COMMANDS, make_app
from fcfl.runs.site_config import CONFIG

SECTIONS = {
    "To train": ("train", "FCFLClassifier", "Difference", "Ratio", "Trained", "Session", "Result"),
    "Clients and models": (
        "Federation", "RemoteFederation", "Client", "LocalClient", "ClientData", "Linear", "Model",
        "Opaque", "Loss", "CrossEntropy", "Hinge", "Squared",
    ),
    "Methods that keep budgets": ("SQP", "TwoStage"),
    "Baselines": ("FedAvg", "FairReg", "QFFL", "AFL"),
}  # fmt: skip
REST = "For methods, clients and transports of your own"
MODULES = ("fcfl.torch", "fcfl.audit", "fcfl.data", "fcfl.runs", "fcfl.results")


class CommandLine(SphinxDirective):
    """``{fcfl-commands}``: every command with its arguments and options."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Return one section per command."""
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


_NEGATIVE = ("--no-", "--empty-")  # names that cyclopts adds and the commands do not take
_MEANING = re.compile(r"(?:^|(?<=[.;] ))(?=(?:[a-z][\w-]*|X)(?: \([^)]*\))?: )")


def _option(one: Argument) -> list[str]:
    """Return a definition: the flags, then their meaning."""
    choices = one.get_choices()
    kind = "|".join(choices) if choices else one.parameter.metavar or "VALUE"
    default = one.show_default
    value = one.field_info.default if default is True else default
    shown = f" Default: `{value}`." if default and not one.is_flag() else ""
    flags = ", ".join(f"`{name}`" for name in one.names if not name.startswith(_NEGATIVE))
    kind = "" if one.is_flag() else f" `{kind}`"
    help_text = " ".join(_plain(one.parameter.help or ""))
    meanings = _MEANING.split(help_text)
    if len(meanings) > 1 and not meanings[0]:  # a list of "value: meaning"
        items = [f"  * {meaning.strip()}" for meaning in meanings[1:]]
        return [f"{flags}{kind}", f": {shown.strip() or 'One of these.'}", "", *items]
    return [f"{flags}{kind}", f": {help_text}{shown}"]


def _plain(text: str) -> list[str]:
    """Return the lines without the terminal's marks, with options as code."""
    text = re.sub(
        r"`[^`]*`|(?<![\w-])--[a-z][\w-]*", lambda found: f"`{found[0].strip('`')}`", text
    )
    return text.replace("\b", "").replace("<", "&lt;").splitlines()


class SiteSettings(SphinxDirective):
    """``{fcfl-site-settings}``: every key of a run over sites, its default and its meaning."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Return a definition list."""
        text = "\n\n".join(
            f"`{key}`{f' (default `{default}`)' if default != '' else ''}\n"
            f": {' '.join(_plain(meaning))}"
            for key, (default, meaning) in CONFIG.items()
        )
        return self.parse_text_to_nodes(text)


class PublicNames(SphinxDirective):
    """``{public-names}``: the public names with their docstrings, by purpose or by module."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Return one section per purpose of ``fcfl``, then one per other public module."""
        claimed = {name for names in SECTIONS.values() for name in names}
        rest = [name for name in fcfl.__all__ if name not in claimed and name != "__version__"]
        sections = {title: (fcfl, names) for title, names in {**SECTIONS, REST: rest}.items()}
        for name in MODULES:
            module = importlib.import_module(name)
            sections[f"`{name}`"] = (module, _public(module))
        lines, documented = [], {}
        for title, (module, names) in sections.items():
            lines += [f"## {title}", "", "```{eval-rst}"]
            if module is not fcfl:
                lines += [f".. automodule:: {module.__name__}", ""]
            for name in names:
                path = documented.setdefault(id(getattr(module, name)), f"{module.__name__}.{name}")
                lines += [_documented(module, name, path), ""]
            lines += ["```", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _public(module: ModuleType) -> list[str]:
    """Return the names of a module: its ``__all__``, or what it has of fcfl."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("fcfl")
    ]
    return sorted(names)


# methods of scikit-learn, whose docstrings refer to scikit-learn's pages
_ROUTING = (
    "get_metadata_routing", "set_fit_request", "set_predict_request", "set_score_request",
)  # fmt: skip


def _documented(module: ModuleType, name: str, first: str) -> str:
    """Return the directive of a name, or a reference to ``first``, where it is documented."""
    public, path = getattr(module, name), f"{module.__name__}.{name}"
    if path != first:
        return f".. py:data:: {path}\n   :no-index:\n\n   The same as :py:obj:`{first}`."
    if inspect.isclass(public):
        options = ["   :members:", f"   :exclude-members: {', '.join(_ROUTING)}"]
        return "\n".join([f".. autoclass:: {path}", *options])
    if inspect.isroutine(public):
        return f".. autofunction:: {path}"
    if isinstance(public, Collection):
        return f".. py:data:: {path}\n\n   ``{public!r}``"
    return f".. py:data:: {path}\n\n   An alias for annotations: ``{public}``."


class Glossary(SphinxDirective):
    """``{fcfl-glossary}``: the glossary of every page that a run writes."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Return a definition list."""
        page = files("fcfl.report").joinpath("templates/glossary.html").read_text(encoding="utf-8")
        words = re.findall(r"<dt>(.*)</dt><dd>(.*)</dd>", page)
        text = "\n\n".join(f"{word}\n: {meaning}" for word, meaning in words)
        return self.parse_text_to_nodes(text)


def setup(app: Any) -> dict[str, bool]:
    """Register the directives with Sphinx."""
    app.add_directive("fcfl-commands", CommandLine)
    app.add_directive("fcfl-site-settings", SiteSettings)
    app.add_directive("public-names", PublicNames)
    app.add_directive("fcfl-glossary", Glossary)
    return {"parallel_read_safe": True}
