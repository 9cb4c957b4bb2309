"""Every table and figure of the paper again: items as TOML files, runs in processes, results."""

from .choosing import add_chosen
from .items import Case, Item, find_items, read_item
from .over_runs import summarise
from .plan import Run, Scale, plan_runs
from .run_plan import Finished, Watch, run_plan

__all__ = [
    "Case",
    "Finished",
    "Item",
    "Run",
    "Scale",
    "Watch",
    "add_chosen",
    "find_items",
    "plan_runs",
    "read_item",
    "run_plan",
    "summarise",
]
