"""A run over sites that keep their rows: agree, count, train, evaluate, write the same folder."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fcfl import __version__
from fcfl._types import ClientId, Point, Request, Vector
from fcfl.errors import AbsentClientError
from fcfl.training.absence import Cautious
from fcfl.runs.folder import check_folder, prepare_folder, writing
from fcfl.models.model_file import LinearModel
from fcfl.results import DataSource, Deployment, SiteDeployment, write_result
from fcfl.results.evaluations import AuditTerms, Evaluations, RowSections, row_sections
from fcfl.results.result_file import RESULT
from fcfl.runs.run import Finished, describe_run
from fcfl.runs.settings import Experiment
from fcfl.federation.agreement import agree
from fcfl.runs.site_config import SitesConfig
from fcfl.training.rounds import Session, Watch, train
from fcfl.policy import read_policy
from fcfl.federation.messages import Agreement, Introduction
from fcfl.federation.transport import Post
from fcfl.federation.remote import Sites
from fcfl.server.method import FEASIBILITY_TOLERANCE
from fcfl.server.problem import Problem, evaluate_point, build_problem

Tell = Callable[[str], None]


@dataclass(frozen=True)
class SitesTask:
    """Sites that have agreed on columns and rules, as a training task."""

    sites: Sites
    agreement: Agreement
    introductions: Mapping[ClientId, Introduction]

    @property
    def runtime(self) -> Sites:
        """The sites, asked by letter."""
        return self.sites

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know about the tables, as far as statistics tell."""
        negative, positive = self.agreement.labels
        label = self.agreement.terms.label
        first = f"Label {label!r}: {positive!r} is the positive value, {negative!r} the other."
        return (first, *self.agreement.schema.notes, *_about_versions(self.introductions))

    @property
    def checksum(self) -> str:
        """Identifies all sites' files and how they are split."""
        return hashlib.sha256(repr(sorted(self.agreement.checksums.items())).encode()).hexdigest()

    @property
    def n_params(self) -> int:
        """Feature weights and one intercept."""
        return self.agreement.schema.n_features + 1

    def first_params(self, experiment: Experiment) -> Vector:
        """Zero, where every group is treated alike."""
        return np.zeros(self.n_params)

    def state(self, l2: float) -> tuple[Problem, tuple[str, ...]]:
        """The problem, and a sentence for each group that cannot be compared."""
        reports = self.sites.evaluate(Request((Point(np.zeros(self.n_params)),)))
        if self.sites.failures:
            raise AbsentClientError("A run begins, or goes on, with all its sites.")
        agreement = self.agreement
        least = agreement.min_group_rows
        return build_problem(agreement.rules, agreement.rates, reports, l2=l2, min_group_rows=least)

    def sections(self, params: Vector) -> RowSections:
        """The parts of the result that speak of rows, from counts the sites made."""
        counted = self.sites.count(params)
        found = Evaluations(
            self.agreement.rates,
            self.agreement.rules,
            {name: said.train for name, said in counted.items()},
            {name: said.test for name, said in counted.items()},
            {name: said.report for name, said in counted.items()},
            AuditTerms(min_group_rows=self.agreement.min_group_rows),
        )
        return row_sections(found)

    def relative_budgets(self, params: Vector, share: float) -> list[dict[str, float]]:
        """Not reached: the run config has no relative budget."""
        raise NotImplementedError

    def with_relative_budgets(self, budgets: Sequence[Mapping[str, float]]) -> "SitesTask":
        """Not reached either."""
        raise NotImplementedError

    def save_model(self, params: Vector, folder: Path) -> None:
        """Write ``model.json``."""
        agreement = self.agreement
        model = LinearModel(params, agreement.schema, agreement.labels, agreement.terms.label)
        model.save(folder / "model.json")


def run_sites(
    post: Post, config: Mapping[str, Any], *, on_round: Watch | None = None, on_message: Tell
) -> Finished:
    """Train over whatever the post reaches and write the folder the config names."""
    began = time.monotonic()
    run = SitesConfig.from_run_config(config)
    experiment, folder = run.experiment, run.folder
    check_folder(experiment, folder, resume=run.resume, overwrite=run.overwrite)
    sites = Sites(post, run.sites, run.terms, timeout=run.site_timeout, on_message=on_message)
    on_message(f"Waiting for {len(run.sites)} sites: {', '.join(run.sites)}.")
    task = open_sites(experiment, run, sites)
    for note in task.notes:
        on_message(note)
    session = Session(folder, run.resume, on_round, on_message, run.max_age)
    with writing(folder), _telling_why(sites):
        prepare_folder(experiment, task.checksum, folder, resume=run.resume, on_message=on_message)
        method = Cautious(run.make_method(), lambda: bool(sites.failures))
        progress, left_out = train(experiment, task, session, method=method)
        notes = [*task.notes, *left_out]
        result = describe_run(experiment, task, progress, notes, experiment.start)
        met = _budgets_met(task, progress.state)
        policy = None if experiment.policy is None else read_policy(experiment.policy).sha256
        result = replace(
            result,
            data=DataSource(experiment.table, task.checksum, policy),
            deployment=deployment_section(task, met),
            seconds=time.monotonic() - began,
        )
        task.save_model(progress.state.params, folder)
        write_result(folder / RESULT, result)
    return Finished(folder, result, met, progress.state.params)


def _budgets_met(task: SitesTask, state: Any) -> bool:
    """Of smooth disparities on training rows, at the model whose rows were just counted."""
    reports = task.sites.evaluate(Request((Point(state.params),)))
    at = evaluate_point(state.problem, state.params, reports)
    return at.largest_violation <= FEASIBILITY_TOLERANCE


def open_sites(experiment: Experiment, run: SitesConfig, sites: Sites) -> SitesTask:
    """Meet the sites and agree; from here on they are asked about rows encoded alike."""
    introductions = sites.meet()
    agreement = agree(experiment, run.terms, introductions)
    sites.agree(agreement)
    return SitesTask(sites, agreement, introductions)


def deployment_section(task: SitesTask, budgets_met: bool) -> Deployment:
    """What the run cost on the wire, and what each site insisted on."""
    traffic = task.sites.traffic
    return Deployment(
        budgets_met,
        task.sites.exchanges,
        bytes_to_sites=sum(site.bytes_to for site in traffic.values()),
        bytes_from_sites=sum(site.bytes_from for site in traffic.values()),
        sites={
            name: SiteDeployment(
                policy_sha256=said.policy_sha256,
                min_group_rows=said.min_group_rows,
                withhold_below=said.withhold_below,
                fcfl_version=said.version,
                messages=traffic[name].letters,
                bytes_to=traffic[name].bytes_to,
                bytes_from=traffic[name].bytes_from,
                slowest_seconds=traffic[name].slowest_seconds,
            )
            for name, said in task.introductions.items()
        },
    )


def _about_versions(introductions: Mapping[ClientId, Introduction]) -> tuple[str, ...]:
    other = [
        f"{name!r} {said.version}"
        for name, said in introductions.items()
        if said.version != __version__
    ]
    if not other:
        return ()
    return (f"The server has fcfl {__version__}, these sites do not: {', '.join(other)}.",)


@contextmanager
def _telling_why(sites: Sites) -> Iterator[None]:
    """Add to an error about absent sites why they were left out."""
    try:
        yield
    except AbsentClientError as error:
        why = " ".join(f"Site {name!r}: {sentence}" for name, sentence in sites.failures.items())
        raise AbsentClientError(f"{error} {why}".strip()) from None
