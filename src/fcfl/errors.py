"""The tree of errors.

FCFLError
├── DataError (also a ValueError)   a table, column or built-in set cannot be used
│   └── ManyClients                 a column names so many clients that it may be the wrong one
├── ReportError                     a reply is not a valid report, or not from a client of the run
├── AbsentClientError               a client did not reply and its last report is too old
├── CheckpointError                 a checkpoint is torn, missing or of another run
├── MethodError                     a method returned an invalid state or request
├── Interrupted                     a run was stopped from outside and can be resumed
└── SolverError                     an inner solver failed on a problem that has a solution

Bad arguments raise ``ValueError`` or ``TypeError``.
"""


class FCFLError(Exception):
    """Base of the errors of this package."""


class DataError(FCFLError, ValueError):
    """A table, column or built-in data set cannot be used."""


class ManyClients(DataError):
    """There are so many clients, ``count``, that the column may be the wrong one."""

    def __init__(self, what: str, count: int) -> None:
        super().__init__(
            f"{what}. If each of them is a client, use `--max-clients {count}`; otherwise name "
            "another column as `--client`."
        )
        self.what, self.count = what, count


class ReportError(FCFLError):
    """A reply is not a valid report, or its sender is not part of the run."""


class AbsentClientError(FCFLError):
    """A client did not reply, and its last report is older than allowed."""


class CheckpointError(FCFLError):
    """A checkpoint is torn, missing or belongs to another run."""


class MethodError(FCFLError):
    """A method returned an invalid state or request."""


class SolverError(FCFLError):
    """An inner solver failed on a problem that has a solution."""


class Interrupted(FCFLError):
    """A run was stopped from outside; its state is in its checkpoint."""
