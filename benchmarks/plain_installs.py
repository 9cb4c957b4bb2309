"""Does a fresh installation work? ``make plain``, or ``python -m benchmarks.plain_installs``.

Installs the package as a user does, by ``pip install .`` into a fresh environment and without
``constraints.txt``, under each Python from 3.11 to 3.13 that is present. Then it trains on a CSV
file, predicts, audits, exports the table of coefficients and fits the estimator; with the extras
``adult`` and ``export`` it runs the demo and exports to ONNX. The lowest declared versions of the
direct dependencies follow, under the lowest Python. Two environments are made at a time. Needs
nothing but the standard library. One line for each environment; exit code 1 if one fails. A part
is ``3.11``, ``3.12``, ``3.13`` (newest versions) or ``lowest``.
"""

import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.release import (
    EXTRAS,
    PROJECT,
    ROOT,
    environment,
    lower_bound,
    remove,
    run,
    shell,
    write_rows,
)

PYTHONS = ("3.11", "3.12", "3.13")
USED = ("adult", "export")  # extras
COLUMNS = "--client branch --label repaid --sensitive sex"
WITHOUT_EXTRAS = (
    f"fcfl train rows.csv {COLUMNS} --budget 0.1 --out run",
    "fcfl predict run rows.csv --out scored.csv",
    f"fcfl audit scored.csv {COLUMNS} --prediction prediction --budget 0.2",
    "fcfl export run --to csv",
    "python estimate.py",
)
WITH_EXTRAS = ("fcfl demo --out demo", "fcfl export run --to onnx")
ESTIMATE = """
import pandas as pd
from fcfl import FCFLClassifier

rows = pd.read_csv("rows.csv")
X = pd.get_dummies(rows[["income", "town"]])
model = FCFLClassifier(budget=0.1)
model.fit(X, rows["repaid"], clients=rows["branch"],
          sensitive_features=rows["sex"])
assert set(model.predict(X)) <= {"yes", "no"}
assert model.score(X, rows["repaid"]) > 0.6
"""
# The versions that decide whether a command line, a table or a fit works.
NAMED = ("numpy", "scipy", "pandas", "pyarrow", "scikit-learn", "rich", "onnx")


@dataclass(frozen=True)
class Trial:
    """An environment: a Python, and the newest or the lowest versions."""

    version: str
    python: Path
    is_lowest: bool = False

    @property
    def name(self) -> str:
        """The name that is printed."""
        return f"Python {self.version}, {'lowest' if self.is_lowest else 'newest'} versions"


def main(parts: list[str]) -> int:
    """Try every environment, or those named; exit code 1 if one fails."""
    began, every = time.monotonic(), [*PYTHONS, "lowest"]
    unknown = [part for part in parts if part not in every]
    if unknown:
        raise SystemExit(f"there is no part {unknown[0]!r}; known: {', '.join(every)}")
    trials = []
    for part in parts or every:
        version = PYTHONS[0] if part == "lowest" else part
        python = find_python(version)
        if python is None:
            print(f"{part}: not tried, Python {version} is not present")
        else:
            trials.append(Trial(version, python, is_lowest=part == "lowest"))
    if not trials:
        print("plain: FAILED, nothing was tried")
        return 1
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(2) as pool:
        source = copy_of_source(Path(place))
        passed = list(pool.map(lambda trial: attempt(trial, source), trials))
    used, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    print(
        f"plain: {sum(passed)} of {len(trials)} environments work, {seconds:.0f} s, "
        f"{used.ru_utime + used.ru_stime:.0f} s of CPU"
    )
    return int(not all(passed))


def find_python(version: str) -> Path | None:
    """Find a Python of this version: on the path, or one that pyenv has installed."""
    candidates = [sys.executable, shutil.which(f"python{version}")]
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True)
        folder = Path(root.stdout.strip()) / "versions"
        candidates += sorted(map(str, folder.glob(f"{version}.*/bin/python")), reverse=True)
    asked = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        said = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.strip() == version:
            return Path(candidate)
    return None


def copy_of_source(place: Path) -> Path:
    """What a clone has: builds must not meet in one folder, nor find what was compiled before."""
    target = place / "source"
    listed = run(["git", "ls-files", "-co", "--exclude-standard"], ROOT).splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def attempt(trial: Trial, source: Path) -> bool:
    """Install, use, and print one line; on failure also the command and the end of its output."""
    began = time.monotonic()
    home = Path(tempfile.mkdtemp())
    try:
        said = use(trial, source, home)
    except subprocess.CalledProcessError as error:
        command = error.cmd[-1] if error.cmd[0] == "bash" else " ".join(map(str, error.cmd))
        command = command.partition("; ")[2] or command
        print(f"{trial.name}: FAILED at {command!r} with exit code {error.returncode}\n"
              f"{readable(error.output)[-3000:]}", flush=True)  # fmt: skip
        return False
    finally:
        remove(home)
    print(f"{trial.name}: works, {time.monotonic() - began:.0f} s ({said})", flush=True)
    return True


def use(trial: Trial, source: Path, home: Path) -> str:
    """Install without extras and with them, and use what is installed; the versions."""
    place, work = home / "source", home / "work"
    shutil.copytree(source, place)
    work.mkdir()
    write_rows(work / "rows.csv")
    (work / "estimate.py").write_text(ESTIMATE, encoding="utf-8")
    bin = environment(home / "venv", str(trial.python))
    limits = home / "lowest.txt"
    declared = [*PROJECT["dependencies"], *(line for extra in USED for line in EXTRAS[extra])]
    lowest = [lower_bound(line) for line in declared] if trial.is_lowest else []
    limits.write_text("\n".join(lowest), encoding="utf-8")
    given = ["-c", str(limits)] if trial.is_lowest else []
    pip = [f"{bin}/python", "-m", "pip", "install", "-q", "--no-compile", *given]
    extras = f"{PROJECT['name']}[{','.join(USED)}]"  # of the package that is installed by then
    for wanted, commands in ((str(place), WITHOUT_EXTRAS), (extras, WITH_EXTRAS)):
        run([*pip, wanted], work)
        for command in commands:
            said = shell(bin, command, work)
            check_output(command, said, may_warn=trial.is_lowest)
    run([f"{bin}/python", "-m", "pip", "check"], work)
    listed = run([f"{bin}/python", "-m", "pip", "list", "--format=freeze"], work)
    versions = dict(line.split("==") for line in listed.splitlines() if "==" in line)
    return ", ".join(f"{name} {versions[name]}" for name in NAMED if name in versions)


def check_output(command: str, said: str, *, may_warn: bool) -> None:
    """Raise if a command printed a traceback or, with the newest versions, a Python warning."""
    strange = r"Traceback|Unexpected \w+Error" if may_warn else r"Traceback|Unexpected|\w+Warning:"
    if re.search(strange, said):
        raise subprocess.CalledProcessError(0, [command], said)


def readable(output: str) -> str:
    """The output without what pip prints about places where it looked for packages."""
    lines = output.splitlines()
    return "\n".join(line for line in lines if not line.startswith("WARNING: Location "))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
