"""Result folders, read back: everything a report says comes from these files."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcfl.errors import DataError

SCHEMA = 1


@dataclass(frozen=True)
class Run:
    """One folder: its result, its rounds, and its sweep where there is one."""

    folder: Path
    result: dict[str, Any] | None
    history: tuple[dict[str, Any], ...] = ()
    sweep: tuple[dict[str, Any], ...] = ()


def read_run(folder: Path) -> Run:
    """Read ``result.json``, ``history.jsonl`` and ``sweep.json``; one of result and sweep must be.

    A torn last line of the history is passed over, as a run that was stopped leaves it.
    """
    result, sweep = folder / "result.json", folder / "sweep.json"
    if not result.exists() and not sweep.exists():
        raise DataError(f"There is no result in {str(folder)!r}: it has no result.json.")
    points = _read_json(sweep).get("points", []) if sweep.exists() else []
    return Run(
        folder,
        _read_result(result) if result.exists() else None,
        tuple(_read_lines(folder / "history.jsonl")),
        tuple(points),
    )


def read_results(folders: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Results by a short name of their folders, in the order given."""
    found = {}
    for name, folder in zip(short_names(folders), folders, strict=True):
        run = read_run(folder)
        if run.result is None:
            raise DataError(f"There is no result.json in {str(folder)!r} to compare.")
        found[name] = run.result
    return found


def short_names(folders: Sequence[Path]) -> list[str]:
    """The last parts of paths, as many as tell them apart."""
    paths = [Path(os.path.normpath(folder.absolute())) for folder in folders]
    for count in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise DataError(f"The folder {str(folders[0])!r} is named twice.")


def _read_result(path: Path) -> dict[str, Any]:
    result = _read_json(path)
    if result.get("schema") != SCHEMA or "clients" not in result:
        raise DataError(
            f"{str(path)!r} must be a result of schema {SCHEMA}, got {result.get('schema')!r}."
        )
    return result


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{str(path)!r} is not whole JSON: {error}.") from None
    if not isinstance(content, dict):
        raise DataError(f"{str(path)!r} must hold a JSON object, got {type(content).__name__}.")
    return content


def _read_lines(path: Path) -> list[dict[str, Any]]:
    rounds: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                rounds.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return rounds
