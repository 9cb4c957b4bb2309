"""What a client remembers of masked sums: which keys it has used, and what it has revealed.

The first line of the file is a secret from which the client's single-use keys are made. A file
that is torn is begun anew, with another secret: keys of before are then nobody's, and a sum that
was under way is never opened.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from fcfl._types import ClientId
from fcfl.errors import DataError
from fcfl.federation.locked_file import append, locked

Line: TypeAlias = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Used:
    """A single-use key was used, for this sum and with these ``weights`` of the client's own.

    ``rows`` identifies the rows that were reported on: under one mask others must not be.
    ``keys`` are the single-use public keys of all clients of the sum, ``points`` what it is about.
    """

    nonce: str
    weights: str
    rows: str
    sum_digest: str
    points: str
    keys: Mapping[ClientId, str]


class MaskJournal:
    """A client's journal of one run: in a file, or in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._begin(secrets.token_hex(32))

    @property
    def secret(self) -> bytes:
        """What single-use keys are made of."""
        with self._open():
            return bytes.fromhex(self._secret)

    def use(self, used: Used) -> None:
        """Record that keys are used; any that was used for another question is refused.

        The others' keys, too: of one that is in two sums, one may open the key, the other the mask.
        """
        with self._open() as write:
            if self._used.get(used.nonce, used) != used:
                raise DataError(
                    "This client's key for a masked sum was used before, for another question; it "
                    "is used once. Resume the run, and new keys are made."
                )
            for other in self._used.values():
                again = set(other.keys.values()) & set(used.keys.values())
                if again and other.sum_digest != used.sum_digest:
                    name = next(name for name, key in used.keys.items() if key in again)
                    raise DataError(
                        f"The key given for {name!r} was in another masked sum before; it is used "
                        "once. Resume the run, and new keys are made."
                    )
            self._used[used.nonce] = used
            write({"used": asdict(used)})

    def reveal(
        self, sum_digest: str, answered: tuple[ClientId, ...], dropped: Mapping[ClientId, str]
    ) -> None:
        """Record whose self-masks are revealed, and with that whose keys are not, for good.

        ``dropped`` has the keys that are revealed: those of this sum, or they are refused.
        """
        with self._open() as write:
            used = self._find(sum_digest)
            if set(used.keys) != {*answered, *dropped}:
                raise DataError("The sum that is to be opened was over other clients.")
            for name, key in dropped.items():
                if key != used.keys[name]:
                    raise DataError(
                        f"The key of {name!r} that is to be opened is not the one in this sum."
                    )
            self._check_revealed(used, answered)
            self._revealed[sum_digest] = answered
            write({"revealed": {"sum_digest": sum_digest, "answered": answered}})

    def _find(self, sum_digest: str) -> Used:
        for used in self._used.values():
            if used.sum_digest == sum_digest:
                return used
        raise DataError(
            "This client has masked nothing for the sum that it is asked to open: the question is "
            "of another sum or another run."
        )

    def _check_revealed(self, used: Used, answered: tuple[ClientId, ...]) -> None:
        """Refuse a second list of clients, of the same sum or of one about the same points."""
        for other in self._used.values():
            known = self._revealed.get(other.sum_digest, answered)
            if known == answered or other.points != used.points:
                continue
            if other == used:
                raise DataError(
                    "This client has revealed its shares of this sum for another list of clients; "
                    "it does so once."
                )
            raise DataError(
                "This client has helped to open a sum over other clients at the same parameters; "
                "the difference of the two would be single clients' curvatures. Train with another "
                "`seed`."
            )

    @contextmanager
    def _open(self) -> Iterator[Callable[[Line], None]]:
        """The journal as it is now, nobody else's for now; a line is on the disk when written."""
        if self._path is None:
            yield lambda line: None
            return
        with locked(self._path) as file:
            self._read(file)
            yield lambda line: append(file, json.dumps(line).encode() + b"\n")

    def _begin(self, secret: str) -> None:
        self._secret = secret
        self._used: dict[str, Used] = {}  # by the key's nonce
        self._revealed: dict[str, tuple[ClientId, ...]] = {}  # who is in a sum, by its digest

    def _read(self, file: int) -> None:
        os.lseek(file, 0, os.SEEK_SET)
        with os.fdopen(os.dup(file), "rb") as lines:
            content = lines.read()
        try:
            self._parse(content)
        except (ValueError, KeyError, TypeError):
            self._begin(secrets.token_hex(32))
            os.ftruncate(file, 0)
            append(file, json.dumps({"secret": self._secret}).encode() + b"\n")

    def _parse(self, content: bytes) -> None:
        first, *lines = [json.loads(line) for line in content.splitlines()]
        if not content.endswith(b"\n"):
            raise ValueError("torn")
        self._begin(bytes.fromhex(first["secret"]).hex())
        for line in lines:
            if "used" in line:
                used = Used(**line["used"])
                self._used[used.nonce] = used
            else:
                given = line["revealed"]
                self._revealed[given["sum_digest"]] = tuple(given["answered"])
