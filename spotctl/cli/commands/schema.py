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
    app.command("schema")(print_schema)


def print_schema(
    file: Annotated[FileKind, typer.Argument(metavar="KIND", help="Kind of file.", show_default=False)],
) -> None:
    """Print the JSON Schema of job files or queue files.

    Editors with a YAML language server complete and check a file whose first line is
    `# yaml-language-server: $schema=job.schema.json`.

    \b
    Examples:
      spotctl schema job > job.schema.json
      spotctl schema queue > queue.schema.json
    """
    if file is FileKind.JOB:
        from spotctl.job.file import job_schema as schema
    else:
        from spotctl.queue.file import queue_schema as schema
    print(json.dumps(schema(), indent=2))
