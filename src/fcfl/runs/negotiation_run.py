"""Negotiate over clients that were opened, and write the folder of what was found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import tomli_w

from fcfl._checks import did_you_mean
from fcfl._files import replace_file, write_json
from fcfl._types import ClientId
from fcfl.errors import DataError
from fcfl.negotiation.bargaining import Bargain
from fcfl.negotiation.memory import Memory
from fcfl.negotiation.negotiating import Procedure, negotiate
from fcfl.policy import Policy
from fcfl.policy_file import read_policy
from fcfl.report.negotiation_page import write_negotiation_page
from fcfl.report.page import PAGE
from fcfl.results.files import NEGOTIATION
from fcfl.results.negotiation import Negotiation
from fcfl.rules import Difference
from fcfl.runs import Experiment
from fcfl.runs.folder import check_folder, check_free_folder, prepare_folder, writing
from fcfl.runs.opening import Opener
from fcfl.training.rounds import Session

MIN_GROUP_ROWS = 30
AGREED = "agreed.toml"
COMPUTED = "computed"  # folder of what was trained, and with which settings
FITS = "fits.jsonl"


def read_policies(folder: Path | None, clients: Sequence[ClientId]) -> dict[ClientId, Policy]:
    """Policy files of clients, each named ``CLIENT.toml``; whoever has none is like all others."""
    if folder is None:
        return {}
    if not folder.is_dir():
        raise DataError(f"{str(folder)!r} is not a folder; it should hold a CLIENT.toml for each.")
    policies: dict[ClientId, Policy] = {}
    for path in sorted(folder.glob("*.toml")):
        if path.stem not in clients:
            raise DataError(
                f"The policy {str(path)!r} is of no client. {did_you_mean(path.stem, clients)}"
            )
        policies[path.stem] = read_policy(path)
    return policies


def check_clients(clients: Sequence[ClientId]) -> None:
    """Refuse to negotiate alone."""
    if len(clients) < 2:
        raise ValueError(f"A negotiation needs two clients or more, got {len(clients)}.")


def run_negotiation(
    experiment: Experiment,
    procedure: Procedure,
    session: Session,
    opener: Opener,
    *,
    command: Callable[[Experiment, Negotiation], str],
    overwrite: bool = False,
) -> Negotiation:
    """Negotiate, and write ``negotiation.json``, the page and, if agreed, the policy file.

    Each model is kept in the folder as soon as it is trained, for a session that resumes; the
    procedure and the clients' policies may be others then. ``command`` says how the agreement is
    trained.
    """
    folder, resume = session.required_folder, session.resume
    check_free_folder(folder)
    check_folder(experiment, folder / COMPUTED, resume=resume, overwrite=overwrite)
    opened = opener(experiment)
    for sentence in opened.notes:
        session.on_message(sentence)
    check_clients(opened.federation.names)
    with writing(folder):
        memory = _memory(experiment, opened.checksum, session)
        bargain = Bargain(
            opened.federation,
            opened.model,
            tuple(rule for rule in opened.rules if isinstance(rule, Difference)),
            experiment.l2_or_default,
            experiment.objective_or_default,
            float(experiment.min_group_rows or MIN_GROUP_ROWS),
            experiment.seed,
            memory,
        )
        table, on_message = experiment.table, session.on_message
        found = negotiate(bargain, procedure, table=table, on_message=on_message)
        trains = "" if found.agreed is None else command(experiment, found)
        return _written(replace(found, command=trains), folder)


def _memory(experiment: Experiment, checksum: str, session: Session) -> Memory:
    """What was trained, by an earlier process too where the session goes on."""
    folder, on_message = session.required_folder, session.on_message
    place = folder / COMPUTED
    if not session.resume:
        if (place / FITS).exists() and not (folder / NEGOTIATION).exists():
            on_message(
                f"The unfinished negotiation in {str(folder)!r} starts again; `--resume` would "
                "continue it."
            )
        for path in (place / FITS, *(folder / name for name in (NEGOTIATION, AGREED, PAGE))):
            path.unlink(missing_ok=True)
    prepare_folder(experiment, checksum, place, resume=session.resume, on_message=on_message)
    return Memory(place / FITS)


def _written(found: Negotiation, folder: Path) -> Negotiation:
    write_json(folder / NEGOTIATION, found)
    if found.agreed is not None:
        replace_file(folder / AGREED, policy_text(found).encode())
    write_negotiation_page(found, folder / PAGE)
    return found


def policy_text(negotiation: Negotiation) -> str:
    """The agreed budgets as a policy file that `fcfl train --policy` takes."""
    if negotiation.agreed is None:
        raise DataError("Nothing was agreed on: there is no combination to write.")
    agreed = negotiation.offers[negotiation.agreed].budgets
    rules = [
        {
            "metric": negotiation.metric,
            "attribute": attribute,
            "kind": "difference",
            "clients": dict(agreed),
        }
        for attribute in negotiation.attributes
    ]
    policy = {"min-group-rows": int(negotiation.min_group_rows), "rule": rules}
    head = f"# Budgets agreed on by the {negotiation.decided_by} rule of `fcfl negotiate`.\n\n"
    return head + tomli_w.dumps(policy)
