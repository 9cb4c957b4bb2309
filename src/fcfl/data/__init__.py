"""Rows: tables, built-in sets, and how they become clients."""

from .adult import adult, adult_5
from .adult_files import load_adult_frames
from .catalog import BUILTIN, describe, load_builtin
from .client_data import ClientData, client_seed, stratified_split
from .encoding import Category, Number, Schema
from .files import read_table
from .partition import dirichlet_clients
from .roles import Columns
from .summary import CategorySummary, NumberSummary, Statistics, summarise
from .table import Federation, feature_columns, federate

__all__ = [
    "BUILTIN",
    "Category",
    "CategorySummary",
    "ClientData",
    "Columns",
    "Federation",
    "Number",
    "NumberSummary",
    "Schema",
    "Statistics",
    "adult",
    "adult_5",
    "client_seed",
    "describe",
    "dirichlet_clients",
    "feature_columns",
    "federate",
    "load_adult_frames",
    "load_builtin",
    "read_table",
    "stratified_split",
    "summarise",
]
