"""What a run or an audit found out, as dataclasses, and as ``result.json`` in schema 2.

>>> from pathlib import Path
>>> from fcfl.results import read_result
>>> result = read_result(Path("runs/mine/result.json"))  # doctest: +SKIP
>>> result.clients["phd"].test.disparities[0].verdict  # doctest: +SKIP
'met'

`fcfl.results.compose` puts a result together from what training leaves.
"""

from fcfl.methods.method import RoundInfo
from fcfl.problem.prices import Price

from .client_result import (
    ClientResult,
    Disparity,
    Expected,
    GroupCount,
    GroupScores,
    Overall,
    Part,
    PartName,
    RowCounts,
    WorstClient,
)
from .degenerate import Degenerate, DegenerateRows
from .method_runs import ClientOverSeeds, ClientRun, Comparison, MethodRun, MethodSummary, OverSeeds
from .result import (
    AuditSection,
    DataSource,
    Deployment,
    EvaluationCounts,
    Exchanges,
    MarginSummary,
    Objective,
    PoolingSummary,
    PriceOfBudgets,
    PriceStep,
    Privacy,
    PrivacyLoss,
    Result,
    Selection,
    SelectionLine,
    Share,
    SiteDeployment,
    Start,
)
from .result_file import (
    read_comparison,
    read_result,
    read_selection,
    read_sweep,
    result_from_json,
    result_to_json,
    write_result,
)
from .run_folder import RunFolder, read_results, read_run, short_names
from .sweep_curve import Sweep, SweepPoint

__all__ = [
    "AuditSection",
    "ClientOverSeeds",
    "ClientResult",
    "ClientRun",
    "Comparison",
    "DataSource",
    "Degenerate",
    "DegenerateRows",
    "Deployment",
    "Disparity",
    "EvaluationCounts",
    "Exchanges",
    "Expected",
    "GroupCount",
    "GroupScores",
    "MarginSummary",
    "MethodRun",
    "MethodSummary",
    "Objective",
    "OverSeeds",
    "Overall",
    "Part",
    "PartName",
    "PoolingSummary",
    "Price",
    "PriceOfBudgets",
    "PriceStep",
    "Privacy",
    "PrivacyLoss",
    "Result",
    "RoundInfo",
    "RowCounts",
    "RunFolder",
    "Selection",
    "SelectionLine",
    "Share",
    "SiteDeployment",
    "Start",
    "Sweep",
    "SweepPoint",
    "WorstClient",
    "read_comparison",
    "read_result",
    "read_results",
    "read_run",
    "read_selection",
    "read_sweep",
    "result_from_json",
    "result_to_json",
    "short_names",
    "write_result",
]
