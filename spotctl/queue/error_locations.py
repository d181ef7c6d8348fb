"""Locates errors about one of many jobs: the job's name, its file, and where the queue's file lists it.

about      around code that handles one job by itself
placed_in  around all that a command does with a queue
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
    """Turns a MemberError inside into a JobFileError, which locates the field and the job's place in
    ``queue``.

    A job that was added has no place in the file; its error keeps the name alone.
    """
    try:
        yield
    except MemberError as error:
        entry = next((entry for entry in list_jobs(queue) if entry.name == error.job), None)
        if entry is None:
            raise
        line, column = find_field(read_text(entry.file), error.field)
        message = f"{error.message} (the job {error.job}, {queue}:{entry.line})"
        raise JobFileError([Problem(str(entry.file), line, column, error.field, message)]) from error
