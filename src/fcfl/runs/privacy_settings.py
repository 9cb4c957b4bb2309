"""Settings that a private run does not have, and refuses rather than ignores."""

from fcfl.data.builtin import ORIGINAL_SPLIT
from fcfl.data.rows import table_files
from fcfl.errors import DataError
from fcfl.runs.budget_settings import BudgetSettings
from fcfl.runs.data_settings import DataSettings
from fcfl.runs.options import settings_of
from fcfl.runs.training_settings import TrainingSettings

_DECLARED = "columns, levels and labels are declared by the schema"
_FIXED = "rows are split by their content"
_BY_NOISE = "bounds are tightened by the size of the noise"
_ONE_FIT = "there is one fit, from zero"
_LEFT_OUT = {
    **dict.fromkeys(("positive", "drop", "features", "keep", "categorical", "numeric"), _DECLARED),
    **dict.fromkeys(("missing", "max_levels"), _DECLARED),
    "max_clients": "clients are not counted beforehand",
    "resplit": _FIXED,
    **dict.fromkeys(
        ("confidence", "max_accuracy_loss", "max_rate_shift", "pooling", "new_rows"), _BY_NOISE
    ),
    **dict.fromkeys(("start", "starts"), _ONE_FIT),
}  # and why
_DEFAULTS = {
    name: one.default
    for settings in (DataSettings, BudgetSettings, TrainingSettings)
    for name, one in settings_of(settings).items()
}


def check_left_out(settings: object) -> None:
    """Refuse what would do nothing with ``privacy``; ``settings`` may have some of the fields."""
    for name, why in _LEFT_OUT.items():
        default = _DEFAULTS[name]
        value = getattr(settings, name, default)
        if value != default:
            raise ValueError(f"`{name}` must be left out with `privacy`, got {value!r}: {why}.")
    if getattr(settings, "table", None) in ORIGINAL_SPLIT:
        size = getattr(settings, "test_size", None)
        if size != _DEFAULTS["test_size"]:
            raise ValueError(
                f"`test_size` must be left out with `privacy`, got {size!r}: this set has a split "
                "of its own."
            )


def check_one_file(settings: DataSettings) -> None:
    """Refuse several files, whose names would be the clients."""
    paths = table_files(settings.table)
    if len(paths) > 1:
        raise DataError(
            f"`--privacy` takes a table in one file whose column `--client` names the clients, got "
            f"{len(paths)} files in {settings.table!r}. Join them, or let each be a site."
        )
