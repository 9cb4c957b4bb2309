"""Read tables, load built-in data sets, and split them into clients."""

from .builtin import BUILTIN as BUILTIN
from .builtin import adult as adult
from .builtin import adult_5 as adult_5
from .builtin import describe as describe
from .builtin import dirichlet_clients as dirichlet_clients
from .builtin import load_adult_frames as load_adult_frames
from .builtin import load_builtin as load_builtin
from .cells import Category as Category
from .cells import Number as Number
from .cells import Schema as Schema
from .cells import Statistics as Statistics
from .cells import summarise as summarise
from .client_data import ClientData as ClientData
from .columns import Choices as Choices
from .columns import Columns as Columns
from .columns import choose_columns as choose_columns
from .rows import read_table as read_table
from .rows import read_tables as read_tables
from .rows import table_files as table_files
from .table import FederatedTable as FederatedTable
from .table import OwnTable as OwnTable
from .table import federate as federate
