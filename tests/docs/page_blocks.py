"""Run the blocks of the documentation, and compare or rewrite their output.

All blocks of a page are run in one empty folder, in order. The name of a fence is its kind:

``console``
    A line that begins with ``$`` is a command (a backslash continues it in the next line); the
    lines below it are its output.
``python``
    One session per page. Lines with prompts show their output, as doctests do; blocks without
    prompts are run, and their output is not shown.
``toml``
    A file; the comment in its first line is its name.

``python -m tests.docs.page_blocks docs/start.md …`` writes the current output into the pages; with
``--check`` it compares instead, and prints the differences.
"""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(console|python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WIDTH = 100
_LONG_NUMBER = re.compile(r"\b\d+\.\d{10,}\b")
_SECONDS = re.compile(r"\b\d+(\.\d+)? s\b")
_PROMPT = re.compile(r"^(>>>|\.\.\.) ?", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """One command or statement and the lines that stand below it."""

    command: str
    shown: str


@dataclass
class Session:
    """The state that the blocks of a page share."""

    folder: Path
    last_code: int = 0
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})

    def printed_by(self, kind: str, step: Step) -> str:
        """Run a step and return its output."""
        run = {"console": self._command, "python": self._statement, "toml": self._file}[kind]
        return run(step)

    def _command(self, step: Step) -> str:
        """Return the output of a command, errors included."""
        done = subprocess.run(
            ["bash", "-c", f"(exit {self.last_code}); {step.command[2:]}"],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                "COLUMNS": str(WIDTH),
                "NO_COLOR": "1",
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.last_code = done.returncode
        return _trimmed(done.stdout)

    def _statement(self, step: Step) -> str:
        """Return the output of a statement; warnings are errors."""
        typed = step.command.startswith(">>>")
        source = _PROMPT.sub("", step.command) if typed else step.command
        output = io.StringIO()
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(output),
            warnings.catch_warnings(action="error"),
        ):
            exec(compile(source, "<page>", "single" if typed else "exec"), self.names)
        return _trimmed(output.getvalue())

    def _file(self, step: Step) -> str:
        """Write a file; there is no output."""
        path = self.folder / step.command.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step.command, encoding="utf-8")
        return ""


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def steps_of(kind: str, block: str) -> list[Step]:
    """Return the commands or statements of a block."""
    if kind == "console":
        return list(_commands(block.splitlines()))
    if kind == "python" and block.startswith(">>>"):
        return list(_statements(block))
    if kind == "toml" and not re.match(r"# [\w./-]+\.toml\n", block):
        raise ValueError(f"A file's first line must be its name, got {block.splitlines()[0]!r}.")
    return [Step(block, "")]


def _commands(lines: list[str]) -> Iterator[Step]:
    while lines:
        command = lines.pop(0)
        if not command.startswith("$ "):
            raise ValueError(f"A console block must begin with a command, got {command!r}.")
        while command.endswith("\\"):
            command += "\n" + lines.pop(0)
        shown: list[str] = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        yield Step(command, "\n".join(shown))


def _statements(block: str) -> Iterator[Step]:
    for example in doctest.DocTestParser().get_examples(block):
        lines = example.source.rstrip("\n").split("\n")
        typed = [f"{'...' if n else '>>>'} {line}".rstrip() for n, line in enumerate(lines)]
        yield Step("\n".join(typed), example.want.rstrip("\n"))


def folded(text: str) -> str:
    """Break lines of more than 100 characters, as a page shows them."""
    lines = (
        textwrap.wrap(line, WIDTH, break_on_hyphens=False) if len(line) > WIDTH else [line]
        for line in text.splitlines()
    )
    return "\n".join(piece for pieces in lines for piece in pieces)


def comparable(text: str) -> str:
    """Remove what differs between runs or machines: seconds, and the last of many digits."""
    shortened = _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.8f}", folded(text))
    return _SECONDS.sub("… s", shortened).strip()


def run_page(text: str, folder: Path) -> list[tuple[Step, str]]:
    """Return every step of a page with its current output."""
    (folder / "examples").symlink_to(ROOT / "examples")  # as in the folder of a clone
    session = Session(folder)
    return [
        (step, session.printed_by(kind, step))
        for kind, block in FENCE.findall(text)
        for step in steps_of(kind, block)
    ]


def rewritten(text: str) -> str:
    """Return the page with the current output of its blocks."""
    with tempfile.TemporaryDirectory() as folder:
        printed = iter(run_page(text, Path(folder)))

    def again(match: re.Match[str]) -> str:
        lines = []
        for _ in steps_of(match[1], match[2]):
            step, now = next(printed)
            lines += [step.command.rstrip("\n"), *([folded(now)] if now else [])]
        return "\n".join([f"```{match[1]}", *lines, "```"])

    return FENCE.sub(again, text)


def differences(text: str) -> list[str]:
    """Return the steps whose output differs from the page."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            f"{step.command}\nshown:\n{step.shown}\nprinted:\n{printed}\n"
            for step, printed in run_page(text, Path(folder))
            if comparable(printed) != comparable(step.shown)
        ]


def main(words: list[str]) -> int:
    """Rewrite pages, or compare them."""
    failed = False
    for name in (word for word in words if word != "--check"):
        page = Path(name)
        text = page.read_text(encoding="utf-8")
        if "--check" not in words:
            page.write_text(rewritten(text), encoding="utf-8")
            continue
        began, found = time.process_time() + sum(os.times()[2:4]), differences(text)
        seconds = time.process_time() + sum(os.times()[2:4]) - began
        count = sum(len(steps_of(*block)) for block in FENCE.findall(text))
        summary = f"{name}: {count} steps, {seconds:.0f} s of CPU, {len(found)} differ"
        print(summary, *found, sep="\n", flush=True)  # noqa: T201 - a command
        failed = failed or bool(found)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
