"""Tables of Arrow, and of whatever speaks its protocol, such as Polars, as pandas frames."""

from typing import Any

import pandas as pd
import pyarrow as pa

from ._cells import Frame

_STREAM = "__arrow_c_stream__"


def as_pandas(table: Any) -> Any:
    """A table or column of Arrow, Polars or another library as pandas; others as they are."""
    if isinstance(table, (pd.DataFrame, pd.Series)) or not hasattr(table, _STREAM):
        return table
    if hasattr(table, "columns"):
        return pa.table(table).to_pandas()  # the memory stays the caller's
    column = table if isinstance(table, pa.ChunkedArray) else pa.chunked_array(table)
    return column.to_pandas().rename(getattr(table, "name", None))


def arrow_to_pandas(table: Any) -> Frame:
    """The table as a frame, which takes over its memory column by column.

    Truth values with gaps and empty columns get types of their own: pandas would make objects.
    """
    for place, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            empty = table.column(place).cast(pa.float64())
            table = table.set_column(place, field.name, empty)
    frame = table.to_pandas(
        split_blocks=True,
        self_destruct=True,
        types_mapper={pa.bool_(): pd.BooleanDtype()}.get,
    )
    del table
    pa.default_memory_pool().release_unused()
    return frame
