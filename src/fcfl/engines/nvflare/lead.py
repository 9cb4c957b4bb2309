"""Lead's side of a run: submit a job, follow it, and submit it again after a fault."""

import contextlib
import io
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from nvflare.fuel.flare_api import api_spec
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fcfl.engines.nvflare.kits import KITS, LEAD
from fcfl.engines.nvflare.server import ERROR, FAULT, SETTINGS
from fcfl.errors import FCFLError
from fcfl.sites.settings import Config

_TEMPLATE = Path(__file__).with_name("job")
"""Template of a job, without sites. Sites request tasks every 0.05 s (NVIDIA FLARE's default: 2 s)
and wait 600 s for the server, because the default of 60 s is too short on a busy machine."""
_LOGIN_SECONDS = 15.0
_POLL_SECONDS = 0.5
_SILENT_SECONDS = 30.0  # until a site without contact counts as disconnected; the engine's is 600
_OUR_LINE = re.compile(r" - fcfl - [A-Z]+ - (?:\[[^\]]*\] - )?(.*)$")
_REJECTED = (
    api_spec.AuthenticationError, api_spec.AuthorizationError, api_spec.InvalidJobDefinition,
    api_spec.JobNotFound,
)  # fmt: skip

LOST = "lost in a restart"

OnMessage = Callable[[str], None]
Found = TypeVar("Found")


class ServerUnreachable(FCFLError):
    """The server does not respond at present."""


class Fault(FCFLError):
    """A job was lost or stopped by the engine; a retry may succeed."""


@dataclass(frozen=True)
class Job:
    """A job in the server's list."""

    job_id: str
    status: str
    submitted: str

    @property
    def is_over(self) -> bool:
        """Return whether the job has ended, successfully or not."""
        return self.status.startswith("FINISHED") or self.status == LOST


class Flare:
    """Connection to a server with the lead's kit of an app; reconnects when it is lost."""

    def __init__(self, folder: Path) -> None:
        self._kit = folder.absolute() / KITS / LEAD
        if not self._kit.exists():
            raise FCFLError(
                f"The lead's kit {str(self._kit)!r} is missing. Make it: fcfl nvflare provision"
            )
        self._session: Session | None = None

    def __enter__(self) -> "Flare":
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()

    def train(
        self,
        sites: Sequence[str],
        config: Config,
        *,
        tries: int,
        seconds: float,
        on_message: OnMessage,
    ) -> None:
        """Run to the end; after a fault, wait for all sites and submit again with `resume`.

        Raise `FCFLError` for an error of the run itself, such as a rejected request.
        """
        self.wait_for_sites(sites, seconds)
        running = [job.job_id for job in self.jobs() if not job.is_over]
        if running:
            raise FCFLError(
                f"The run {running[0]} has not ended. Wait for its end, or stop it: fcfl nvflare "
                "stop"
            )
        for left in reversed(range(tries)):
            job_id = self.submit(sites, config)
            try:
                self.follow(job_id, sites, seconds, on_message)
                return
            except KeyboardInterrupt:
                self.abort(job_id)
                raise
            except Fault as fault:
                if not left:
                    raise
                on_message(f"{fault} Continuing when the server and all sites are available.")
            self.wait_for_sites(sites, seconds)
            config = {**config, "resume": True, "overwrite": False}

    def sites(self) -> tuple[str, ...]:
        """Return the names of the connected sites."""
        clients = self._ask(lambda session: session.get_connected_client_list())
        recent = time.time() - _SILENT_SECONDS
        return tuple(sorted(one.name for one in clients if (one.last_connect_time or 0) > recent))

    def jobs(self) -> list[Job]:
        """Return all jobs, newest first; a job listed as running may be lost in a restart."""
        system = self._ask(lambda session: session.get_system_info())
        running = {job.job_id for job in system.job_info}
        jobs = []
        for one in self._ask(lambda session: session.list_jobs(reverse=True)):
            job_id, status = str(one.get("job_id", "?")), str(one.get("status", "?"))
            is_lost = status == "RUNNING" and job_id not in running
            jobs.append(Job(job_id, LOST if is_lost else status, str(one.get("submit_time", "?"))))
        return jobs

    def wait_for_sites(self, sites: Sequence[str], seconds: float) -> None:
        """Wait until all sites are connected; retry if the server does not respond."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                connected = self.sites()
            except ServerUnreachable:
                if time.monotonic() > deadline:
                    raise
                connected = ()
            missing = [site for site in sites if site not in connected]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise FCFLError(
                    f"Not connected after {seconds:g} s: {', '.join(missing)}. Start the kits of "
                    "these sites: startup/sub_start.sh"
                )
            time.sleep(_POLL_SECONDS)

    def submit(self, sites: Sequence[str], config: Config) -> str:
        """Submit a job, signed with the kit's key; return its id."""
        with tempfile.TemporaryDirectory() as place:
            job = write_job(Path(place), sites, config)
            return str(self._ask(lambda session: session.submit_job(str(job))))

    def follow(
        self, job_id: str, sites: Sequence[str], seconds: float, on_message: OnMessage
    ) -> None:
        """Report the log lines of a run until it ends; reconnect if the connection is lost.

        Raise `Fault` if a retry may succeed, and `FCFLError` for an error of the run itself.
        """
        shown = 0
        while True:
            try:
                meta = self._ask(lambda session: session.get_job_meta(job_id))
                lines = self._lines(job_id)
            except ServerUnreachable as away:
                self.wait_for_sites(sites, seconds)
                known = {job.job_id: job.status for job in self.jobs()}
                if known.get(job_id, LOST) == LOST:
                    raise Fault(str(away)) from None
                continue
            for line in lines[shown:]:
                if not line.startswith((ERROR, FAULT)):  # raised at the end
                    on_message(line)
            shown = max(shown, len(lines))
            if str(meta.get("status", "")).startswith("FINISHED"):
                return _check_ended_well(meta, lines)
            time.sleep(_POLL_SECONDS)

    def abort(self, job_id: str) -> None:
        """Stop a job, unless it has ended."""
        with contextlib.suppress(Exception):
            self._ask(lambda session: session.abort_job(job_id))

    def _lines(self, job_id: str) -> list[str]:
        """Return the lines that fcfl has logged in a job."""
        logs = self._ask(lambda session: session.get_job_logs(job_id, target="server"))
        text = str(logs.get("logs", {}).get("server", ""))
        return [found.group(1) for line in text.splitlines() if (found := _OUR_LINE.search(line))]

    def _ask(self, request: Callable[[Session], Found]) -> Found:
        try:
            with _quiet():
                if self._session is None:
                    admin = self._kit / "startup" / "fed_admin.json"
                    user = json.loads(admin.read_text(encoding="utf-8"))["admin"]["username"]
                    kit = str(self._kit)
                    self._session = new_secure_session(user, kit, timeout=_LOGIN_SECONDS)
                return request(self._session)
        except Exception as error:  # the engine raises a dozen types, including `Exception`
            self._disconnect()
            sentence = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, _REJECTED):
                raise FCFLError(f"The server rejects the request: {sentence}") from None
            raise ServerUnreachable(
                f"The server does not respond: {sentence.rstrip('.')}."
            ) from None

    def _disconnect(self) -> None:
        if self._session is not None:
            with _quiet(), contextlib.suppress(Exception):
                self._session.close()
        self._session = None


def _quiet() -> contextlib.AbstractContextManager[Any]:
    """Suppress the engine's printed output."""
    return contextlib.redirect_stdout(io.StringIO())


def _check_ended_well(meta: Any, lines: Sequence[str]) -> None:
    for line in reversed(lines):
        if line.startswith(ERROR):
            raise FCFLError(line.removeprefix(ERROR))
        if line.startswith(FAULT):
            raise Fault(line.removeprefix(FAULT))
    if meta["status"] == "FINISHED:COMPLETED":
        return
    if meta["status"] == "FINISHED:ABORTED":
        raise FCFLError("The run was stopped; its checkpoint is kept. Continue with `--resume`.")
    detail = [str(part) for part in meta.get("job_deploy_detail", []) if not part.endswith(": OK")]
    if detail:
        kind = Fault if any("no reply" in part for part in detail) else FCFLError
        raise kind(f"The job was not accepted: {'; '.join(detail)}.")
    raise Fault(
        f"The engine ended the job with status {meta['status']}; see the logs of the server and "
        "the sites."
    )


def write_job(folder: Path, sites: Sequence[str], config: Config) -> Path:
    """Write a job for these sites, with names of classes, and settings for the server only."""
    job = folder / _TEMPLATE.name
    shutil.copytree(_TEMPLATE, job)
    meta = json.loads((job / "meta.json").read_text(encoding="utf-8"))
    meta |= {"min_clients": len(sites), "mandatory_clients": list(sites)}
    meta["deploy_map"]["at-sites"] = list(sites)
    (job / "meta.json").write_text(json.dumps(meta, indent=2), encoding="utf-8")
    settings = job / "at-server" / "config" / SETTINGS
    settings.write_text(tomli_w.dumps(config), encoding="utf-8")
    return job
