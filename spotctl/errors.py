"""Defines the errors, named by what the caller does next.

    SpotctlError                1  the job failed, or something below could not be done
    ├── UsageError              2  the command line or a file is wrong; nothing was started
    │   ├── JobFileError        2  the same, with every problem of the file and where it stands
    │   └── JobError            2  a job asks for what prices, machines or the application do not have
    ├── NothingToDo             3  it was done already, or the user declined
    ├── AlreadyRunning          8  the job or the queue runs already, and no option says what to do then
    ├── DeadlineInfeasible      6  a deadline or a budget cannot be met, or was missed
    ├── LedgerError             1  the record of a run cannot be read or written
    ├── Interrupted             7  a person or a signal ended it; the message says what is left
    └── ProviderError           1  a cloud refused; raised by providers only
        ├── CredentialsRejected 4  drop this cloud for the rest of the run
        ├── CapacityUnavailable 5  try another market
        ├── QuotaExceeded       5  tell the user: asking again changes nothing
        ├── Throttled           1  wait, then ask again
        ├── InstanceNotFound    1  already gone: a release of it is done
        └── BadRequest          1  we asked for something that does not exist: a bug, stop

The number is the exit code when nothing above handles the error. A message says what was tried and
what to try; it is complete without the traceback. This module imports nothing, so that the core may
raise these errors and the command line may catch them without loading anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class SpotctlError(Exception):
    """Base of all errors that are not bugs."""

    exit_code: ClassVar[int] = 1


class UsageError(SpotctlError):
    """The command line or a file it names is wrong."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """Locates one thing wrong in a file. ``line`` and ``column`` count from 1, as editors do."""

    file: str
    line: int
    column: int
    field: str
    """Dotted path of the key ("resources.spot.cpus"); empty where the file as a whole is meant."""
    message: str

    def __str__(self) -> str:
        subject = f"{self.field}: " if self.field else ""
        return f"{self.file}:{self.line}:{self.column}: {subject}{self.message}"


class JobFileError(UsageError):
    """Lists all problems of one job file, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class JobError(UsageError):
    """Reports a field of a job that its file alone could not show to be wrong. ``field``: dotted, as a
    Problem's.

    A caller that knows the file adds where the field stands (``locations.locate_errors``).
    """

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


class NothingToDo(SpotctlError):
    """The request is done already, or the user declined it."""

    exit_code = 3


class AlreadyRunning(SpotctlError):
    """Another process runs the job or the queue; nothing was started."""

    exit_code = 8


class DeadlineInfeasible(SpotctlError):
    """No allowed choice meets the deadline or the budget."""

    exit_code = 6


class LedgerError(SpotctlError):
    """The record of a run cannot be read or written."""


class Interrupted(SpotctlError):
    """A user or a signal ended the run; the message says whether the job goes on or was torn down."""

    exit_code = 7


class ProviderError(SpotctlError):
    """A provider could not do what it was asked to."""


class CredentialsRejected(ProviderError):
    """The cloud does not let us in, or not do this."""

    exit_code = 4


class CapacityUnavailable(ProviderError):
    """This market has no machines to give now."""

    exit_code = 5


class QuotaExceeded(ProviderError):
    """The account may not hold more of these."""

    exit_code = 5


class BadRequest(ProviderError):
    """The request makes no sense to the provider: asking again would not help, nor would asking elsewhere."""


class Throttled(ProviderError):
    """The provider was asked too often. ``retry_after_s`` is its own advice, where it gave any."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class InstanceNotFound(ProviderError):
    """The provider does not know the instance, or no longer does."""
