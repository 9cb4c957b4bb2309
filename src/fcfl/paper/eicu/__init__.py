"""eICU: hospital stays as rows, hospitals or regions as clients.

The database is credentialed; no row of it is here. Point :func:`prepare` at the folder of tables,
the full ones, the open demo, or the simulated ones of :func:`simulate`::

    prepared = prepare(Path("eicu"), Options(features="apache", client="region"))
    write_prepared(prepared, Path("stays.parquet"))
"""

from .output import check_out, clients, cohort_path, write_prepared
from .prepare import FEATURES, Options, Prepared, prepare
from .simulated_files import check_size, simulate

__all__ = [
    "FEATURES",
    "Options",
    "Prepared",
    "check_out",
    "check_size",
    "clients",
    "cohort_path",
    "prepare",
    "simulate",
    "write_prepared",
]
