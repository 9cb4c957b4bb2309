"""The paper's tables and figures reproduced: items as TOML files, runs in processes, results."""

from .aggregate import aggregate
from .budget_choice import with_chosen_budget
from .item_result import ItemResult, Scale, read_item_results, write_item_result
from .items import Case, Item, find_items, read_item
from .plan import QUICK, Run, plan_runs
from .run_plan import FinishedPlan, OnRun, run_plan

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
