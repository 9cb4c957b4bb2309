"""Commands to a server of NVIDIA FLARE, as the person whose kit this is."""

import contextlib
import io
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fcfl.engines.nvflare.job_folder import write_job
from fcfl.engines.nvflare.kits import lead_name
from fcfl.engines.nvflare.server_controller import ERROR, FAULT
from fcfl.errors import FCFLError
from fcfl.sites.settings import Config

_LOGIN_SECONDS = 15.0
_LOOK = 0.5  # seconds between looks at a job
_SILENT = 30.0  # seconds after which a site that said nothing counts as gone; the engine waits 600
_DONE, _STOPPED = "FINISHED:COMPLETED", "FINISHED:ABORTED"
_OURS = re.compile(r" - fcfl - [A-Z]+ - (?:\[[^\]]*\] - )?(.*)$")

LOST = "lost in a restart"

OnMessage = Callable[[str], None]


class ServerUnreachable(FCFLError):
    """The server does not answer, now."""


@dataclass(frozen=True)
class JobStatus:
    """A job that the server knows. One that is listed but not at work was lost in a restart."""

    job_id: str
    status: str
    submitted: str

    @property
    def is_lost(self) -> bool:
        """Whether nobody works on it any more, whatever the engine says."""
        return self.status == LOST

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return self.status.startswith("FINISHED") or self.is_lost


@dataclass(frozen=True)
class ServerStatus:
    """Which sites are connected, and which jobs there are, the newest first."""

    sites: tuple[str, ...]
    jobs: tuple[JobStatus, ...]


class Flare:
    """A server, reached with a lead's kit. A connection that is lost is made again."""

    def __init__(self, kit: Path) -> None:
        if not (kit / "startup" / "fed_admin.json").exists():
            raise FCFLError(f"There is no lead's kit in {str(kit)!r}: fcfl nvflare provision")
        self._kit = kit
        self._link: Session | None = None

    def __enter__(self) -> "Flare":
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def status(self) -> ServerStatus:
        """Who is there, and what was submitted."""

        def ask(link: Session) -> ServerStatus:
            at_work = {job.job_id for job in link.get_system_info().job_info}
            sites = sorted(
                client.name
                for client in link.get_connected_client_list()
                if time.time() - (client.last_connect_time or 0) < _SILENT
            )
            jobs = [_job_status(job, at_work) for job in link.list_jobs(reverse=True)]
            return ServerStatus(tuple(sites), tuple(jobs))

        found: ServerStatus = self._ask(ask)
        return found

    def wait_for_sites(self, sites: Sequence[str], seconds: float) -> None:
        """Until all of them are connected; a server that is away is waited for, too."""
        deadline, missing = time.monotonic() + seconds, list(sites)
        while missing:
            try:
                there = self.status().sites
                missing = [site for site in sites if site not in there]
            except ServerUnreachable:
                if time.monotonic() > deadline:
                    raise
            if missing and time.monotonic() > deadline:
                raise FCFLError(
                    f"Not connected after {seconds:g} s: {', '.join(missing)}. Start the kit "
                    "there: startup/sub_start.sh"
                )
            if missing:
                time.sleep(_LOOK)

    def submit(self, sites: Sequence[str], config: Config) -> str:
        """Submit a job, signed with the kit's key; returns its id."""
        with tempfile.TemporaryDirectory() as place:
            job = write_job(Path(place), sites, config)
            return str(self._ask(lambda link: link.submit_job(str(job))))

    def follow(self, job_id: str, on_message: OnMessage, shown: int = 0) -> "Ended":
        """Pass on what the run says, after ``shown`` lines, until the job ends."""
        while True:
            meta = self._ask(lambda link: link.get_job_meta(job_id))
            lines = self._lines(job_id)
            for line in lines[shown:]:
                on_message(line)
            shown = max(shown, len(lines))
            if str(meta.get("status", "")).startswith("FINISHED"):
                return _ended(meta, lines)
            time.sleep(_LOOK)

    def abort(self, job_id: str) -> None:
        """Stop a job; one that has ended stays as it is."""
        with contextlib.suppress(Exception):
            self._ask(lambda link: link.abort_job(job_id))

    def _lines(self, job_id: str) -> list[str]:
        """What our own code has logged in a job, so far."""
        logs = self._ask(lambda link: link.get_job_logs(job_id, target="server"))
        text = str(logs.get("logs", {}).get("server", ""))
        return [found.group(1) for line in text.splitlines() if (found := _OURS.search(line))]

    def _ask(self, question: Callable[[Session], Any]) -> Any:
        try:
            with _quiet():
                if self._link is None:
                    name, kit = lead_name(self._kit), str(self._kit.absolute())
                    self._link = new_secure_session(name, kit, timeout=_LOGIN_SECONDS)
                return question(self._link)
        except Exception as error:  # the engine has a dozen kinds, and some are bare
            self._drop()
            sentence = " ".join(str(error).split()) or type(error).__name__
            if _is_refusal(error):
                raise FCFLError(f"The server refuses: {sentence}") from None
            raise ServerUnreachable(
                f"The server does not answer: {sentence.rstrip('.')}."
            ) from None

    def _drop(self) -> None:
        if self._link is not None:
            with _quiet(), contextlib.suppress(Exception):
                self._link.close()
        self._link = None


@dataclass(frozen=True)
class Ended:
    """How a job ended: ``error`` is empty when it ended well; a ``fault`` is worth another try."""

    error: str = ""
    is_fault: bool = False


def _ended(meta: Any, lines: Sequence[str]) -> Ended:
    for line in reversed(lines):
        for marker, is_fault in ((ERROR, False), (FAULT, True)):
            if line.startswith(marker):
                return Ended(line.removeprefix(marker), is_fault)
    if meta["status"] == _DONE:
        return Ended()
    if meta["status"] == _STOPPED:
        return Ended("The run was stopped; its checkpoint stays. Continue with `--resume`.")
    detail = [str(part) for part in meta.get("job_deploy_detail", []) if not part.endswith(": OK")]
    if detail:
        is_fault = any("no reply" in part for part in detail)
        return Ended(f"The job was not taken: {'; '.join(detail)}.", is_fault)
    return Ended(
        f"The engine ended the job as {meta['status']} and does not say why; the logs of server "
        "and sites do.",
        True,
    )


def _job_status(job: Any, at_work: set[str]) -> JobStatus:
    status, job_id = str(job.get("status", "?")), str(job.get("job_id", "?"))
    if status == "RUNNING" and job_id not in at_work:
        status = LOST
    return JobStatus(job_id, status, str(job.get("submit_time", "?")))


def _is_refusal(error: Exception) -> bool:
    from nvflare.fuel.flare_api import api_spec

    kinds = (
        api_spec.AuthenticationError, api_spec.AuthorizationError, api_spec.InvalidJobDefinition,
        api_spec.JobNotFound,
    )  # fmt: skip
    return isinstance(error, kinds)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What the engine prints is not for our screen."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
