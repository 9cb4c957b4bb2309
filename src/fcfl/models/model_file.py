"""``model.json``: how every trained model is written, whoever trained it.

The file says what kind of model it is, its weights or where they are, and its `Inputs`. Each model
writes and reads its own part: `Linear`, `TorchModule`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcfl._files import replace_file
from fcfl.data.schema import Number, Schema
from fcfl.errors import DataError, FCFLError
from fcfl.models.rates import GroupThresholds

MODEL = "model.json"
Label = str | int | float | bool


@dataclass(frozen=True)
class Inputs:
    """What a model is asked about, and what its two answers are called.

    ``labels`` are the negative and the positive one. With ``is_plain`` the columns are numbers
    that are used as they are, and an empty cell is refused: how a classifier in Python is trained.
    With ``thresholds`` an answer also depends on the row's client and group, which are in the
    columns ``client_column`` and ``thresholds.attribute``. Cells with a text of ``missing`` count
    as empty, by default those with a usual mark.
    """

    schema: Schema
    labels: tuple[Label, Label]
    label_column: str | None = None
    is_plain: bool = False
    thresholds: GroupThresholds | None = None
    client_column: str | None = None
    missing: tuple[str, ...] | None = None

    @classmethod
    def plain(cls, names: Iterable[str], labels: tuple[Label, Label]) -> "Inputs":
        """Columns of numbers that are used as they are."""
        columns = tuple(Number(name, 0.0, 1.0) for name in names)
        return cls(Schema(columns), labels, None, True)

    def to_json(self) -> dict[str, object]:
        """The part of the file that speaks of inputs."""
        written: dict[str, object] = {
            "label": self.label_column,
            "labels": list(self.labels),
            "plain": self.is_plain,
            "schema": self.schema.to_dict(),
        }
        if self.thresholds is not None:
            written["client"] = self.client_column
            written["thresholds"] = self.thresholds.to_json()
        if self.missing is not None:
            written["missing"] = list(self.missing)
        return written

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Inputs":
        """Read that part."""
        negative, positive = content["labels"]
        label, client = content["label"], content.get("client")
        thresholds, missing = content.get("thresholds"), content.get("missing")
        return cls(
            Schema.from_dict(content["schema"]),
            (negative, positive),
            None if label is None else str(label),
            bool(content.get("plain", False)),
            None if thresholds is None else GroupThresholds.from_json(thresholds),
            None if client is None else str(client),
            None if missing is None else tuple(map(str, missing)),
        )


def write_model_file(
    folder: Path, kind: str, content: Mapping[str, object], inputs: Inputs | None
) -> None:
    """Write ``model.json`` in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {"kind": kind, **content, **({} if inputs is None else inputs.to_json())}
    text = json.dumps(written, indent=1, ensure_ascii=False) + "\n"
    replace_file(folder / MODEL, text.encode())


def model_path(place: Path) -> Path:
    """The file of a model: in a folder, or the file itself."""
    path = place / MODEL if place.is_dir() else place
    if not path.exists():
        raise DataError(f"There is no model at {str(path)!r}. Train one with `fcfl train … --out`.")
    return path


def read_model_file(path: Path) -> dict[str, Any]:
    """The content of ``model.json``."""
    with whole_model(path):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content["kind"], str):
            raise DataError(f"{str(path)!r} holds a model of unknown kind {content['kind']!r}.")
        return dict(content)


@contextmanager
def whole_model(path: Path) -> Iterator[None]:
    """Say of whatever is missing or wrong in a model's file that the file is not whole."""
    try:
        yield
    except FCFLError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else error
        if isinstance(error, json.JSONDecodeError):
            why = "cut off, or not JSON"
        sentence = f"{str(path)!r} is not a whole model written by fcfl ({why})."
        raise DataError(sentence) from None


def distinct_names(names: Iterable[str]) -> list[str]:
    """The names, a number added where one has occurred before: level ``b=c`` of column ``a``."""
    apart: dict[str, None] = {}
    for name in names:
        unused, count = name, 1
        while unused in apart:
            count += 1
            unused = f"{name} ({count})"
        apart[unused] = None
    return list(apart)
