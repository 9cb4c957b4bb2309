"""Negotiate over clients that were opened, and write the folder of the result."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import tomli_w

from fcfl._checks import did_you_mean
from fcfl._files import replace_file, write_json
from fcfl._types import ClientId
from fcfl.errors import DataError
from fcfl.federation.journal import Journal
from fcfl.negotiation.bargaining import Bargain
from fcfl.negotiation.negotiating import Procedure, negotiate
from fcfl.policy import Policy, read_policy
from fcfl.report.page import PAGE, write_negotiation_page
from fcfl.results.files import NEGOTIATION
from fcfl.results.negotiation import Negotiation
from fcfl.rules import Difference
from fcfl.runs.opening import Opener
from fcfl.runs.run import check_folder, check_free_folder, prepare_folder, writing
from fcfl.runs.settings import Experiment
from fcfl.training.run import Session

MIN_GROUP_ROWS = 30
AGREED = "agreed.toml"
COMPUTED = "computed"  # folder of what was trained, and with which settings
FITS = "fits.sqlite"


def read_policies(folder: Path | None, clients: Sequence[ClientId]) -> dict[ClientId, Policy]:
    """Read the clients' policy files, each ``CLIENT.toml``; a client may have none."""
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

    Each model is stored as soon as it is trained, for a session that resumes; the procedure and
    the clients' policies may differ then. ``command`` returns how the agreement is trained.
    """
    folder, computed = session.required_folder, session.required_folder / COMPUTED
    check_free_folder(folder)
    check_folder(experiment, computed, resume=session.resume, overwrite=overwrite)
    opened = opener(experiment)
    for sentence in opened.notes:
        session.on_message(sentence)
    if len(opened.federation.names) < 2:
        raise DataError(f"A negotiation needs two clients or more, got {opened.federation.names}.")
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
        write_negotiation_page(found, folder / PAGE)
        return found


def _clear(folder: Path, on_message: Callable[[str], None]) -> None:
    """Delete an earlier negotiation."""
    fits = folder / COMPUTED / FITS
    if fits.exists() and not (folder / NEGOTIATION).exists():
        on_message(
            f"The unfinished negotiation in {str(folder)!r} starts again; `--resume` would "
            "continue it."
        )
    for path in (fits, *(folder / name for name in (NEGOTIATION, AGREED, PAGE))):
        path.unlink(missing_ok=True)


def policy_text(negotiation: Negotiation) -> str:
    """Return the agreed budgets as a policy file that `fcfl train --policy` takes."""
    if negotiation.agreed is None:
        raise DataError("There is no agreement to write.")
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
