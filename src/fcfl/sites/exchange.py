"""Exchange messages with sites: send, wait, send again, and list the sites that are absent."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fcfl._types import ClientId
from fcfl.client.client import Introduction
from fcfl.errors import AbsentClientError, FCFLError, ReportError
from fcfl.federation.loop import ExchangeCount
from fcfl.federation.serialise import WireError
from fcfl.sites.messages import (
    Answer,
    Introduce,
    Refusal,
    Terms,
    ToSite,
    claimed_name,
    decode_answer,
    encode_message,
)
from fcfl.sites.transport import Reply, Transport

PAUSE = 0.1  # seconds between polls for replies
_LOOK = 1.0  # seconds between polls for connected nodes
_RETRY = 3.0  # seconds until a lost message is sent again
_RETRY_APP = 30.0  # seconds until a node whose app failed gets another introduction request
_REMIND = 0.5  # share of the timeout after which an unanswered message is sent once more
_LONGEST = 500  # largest number of characters of a site's message to show

QuestionFor = Callable[[ClientId], ToSite]
Check = Callable[[ClientId, Any], None]
OnMessage = Callable[[str], None]


@dataclass
class Traffic:
    """Numbers of messages and bytes exchanged with one site, and its longest response time."""

    messages: int = 0
    bytes_to: int = 0
    bytes_from: int = 0
    slowest_seconds: float = 0.0


@dataclass(frozen=True)
class _Sent:
    node: int
    sent_at: float
    size: int
    is_hello: bool


@dataclass
class _Progress:
    """Progress of one exchange.

    ``due`` has the time of each node's next message. ``answers`` and ``failures`` are by site.
    """

    deadline: float
    names: tuple[ClientId, ...]
    is_meeting: bool = False
    due: dict[int, float] = field(default_factory=dict)
    contacted: set[int] = field(default_factory=set)
    answers: dict[ClientId, Any] = field(default_factory=dict)
    failures: dict[ClientId, str] = field(default_factory=dict)


class Exchange:
    """Exchanges of requests and responses with named sites; each site has one node.

    With ``nodes``, names are bound to nodes, and messages are sent to these nodes only. A new node
    is sent a request for its introduction. A lost message is sent again. A site that reconnects
    within ``timeout`` seconds takes part in the exchange.
    """

    def __init__(
        self,
        transport: Transport,
        names: Sequence[ClientId],
        terms: Terms,
        *,
        timeout: float,
        nodes: Mapping[ClientId, int] | None = None,
        on_message: OnMessage = lambda sentence: None,
    ) -> None:
        self.names = tuple(sorted(names))
        self.introductions: dict[ClientId, Introduction] = {}
        self.traffic = {name: Traffic() for name in self.names}
        self.exchanges = ExchangeCount()
        self.failures: Mapping[ClientId, str] = {}
        self._transport = transport
        self._hello = encode_message(Introduce(terms))
        self._timeout = timeout
        self._on_message = on_message
        self._name_of: dict[int, ClientId] = {}
        self._strangers: set[int] = set()
        self._bound = {node: name for name, node in (nodes or {}).items()}
        self._sent: dict[str, _Sent] = {}
        self._online: Collection[int] = ()
        self._looked_at = float("-inf")

    def meet(self, check: Check) -> dict[ClientId, Introduction]:
        """Wait for every site's introduction; raise `ReportError` if a site rejects the request."""
        meeting = self._begin(is_meeting=True)
        while not set(self.names) <= set(self.introductions):
            if time.monotonic() >= meeting.deadline:
                raise self._not_connected()
            self._poll(meeting, None, check)
            for name, sentence in meeting.failures.items():
                raise ReportError(f"Site {name!r} cannot take part: {sentence}")
        return {name: self.introductions[name] for name in self.names}

    def ask(
        self,
        question: QuestionFor,
        check: Check,
        only: Sequence[ClientId] | None = None,
    ) -> dict[ClientId, Any]:
        """Return the responses that arrive before the deadline."""
        current = self._begin(only)
        while not self._is_settled(current) and time.monotonic() < current.deadline:
            self._poll(current, question, check)
        late = f"it did not respond within {self._timeout:g} s."
        missing = [name for name in current.names if name not in current.answers]
        self.failures = {name: current.failures.get(name, late) for name in missing}
        for name, sentence in self.failures.items():
            self._on_message(f"Site {name!r} is absent: {sentence}")
        return {name: current.answers[name] for name in self.names if name in current.answers}

    def _begin(
        self, only: Sequence[ClientId] | None = None, *, is_meeting: bool = False
    ) -> _Progress:
        self.exchanges.add()
        self._sent = {key: sent for key, sent in self._sent.items() if sent.is_hello}
        names = self.names if only is None else tuple(only)
        return _Progress(time.monotonic() + self._timeout, names, is_meeting)

    def _poll(self, current: _Progress, question: QuestionFor | None, check: Check) -> None:
        """Send messages that are due, and read replies."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK:
            self._online, self._looked_at = frozenset(self._transport.nodes()), now
        for node in sorted(self._online):
            if self._bound and node not in self._bound | dict.fromkeys(self._strangers):
                self._leave_out(node, "its key is not bound to a site of this run")
            if node not in self._strangers and now >= current.due.get(node, now):
                self._write(node, current, question, now)
        replies = list(self._transport.receive(list(self._sent)))
        for reply in replies:
            if reply.message_id in self._sent:
                self._take(reply, current, check)
        if not replies:
            time.sleep(PAUSE)

    def _write(
        self, node: int, current: _Progress, question: QuestionFor | None, now: float
    ) -> None:
        name = self._name_of.get(node)
        if name is None:
            content = self._hello
        elif question is None or name not in current.names:
            return
        else:
            content = encode_message(question(name))
        message_id = self._transport.send(node, content, max(current.deadline - now, 1.0))
        self._sent[message_id] = _Sent(node, now, len(content), name is None)
        is_reminder = node in current.contacted
        current.contacted.add(node)
        current.due[node] = float("inf") if is_reminder else now + _REMIND * self._timeout

    def _take(self, reply: Reply, current: _Progress, check: Check) -> None:
        """Process a reply, attributed to the node to which the request was sent."""
        sent = self._sent.pop(reply.message_id)
        name = self._name_of.get(sent.node)
        if reply.content is None:
            self._take_failure(reply, sent.node, name, current)
            return
        reminders = [key for key, other in self._sent.items() if other.node == sent.node]
        for key in reminders:
            del self._sent[key]
        current.due[sent.node] = float("inf")
        try:
            answer = decode_answer(reply.content)
            if name is None:
                name = self._bind_name(answer, sent.node)
            elif answer.name != name:
                raise ReportError(
                    f"The node of site {name!r} sent a response named {answer.name!r}."
                )
            if name is not None:
                self._count(name, sent, len(reply.content))
                self._file(name, answer, sent, current, check)
        except (ReportError, WireError) as error:
            name = name or self._bound.get(sent.node) or claimed_name(reply.content)
            if name is None or name not in self.names:
                self._leave_out(sent.node, str(error))
            else:
                current.failures[name] = f"its response was rejected: {error}"

    def _take_failure(
        self, reply: Reply, node: int, name: ClientId | None, current: _Progress
    ) -> None:
        """Schedule a lost message again, or record why the site is absent."""
        whose = f"node {node}" if name is None else f"site {name!r}"
        if reply.can_retry:
            current.contacted.discard(node)
            current.due[node] = time.monotonic() + _RETRY
            self._on_message(f"A message to {whose} was lost: {reply.failure}")
        elif name is None:
            current.contacted.discard(node)
            current.due[node] = time.monotonic() + _RETRY_APP
            self._on_message(f"The app of {whose} failed: {reply.failure}")
        else:
            current.due[node] = float("inf")
            current.failures[name] = f"its app failed: {reply.failure}"

    def _bind_name(self, answer: Answer, node: int) -> ClientId | None:
        """Return a node's name; ignore a node that is not a site of this run."""
        bound = self._bound.get(node)
        if bound is not None and bound != answer.name:
            raise ReportError(f"Its node reports the name {_one_line(repr(answer.name))}.")
        if answer.name not in self.names:
            known = ", ".join(map(repr, self.names))
            self._leave_out(node, f"it reports the name {answer.name!r}; sites are {known}")
            return None
        self._name_of[node] = answer.name
        return answer.name

    def _leave_out(self, node: int, why: str) -> None:
        self._strangers.add(node)
        self._on_message(f"Node {node} is left out: {_one_line(why).rstrip('.')}.")

    def _file(
        self, name: ClientId, answer: Answer, sent: _Sent, current: _Progress, check: Check
    ) -> None:
        content = answer.content
        if isinstance(content, Refusal):
            current.failures[name] = _one_line(content.sentence)
        elif sent.is_hello:
            if not isinstance(content, Introduction):
                raise ReportError(f"Client {name!r} sent no introduction.")
            if current.is_meeting:
                check_content(check, name, content)
                if name in self.introductions:
                    raise FCFLError(_two_of(name))
                self.introductions[name] = content
            else:  # a site reconnected, or two nodes claim its name: resend to each
                current.due.pop(sent.node)
                current.contacted.discard(sent.node)
        else:
            check_content(check, name, content)
            if name in current.answers:
                raise FCFLError(_two_of(name))
            current.answers[name] = content
            current.failures.pop(name, None)

    def _count(self, name: ClientId, sent: _Sent, size: int) -> None:
        traffic = self.traffic[name]
        traffic.messages += 1
        traffic.bytes_to += sent.size
        traffic.bytes_from += size
        taken = time.monotonic() - sent.sent_at
        traffic.slowest_seconds = max(traffic.slowest_seconds, taken)

    def _is_settled(self, current: _Progress) -> bool:
        """Return whether all sites have responded or failed and no request is pending."""
        under_way = any(
            message.node in self._online and not message.is_hello for message in self._sent.values()
        )
        known = current.answers.keys() | current.failures.keys()
        return not under_way and set(current.names) <= known

    def _not_connected(self) -> AbsentClientError:
        missing = [repr(name) for name in self.names if name not in self.introductions]
        return AbsentClientError(
            f"Not all sites connected within {self._timeout:g} s; missing: {', '.join(missing)}. "
            "Start their nodes and check `name` in each site's file."
        )


def check_content(check: Check, name: ClientId, content: Any) -> None:
    """Check a response; raise `ReportError` in place of errors of other types."""
    try:
        check(name, content)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        kind = type(error).__name__
        raise ReportError(f"Client {name!r} sent an invalid response ({kind}).") from None


def _one_line(sentence: object) -> str:
    """Return a site's sentence on one printable line."""
    plain = "".join(c if c.isprintable() else " " for c in str(sentence))
    return " ".join(plain.split())[:_LONGEST]


def _two_of(name: ClientId) -> str:
    return (
        f"Two nodes have the same `name`, {name!r}. Names of sites must be unique: change `name` "
        "in the node config of one of them."
    )
