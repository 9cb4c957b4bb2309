"""Pages made from the program itself: commands and options, public names, the glossary."""

import inspect
from typing import Any, ClassVar

import click
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import fcfl
from fcfl.cli.commands import COMMANDS, load_command
from fcfl.estimator.fitted import FittedClassifier
from fcfl.report.glossary import GLOSSARY

SECTIONS = {
    "To train": ("train", "FCFLClassifier", "Difference", "Ratio", "Trained", "Session", "Result"),
    "Clients and models": (
        "Federation", "RemoteFederation", "Client", "LocalClient", "ClientData", "Linear", "Model",
        "Opaque", "Loss", "CrossEntropy", "Hinge", "Squared",
    ),
    "Our methods": ("SQP", "TwoStage"),
    "Baselines": (
        "FedAvg", "FairReg", "QFFL", "AFL", "MMPF", "AgnosticFair", "FedMGDA", "FairFed", "FedFB",
    ),
}  # fmt: skip
REST = "For methods, clients and transports of your own"


class CommandLine(SphinxDirective):
    """``{fcfl-commands}``: every command with its arguments and options."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """One section a command."""
        text = "\n".join(line for name in COMMANDS for line in _described(name, load_command(name)))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def _described(name: str, command: click.Command, level: int = 2) -> list[str]:
    help_text = inspect.cleandoc(command.help or COMMANDS.get(name, ""))
    lines = [f"{'#' * level} fcfl {name}", "", *_plain(help_text), ""]
    if isinstance(command, click.Group):
        for child, sub in command.commands.items():
            lines += _described(f"{name} {child}", sub, level + 1)
        return lines
    usage = " ".join(
        piece.make_metavar(click.Context(command)) if isinstance(piece, click.Argument) else ""
        for piece in command.params
    )
    lines += ["```text", f"fcfl {name} {usage.strip()} [OPTIONS]".replace("  ", " "), "```", ""]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    for option in options:
        lines += [*_option(option), ""]
    return lines


def _option(option: click.Option) -> list[str]:
    """A definition: the flags, then what they mean."""
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    kind = "" if option.is_flag else f" `{_kind(option)}`"
    default = option.default
    known = default is not None and not callable(default) and not option.is_flag
    said = f" Default: `{default}`." if known else ""
    return [f"{flags}{kind}", f": {' '.join(_plain(option.help or ''))}{said}"]


def _kind(option: click.Option) -> str:
    return option.metavar or option.type.name.upper()


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
        if issubclass(public, FittedClassifier):  # of ours, not of scikit-learn's own bases
            options.append("   :inherited-members: ClassifierMixin, BaseEstimator")
        return "\n".join([f".. autoclass:: fcfl.{name}", *options])
    if inspect.isfunction(public):
        return f".. autofunction:: fcfl.{name}"
    return f".. py:data:: fcfl.{name}\n\n   An alias for annotations: ``{public}``."


class Glossary(SphinxDirective):
    """``{fcfl-glossary}``: the words at the end of every page that a run writes."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """A definition list."""
        text = "\n\n".join(f"{word}\n: {meaning}" for word, meaning in GLOSSARY)
        return self.parse_text_to_nodes(text)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("fcfl-commands", CommandLine)
    app.add_directive("public-names", PublicNames)
    app.add_directive("fcfl-glossary", Glossary)
    return {"parallel_read_safe": True}
