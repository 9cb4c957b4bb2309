"""Two real sites with TLS against one process: the same bits, and what an exchange costs.

`python -m benchmarks.sites adult` trains Adult (race, budget 0.05) with everything left to
cross-validation, `module` a torch module of about 10⁵ weights, by messages alone and over NVIDIA
FLARE, all processes on 127.0.0.1. Exits 1 unless settings and parameters are those of one process.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.many_sites import adult, simulated, write_tables
from benchmarks.open_site import open_site
from fcfl.client.client import Evaluate
from fcfl.federation.session import Session
from fcfl.models.linear import load_model
from fcfl.results import Result, read_result
from fcfl.runs import Experiment
from fcfl.runs.opening import Opened, open_run
from fcfl.runs.run import run_session
from fcfl.runs.site_run import run_sites
from fcfl.sites.messages import Introduce, ToSite, decode_question
from fcfl.sites.named_module import NamedModule
from fcfl.sites.settings import Config
from fcfl.sites.transport import InProcessTransport

MODULE = "benchmarks.wide_network:wide"
SETTINGS = {"label": "label", "sensitive": "group", "budget": "0.05"}
OF_CASE: dict[str, dict[str, object]] = {
    "adult": {"l2": "auto", "objective": "auto"},
    "module": {"module": MODULE, "l2": 0.001, "objective": "mean", "rounds": "8,4", "starts": 1,
               "confidence": 0.0},
}  # fmt: skip
Engine = Callable[[Path, Config, Mapping[str, Mapping[str, str]]], None]

ROOT = Path(__file__).parents[1]


class Sorted(InProcessTransport):
    """Sites in this process; what each exchange was for is counted."""

    def __init__(self, sites: Mapping[int, Config]) -> None:
        super().__init__(sites)
        self.exchanges: Counter[str] = Counter()

    def send(self, node: int, content: bytes, seconds: float) -> str:
        """Answer at once, and count."""
        if node == 0:  # one message of each exchange
            self.exchanges[purpose_of(decode_question(content))] += 1
        return super().send(node, content, seconds)


def purpose_of(question: ToSite) -> str:
    if isinstance(question, Introduce):
        return "meeting"
    asked = question.question
    if isinstance(asked, Evaluate):
        points = asked.request.points
        for extra in (extra for point in points for extra in point.extras):
            return type(extra).__name__
        return "starts, rounds, and their beginning and end"
    return "counts of decisions"


def over_messages(folder: Path, config: Config, sites: Mapping[str, Mapping[str, str]]) -> None:
    """The same bytes without a network: what the messages themselves cost, and are for."""
    transport = Sorted(dict(enumerate(sites.values())))
    run_sites(transport, config, on_message=print)
    print("  ".join(f"{count} {what}" for what, count in transport.exchanges.items()))


def over_nvflare(folder: Path, config: Config, sites: Mapping[str, Mapping[str, str]]) -> None:
    """Kits, a server and a node for each site, as `fcfl nvflare up` starts them."""
    from fcfl.engines.nvflare.rehearsal import rehearse

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    began = time.monotonic()

    def show(sentence: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {sentence}", flush=True)

    rehearse(folder / "rehearsal", sites, config, show)


ENGINES: dict[str, Engine] = {
    "messages": over_messages,
    "nvflare": over_nvflare,
}


def in_one_process(case: str, folder: Path) -> Result:
    """The same settings with all rows here."""
    given = {key: value for key, value in OF_CASE[case].items() if key != "module"}
    if "rounds" in given:
        given["rounds"] = (8, 4)
    settings = {"client": "site", "label": "label", "sensitive": ("group",), "budget": 0.05}
    experiment = Experiment(table=str(folder / "joined.csv"), **settings, **given)  # type: ignore[arg-type]

    def opener(experiment: Experiment) -> Opened:
        opened = open_run(experiment)
        if case != "module" or opened.inputs is None:
            return opened
        return replace(opened, model=NamedModule(MODULE, opened.inputs.schema.n_features))

    return run_session(experiment, Session(folder / "reference"), opener=opener).result


def params_of(folder: Path) -> np.ndarray:
    weights = folder / "model.safetensors"
    if not weights.exists():
        return load_model(folder).params
    from safetensors.numpy import load_file

    return np.concatenate([part.ravel() for _, part in sorted(load_file(weights).items())])


def measure(case: str, engine: str, folder: Path) -> bool:
    """Print a line of the table; whether it is the model of one process."""
    files = write_tables(adult() if case == "adult" else simulated(2, 1500), folder)
    config = {"sites": ",".join(files), "out": str(folder / "out"), **SETTINGS, **OF_CASE[case]}
    config["site-timeout"] = 3600.0  # other work on the machine may take most of its time
    more = f'modules = ["{MODULE}"]\n'
    sites = {name: open_site(name, path, folder / name, more) for name, path in files.items()}
    ENGINES[engine](folder, config, sites)  # type: ignore[arg-type]
    found, expected = read_result(folder / "out" / "result.json"), in_one_process(case, folder)
    ours, other = (params_of(folder / place) for place in ("out", "reference"))
    chosen = [(one.l2, one.objective) for one in (found, expected)]
    section = found.deployment
    assert section is not None
    print(f"{case} over {engine}: {ours.size} parameters, {found.n_rounds} rounds")
    print(f"  l2 and objective {chosen[0]}, in one process {chosen[1]}")
    print(
        f"  same bits: {ours.tobytes() == other.tobytes()}, apart {np.abs(ours - other).max():.1e}"
    )
    each = found.seconds / found.exchanges.total
    print(f"  {found.exchanges.total} exchanges, {found.seconds:.1f} s, {each:.2f} s each")
    print(f"  {section.bytes_from_sites:,} bytes from sites, {section.bytes_to_sites:,} to")
    print(f"  in one process {expected.seconds:.1f} s")
    return chosen[0] == chosen[1] and ours.tobytes() == other.tobytes()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sites", description=__doc__)
    parser.add_argument("case", nargs="?", choices=[*OF_CASE], default="adult")
    parser.add_argument("--engine", choices=[*ENGINES], help="by default all of them, in turn")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # read when numpy is imported
        # A rehearsal's processes have one thread each; BLAS rounds by the number of its threads.
        one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **one})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no process behind
    holds = True
    for engine in [options.engine] if options.engine else ENGINES:
        with tempfile.TemporaryDirectory() as place:
            holds &= measure(options.case, engine, Path(place))
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
