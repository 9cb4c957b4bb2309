"""The hierarchy of exceptions.

FCFLError
├── DataError (also a ValueError)   a table, column or built-in data set cannot be used
│   └── ManyClients                 the client column may be the wrong one: too many clients
├── ReportError                     a reply is not a valid report, or not from a client of the run
├── AbsentClientError               a client did not reply and its last report is too old
├── CheckpointError                 a checkpoint is damaged, missing or belongs to another run
├── MethodError                     a method returned an invalid state or request
├── Interrupted                     a run was interrupted and can be resumed
└── SolverError                     an inner solver failed on a problem that has a solution

Bad arguments raise ``ValueError`` or ``TypeError``.
"""


class FCFLError(Exception):
    """Base class of this package's exceptions."""


class DataError(FCFLError, ValueError):
    """A table, column or built-in data set cannot be used."""


class ManyClients(DataError):
    """The client column has so many values, ``count``, that it may be the wrong column."""

    def __init__(self, what: str, count: int) -> None:
        super().__init__(
            f"{what}. If each of them is a client, use `--max-clients {count}`. Otherwise choose "
            "another column with `--client`."
        )
        self.what, self.count = what, count


class ReportError(FCFLError):
    """A reply is not a valid report, or its sender is not part of the run."""


class AbsentClientError(FCFLError):
    """A client did not reply, and its last report is older than allowed."""


class CheckpointError(FCFLError):
    """A checkpoint is damaged, missing or belongs to another run."""


class MethodError(FCFLError):
    """A method returned an invalid state or request."""


class SolverError(FCFLError):
    """An inner solver failed on a problem that has a solution."""


class Interrupted(FCFLError):
    """A run was interrupted; its checkpoint has the last state."""
