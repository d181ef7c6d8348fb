"""Reads and checks the job file, by the keys that its engine's jobs have (``spotctl.job.keys``).

``load_job`` returns a ``JobSpec`` in which every default is filled in and every path is absolute, or
raises JobFileError with all problems of the file.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM, ELASTIC_TRAINING
from spotctl.job.keys.command import COMMAND_JOB
from spotctl.job.keys.elastic import ELASTIC_JOB
from spotctl.job.keys.kinds import JOB_NAME
from spotctl.job.keys.shared import NAME_KEY, engine_key
from spotctl.job.other_tools import refuse_foreign
from spotctl.job.spec import JobSpec
from spotctl.schema.document import open_document, read_text
from spotctl.schema.kinds import JsonSchema, Place
from spotctl.schema.table import KeyTable, Section

JOB_TABLES: Final[dict[str, KeyTable[JobSpec]]] = {
    ELASTIC_TRAINING.kind: ELASTIC_JOB,
    CHECKPOINTING_PROGRAM.kind: COMMAND_JOB,
}
"""The keys of each engine's jobs, beside name and engine; ``spotctl.engines.registry.register_engine`` adds
to them. A value ``name`` is added to those from which a table makes its job."""


def load_job(path: Path) -> JobSpec:
    """Reads and checks a job file. Raises JobFileError with every problem in it."""
    return parse_job(read_text(path), str(path), path.resolve().parent)


def parse_job(text: str, file: str, folder: Path) -> JobSpec:
    """Reads a job from text; messages name ``file``, and paths are relative to ``folder``."""
    document, node = open_document(text, file, folder)
    root = Section(Place(document, ""), node)
    if "jobs" in root and "resources" not in root:
        document.refuse(None, "found a queue's file, expected a job's; `spotctl queue run` takes queues")
    refuse_foreign(document, root)
    inferred = CHECKPOINTING_PROGRAM if "run" in root and "app" not in root else ELASTIC_TRAINING
    named = root.word_at("engine")
    engine = named if named in JOB_TABLES else inferred.kind
    spec = job_table(engine, Path(file).stem).read_section(root)
    document.raise_if_wrong()
    return spec


def job_table(engine: str, stem: str = "job") -> KeyTable[JobSpec]:
    """Returns all keys of an engine's jobs. ``stem``: of the file's name, which names the job by default."""
    table = JOB_TABLES[engine]
    needs = "" if re.fullmatch(JOB_NAME, stem) else NAME_KEY.kind.expected
    name = replace(NAME_KEY, default=stem, needs=needs)

    def make(section: Section, values: dict[str, Any]) -> JobSpec:
        del values["engine"]
        return table.make(section, values)

    return replace(table, make=make, keys=(name, engine_key(tuple(JOB_TABLES)), *table.keys))


def job_schema() -> JsonSchema:
    """Returns the JSON Schema of job files, of every registered engine."""
    tables = {engine: job_table(engine) for engine in JOB_TABLES}
    is_named = {
        engine: {"required": ("engine",), "properties": {"engine": {"const": engine}}} for engine in tables
    }
    unnamed = {"not": {"required": ("engine",)}}
    is_program = {"allOf": (unnamed, {"required": ("run",)}, {"not": {"required": ("app",)}})}
    is_elastic = {"allOf": (unnamed, {"not": is_program})}
    inferred = {CHECKPOINTING_PROGRAM.kind: is_program, ELASTIC_TRAINING.kind: is_elastic}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A job file of spotctl",
        "type": "object",
        "properties": {
            key.name: {"description": key.description} if key.name != "engine" else key.schema
            for table in tables.values()
            for key in table.keys
        },
        "additionalProperties": False,
        "allOf": tuple(
            {
                "if": {"anyOf": (is_named[engine], inferred[engine])}
                if engine in inferred
                else is_named[engine],
                "then": {"$ref": f"#/$defs/{engine}"},
            }
            for engine in tables
        ),
        "$defs": {engine: table.schema for engine, table in tables.items()},
    }
