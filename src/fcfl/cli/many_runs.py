"""Commands fcfl sweep, compare and negotiate: many runs on the same rows."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fcfl.negotiation.negotiating import MOST, Procedure
from fcfl.results.negotiation import Negotiation, VotingRule
from fcfl.runs import Experiment, many_runs
from fcfl.runs.many_runs import AGREED, COMPARED, MIN_GROUP_ROWS
from fcfl.runs.opening import Opened, open_run
from fcfl.runs.options import chosen
from fcfl.runs.settings import DATA

from . import settings as options
from .console import WrongUsage, run_folder, running, usage
from .show import finish
from .train import experiment_of

sweep_app = App(
    name="sweep",
    help_epilogue="Examples:\n\n"
    "  fcfl sweep adult --sensitive race --budgets 0.2,0.1,0.05,0.02,0.01\n\n"
    "  fcfl sweep adult --sensitive race --relative 1.0,0.8,0.6,0.4,0.2",
)
compare_app = App(
    name="compare",
    help_epilogue="Examples:\n\n  fcfl compare adult --sensitive race --budget 0.05\n\n"
    "  fcfl compare a.csv --client site --label died --sensitive race --budget 0.05 "
    "--methods sqp,fedavg,afl --seeds 5",
)
negotiate_app = App(
    name="negotiate",
    help_epilogue="Examples:\n\n  fcfl negotiate adult-5 --sensitive sex\n\n"
    "  fcfl negotiate a.csv --client site --label died --sensitive race --budgets 0.2,0.1,0.05 "
    "--policies wishes/",
)
_VALUES = (options.OPTIONS, options.not_both("values"))
_SHARES = "Budgets to train with, as shares of each client's disparity without budgets."
_LADDER = "Budgets to combine. Default: shares of the largest disparity without budgets."
_POLICIES = "Folder of policy files, CLIENT.toml, with clients' preferences and required budgets."


@sweep_app.default
@options.takes(
    *(Experiment, DATA, "metric", "confidence", "max_accuracy_loss", "max_rate_shift"),
    *("pooling", "new_rows", "min_group_rows", "method", "l2", "objective", "threshold", "starts"),
)
def sweep(
    *table: options.Tables,
    given: options.Given = options.NOTHING,
    budgets: Annotated[
        tuple[float, ...] | None, options.numbers("Budgets to train with.", *_VALUES)
    ] = None,
    relative: Annotated[tuple[float, ...] | None, options.numbers(_SHARES, *_VALUES)] = None,
    out: Annotated[Path | None, options.out_folder("TABLE-sweep")] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Train with several budgets and report the cost of each.

    Settings that are not given, such as --l2, are chosen in the run with the loosest
    budget and reused in the other runs. Writes sweep.json and a folder per budget.

    Exit codes: 0 budgets met on the training rows for every point, 1 an error, 2
    wrong usage, 3 done, but a budget is exceeded on the training rows, or a model
    selects nearly nobody, nearly everybody, or fewer than half as many as without
    budgets.
    """
    values = relative if budgets is None else budgets
    if values is None:
        raise WrongUsage("Give --budgets or --relative.")
    is_relative = relative is not None
    settings = experiment_of(table, given)
    with usage():
        many_runs.check_sweep(settings, values, relative=is_relative)
    folder = out or run_folder(settings.table, "sweep")
    with running("sweep", folder, resume) as session:
        many_runs.run_sweep(settings, values, session, relative=is_relative, overwrite=overwrite)
    finish(folder)


@compare_app.default
@options.takes(
    Experiment, DATA, "metric", "budget", "confidence", "min_group_rows", "l2", "threshold", "start"
)
def compare(
    *table: options.Tables,
    given: options.Given = options.NOTHING,
    methods: Annotated[
        str | None,
        Parameter(
            metavar="NAME,…", help=f"Methods to compare. Default: all: {', '.join(COMPARED)}."
        ),
    ] = None,
    seeds: Annotated[
        options.AtLeastOne,
        Parameter(
            help="Number of seeds for each method, starting at --seed. With several, results are "
            "means with intervals, and --start is uniform by default.",
        ),
    ] = 1,
    out: Annotated[Path | None, options.out_folder("TABLE-compare")] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Compare several methods with the same rows, the same start and the same model.

    Prints one line per method: accuracies and differences on held-out rows, the
    number of budgets met, and the number of exchanges. Differences are given over
    all rows, and for clients with at least 30 people in every group. Methods that
    train without budgets are judged by the same budgets. The comparison always
    includes fedavg and the majority class. Writes a folder for each run,
    comparison.json and report.html.

    Exit codes: 0 done, 1 an error of the command or of any method, 2 wrong usage.
    """
    with usage():
        names = many_runs.read_methods(methods)
    settings = experiment_of(table, given)
    if settings.table == "synthetic":
        raise WrongUsage("The synthetic problem has no rows to compare methods on.")
    if seeds > 1 and "start" not in given:
        settings = replace(settings, start="uniform")
    folder = out or run_folder(settings.table, "compare")
    with running("compare", folder, resume) as session:
        each = range(settings.seed, settings.seed + seeds)
        many_runs.run_comparison(settings, names, each, session, overwrite=overwrite)
    finish(folder)


@negotiate_app.default
@options.takes(Experiment, DATA, "metric", "loss", "l2", "objective", "threshold")
def negotiate(
    *table: options.Tables,
    given: options.Given = options.NOTHING,
    budgets: Annotated[tuple[float, ...] | None, options.numbers(_LADDER)] = None,
    policies: Annotated[Path | None, Parameter(metavar="FOLDER", help=_POLICIES)] = None,
    by: Annotated[VotingRule, Parameter(help="Voting rule that decides.")] = "nash",
    most: Annotated[
        int, Parameter(metavar="N", help="Maximum number of combinations to train.")
    ] = MOST,
    min_group_rows: Annotated[
        int, Parameter(metavar="N", help="Minimum number of rows of a compared group.")
    ] = MIN_GROUP_ROWS,
    out: Annotated[Path | None, options.out_folder("TABLE-negotiation")] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Find budgets that all clients accept: train combinations and count votes.

    Trains combinations of budgets and drops those that another combination
    dominates for all clients. Each client votes by its own preference between
    accuracy and disparity. Votes are counted by approval, by Borda and by the Nash
    bargaining solution relative to models trained alone. Writes negotiation.json,
    report.html with sliders, and the winner as agreed.toml for fcfl train --policy.
    Each model is stored as soon as it is trained. A resumed command may change
    --budgets, --most, --by and preferences.
    """
    with usage():
        procedure = Procedure(budgets, by, most)
    settings = experiment_of(table, {**given, "min_group_rows": min_group_rows})
    folder = out or run_folder(settings.table, "negotiation")

    def opener(settings: Experiment) -> Opened:
        opened = open_run(settings)
        given = many_runs.read_policies(policies, opened.federation.names)
        return replace(opened, federation=opened.federation.under(given))

    with running("negotiate", folder, resume) as session:
        many_runs.run_negotiation(
            settings,
            procedure,
            replace(session, on_round=None),
            opener,
            command=lambda settings, found: _command(settings, found, folder),
            overwrite=overwrite,
        )
    finish(folder)


def _command(settings: Experiment, found: Negotiation, folder: Path) -> str:
    """Return the command that trains the agreement."""
    words = ["fcfl", "train", settings.table]
    for name, option in chosen(Experiment, DATA, "loss", "threshold").items():
        value = getattr(settings, name)
        if name != "table" and value != option.default:
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            words += [f"--{option.key}", *([] if value is True else [text])]
    words += ["--policy", str(folder / AGREED), "--l2", f"{found.l2:g}"]
    words += ["--objective", f"{found.objective}", "--confidence", "0"]
    return shlex.join(words)
