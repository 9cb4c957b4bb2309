"""Results of runs and audits: dataclasses of ``result.json`` and other files, and their readers.

>>> from pathlib import Path
>>> from fcfl.results import read_result
>>> result = read_result(Path("runs/mine/result.json"))  # doctest: +SKIP
>>> result.clients["phd"].test.disparities[0].verdict  # doctest: +SKIP
'met'
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fcfl._files import read_json
from fcfl.audit.auditing import GroupScores, Part
from fcfl.audit.intervals import Interval
from fcfl.audit.verdicts import Disparity, Forecast, GroupCount
from fcfl.errors import DataError
from fcfl.federation.checkpoint import read_history
from fcfl.methods.method import RoundInfo

from .many_runs import Comparison, OverSeeds, Sweep, SweepPoint
from .result import ClientResult, Exchanges, Result, RowCounts

__all__ = [
    "ClientResult",
    "Comparison",
    "Disparity",
    "Exchanges",
    "Forecast",
    "GroupCount",
    "GroupScores",
    "Interval",
    "OverSeeds",
    "Part",
    "Result",
    "RoundInfo",
    "RowCounts",
    "RunFolder",
    "Sweep",
    "read_comparison",
    "read_result",
    "read_results",
    "read_run",
    "short_names",
]

RESULT = "result.json"
HISTORY = "history.jsonl"
SWEEP = "sweep.json"
COMPARISON = "comparison.json"
NEGOTIATION = "negotiation.json"
CELLS = "cells.json"
PLAIN = "fedavg"


@dataclass(frozen=True)
class RunFolder:
    """Contents of one run folder: result, rounds, and the sweep if there is one.

    ``plain`` is the result of plain FedAvg on the same rows, read from a subfolder or sibling.
    """

    folder: Path
    result: Result | None
    history: tuple[RoundInfo, ...] = ()
    sweep: tuple[SweepPoint, ...] = ()
    plain: Result | None = None


def read_result(path: Path) -> Result:
    """Read ``result.json``; raise a `DataError` that names the file and the invalid key."""
    return read_json(path, Result)


def read_comparison(path: Path) -> Comparison:
    """Read ``comparison.json``."""
    return read_json(path, Comparison)


def read_run(folder: Path) -> RunFolder:
    """Read ``result.json``, ``history.jsonl`` and ``sweep.json``; a result or a sweep is required.

    An incomplete last line of the history, left by an interrupted run, is skipped.
    """
    path, sweep, history = folder / RESULT, folder / SWEEP, folder / HISTORY
    if not path.exists() and not sweep.exists():
        raise DataError(f"There is no result in {str(folder)!r}: it has no {RESULT}.")
    result = read_result(path) if path.exists() else None
    return RunFolder(
        folder,
        result,
        tuple(read_history(history)) if history.exists() else (),
        read_json(sweep, Sweep).points if sweep.exists() else (),
        None if result is None else _plain_run(folder, result),
    )


def _plain_run(folder: Path, result: Result) -> Result | None:
    """Return the result of plain FedAvg that `fcfl demo` or `fcfl compare` wrote, if any."""
    for place in (folder / PLAIN, folder.parent / PLAIN):
        path = place / RESULT
        if place == folder or result.method == PLAIN or not path.exists():
            continue
        found = read_result(path)
        same = found.data and result.data and found.data.sha256 == result.data.sha256
        if same and found.method == PLAIN:
            return found
    return None


def read_results(folders: Sequence[Path]) -> dict[str, Result]:
    """Read the results of several folders; keys are short folder names, in the order given."""
    results = {}
    for name, folder in zip(short_names(folders), folders, strict=True):
        run = read_run(folder)
        if run.result is None:
            raise DataError(f"There is no {RESULT} in {str(folder)!r} to compare.")
        results[name] = run.result
    return results


def short_names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest trailing parts of the paths that are all different."""
    paths = [Path(os.path.normpath(folder.absolute())) for folder in folders]
    for count in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise DataError(f"The folder {str(folders[0])!r} is given twice.")
