"""A run's folder: what may be written there, and how."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from fcfl._files import replace_file
from fcfl.errors import CheckpointError, FCFLError
from fcfl.federation.checkpoint import checkpoint_path
from fcfl.runs.settings import Experiment
from fcfl.training.run import forget
from fcfl.training.session import Session, may_change

SETTINGS = "experiment.toml"
ROWS = "rows.sha256"
_WRITTEN = ("result.json", "model.json", "params.txt", "report.html")


def may_change_on_resume(stored: Experiment) -> set[str]:
    """Return the settings that may differ from the stored ones when the run is resumed."""
    return {"max_clients", *may_change(stored.make_method())}


def check_folder(experiment: Experiment, folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Raise if the folder holds another run, before any row is read."""
    settings = folder / SETTINGS
    _check_is_no_file(folder)
    if resume and not settings.exists():
        raise CheckpointError(f"There is no run to resume in {str(folder)!r}.")
    if not resume and (overwrite or not settings.exists()):
        return
    stored = Experiment.from_toml(settings)
    allowed = may_change_on_resume(stored) if resume else set()
    names = _differing(stored, experiment, allowed)
    if names:
        before, now = getattr(stored, names[0]), getattr(experiment, names[0])
        more = f", and {len(names) - 1} more" if names[1:] else ""
        raise FCFLError(
            f"The folder {str(folder)!r} holds a run with other settings ({names[0]} {before!r} "
            f"there, {now!r} here{more}). Choose another `--out`, or pass `--overwrite`."
        )


def is_same_run(stored: Experiment, given: Experiment) -> bool:
    """Whether a run that was begun with ``stored`` may be resumed with ``given``."""
    return not _differing(stored, given, may_change_on_resume(stored))


def _differing(stored: Experiment, given: Experiment, allowed: set[str]) -> list[str]:
    """Return the names of settings that differ, but those ``allowed`` to."""
    before, now = asdict(stored), asdict(given)
    return [name for name in before if before[name] != now[name] and name not in allowed]


def check_free_folder(folder: Path) -> None:
    """Raise if the folder holds a training run, before something else is written there."""
    _check_is_no_file(folder)
    if (folder / SETTINGS).exists():
        raise FCFLError(f"The folder {str(folder)!r} holds a training run. Choose another `--out`.")


def _check_is_no_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise FCFLError(f"{str(folder)!r} is a file; `--out` needs a folder.")


def prepare_folder(experiment: Experiment, rows_sha256: str, session: Session) -> None:
    """Write the settings and the rows' checksum; unless resuming, delete an older run."""
    folder = session.required_folder
    checksum = folder / ROWS
    if session.resume:
        if checksum.exists() and checksum.read_text(encoding="utf-8").strip() != rows_sha256:
            raise CheckpointError(
                f"The rows differ from those of the run in {str(folder)!r}; "
                "it cannot be resumed with them."
            )
    else:
        if checkpoint_path(folder).exists() and not (folder / "result.json").exists():
            session.on_message(
                f"The unfinished run in {str(folder)!r} starts again; `--resume` would continue it."
            )
        folder.mkdir(parents=True, exist_ok=True)
        forget(folder)
        for name in _WRITTEN:
            (folder / name).unlink(missing_ok=True)
        replace_file(checksum, (rows_sha256 + "\n").encode())
    replace_file(folder / SETTINGS, experiment.to_toml().encode())


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an `OSError` into an error that names the folder."""
    try:
        yield
    except OSError as error:
        raise FCFLError(
            f"Cannot write to the folder {str(folder)!r}: {error.strerror or error}."
        ) from error
