"""Several methods on the same rows: one run for each method and seed, and what they add up to."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fcfl._files import write_json
from fcfl.errors import AbsentClientError, FCFLError, Interrupted
from fcfl.federation.checkpoint import checkpoint_path
from fcfl.federation.exchange_count import read_exchanges
from fcfl.methods.registry import METHODS, check_method
from fcfl.results import Comparison, read_result
from fcfl.results.files import COMPARISON, PLAIN, RESULT
from fcfl.results.many_runs import MethodRun
from fcfl.runs.compared_runs import compare_runs, majority_run, summarise
from fcfl.runs.folder import SETTINGS, is_same_run, prepare_folder
from fcfl.runs.opening import Opener, open_run
from fcfl.runs.run import check_groups, run_session
from fcfl.runs.settings import Experiment
from fcfl.training.rounds import Session

COMPARED = tuple(name for name, one in METHODS.items() if not one.traits.is_private)
"""Methods that are compared, by default all of them."""


def parse_methods(text: str | None) -> tuple[str, ...]:
    """Names with commas; left out, all of `COMPARED`."""
    if text is None:
        return COMPARED
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("`methods` is empty. Example: --methods sqp,two-stage,fedavg")
    for name in names:
        check_compared(name)
    return names


def check_compared(name: str) -> None:
    """Refuse a method that is none, or that needs what the others have not."""
    if name in METHODS and METHODS[name].traits.is_private:
        raise ValueError(
            f"Method {name!r} is not compared: its clients add noise, those of the others do not. "
            "Train it by itself: fcfl train --privacy epsilon=E,delta=D"
        )
    check_method("methods", name)


def run_comparison(
    experiment: Experiment,
    methods: Sequence[str],
    seeds: Sequence[int],
    session: Session,
    opener: Opener = open_run,
) -> Comparison:
    """Run every method with every seed and write ``comparison.json`` after each.

    With ``session.resume`` a finished run is read back and an unfinished one goes on; rows that
    differ from theirs are an error. A method that fails is listed with its message; the others
    still run. A table that cannot be read, or has no two groups to compare, is an error before the
    first. A client elsewhere that does not answer ends the comparison. ``opener`` finds the rows.
    """
    experiment.check_not_private("comparison")
    if PLAIN not in methods:  # the line without budgets, on which the others are read
        methods = (*methods, PLAIN)
    each = {(name, seed): for_method(experiment, name, seed) for name in methods for seed in seeds}
    opened = {seed: opener(each[methods[0], seed]) for seed in seeds}
    check_groups(each[methods[0], seeds[0]], opened[seeds[0]])
    rows = {seed: found.checksum for seed, found in opened.items()}
    majority = [majority_run(found, seed) for seed, found in opened.items()]
    del opened  # with its rows
    runs: list[MethodRun] = []
    place = session.required_folder
    place.mkdir(parents=True, exist_ok=True)
    for (method, seed), one in each.items():
        folder = place / (method if len(seeds) == 1 else f"{method}-seed-{seed}")
        done, total = len(runs) + 1, len(each)
        session.on_message(f"{folder.name}, run {done} of {total}")
        part = session.part((done - 1) / total, done / total).quiet()
        runs.append(_run(one, replace(part, folder=folder), rows[seed], opener))
        if runs[-1].status == "failed":
            session.on_message(f"{folder.name} failed: {runs[-1].message}")
        comparison = compare_runs(experiment.table, runs, majority)
        write_json(place / COMPARISON, comparison)
    return comparison


def for_method(experiment: Experiment, method: str, seed: int) -> Experiment:
    """The same experiment by another method; what only one method knows is left to it."""
    own, known = method == experiment.method, METHODS[method]
    rounds = experiment.rounds
    if rounds is not None and known.traits.n_stages == 1:
        rounds = (sum(rounds),)
    return replace(
        experiment,
        method=method,
        seed=seed,
        objective=experiment.objective if own else None,
        curvature=experiment.curvature if own else "auto",
        masked=experiment.masked and "curvature" in known.options,
        protects=experiment.protects if "protects" in known.options else "all",
        excess_loss=experiment.excess_loss and known.traits.takes_excess_loss,
        rounds=rounds,
        l2=None if experiment.l2 == "auto" and method != "sqp" else experiment.l2,
    )


def _may_go_on(experiment: Experiment, settings: Path, result: Path) -> bool:
    """Whether the folder has this run; one that ended with other rounds starts again."""
    stored = Experiment.from_toml(settings)
    ended_otherwise = result.exists() and stored.rounds != experiment.rounds
    return is_same_run(stored, experiment) and not ended_otherwise


def _run(experiment: Experiment, session: Session, rows: str, opener: Opener) -> MethodRun:
    """One run as it is on disk, or as it goes on, or from its beginning."""
    folder = session.required_folder
    result, settings = folder / RESULT, folder / SETTINGS
    same = session.resume and settings.exists() and _may_go_on(experiment, settings, result)
    if same:
        prepare_folder(experiment, rows, folder, resume=True, on_message=session.on_message)
    if same and result.exists():
        return summarise(folder, read_result(result))
    try:
        own = replace(session, resume=same and checkpoint_path(folder).exists())
        finished = run_session(experiment, own, opener=opener, overwrite=True)
    except (Interrupted, AbsentClientError):  # the other methods would miss the client, too
        raise
    except FCFLError as error:
        return MethodRun(
            folder=folder.name,
            method=experiment.method,
            seed=experiment.seed,
            status="failed",
            message=str(error),
            exchanges=sum(read_exchanges(folder).values()),
        )
    return summarise(folder, finished.result)
