"""Rows: tables, built-in sets, and how they become clients."""

from .builtin import (
    BUILTIN,
    adult,
    adult_5,
    describe,
    dirichlet_clients,
    load_adult_frames,
    load_builtin,
)
from .client_data import ClientData, stratified_split
from .lint import Choices, choose_columns
from .roles import Columns
from .rows import read_table, read_tables, table_files
from .schema import (
    Category,
    CategorySummary,
    Number,
    NumberSummary,
    Schema,
    Statistics,
    summarise,
    withhold,
)
from .table import FederatedTable, OwnTable, feature_columns, federate, open_own_table

__all__ = [
    "BUILTIN",
    "Category",
    "CategorySummary",
    "Choices",
    "ClientData",
    "Columns",
    "FederatedTable",
    "Number",
    "NumberSummary",
    "OwnTable",
    "Schema",
    "Statistics",
    "adult",
    "adult_5",
    "choose_columns",
    "describe",
    "dirichlet_clients",
    "feature_columns",
    "federate",
    "load_adult_frames",
    "load_builtin",
    "open_own_table",
    "read_table",
    "read_tables",
    "stratified_split",
    "summarise",
    "table_files",
    "withhold",
]
