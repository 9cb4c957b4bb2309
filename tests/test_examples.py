"""Every example is run as a reader would, prints what docs/gallery.md shows, and is short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
GALLERY = dict(re.findall(r"^\$ python examples/(\w+\.py).*\n((?:.*\n)*?)```$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_says_something(path, tmp_path):
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(GALLERY[path.name].splitlines()) >= 3
    assert done.stdout.split() == GALLERY[path.name].split()  # the page breaks long lines


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_under_sixty_lines_and_says_how_to_run_it(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert f"python examples/{path.name}" in text


def test_the_examples_are_there():
    assert len(EXAMPLES) >= 5
    assert set(GALLERY) == {path.name for path in EXAMPLES}
