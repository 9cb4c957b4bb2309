"""Rows: tables, built-in sets, and how they become clients."""

from .adult import adult, adult_5
from .adult_files import load_adult_frames
from .catalog import BUILTIN, describe, load_builtin
from .client_data import ClientData, stratified_split
from .column_choice import Choices, choose_columns
from .encoding import Category, Number, Schema
from .own_table import OwnTable, open_own_table
from .partition import dirichlet_clients
from .roles import Columns
from .several_files import read_tables, table_files
from .statistics import CategorySummary, NumberSummary, Statistics, summarise, withhold
from .table import FederatedTable, feature_columns, federate
from .table_files import read_table

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
