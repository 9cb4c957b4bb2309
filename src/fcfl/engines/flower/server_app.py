"""ServerApp, which trains over the sites connected to a Grid."""

import logging
from collections.abc import Collection, Iterable

from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from fcfl.engines.flower.client_app import from_record, log_to_stderr, to_record
from fcfl.errors import FCFLError
from fcfl.runs.site_run import serve
from fcfl.sites.transport import Reply

log = logging.getLogger("fcfl")

_APP_FAILED = {1: "its app does not load", 2: "its app raised", 6: "a mod failed", 7: "bad app"}
_LOST = {
    3: "no response in time",
    4: "the response expired",
    5: "the node is not connected",
    8: "the app was killed",
}


class GridTransport:
    """Transport over a Grid, with a time-to-live for each message.

    Replies are polled directly, which avoids the 3 s sleep of `Grid.send_and_receive`.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._unsent: set[str] = set()

    def nodes(self) -> Collection[int]:
        """Return the ids of the connected SuperNodes."""
        return set(self._grid.get_node_ids())

    def send(self, node: int, content: bytes, seconds: float) -> str:
        """Push a message that expires after ``seconds``; return its id."""
        message = Message(to_record(content), node, MessageType.QUERY, ttl=seconds)
        sent = [message_id for message_id in self._grid.push_messages([message]) if message_id]
        if not sent:
            self._unsent.add(unsent := f"unsent to {node}")
            return unsent
        return sent[0]

    def receive(self, message_ids: Collection[str]) -> Iterable[Reply]:
        """Pull the replies that have arrived."""
        for message_id in self._unsent.intersection(message_ids):
            self._unsent.remove(message_id)
            yield Reply(message_id, None, "the SuperLink did not accept it.", True)
        under_way = [key for key in message_ids if not key.startswith("unsent")]
        if under_way:
            yield from map(_reply, self._grid.pull_messages(under_way))


def _reply(message: Message) -> Reply:
    message_id = message.metadata.reply_to_message_id
    if message.has_content():
        return Reply(message_id, from_record(message.content))
    code = message.error.code
    why = _APP_FAILED.get(code) or _LOST.get(code) or "unknown reason"
    return Reply(message_id, None, f"{why} (Flower's code {code}).", code not in _APP_FAILED)


app = ServerApp()


@app.main()
def run(grid: Grid, context: Context) -> None:
    """Run the command of the run config; log an error as one line."""
    log_to_stderr()
    try:
        serve(GridTransport(grid), context.run_config)
    except (FCFLError, ValueError) as error:
        log.error("error: %s", " ".join(str(error).split()))
        raise
