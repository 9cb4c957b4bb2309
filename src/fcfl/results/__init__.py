"""Results of runs and audits: the dataclasses of ``result.json`` and other files, and reading them.

>>> from pathlib import Path
>>> from fcfl.results import read_result
>>> result = read_result(Path("runs/mine/result.json"))  # doctest: +SKIP
>>> result.clients["phd"].test.disparities[0].verdict  # doctest: +SKIP
'met'
"""

from fcfl.audit.auditing import GroupScores, Part
from fcfl.audit.intervals import Interval
from fcfl.audit.verdicts import Disparity, Forecast, GroupCount
from fcfl.methods.method import RoundInfo

from .files import RunFolder, read_comparison, read_result, read_results, read_run, short_names
from .many_runs import Comparison, OverSeeds, Sweep
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
