"""Transports, which send messages to nodes as bytes and receive the replies."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fcfl.sites.settings import Config
from fcfl.sites.site import reply_to


@dataclass(frozen=True)
class Reply:
    """The reply to a message, or why there is none; ``can_retry`` if a retry may succeed."""

    message_id: str
    content: bytes | None = None
    failure: str = ""
    can_retry: bool = False


class Transport(Protocol):
    """Sends bytes to nodes and receives their replies."""

    def nodes(self) -> Collection[int]:
        """Return the nodes that are connected now."""
        ...

    def send(self, node: int, content: bytes, seconds: float) -> str:
        """Send a message that expires after ``seconds``; return its id."""
        ...

    def receive(self, message_ids: Collection[str]) -> Iterable[Reply]:
        """Return the replies to these messages that have arrived, each once."""
        ...


@dataclass
class InProcessTransport:
    """Run all sites in this process and pass them the messages of a network run.

    ``configs`` has each node's config. Tests replace ``answer`` to simulate failures.
    """

    configs: Mapping[int, Config]
    answer: Callable[[bytes, Config], bytes] = reply_to
    _replies: dict[str, Reply] = field(default_factory=dict)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def nodes(self) -> Collection[int]:
        """Return all nodes."""
        return self.configs.keys()

    def send(self, node: int, content: bytes, seconds: float) -> str:
        """Compute the reply at once and store it for `receive`."""
        message_id = str(next(self._ids))
        self._replies[message_id] = Reply(message_id, self.answer(content, self.configs[node]))
        return message_id

    def receive(self, message_ids: Collection[str]) -> Iterable[Reply]:
        """Return the replies to these messages."""
        return [self._replies.pop(key) for key in message_ids if key in self._replies]
