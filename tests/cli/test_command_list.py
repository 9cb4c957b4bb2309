"""The list of commands: what `fcfl --help` shows without importing any."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

from fcfl.cli import COMMANDS, PLACES
from hospital import fcfl as run


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_the_first_of_its_help(name):
    module, _, app = PLACES[name].partition(":")
    app = getattr(import_module(module), app)
    assert app.name == (name,)
    first = inspect.cleandoc(app.help).split("\n\n")[0]
    assert " ".join(first.split()) == COMMANDS[name]


def test_help_imports_nothing_heavy():
    program = (
        "import sys; from fcfl.cli import main\n"
        "main(['--help'])\n"
        "heavy = {'numpy', 'pandas', 'scipy', 'sklearn', 'statsmodels', 'torch', 'jinja2'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.stdout.splitlines()[-1] == "[]", shown.stdout + shown.stderr
    assert "negotiate" in shown.stdout


def test_what_was_probably_meant_is_named_once():
    outcome = run("trian")
    assert outcome.exit_code == 2
    assert outcome.stderr.count('Did you mean "train"?') == outcome.stderr.count("Did you") == 1
    assert "Did you" not in run("xyz").stderr
