"""A test runs every block of Start and of the guides, and compares the output with the page."""

import re
import shlex
import shutil
import subprocess
import tomllib

import pytest
import sklearn
from tests.docs.page_blocks import FENCE, ROOT, comparable, run_page, steps_of

from fcfl.data.declared_rows import read_declared
from fcfl.policy import read_policy
from fcfl.runs.site_config import SitesConfig
from hospital import fcfl

DOCS = ROOT / "docs"
TOCTREE = re.compile(r"```\{toctree\}\n(?::.*\n)*\n(.*?)```", re.DOTALL)
LISTED = TOCTREE.search((DOCS / "guides.md").read_text(encoding="utf-8"))[1]
NAMES = ["start", "own-method", *re.findall(r"([\w-]+)>?$", LISTED, re.MULTILINE)]
PAGES = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in NAMES}
PAGES["readme"] = (ROOT / "README.md").read_text(encoding="utf-8")
QUICK = ("start", "budgets", "gate")
RUN = [name for name in PAGES if FENCE.search(PAGES[name])]

# Indented blocks that other tests run: how each begins, and the file of its test.
GUIDES = "tests/engines/test_guides.py"
HERE = "tests/docs/test_page_blocks.py"
RELEASE = "benchmarks/release.py"  # `pip install` of the wheel, with every extra
FOLLOWED = {
    "sites": {'name = "north"': GUIDES, "withhold-below": GUIDES, "fcfl site status": GUIDES},
    "deployment": {
        "pip install 'fcfl[flower]'": GUIDES,
        'name = "north"': GUIDES,
        "flower-superlink": GUIDES,
        "[superlink]": GUIDES,
        "flwr run app here --stream\n": GUIDES,
        "ssh-keygen": HERE,
        "flwr run app here --stream --run-config": HERE,
    },
    "nvflare": {
        "pip install 'fcfl[nvflare]'\nfcfl nvflare new": GUIDES,
        "mkdir -p": GUIDES,
        "/srv/fcfl/app/kits/server/startup": GUIDES,
        "pip install 'fcfl[nvflare]'": RELEASE,
        'name = "north"': GUIDES,
        "/srv/fcfl/north/startup": GUIDES,
        "fcfl nvflare status": GUIDES,
        "fcfl nvflare stop": GUIDES,
    },
    "negotiation": {
        "fcfl nvflare run project --set command=negotiate": (
            "tests/engines/test_nvflare_deployment.py"
        ),
    },
    "own-method": {
        "Registered(": "tests/test_own_parts.py",
        "fcfl train adult": "tests/test_own_parts.py",
    },
    "start": {"make demo": HERE},
    "readme": {"make demo ": HERE},
}


def indented(text):
    """Return the indented blocks that follow a paragraph; deeper text of a list is none."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"(?:\A|\n\n)((?:    .*\n)+)", outside)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.pages) for name in RUN]
)
def test_blocks_have_the_output_of_the_page(name, tmp_path):
    with sklearn.config_context():  # a page may change it
        for step, printed in run_page(PAGES[name], tmp_path):
            assert comparable(printed) == comparable(step.shown), step.command


def test_every_block_is_run():
    assert {*QUICK, "python", "cards", "networks", "negotiation", "privacy"} <= {*RUN}
    for name, text in PAGES.items():
        fences = re.findall(r"^```(\S+)", text, re.MULTILINE)
        known = {"console", "python", "toml", "yaml"}
        assert {fence for fence in fences if not fence.startswith("{")} <= known, name
        assert len(re.findall(r"^```$", text, re.MULTILINE)) == len(fences), name
        for kind, block in FENCE.findall(text):
            assert steps_of(kind, block)
        for block in indented(text):
            at = [start for start in FOLLOWED.get(name, {}) if block.startswith(start)]
            assert at, f"{name}: nothing runs {block!r}"


@pytest.mark.parametrize("name", FOLLOWED)
def test_blocks_that_other_tests_run_exist(name):
    blocks = indented(PAGES[name])
    for start, where in FOLLOWED[name].items():
        assert any(block.startswith(start) for block in blocks), start
        assert (ROOT / where).exists()


def test_the_pipeline_runs_the_commands_of_the_page():
    (steps,) = re.findall(r"^```yaml\n(.*?)^```$", PAGES["gate"], re.MULTILINE | re.DOTALL)
    steps = re.sub(r"\n    (?=--)", " ", steps)
    typed = {step.command[2:].replace(" \\\n   ", "") for _, step in _steps("gate")}
    ours = [line for line in re.findall(r"- run: (.*)", steps) if not line.startswith("pip ")]
    assert ours and {*ours} <= typed


def test_the_files_of_the_pages_can_be_read(tmp_path):
    readers = {"policy": read_policy, "north": read_policy, "schema": read_declared}
    read = set()
    for name in RUN:
        for kind, step in _steps(name):
            if kind == "toml":
                path = tmp_path / step.command.splitlines()[0].rpartition("/")[2].lstrip("# ")
                path.write_text(step.command, encoding="utf-8")
                readers[path.stem](path)
                read.add(path.stem)
    assert read == set(readers)


def test_the_settings_of_runs_over_sites_are_settings(tmp_path):
    (block,) = [b for b in indented(PAGES["deployment"]) if "--run-config" in b]
    (new,) = re.findall(r"^    (fcfl flower new .*)$", PAGES["deployment"], re.MULTILINE)
    app = tmp_path / "app"
    assert fcfl(*(app if w == "app" else w for w in shlex.split(new)[1:])).exit_code == 0
    table = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
    settings = table["tool"]["flwr"]["app"]["config"]
    commands = []
    for line in block.splitlines():
        changed = tomllib.loads(re.sub(r'(?<=") (?=\w+=)', "\n", shlex.split(line)[-1]))
        commands.append(SitesConfig.from_run_config(settings | changed).command)
    assert commands == ["train", "compare", "sweep"]


def test_a_site_may_make_its_own_key(tmp_path):
    if shutil.which("ssh-keygen") is None:
        pytest.skip("there is no ssh-keygen")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    (block,) = [b for b in indented(PAGES["deployment"]) if b.startswith("ssh-keygen")]
    (keygen,) = [line for line in block.splitlines() if line.startswith("ssh-keygen")]
    subprocess.run(["bash", "-c", keygen], cwd=tmp_path, check=True, capture_output=True)
    key = serialization.load_ssh_public_key((tmp_path / "north.pub").read_bytes())
    assert key.curve.name == "secp384r1"


def test_the_first_command_is_a_goal_of_the_makefile():
    assert [block.strip() for block in indented(PAGES["start"])] == ["make demo"]
    assert re.findall(r"^make (\w+)", *indented(PAGES["readme"]), re.MULTILINE) == ["demo", "test"]
    assert re.search(
        r"^demo: .*\n\t\$\(BIN\)/fcfl demo --out runs/demo$", _makefile(), re.MULTILINE
    )


def _makefile():
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def _steps(name):
    return [
        (kind, step) for kind, block in FENCE.findall(PAGES[name]) for step in steps_of(kind, block)
    ]
