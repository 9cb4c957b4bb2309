"""eICU: hospital stays as rows, hospitals or regions as clients.

The database is credentialed; no row of it is here. Point :func:`prepare` at a folder of tables: the
full ones, the open demo, or those written by :func:`fcfl_paper.eicu.simulation.simulate`::

    prepared = prepare(Path("eicu"), Options(features="apache", client="region"))
    write_prepared(prepared, Path("stays.parquet"))
"""

from .prepare import FEATURES, Options, Prepared, prepare
from .prepared_files import ClientCounts, check_out, client_counts, cohort_path, write_prepared

__all__ = [
    "FEATURES",
    "ClientCounts",
    "Options",
    "Prepared",
    "check_out",
    "client_counts",
    "cohort_path",
    "prepare",
    "write_prepared",
]
