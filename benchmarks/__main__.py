"""Run the speed ratios, or what is named; exit code 1 when a claim does not hold.

The studies take longer, from half a minute to an hour, and run only when they are named; each also
runs alone, as ``python -m benchmarks.NAME``.
"""

import argparse
import json
import os
import platform
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from benchmarks import Measured
from benchmarks.reports import report_and_autograd, server_and_clients

BENCHMARKS = {"report": report_and_autograd, "server": server_and_clients}
STUDIES = (
    "coverage", "exchanges", "fuzz", "growth", "losses", "many_sites", "mlp",
    "negotiation", "privacy", "promise", "published", "qp", "recorded", "resplits",
    "round_cost", "rounds", "scale", "sites", "startup", "thresholds",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = ", ".join([*BENCHMARKS, *STUDIES])
    parser.add_argument("names", nargs="*", help=f"of: {known}; default {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in (*BENCHMARKS, *STUDIES)]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; known: {known}")
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    print(f"Python {platform.python_version()}, {platform.machine()}, threads: {threads}")
    measured = {}
    failed = False
    for name in options.names or BENCHMARKS:
        if name in STUDIES:
            print(f"\n{name}")
            failed |= bool(import_module(f"benchmarks.{name}").main())
            continue
        measured[name] = BENCHMARKS[name]()
        show(name, measured[name])
    if options.json:
        content = {name: asdict(m) | {"ratio": m.ratio} for name, m in measured.items()}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return int(failed or not all(m.holds for m in measured.values()))


def show(name: str, measured: Measured) -> None:
    width = max(len(measured.ours), len(measured.other))
    verdict = "holds" if measured.holds else "DOES NOT HOLD"
    print(f"\n{name}")
    print(f"  {measured.ours:<{width}}  {measured.ours_ms:10.3f} ms")
    print(f"  {measured.other:<{width}}  {measured.other_ms:10.3f} ms")
    print(f"  ratio {measured.ratio:.3f}, claimed at most {measured.at_most:g}: {verdict}")


if __name__ == "__main__":
    raise SystemExit(main())
