"""The paper's tables and figures reproduced: items as TOML files, runs in processes, results."""

from .aggregate import aggregate, with_chosen_budget
from .items import QUICK, Case, Item, Run, find_items, plan_runs, read_item
from .records import ItemResult, Scale, read_item_results, write_item_result
from .runs import FinishedPlan, OnRun, run_plan

__all__ = [
    "QUICK",
    "Case",
    "FinishedPlan",
    "Item",
    "ItemResult",
    "OnRun",
    "Run",
    "Scale",
    "aggregate",
    "find_items",
    "plan_runs",
    "read_item",
    "read_item_results",
    "run_plan",
    "with_chosen_budget",
    "write_item_result",
]
