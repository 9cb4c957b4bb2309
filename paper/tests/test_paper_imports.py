"""Who does not reproduce the paper does not pay for it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["fcfl", "fcfl.cli"])
def test_the_paper_is_imported_only_by_its_commands(module):
    program = (
        f"import sys, {module}\n"
        "loaded = [n for n in sys.modules if n.startswith('fcfl_paper')]\n"
        "sys.exit(f'{loaded}' if loaded or 'matplotlib' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_runs_and_tables_need_no_matplotlib():
    program = "import sys, fcfl_paper.reproduction.page\nsys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
