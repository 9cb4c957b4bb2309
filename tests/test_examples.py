"""Every example runs, prints what docs/gallery.md shows, and is short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
GALLERY = dict(re.findall(r"^\$ python examples/(\w+\.py).*\n((?:.*\n)*?)```$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_output_of_an_example_is_on_its_page(path, tmp_path):
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
    printed, shown = done.stdout.split(), GALLERY[path.name].split()  # the page breaks long lines
    assert [NUMBER.sub("#", word) for word in printed] == [NUMBER.sub("#", word) for word in shown]
    numbers, expected = (
        [float(number) for number in NUMBER.findall(" ".join(words))] for words in (printed, shown)
    )
    assert numbers == pytest.approx(expected, rel=0.2, abs=0.01)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_under_sixty_lines_and_says_how_to_run_it(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert f"python examples/{path.name}" in text


def test_the_examples_are_there():
    assert len(EXAMPLES) >= 5
    assert set(GALLERY) == {path.name for path in EXAMPLES}
