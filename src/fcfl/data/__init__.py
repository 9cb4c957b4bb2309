"""Rows: tables, built-in sets, and how they become clients."""

from .adult import adult, adult_5
from .adult_files import load_adult_frames
from .catalog import BUILTIN, describe, load_builtin
from .client_data import ClientData, stratified_split
from .encoding import Category, Number, Schema
from .own_table import OwnTable, open_own_table
from .partition import dirichlet_clients
from .roles import Columns
from .statistics import CategorySummary, NumberSummary, Statistics, summarise, withhold
from .table import FederatedTable, feature_columns, federate
from .table_files import read_table

__all__ = [
    "BUILTIN",
    "Category",
    "CategorySummary",
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
    "describe",
    "dirichlet_clients",
    "feature_columns",
    "federate",
    "load_adult_frames",
    "load_builtin",
    "open_own_table",
    "read_table",
    "stratified_split",
    "summarise",
    "withhold",
]
