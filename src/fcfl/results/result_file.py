"""Files of results, read and written: the one place where their JSON is seen."""

import json
from pathlib import Path
from typing import Any, TypeVar

from fcfl._files import write_json
from fcfl.errors import DataError

from .cell_counts import CellCounts
from .json_fields import JsonError, from_json, to_json
from .method_runs import Comparison
from .negotiation_result import Negotiation
from .result import SCHEMA, Result, Selection
from .schema_1 import JsonObject, upgrade, upgrade_selection
from .sweep_curve import Sweep

T = TypeVar("T")

RESULT = "result.json"
SWEEP = "sweep.json"
COMPARISON = "comparison.json"
NEGOTIATION = "negotiation.json"


def result_to_json(result: Result) -> JsonObject:
    """Plain data, with numbers that are finite or null."""
    return {"schema": SCHEMA, **to_json(result)}


def result_from_json(content: Any, name: str = "result") -> Result:
    """A result of this schema, or of schema 1; ``name`` is what an error calls it."""
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema not in (1, SCHEMA):
        raise DataError(f"{name!r} must be a result of schema 1 or {SCHEMA}, got {schema!r}.")
    return _typed(Result, upgrade(content) if schema == 1 else content, name)


def write_result(path: Path, result: Result) -> None:
    """Write ``result.json`` in one step."""
    write_json(path, result_to_json(result))


def read_result(path: Path) -> Result:
    """Read ``result.json``; a `DataError` names the file and the key that is wrong."""
    return result_from_json(_read_object(path), str(path))


def write_selection(path: Path, selection: Selection) -> None:
    """Write ``selection.json`` in one step."""
    write_json(path, to_json(selection))


def read_selection(path: Path) -> Selection:
    """Read ``selection.json``, also one that an older version left in an unfinished run."""
    return _typed(Selection, upgrade_selection(_read_object(path)), str(path))


def write_sweep(path: Path, sweep: Sweep) -> None:
    """Write ``sweep.json`` in one step."""
    write_json(path, to_json(sweep))


def read_sweep(path: Path) -> Sweep:
    """Read ``sweep.json``."""
    return _typed(Sweep, _read_object(path), str(path))


def write_comparison_file(path: Path, comparison: Comparison) -> None:
    """Write ``comparison.json`` in one step."""
    write_json(path, to_json(comparison))


def read_comparison(path: Path) -> Comparison:
    """Read ``comparison.json``."""
    return _typed(Comparison, _read_object(path), str(path))


def write_negotiation(path: Path, negotiation: Negotiation) -> None:
    """Write ``negotiation.json`` in one step."""
    write_json(path, to_json(negotiation))


def read_negotiation(path: Path) -> Negotiation:
    """Read ``negotiation.json``."""
    return _typed(Negotiation, _read_object(path), str(path))


def write_cells(path: Path, cells: CellCounts) -> None:
    """Write ``cells.json`` in one step."""
    write_json(path, to_json(cells))


def read_cells(path: Path) -> CellCounts:
    """Read ``cells.json``."""
    return _typed(CellCounts, _read_object(path), str(path))


def _typed(kind: type[T], content: JsonObject, name: str) -> T:
    try:
        return from_json(kind, content)
    except JsonError as error:
        raise DataError(f"{name!r} cannot be read: {error}") from None


def _read_object(path: Path) -> JsonObject:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{str(path)!r} is not whole JSON: {error}.") from None
    if not isinstance(content, dict):
        raise DataError(f"{str(path)!r} must hold a JSON object, got {type(content).__name__}.")
    return content
