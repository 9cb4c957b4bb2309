"""The prepared table on disk and its cohort counts beside it; both complete or neither."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from fcfl.errors import DataError

from .prepare import Prepared


def cohort_path(out: Path) -> Path:
    """Where the cohort flow is written: ``stays.cohort.json`` for ``stays.parquet``."""
    return out.with_suffix(".cohort.json")


def check_out(out: Path) -> None:
    """Check that the file can be written, before hours of reading."""
    if out.suffix.lower() != ".parquet":
        raise DataError(f"`out` must end in .parquet, got {str(out)!r}.")
    if not out.parent.is_dir():
        raise DataError(f"There is no folder {str(out.parent)!r} to write to. Make it first.")
    if out.is_dir():
        raise DataError(f"`out` must be a file, got the folder {str(out)!r}.")


@dataclass(frozen=True, slots=True)
class ClientCounts:
    """Rows, label rate and, for each sensitive attribute, group sizes of one client."""

    name: str
    rows: int
    positive_rate: float
    groups: Mapping[str, Mapping[str, int]]


def client_counts(prepared: Prepared) -> list[ClientCounts]:
    """The counts of each client, the largest first."""
    options, frame = prepared.options, prepared.frame
    counts = [
        ClientCounts(
            name=str(name),
            rows=len(rows),
            positive_rate=float(rows[options.label].mean()),
            groups={
                attribute: {
                    str(group): int(count)
                    for group, count in rows[attribute].value_counts().sort_index().items()
                }
                for attribute in options.sensitive
            },
        )
        for name, rows in frame.groupby(options.client, sort=True)
    ]
    return sorted(counts, key=lambda client: (-client.rows, client.name))


def cohort_record(prepared: Prepared) -> dict[str, object]:
    """Counts only, as plain JSON values: options, flow, clients, notes."""
    options = prepared.options
    return {
        "schema": 1,
        "fcfl_version": version("fcfl"),
        "features": options.features,
        "label": options.label,
        "client": options.client,
        "min_stays": options.smallest_client,
        "sensitive": list(options.sensitive),
        "stays_read": prepared.n_read,
        "flow": [asdict(step) for step in prepared.flow],
        "clients": [asdict(client) for client in client_counts(prepared)],
        "inputs": prepared.features,
        "notes": list(prepared.notes),
    }


def write_prepared(prepared: Prepared, out: Path) -> Path:
    """Write the table and its cohort record; if interrupted or out of space, neither is touched."""
    check_out(out)
    beside = cohort_path(out)
    drafts = {path: path.with_name(f".draft-{path.name}") for path in (out, beside)}
    try:
        prepared.frame.to_parquet(drafts[out], index=False)
        text = json.dumps(cohort_record(prepared), indent=1, ensure_ascii=False)
        drafts[beside].write_text(text + "\n", encoding="utf-8")
        for path, draft in drafts.items():
            _sync(draft)
            os.replace(draft, path)
    except BaseException:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
        raise
    return beside


def _sync(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
