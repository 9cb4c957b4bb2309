"""What a run over sites may be told to do, and by which methods."""

from collections.abc import Sequence

from fcfl._checks import check_choice
from fcfl.runs.budget_sweep import check_sweep
from fcfl.runs.settings import Experiment
from fcfl.server.registry import METHODS

COMMANDS = ("train", "compare", "sweep")
FOR_SITES = tuple(
    name
    for name, known in METHODS.items()
    if not known.traits.n_references and not known.traits.is_private
)


def check_command(
    command: str,
    experiment: Experiment,
    methods: Sequence[str],
    budgets: Sequence[float],
    relative: Sequence[float],
) -> None:
    """Refuse methods that sites do not answer, and keys of another command."""
    for name in (experiment.method, *methods):
        _check_method(name)
    if methods and command != "compare":
        raise ValueError(f"`methods` belong to command 'compare', got {command!r}.")
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
    """Refuse a method that is none, or whose questions tell too much of single rows."""
    check_choice("methods", name, METHODS)
    n_rows = METHODS[name].traits.n_references
    if n_rows:
        raise ValueError(
            f"Method {name!r} does not run over sites: it asks them for the features of {n_rows} "
            f"of their rows, and rows never leave. Choose of {', '.join(FOR_SITES)}, or train "
            "where all rows are in one place."
        )
