"""Defines ``schema``: prints the JSON Schema of a kind of file, for editors and other checks."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer


class FileKind(StrEnum):
    JOB = "job"
    QUEUE = "queue"


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` the verb of this module."""
    app.command("schema", epilog="Example: spotctl schema job > job.schema.json")(print_schema)


def print_schema(
    file: Annotated[FileKind, typer.Argument(help="Which kind of file.", show_default=False)],
) -> None:
    """Print the JSON Schema of job files or queue files.

    An editor completes and checks a file that begins with # yaml-language-server: $schema=job.schema.json.
    """
    if file is FileKind.JOB:
        from spotctl.job.file import job_schema as schema
    else:
        from spotctl.queue.file import queue_schema as schema
    print(json.dumps(schema(), indent=2))
