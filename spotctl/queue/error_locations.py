"""Whose field an error is about, of many jobs: the job's name, its file, and where the queue's file lists it.

about      while one job is looked at by itself
placed_in  around all that a command does with a queue
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spotctl.errors import JobError, JobFileError, Problem
from spotctl.job.locations import place
from spotctl.job.yaml_reader import read_text
from spotctl.queue.file import entries


class MemberError(JobError):
    """A field of the job that the queue knows as ``job``."""

    def __init__(self, job: str, error: JobError) -> None:
        super().__init__(error.field, error.message)
        self.job = job

    def __str__(self) -> str:
        return f"{self.job}: {self.field}: {self.message}"


@contextmanager
def about(job: str) -> Iterator[None]:
    """While inside, a JobError says which job it is about: as a MemberError."""
    try:
        yield
    except JobError as error:
        raise MemberError(job, error) from error


@contextmanager
def placed_in(queue: Path) -> Iterator[None]:
    """While inside, a MemberError says where in the job's file its field stands, and where ``queue`` lists
    the job: as a JobFileError. A job that was added has its name alone.
    """
    try:
        yield
    except MemberError as error:
        entry = next((entry for entry in entries(queue) if entry.name == error.job), None)
        if entry is None:
            raise
        line, column = place(read_text(entry.file), error.field)
        message = f"{error.message} (the job {error.job}, {queue}:{entry.line})"
        raise JobFileError([Problem(str(entry.file), line, column, error.field, message)]) from error
