"""Many runs in one folder: a sweep over budgets, a comparison of methods, a negotiation.

Each run has its own subfolder. A session that resumes returns the results of finished runs,
continues unfinished runs and trains the others.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tomli_w
from scipy.stats import t as student

from fcfl._checks import did_you_mean
from fcfl._files import replace_file, write_json
from fcfl._types import ClientId
from fcfl.client.client import Setup, rules_in_force
from fcfl.client.counts import Counts
from fcfl.errors import AbsentClientError, CheckpointError, DataError, FCFLError, Interrupted
from fcfl.federation.checkpoint import checkpoint_path, read_history
from fcfl.federation.journal import Journal
from fcfl.federation.loop import read_exchanges
from fcfl.federation.session import Session
from fcfl.methods.registry import METHODS, check_method
from fcfl.negotiation.bargaining import Bargain
from fcfl.negotiation.negotiating import Procedure, negotiate
from fcfl.policy import Policy, read_policy
from fcfl.results import (
    COMPARISON,
    HISTORY,
    NEGOTIATION,
    PLAIN,
    RESULT,
    SWEEP,
    Comparison,
    Exchanges,
    Result,
    Sweep,
)
from fcfl.results import many_runs as summaries
from fcfl.results.findings import exceeded_budgets, has_collapsed
from fcfl.results.negotiation import Negotiation
from fcfl.results.result import objective_setting
from fcfl.rules import Difference
from fcfl.runs.opening import Opened, Opener, open_run
from fcfl.runs.options import words
from fcfl.runs.run import (
    SETTINGS,
    check_folder,
    check_free_folder,
    prepare_folder,
    run_or_read,
    writing,
)
from fcfl.runs.settings import Experiment

CONFIDENCE = 0.95  # of the intervals over seeds
MIN_GROUP_ROWS = 30  # minimum rows of a group that a negotiation compares
AGREED = "agreed.toml"
COMPUTED = "computed"  # folder with a negotiation's settings and trained models
FITS = "fits.sqlite"
_OF_RUN = ("exchanges", "bytes_from_clients", "seconds")
_OF_JUDGED = ("accuracy", "all_rows", "median", "largest", "lowest_accuracy", "selected")
_WHAT_MAJORITY = "Predict the more frequent training label for all rows, without a model"
COMPARED = tuple(name for name, one in METHODS.items() if not one.traits.is_private)
"""Methods that a comparison can run; by default it runs all of them."""


def _check_folders(runs: Mapping[str, Experiment], session: Session, *, overwrite: bool) -> None:
    """Raise if a subfolder holds a run with other settings; if ``overwrite``, delete its run.

    Settings that are still to be chosen are not compared with those of the stored run.
    """
    for name, one in runs.items():
        folder = session.required_folder / name
        settings = folder / SETTINGS
        if overwrite:
            for path in (settings, folder / RESULT, checkpoint_path(folder)):
                path.unlink(missing_ok=True)
        elif settings.exists():
            if one.open_settings.is_open:
                stored = Experiment.from_toml(settings)
                one = replace(one, l2=stored.l2, objective=stored.objective)
            check_folder(one, folder, resume=session.resume, overwrite=False)


def _in_turn(
    runs: Mapping[str, Experiment], session: Session
) -> Iterator[tuple[Experiment, Session]]:
    """Yield each run with its own session; only the first session reports notes."""
    for done, (name, one) in enumerate(runs.items()):
        session.on_message(f"{name}, run {done + 1} of {len(runs)}")
        own = session.part(done / len(runs), (done + 1) / len(runs))
        own = replace(own, folder=session.required_folder / name)
        yield one, own.quiet() if done else own


# --- a sweep: the same run with different budgets -------------------------------------------------


def run_sweep(
    experiment: Experiment,
    budgets: Sequence[float],
    session: Session,
    *,
    relative: bool,
    overwrite: bool = False,
    opener: Opener = open_run,
) -> Sweep:
    """Train with each budget, the loosest first, and write ``sweep.json`` with a point per budget.

    The first run chooses open settings, and the other runs use the same values. Each run starts
    from the usual initial parameters, because warm starts have not given better models.

    Raise `FCFLError` if the folder has points with other settings and not ``overwrite``.
    """
    points = check_sweep(experiment, budgets, relative=relative)
    _check_folders(points, session, overwrite=overwrite)
    folder, rows = session.required_folder, opener(next(iter(points.values()))).checksum
    found: tuple[summaries.SweepPoint, ...] = ()
    chosen: dict[str, object] = {}
    exchanges = Exchanges()
    for one, own in _in_turn(points, session):
        one = replace(one, **chosen)  # type: ignore[arg-type]
        result = run_or_read(one, own, rows, opener)
        if one.open_settings.is_open:
            assert result.l2 is not None and result.objective is not None  # chosen, so known
            chosen = {"l2": result.l2, "objective": objective_setting(result.objective)}
        exchanges = exchanges.plus(result.exchanges)
        found = (*found, _point(one, result, own.required_folder.name))
        write_json(folder / SWEEP, Sweep(found))
    write_json(folder / RESULT, result.replace(exchanges=exchanges, sweep=found))
    return Sweep(found)


def check_sweep(
    experiment: Experiment, budgets: Sequence[float], *, relative: bool
) -> dict[str, Experiment]:
    """Return the experiments of all points by folder name, the loosest budget first.

    Raise `ValueError` if the settings or budgets do not allow a sweep.
    """
    if not budgets:
        raise ValueError("`budgets` must hold at least one number.")
    experiment.check_not_private("sweep")
    if experiment.is_constrained:
        raise ValueError("`budget` and `ratio` must be left out of a sweep, which sets budgets.")
    setting = "relative_budget" if relative else "budget"
    points: dict[str, Experiment] = {}
    for value in sorted(budgets, reverse=True):
        name = f"{setting.replace('_', '-')}-{value:g}"
        if name in points:
            raise ValueError(
                f"`budgets` must differ in their first six digits, got {value:g} twice."
            )
        points[name] = replace(experiment, **{setting: value})  # type: ignore[arg-type]
    return points


def _point(experiment: Experiment, result: Result, folder: str) -> summaries.SweepPoint:
    """Return the point of the trade-off curve for one run."""
    return summaries.SweepPoint(
        budget=experiment.budget,  # type: ignore[arg-type] # one number for all clients
        relative=experiment.relative_budget,
        status=result.status,
        budgets_met=not exceeded_budgets(result),
        degenerate=result.degenerate is not None or has_collapsed(result),
        exchanges=result.exchanges.total,
        worst_client=result.worst_client.name,
        worst_client_train_loss=result.worst_client.train_loss,
        test_accuracy=result.overall.test.accuracy,
        folder=folder,
        judged=summaries.judge(result),
    )


# --- a comparison: several methods with the same seeds --------------------------------------------


def run_comparison(
    experiment: Experiment,
    methods: Sequence[str],
    seeds: Sequence[int],
    session: Session,
    *,
    overwrite: bool = False,
    opener: Opener = open_run,
) -> Comparison:
    """Run each method with each seed and write ``comparison.json`` after each run.

    If a method fails, its message is stored and the other methods still run. Raise an error before
    the first run if the table cannot be read or has no two groups to compare, and during the
    comparison if a site does not respond.

    Raise `FCFLError` if the folder has runs with other settings and not ``overwrite``.
    """
    experiment.check_not_private("comparison")
    if PLAIN not in methods:  # the reference without budgets
        methods = (*methods, PLAIN)
    each = {
        method if len(seeds) == 1 else f"{method}-seed-{seed}": for_method(experiment, method, seed)
        for method in methods
        for seed in seeds
    }
    _check_folders(each, session, overwrite=overwrite)
    rows, majority = {}, []
    for seed in seeds:
        opened = opener(for_method(experiment, methods[0], seed))
        rows[seed] = opened.checksum
        majority.append(majority_run(opened, seed))
    del opened  # frees its rows
    runs: list[summaries.MethodRun] = []
    for one, own in _in_turn(each, session):
        runs.append(_run_method(one, own, rows[one.seed], opener))
        if runs[-1].status == "failed":
            session.on_message(f"{runs[-1].folder} failed: {runs[-1].message}")
        comparison = compare_runs(experiment.table, runs, majority)
        session.required_folder.mkdir(parents=True, exist_ok=True)
        write_json(session.required_folder / COMPARISON, comparison)
    return comparison


def _run_method(
    experiment: Experiment, session: Session, rows: str, opener: Opener
) -> summaries.MethodRun:
    """Return the summary of one run, or its error message."""
    folder = session.required_folder
    try:
        result = run_or_read(experiment, session, rows, opener)
    except (Interrupted, AbsentClientError, CheckpointError, DataError):
        raise  # other methods would fail as well
    except FCFLError as error:
        return summaries.MethodRun(
            folder=folder.name,
            method=experiment.method,
            seed=experiment.seed,
            status="failed",
            message=str(error),
            exchanges=sum(read_exchanges(folder).values()),
        )
    return summarise(folder, result)


def for_method(experiment: Experiment, method: str, seed: int) -> Experiment:
    """Return the experiment with another method and seed, without settings of other methods."""
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
        protects=experiment.protects if "protects" in known.options else "all",
        rounds=rounds,
        l2=None if experiment.l2 == "auto" and method != "sqp" else experiment.l2,
    )


def read_methods(text: str | None) -> tuple[str, ...]:
    """Return the methods named in a text, separated by commas; by default `COMPARED`."""
    names = COMPARED if text is None else tuple(dict.fromkeys(words(text)))
    if not names:
        raise ValueError("`methods` is empty. Example: --methods sqp,two-stage,fedavg")
    for name in names:
        check_compared(name)
    return names


def check_compared(name: str) -> None:
    """Raise `ValueError` if a method is unknown or private."""
    if name in METHODS and METHODS[name].traits.is_private:
        raise ValueError(
            f"`methods` must not have {name!r}, whose clients add noise. Train it separately: fcfl "
            "train --privacy epsilon=E,delta=D"
        )
    check_method("methods", name)


# --- the figures of a comparison ------------------------------------------------------------------


def summarise(folder: Path, result: Result) -> summaries.MethodRun:
    """Return the summary of a run in a comparison, on held-out rows if there are any."""
    part = result.judged_part
    clients = {}
    for name, client in result.clients.items():
        entry = summaries.largest_difference(client, part)
        clients[name] = summaries.ClientRun(client.part(part).accuracy)
        if entry is not None:
            clients[name] = replace(clients[name], value=entry.value, verdict=entry.verdict)
    return summaries.MethodRun(
        folder=folder.name,
        method=result.method,
        seed=result.seed or 0,
        status=result.status,
        message=result.message,
        part=part,
        exchanges=result.exchanges.total,
        bytes_from_clients=result.bytes_from_clients,
        seconds=result.seconds,
        clients=clients,
        judged=summaries.judge(result),
        still_moving=_still_moving(folder, result),
    )


def _still_moving(folder: Path, result: Result) -> str:
    """Return the change in loss over the last tenth of the rounds, if a run did not converge."""
    history = folder / HISTORY
    if result.status == "converged" or not history.exists():
        return ""
    losses = [info.worst_loss for info in read_history(history) if math.isfinite(info.worst_loss)]
    last = max(len(losses) // 10, 1)
    if len(losses) <= last:
        return f"stopped after {len(losses)} rounds"
    change = abs(losses[-1] - losses[-1 - last])
    residual = "" if result.kkt_residual is None else f", KKT residual {result.kkt_residual:.2g}"
    rounds = "round" if last == 1 else f"{last} of {len(losses)} rounds"
    return f"worst loss still changed by {change:.2g} in the last {rounds}{residual}"


def majority_run(opened: Opened, seed: int) -> summaries.MethodRun:
    """Return the result of predicting the more frequent training label for all rows.

    All disparities are zero. Label frequencies are taken from the counts of a model with zero
    parameters. The number of exchanges includes the introductions.
    """
    rules = rules_in_force(opened.rules, opened.federation.introduce())
    setup = Setup(opened.model, (), rules)
    with opened.federation.phase("check"):
        counted = opened.federation.count(setup, np.zeros(opened.model.n_params))
    train = [one.train for one in counted.values() if one.train.n_rows]
    test = {name: one.test for name, one in counted.items() if one.test.n_rows}
    label = _share_positive(train) >= 0.5

    def accuracy(*counts: Counts) -> float:
        share = _share_positive(counts)
        return share if label else 1.0 - share

    judged = test or {name: one.train for name, one in counted.items() if one.train.n_rows}
    overall = accuracy(*judged.values())
    return summaries.MethodRun(
        folder="",
        method=summaries.MAJORITY,
        seed=seed,
        status="converged",
        message="",
        exchanges=sum(opened.federation.exchanges.take().values()),
        clients={name: summaries.ClientRun(accuracy(one), 0.0) for name, one in judged.items()},
        judged=summaries.Judged(
            all_rows=0.0, accuracy=overall, selected=float(label), median=0.0, largest=0.0
        ),
    )


def _share_positive(counts: Sequence[Counts]) -> float:
    """Return the share of rows with label 1."""
    return sum(one.n_positive for one in counts) / sum(one.n_rows for one in counts)


def _among(run: summaries.MethodRun, clients: Sequence[str]) -> summaries.MethodRun:
    """Return the run with its lowest accuracy taken over ``clients`` only."""
    known = [run.clients[name].accuracy for name in clients if name in run.clients]
    lowest = min((value for value in known if value is not None), default=None)
    return replace(run, judged=replace(run.judged, lowest_accuracy=lowest))


def compare_runs(
    table: str, runs: Sequence[summaries.MethodRun], majority: Sequence[summaries.MethodRun]
) -> Comparison:
    """Return the content of ``comparison.json``."""
    enough = next((run.judged.clients for run in runs if run.part is not None), ())
    majority = [_among(run, enough) for run in majority]
    by_method: dict[str, list[summaries.MethodRun]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    return Comparison(
        table=table,
        confidence_over_seeds=CONFIDENCE,
        methods=tuple(
            _over_seeds(method, found)
            for method, found in {**by_method, summaries.MAJORITY: list(majority)}.items()
        ),
        runs=tuple(runs),
    )


def _over_seeds(method: str, runs: Sequence[summaries.MethodRun]) -> summaries.MethodSummary:
    """Return the means over seeds, with intervals if there are several seeds."""
    found = {name: over_seeds([getattr(run, name) for run in runs]) for name in _OF_RUN}
    found |= {name: over_seeds([getattr(run.judged, name) for run in runs]) for name in _OF_JUDGED}
    clients = {}
    for name in dict.fromkeys(name for run in runs for name in run.clients):
        one = [run.clients.get(name, summaries.ClientRun()) for run in runs]
        clients[name] = summaries.ClientOverSeeds(
            over_seeds([run.accuracy for run in one]), over_seeds([run.value for run in one])
        )
    return summaries.MethodSummary(
        method=method,
        what=_WHAT_MAJORITY if method == summaries.MAJORITY else METHODS[method].help,
        seeds=tuple(run.seed for run in runs),
        failed=sum(run.status == "failed" for run in runs),
        clients=clients,
        kept=sum(run.judged.kept for run in runs),
        n_budgets=sum(run.judged.n_budgets for run in runs),
        too_small=tuple(dict.fromkeys(name for run in runs for name in run.judged.too_small)),
        **found,
    )


def over_seeds(values: Sequence[float | None]) -> summaries.OverSeeds:
    """Return the mean, with Student's t interval if there are two values or more."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if known.size == 0:
        return summaries.OverSeeds()
    mean = float(known.mean())
    if known.size == 1:
        return summaries.OverSeeds(mean)
    spread = float(known.std(ddof=1))
    half = spread / math.sqrt(known.size) * student.ppf(0.5 + CONFIDENCE / 2, known.size - 1)
    return summaries.OverSeeds(mean, mean - float(half), mean + float(half), spread)


# --- a negotiation: combinations of budgets and a vote --------------------------------------------


def read_policies(folder: Path | None, clients: Sequence[ClientId]) -> dict[ClientId, Policy]:
    """Return the policies in the files ``CLIENT.toml`` of a folder; some clients may have none."""
    if folder is None:
        return {}
    if not folder.is_dir():
        raise DataError(f"`policies` must be a folder of CLIENT.toml files, got {str(folder)!r}.")
    policies: dict[ClientId, Policy] = {}
    for path in sorted(folder.glob("*.toml")):
        if path.stem not in clients:
            raise DataError(
                f"The policy {str(path)!r} does not have the name of a client. "
                f"{did_you_mean(path.stem, clients)}"
            )
        policies[path.stem] = read_policy(path)
    return policies


def run_negotiation(
    experiment: Experiment,
    procedure: Procedure,
    session: Session,
    opener: Opener,
    *,
    command: Callable[[Experiment, Negotiation], str],
    overwrite: bool = False,
) -> Negotiation:
    """Negotiate and write ``negotiation.json`` and, after an agreement, the policy file.

    Each model is stored when it is trained, so that a session can resume with another procedure
    or other policies of clients. ``command`` returns the command that trains the agreement.
    """
    folder, computed = session.required_folder, session.required_folder / COMPUTED
    check_free_folder(folder)
    check_folder(experiment, computed, resume=session.resume, overwrite=overwrite)
    opened = opener(experiment)
    for sentence in opened.notes:
        session.on_message(sentence)
    if len(opened.federation.names) < 2:
        raise DataError(
            f"A negotiation requires two clients or more, got {opened.federation.names}."
        )
    with writing(folder):
        if not session.resume:
            _clear(folder, session.on_message)
        prepare_folder(experiment, opened.checksum, replace(session, folder=computed))
        settings = experiment.open_settings
        bargain = Bargain(
            opened.federation,
            opened.model,
            tuple(rule for rule in opened.rules if isinstance(rule, Difference)),
            settings.l2,
            settings.objective,
            float(experiment.min_group_rows or MIN_GROUP_ROWS),
            experiment.seed,
            Journal(computed / FITS),
        )
        found = negotiate(bargain, procedure, table=experiment.table, on_message=session.on_message)
        if found.agreed is not None:
            found = replace(found, command=command(experiment, found))
            replace_file(folder / AGREED, policy_text(found).encode())
        write_json(folder / NEGOTIATION, found)
        return found


def _clear(folder: Path, on_message: Callable[[str], None]) -> None:
    """Delete the files of an earlier negotiation."""
    fits = folder / COMPUTED / FITS
    if fits.exists() and not (folder / NEGOTIATION).exists():
        on_message(
            f"Restarting the unfinished negotiation in {str(folder)!r}; `--resume` would continue "
            "it."
        )
    for path in (fits, *(folder / name for name in (NEGOTIATION, AGREED, "report.html"))):
        path.unlink(missing_ok=True)


def policy_text(negotiation: Negotiation) -> str:
    """Return the agreed budgets as the text of a policy file for `fcfl train --policy`."""
    if negotiation.agreed is None:
        raise DataError("The negotiation has no agreement.")
    agreed = negotiation.offers[negotiation.agreed].budgets
    rule = {"metric": negotiation.metric, "kind": "difference", "clients": dict(agreed)}
    rules = [{"attribute": attribute, **rule} for attribute in negotiation.attributes]
    policy = {"min-group-rows": int(negotiation.min_group_rows), "rule": rules}
    head = f"# Budgets agreed on by the {negotiation.decided_by} rule of `fcfl negotiate`.\n\n"
    return head + tomli_w.dumps(policy)
