"""fcfl sweep, compare and negotiate: many runs on the same rows."""

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
_SHARES = "Shares of the disparity each client has without budgets."
_LADDER = "Budgets to combine. Default: shares of the largest disparity without budgets."
_POLICIES = "Clients' policy files, each CLIENT.toml: its preference, and budgets insisted on."


@sweep_app.default
@options.takes(
    *(Experiment, DATA, "metric", "confidence", "max_accuracy_loss", "max_rate_shift"),
    *("pooling", "new_rows", "min_group_rows", "method", "l2", "objective", "threshold", "starts"),
)
def sweep(
    *table: options.Tables,
    given: options.Given = options.NOTHING,
    budgets: Annotated[
        tuple[float, ...] | None, options.numbers("Budgets to train under.", *_VALUES)
    ] = None,
    relative: Annotated[tuple[float, ...] | None, options.numbers(_SHARES, *_VALUES)] = None,
    out: Annotated[Path | None, options.out_folder("TABLE-sweep")] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Train under one budget after another: what each tightening costs.

    Settings that are left open are chosen once, under the loosest budget. Writes
    sweep.json and a folder per point.

    Exit codes: 0 budgets met on the training rows at every point, 1 an error, 2
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
        Parameter(metavar="NAME,…", help=f"Of {', '.join(COMPARED)}. Default: all of them."),
    ] = None,
    seeds: Annotated[
        options.AtLeastOne,
        Parameter(
            help="Runs of each method, with seeds from --seed on; then means and intervals, and "
            "by default a uniform --start.",
        ),
    ] = 1,
    out: Annotated[Path | None, options.out_folder("TABLE-compare")] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Run several methods on the same rows, from the same start, with the same model.

    One line for each: accuracy and difference on held-out rows, over all rows and of
    clients with at least 30 people in every group, budgets kept, rounds and bytes
    that the clients sent. Methods without budgets are judged by them too; plain
    fedavg and the majority class are always there to compare with. Writes a folder
    for each run, comparison.json and report.html.

    Exit codes: 0 done, 1 an error, also of a single method, 2 wrong usage.
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
    by: Annotated[VotingRule, Parameter(help="Rule whose winner is written.")] = "nash",
    most: Annotated[int, Parameter(metavar="N", help="Combinations trained at most.")] = MOST,
    min_group_rows: Annotated[
        int, Parameter(metavar="N", help="Groups with fewer rows are not compared.")
    ] = MIN_GROUP_ROWS,
    out: Annotated[Path | None, options.out_folder("TABLE-negotiation")] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Find budgets that all clients could accept: try combinations, and vote.

    Trains combinations of budgets, leaves out what another one dominates for
    everybody, and lets every client vote by its own preference between accuracy and
    disparity: by approval, by Borda and by the Nash bargaining solution from what
    it would have alone. Writes negotiation.json, report.html with sliders, and the
    winner as agreed.toml, which fcfl train --policy takes. Every model is stored as
    soon as it is trained. --resume continues a stopped negotiation; --budgets,
    --most, --by and preferences may change.
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
