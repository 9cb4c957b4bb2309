"""Is it ready to be released? ``make release-check`` or ``python -m benchmarks.release [PART …]``.

Builds wheel and sdist, checks both, and installs the wheel in fresh environments: without extras,
with each extra alone, with all together. In each the package is imported, ``fcfl train`` runs on a
small table, and the extra does what it is for. Then a machine without a C compiler, which gets a
wheel without compiled kernels from the sdist and trains the same model; and at last an environment
with the lowest versions that pyproject.toml declares, in which the tests of the core run. A part is
``build``, ``core``, an extra, ``all``, ``uncompiled`` or ``lowest``; each environment is removed
before the next is made.
"""

import csv
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
COLUMNS = "--client branch --label repaid --sensitive sex --budget 0.1 --l2 0.01 --objective mean"
TRAIN = f"fcfl train rows.csv {COLUMNS} --overwrite --out run"
# What shows that an extra is there: one command, in the folder of the run above.
USES = {
    "adult": "fcfl data adult",
    "torch": "python -c 'import fcfl.torch, torch; torch.zeros(1)'",
    "flower": "fcfl flower new app --sites a,b,c --label repaid --sensitive sex --budget 0.1 "
    "&& flwr build --app app && python -c 'import fcfl.engines.flower.server_app'",
    "nvflare": "fcfl nvflare new flare --sites a,b,c --label repaid --sensitive sex --budget 0.1 "
    "&& fcfl nvflare provision flare --sites a,b,c --host localhost",
    "export": "fcfl export run --to onnx --out m.onnx && fcfl export run --to skops --out m.skops",
    "xlsx": 'python -c \'import pandas; pandas.read_csv("rows.csv").to_excel("rows.xlsx")\' && '
    "fcfl data rows.xlsx --client branch --label repaid --sensitive sex",
    "docs": "python -c 'import sphinx, myst_parser, pydata_sphinx_theme, sphinx_design'",
    "dev": "pytest --version && ruff --version && mypy --version",
}
CORE_TESTS = ("audit", "client", "data", "models", "results", "server", "training")
OUTSIDE = re.compile(
    r"^\s*(?:import|from) (torch|small_networks|fairlearn|polars|dp_accounting|flwr|"
    r"nvflare|matplotlib|onnx|skops|lxml|statsmodels)\b",
    re.MULTILINE,
)


def main(parts: list[str]) -> int:
    """One line a part; exit code 1 when one of them fails."""
    every = ["build", "core", *EXTRAS, "all", "uncompiled", "lowest"]
    unknown = [part for part in parts if part not in every]
    if unknown:
        raise SystemExit(f"there is no part {unknown[0]!r}; known: {', '.join(every)}")
    failed = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        # Environments have the same place one after the other: modules are compiled once for all.
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        wheel = build(folder)
        for part in parts or every:
            if part == "build":
                continue
            began = time.monotonic()
            if part == "lowest":
                lines = lowest(folder)
            elif part == "uncompiled":
                lines = uncompiled(wheel, folder)
            else:
                lines = installed(part, wheel, folder)
            failed += [part] if lines[0] == "FAILED" else []
            print(f"{part:<8} {time.monotonic() - began:5.0f} s  {'; '.join(lines)}", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "All parts hold.")
    return 1 if failed else 0


def build(folder: Path) -> Path:
    """Sdist, wheel of that sdist, ``twine check``, and that the marks of a typed package are in."""
    tools = environment(folder / "tools")
    pip(tools, "build", "twine")
    run([f"{tools}/python", "-m", "build", "--outdir", f"{folder}/dist", str(ROOT)], folder)
    made = sorted((folder / "dist").iterdir())
    said = run([f"{tools}/python", "-m", "twine", "check", "--strict", *map(str, made)], folder)
    remove(folder / "tools")
    (wheel,) = (path for path in made if path.suffix == ".whl")
    names = zipfile.ZipFile(wheel).namelist()
    missing = {"fcfl/py.typed"} - {*names}
    strange = [n for n in names if not n.startswith("fcfl")]
    if missing or strange or said.count("PASSED") != 2:
        raise SystemExit(f"The wheel lacks {missing} or has {strange}; twine: {said}")
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 1024:.0f} kB" for path in made)
    has_kernels = any("_kernels" in name and name.endswith((".so", ".pyd")) for name in names)
    print(f"build    {sizes}; twine check passed; py.typed is in, compiled kernels are "
          f"{'in' if has_kernels else 'not'}", flush=True)  # fmt: skip
    return wheel


def installed(part: str, wheel: Path, folder: Path) -> list[str]:
    """An environment with the wheel and its extras; what ran in it."""
    extras = {"core": [], "all": [*EXTRAS]}.get(part, [part])
    home, work = folder / "venv", folder / "work"
    remove(work)
    work.mkdir()
    write_rows(work / "rows.csv")
    try:
        bin = environment(home)
        named = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
        pip(bin, "-c", str(ROOT / "constraints.txt"), named)
        run([f"{bin}/python", "-m", "pip", "check"], work)
        run([f"{bin}/python", "-c", "import fcfl; [getattr(fcfl, n) for n in fcfl.__all__]"], work)
        shell(bin, TRAIN, work)
        for extra in extras:
            shell(bin, USES[extra], work)
        count = len(list(home.glob("lib/*/site-packages/*.dist-info")))
    except subprocess.CalledProcessError as error:
        return ["FAILED", error.output[-1500:]]
    finally:
        remove(home)
    return [f"{count} packages", "imports, trains", *(f"{extra} works" for extra in extras)]


def uncompiled(wheel: Path, folder: Path) -> list[str]:
    """The sdist installed where there is no compiler: no kernels, and the same model."""
    work = folder / "work"
    remove(work)
    work.mkdir()
    write_rows(work / "rows.csv")
    (sdist,) = wheel.parent.glob("*.tar.gz")
    models, said = [], []
    try:
        for source, compiler in ((wheel, {}), (sdist, {"CC": "no-such-compiler"})):
            bin = environment(folder / "venv")
            with patched(compiler):
                pip(bin, "-c", str(ROOT / "constraints.txt"), str(source))
            asked = "from fcfl.models.kernels import kernels; print(kernels() is not None)"
            said.append(run([f"{bin}/python", "-c", asked], work).strip())
            shell(bin, TRAIN, work)
            models.append(json.loads((work / "run" / "model.json").read_text(encoding="utf-8")))
    except subprocess.CalledProcessError as error:
        return ["FAILED", error.output[-1500:]]
    finally:
        remove(folder / "venv")
    apart = max(abs(a - b) for a, b in zip(*(_numbers(model) for model in models), strict=True))
    verdict = [] if said == ["True", "False"] and apart < 1e-8 else ["FAILED"]
    return [*verdict, f"kernels: {', '.join(said)}", f"parameters {apart:.0e} apart"]


@contextmanager
def patched(variables: dict[str, str]) -> Iterator[None]:
    """The environment with some variables set for a while."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _numbers(value: object) -> Iterator[float]:
    """All numbers with a fraction in plain JSON values, in order."""
    if isinstance(value, float):
        yield value
    children = value.values() if isinstance(value, dict) else value
    if isinstance(value, (dict, list)):
        for child in children:
            yield from _numbers(child)


def lowest(folder: Path) -> list[str]:
    """The core's tests with the lowest versions declared; Adult and workbooks need extras."""
    home = folder / "venv"
    pinned = [
        lower_bound(line) for line in (*PROJECT["dependencies"], *EXTRAS["adult"], *EXTRAS["xlsx"])
    ]
    (folder / "lowest.txt").write_text("\n".join(pinned), encoding="utf-8")
    tests = [str(path) for path in core_tests()]
    try:
        bin = environment(home)
        pip(bin, "-c", str(folder / "lowest.txt"), f"{ROOT}[adult,xlsx]", "pytest", "hypothesis")
        # Warnings are no errors here: old versions warn about themselves.
        options = [
            "-q",
            "-o",
            "filterwarnings=default",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:warnings",
        ]
        said = run([f"{bin}/python", "-m", "pytest", *options, *tests], ROOT)
    except subprocess.CalledProcessError as error:
        return ["FAILED", error.output[-6000:]]
    finally:
        remove(home)
    return [", ".join(pinned), said.strip().splitlines()[-1]]


def core_tests() -> list[Path]:
    """Test files that import nothing from an extra."""
    found = (path for name in CORE_TESTS for path in (ROOT / "tests" / name).rglob("test_*.py"))
    return [path for path in sorted(found) if not OUTSIDE.search(path.read_text(encoding="utf-8"))]


def lower_bound(requirement: str) -> str:
    """``numpy>=1.26,<3`` as ``numpy==1.26``."""
    found = re.match(r"([\w-]+)(?:>=|==)([\w.]+)", requirement)
    if found is None:
        raise SystemExit(f"{requirement!r} has no lower bound.")
    return f"{found[1]}=={found[2]}"


def write_rows(path: Path) -> None:
    """600 rows of three branches."""
    rng = random.Random(0)
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["branch", "sex", "income", "town", "repaid"])
        for n in range(600):
            sex = rng.choice("fm")
            income = rng.gauss(3 + (sex == "m"), 1)
            repaid = "yes" if income + rng.gauss(0, 1) > 3.5 else "no"
            town = f"town {rng.randrange(30)}"  # so many that rows are kept as codes
            rows.writerow(["abc"[n % 3], sex, f"{income:.2f}", town, repaid])


def environment(home: Path, python: str = sys.executable) -> Path:
    """A fresh virtual environment; the folder of its programs."""
    remove(home)
    run([python, "-m", "venv", str(home)], home.parent)
    return home / "bin"


def pip(bin: Path, *words: str) -> None:
    """Install."""
    run([f"{bin}/python", "-m", "pip", "install", "-q", "--no-compile", *words], bin)


def shell(bin: Path, command: str, folder: Path) -> str:
    return run(["bash", "-ec", f"export PATH={bin}:$PATH; {command}"], folder)


def run(command: list[str], folder: Path) -> str:
    """What a command prints; an error when it ends otherwise than well, or with unkept budgets."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"OMP_NUM_THREADS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout)
    return done.stdout


def remove(folder: Path) -> None:
    subprocess.run(["rm", "-rf", str(folder)], check=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
