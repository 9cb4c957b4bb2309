"""The reference has every command, option, setting and public name."""

import importlib
import inspect
import re
import sys
from typing import get_args, get_type_hints

import msgspec
import pytest
from tests.docs.page_blocks import ROOT

from fcfl.cli import COMMANDS, make_app
from fcfl.policy import read_policy
from fcfl.sites.settings import SiteSettings

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))
generated_pages = pytest.importorskip("generated_pages")  # needs Sphinx
SETTINGS = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")


def _keys(kind):
    """Return the keys of a table and of the tables in it."""
    for name, hint in get_type_hints(kind).items():
        yield name.replace("_", "-")
        for part in (hint, *get_args(hint)):
            for inner in (part, *get_args(part)):
                if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                    yield from _keys(inner)


def test_every_command_and_option_is_described():
    for name in COMMANDS:
        app = make_app(name)[name]
        text = "\n".join(generated_pages._described(name, app))
        commands = [app, *(app[child] for child in app if not child.startswith("-"))]
        for command in commands:
            if command.default_command:
                for one in command.assemble_argument_collection():
                    assert not one.show or one.name in text, (name, one.name)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.thorough if name == "fcfl.torch" else ())
        for name in ("fcfl", *generated_pages.MODULES)
    ],
)
def test_every_public_module_has_documented_names(name):
    module = importlib.import_module(name)
    names = generated_pages._public(module)
    assert names
    for public in names:
        value = getattr(module, public)
        assert not inspect.isclass(value) or inspect.getdoc(value), public


def test_every_key_of_a_file_is_described():
    modules = re.findall(r"automodule:: (\S+)", SETTINGS)
    text = SETTINGS + "".join(inspect.getdoc(importlib.import_module(name)) for name in modules)
    kinds = [SiteSettings, sys.modules[read_policy.__module__]._File]
    missing = {key for kind in kinds for key in _keys(kind) if key not in text}
    assert not missing
