"""What a run over sites may be told to do, and by which methods."""

from collections.abc import Mapping, Sequence

from fcfl.methods.registry import METHODS
from fcfl.negotiation.negotiating import MOST, Procedure
from fcfl.results.negotiation import VotingRule
from fcfl.runs.many_runs import COMPARED, check_compared, check_sweep
from fcfl.runs.settings import Experiment

COMMANDS = ("train", "compare", "sweep", "negotiate")
BY: VotingRule = "nash"
_NEGOTIATED = (
    *("command", "budgets", "by", "most", "sites", "nodes", "label", "sensitive", "positive"),
    *("drop", "drop-unlabelled", "seed", "test-size", "metric", "min-group-rows", "l2"),
    *("objective", "loss", "module", "site-timeout", "resume", "overwrite", "out"),
)  # keys of a negotiation; others must be left at their defaults
FOR_SITES = tuple(name for name in COMPARED if METHODS[name].traits.over_sites)


def check_command(
    command: str,
    experiment: Experiment,
    methods: Sequence[str],
    budgets: Sequence[float],
    relative: Sequence[float],
    by: VotingRule,
    most: int,
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
    if command not in ("sweep", "negotiate") and budgets:
        raise ValueError(f"`budgets` belong to commands 'sweep' and 'negotiate', got {command!r}.")
    if command != "sweep" and relative:
        raise ValueError(f"`relative` belongs to command 'sweep', got {command!r}.")
    if command != "negotiate" and (by, most) != (BY, MOST):
        raise ValueError(f"`by` and `most` belong to command 'negotiate', got {command!r}.")
    if command == "negotiate":
        Procedure(tuple(budgets) or None, by, most)
    if command == "sweep":
        if bool(budgets) == bool(relative):
            raise ValueError("A sweep needs `budgets` or `relative`, and not both.")
        check_sweep(experiment, budgets or relative, relative=bool(relative))


def check_negotiated(given: Mapping[str, object], defaults: Mapping[str, object]) -> None:
    """Refuse keys of a training run that would do nothing in a negotiation."""
    for key, value in given.items():
        if key not in _NEGOTIATED and value != defaults[key]:
            raise ValueError(
                f"`{key}` must be left out in a negotiation, got {value!r}: combinations are "
                "trained by sqp with budgets for differences, each from its beginning."
            )


def _check_method(name: str) -> None:
    """Refuse a method whose questions tell too much of single rows."""
    if not METHODS[name].traits.over_sites:
        raise ValueError(
            f"`method` {name!r} does not run over sites: it requests more than they send. Choose "
            f"of {', '.join(FOR_SITES)}, or train where all rows are in one place."
        )
