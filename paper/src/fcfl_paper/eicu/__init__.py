"""eICU: hospital stays as rows, hospitals or regions as clients.

The database is credentialed; no row of it is here. Point :func:`prepare` at a folder of tables: the
full ones, the open demo, or those written by :func:`fcfl_paper.eicu.simulate.simulate`::

    prepared = prepare(Path("eicu"), Options(features="apache", client="region"))
    write_prepared(prepared, Path("stays.parquet"))
"""

from .prepare import Options, Prepared, check_out, client_counts, prepare, write_prepared

__all__ = ["Options", "Prepared", "check_out", "client_counts", "prepare", "write_prepared"]
