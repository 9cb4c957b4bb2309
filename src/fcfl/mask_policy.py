"""What a client asks of a masked sum before it takes part: the ``[masks]`` table of its policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fcfl._checks import check_keys
from fcfl._types import ClientId
from fcfl.errors import DataError

LEAST = 3  # of two clients each knows the other's part of a sum
_DIGITS = 64  # hex digits of a public key


@dataclass(frozen=True)
class MaskPolicy:
    """How many clients a sum must have at least, and which public keys the others must have.

    With ``peers`` the client takes part with these only; without, it believes the keys that the
    server passes on.
    """

    least: int = LEAST
    peers: Mapping[ClientId, str] = field(default_factory=dict)


def mask_policy_from_table(table: object, where: str) -> MaskPolicy:
    """Read ``[masks]``; ``where`` names the file."""
    if not isinstance(table, dict):
        raise DataError(f"{where}: `masks` must be a [masks] table, got {table!r}.")
    check_keys(table, ("least", "peers"), f"{where}, masks", DataError)
    least, peers = table.get("least", LEAST), table.get("peers", {})
    if isinstance(least, bool) or not isinstance(least, int) or least < LEAST:
        raise DataError(
            f"{where}: `masks.least` must be a whole number from {LEAST}, got {least!r}."
        )
    if not isinstance(peers, dict):
        raise DataError(f"{where}: `masks.peers` must be a [masks.peers] table, got {peers!r}.")
    for name, key in peers.items():
        if not isinstance(key, str) or len(key) != _DIGITS or set(key) - set("0123456789abcdef"):
            raise DataError(
                f"{where}: `masks.peers` must have a key of {_DIGITS} hex digits for {name!r}, "
                f"got {key!r}. `fcfl site key` prints it there."
            )
    return MaskPolicy(least, peers)
