"""A run's folder: what may be written there, and how."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from fcfl._files import replace_file
from fcfl.errors import CheckpointError, FCFLError
from fcfl.federation.checkpoint import checkpoint_path
from fcfl.runs.settings import Experiment
from fcfl.training.stages import forget

SETTINGS = "experiment.toml"
ROWS = "rows.sha256"
MAY_CHANGE = ("rounds", "max_clients")
"""Settings that a run may be resumed with others of: they only say how long it may go on."""
_WRITTEN = (
    "result.json",
    "model.json",
    "params.txt",
    "report.html",
)


def check_folder(experiment: Experiment, folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to mix two runs in one folder, before any row is read."""
    settings = folder / SETTINGS
    _check_is_no_file(folder)
    if resume and not settings.exists():
        raise CheckpointError(f"There is no run to resume in {str(folder)!r}.")
    if not resume and (overwrite or not settings.exists()):
        return
    stored = Experiment.from_toml(settings)
    if not (is_same_run(stored, experiment) if resume else stored == experiment):
        differing = _described(stored, experiment)
        raise FCFLError(
            f"The folder {str(folder)!r} holds a run with other settings ({differing}). "
            "Choose another `--out`, or pass `--overwrite`."
        )


def is_same_run(stored: Experiment, given: Experiment) -> bool:
    """Whether a run that was begun with ``stored`` may go on with ``given``."""
    may_change = {*MAY_CHANGE} if stored.privacy is None else {*MAY_CHANGE} - {"rounds"}
    return {*_differing(stored, given)} <= may_change  # noise is shared out over so many rounds


def check_free_folder(folder: Path) -> None:
    """Refuse to write something else into the folder of a training run."""
    _check_is_no_file(folder)
    if (folder / SETTINGS).exists():
        raise FCFLError(f"The folder {str(folder)!r} holds a training run. Choose another `--out`.")


def _check_is_no_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise FCFLError(f"{str(folder)!r} is a file; `--out` needs a folder.")


def _differing(stored: Experiment, given: Experiment) -> list[str]:
    """Names of settings that differ, those first that may not."""
    before, now = asdict(stored), asdict(given)
    names = [name for name in before if before[name] != now[name]]
    return sorted(names, key=lambda name: name in MAY_CHANGE)


def _described(stored: Experiment, given: Experiment) -> str:
    """The first setting that differs, and how many more do."""
    before, now = asdict(stored), asdict(given)
    first, *others = _differing(stored, given)
    more = f", and {len(others)} more" if others else ""
    return f"{first} {before[first]!r} there, {now[first]!r} here{more}"


def prepare_folder(
    experiment: Experiment,
    rows_sha256: str,
    folder: Path,
    *,
    resume: bool,
    on_message: Callable[[str], None],
) -> None:
    """Write the settings and the rows' checksum; without ``resume``, clear an older run away."""
    checksum = folder / ROWS
    if resume:
        if checksum.exists() and checksum.read_text(encoding="utf-8").strip() != rows_sha256:
            raise CheckpointError(
                f"The rows differ from those of the run in {str(folder)!r}; "
                "it cannot be resumed with them."
            )
        replace_file(folder / SETTINGS, experiment.to_toml().encode())
        return
    if checkpoint_path(folder).exists() and not (folder / "result.json").exists():
        on_message(
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
    """Say in a sentence that a folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise FCFLError(
            f"Cannot write to the folder {str(folder)!r}: {error.strerror or error}."
        ) from error
