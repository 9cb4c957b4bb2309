"""What a run over sites may be told to do, and by which methods."""

from collections.abc import Sequence

from fcfl.runs.budget_sweep import check_sweep
from fcfl.runs.method_comparison import COMPARED, check_compared
from fcfl.runs.settings import Experiment
from fcfl.server.registry import METHODS

COMMANDS = ("train", "compare", "sweep")
FOR_SITES = tuple(name for name in COMPARED if not METHODS[name].traits.n_references)


def check_command(
    command: str,
    experiment: Experiment,
    methods: Sequence[str],
    budgets: Sequence[float],
    relative: Sequence[float],
) -> None:
    """Refuse methods that sites do not answer, and keys of another command."""
    for name in methods:
        check_compared(name)
    for name in (experiment.method, *methods):
        _check_method(name)
    if methods and command != "compare":
        raise ValueError(f"`methods` belong to command 'compare', got {command!r}.")
    if command == "compare":
        experiment.check_not_private("comparison")
    if command == "compare" and experiment.method != "sqp":
        raise ValueError(
            "`method` must be left out in a comparison, whose methods are in `methods`, got "
            f"{experiment.method!r}."
        )
    if command != "sweep" and (budgets or relative):
        raise ValueError(f"`budgets` and `relative` belong to command 'sweep', got {command!r}.")
    if command == "sweep":
        if bool(budgets) == bool(relative):
            raise ValueError("A sweep needs `budgets` or `relative`, and not both.")
        check_sweep(experiment, budgets or relative, relative=bool(relative))


def _check_method(name: str) -> None:
    """Refuse a method whose questions tell too much of single rows."""
    n_rows = METHODS[name].traits.n_references
    if n_rows:
        raise ValueError(
            f"Method {name!r} does not run over sites: it asks them for the features of {n_rows} "
            f"of their rows, and rows never leave. Choose of {', '.join(FOR_SITES)}, or train "
            "where all rows are in one place."
        )
