"""Locates an error about one job of a queue: names the job, its file, and its line in the queue's file.

attribute_errors_to  around code that handles one job by itself
locate_errors_in     around all that a command does with a queue
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spotctl.errors import JobError, JobFileError, Problem
from spotctl.job.locations import find_field
from spotctl.queue.file import list_jobs
from spotctl.schema.document import read_text


class MemberError(JobError):
    """Reports a field of the job that the queue knows as ``job``."""

    def __init__(self, job: str, error: JobError) -> None:
        super().__init__(error.field, error.message)
        self.job = job

    def __str__(self) -> str:
        return f"{self.job}: {self.field}: {self.message}"


@contextmanager
def attribute_errors_to(job: str) -> Iterator[None]:
    """Turns a JobError inside into a MemberError, which names ``job``."""
    try:
        yield
    except JobError as error:
        raise MemberError(job, error) from error


@contextmanager
def locate_errors_in(queue: Path) -> Iterator[None]:
    """Turns a MemberError inside into a JobFileError with the lines of the field and of the job."""
    try:
        yield
    except MemberError as error:
        entry = next((entry for entry in list_jobs(queue) if entry.name == error.job), None)
        # A job that a request added is not in the file: its name has to do.
        if entry is None:
            raise
        line, column = find_field(read_text(entry.file), error.field)
        message = f"{error.message} (the job {error.job}, {queue}:{entry.line})"
        raise JobFileError([Problem(str(entry.file), line, column, error.field, message)]) from error
