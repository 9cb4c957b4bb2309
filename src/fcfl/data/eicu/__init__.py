"""eICU: hospital stays as rows, hospitals or regions as clients.

The database is credentialed; no row of it is here. Point :func:`prepare` at the folder of tables,
the full ones, the open demo, or the made-up ones of :func:`make_up`::

    prepared = prepare(Path("eicu"), Options(features="apache", client="region"))
    write_prepared(prepared, Path("stays.parquet"))
"""

from .made_up_files import check_size, make_up
from .output import check_out, clients, cohort_path, write_prepared
from .prepare import FEATURES, Options, Prepared, prepare

__all__ = [
    "FEATURES",
    "Options",
    "Prepared",
    "check_out",
    "check_size",
    "clients",
    "cohort_path",
    "make_up",
    "prepare",
    "write_prepared",
]
