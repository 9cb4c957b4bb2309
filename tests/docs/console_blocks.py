"""The command blocks of the documentation: run them, compare or rewrite what they print.

A block is fenced as ``console``; a line that begins with ``$`` is a command (a backslash goes on
in the next line), the lines below it are what it prints. All blocks of a page are run in one empty
folder, in order. ``python -m tests.docs.console_blocks docs/start.md`` writes the page anew with
what the commands print now.
"""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECONDS = re.compile(r"\b\d+(\.\d+)? s\b")


@dataclass(frozen=True)
class Step:
    """One command of a block and the lines that stand below it."""

    command: str
    shown: str


def steps_of(block: str) -> list[Step]:
    """The commands of a block's text."""
    steps: list[Step] = []
    lines = block.splitlines()
    while lines:
        command = lines.pop(0)
        if not command.startswith("$ "):
            raise ValueError(f"A console block must begin with a command, got {command!r}.")
        while command.endswith("\\"):
            command += "\n" + lines.pop(0)
        shown: list[str] = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        steps.append(Step(command, "\n".join(shown)))
    return steps


def printed_by(step: Step, folder: Path, last_code: int) -> tuple[str, int]:
    """What a command prints, errors included, and its exit code."""
    done = subprocess.run(
        ["bash", "-c", f"(exit {last_code}); {step.command[2:]}"],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = (line.rstrip() for line in done.stdout.strip("\n").splitlines())
    return "\n".join(lines), done.returncode


def comparable(text: str) -> str:
    """Without what differs from run to run: how many seconds something took."""
    return _SECONDS.sub("… s", text).strip()


def run_page(text: str, folder: Path) -> list[tuple[Step, str]]:
    """Every command of a page with what it prints now."""
    found, code = [], 0
    for block in FENCE.findall(text):
        for step in steps_of(block):
            printed, code = printed_by(step, folder, code)
            found.append((step, printed))
    return found


def rewritten(text: str) -> str:
    """The page with what its commands print now."""
    with tempfile.TemporaryDirectory() as folder:
        printed = iter(run_page(text, Path(folder)))

    def again(match: re.Match[str]) -> str:
        lines = []
        for _ in steps_of(match[1]):
            step, now = next(printed)
            lines += [step.command, *([now] if now else [])]
        return "\n".join(["```console", *lines, "```"])

    return FENCE.sub(again, text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
