"""Writes ``docs/job-file.md``: every key of job and queue files, from what reads them.

``python -m spotctl.cli.file_reference > docs/job-file.md``
"""

from __future__ import annotations

from collections.abc import Iterable
from string import Template
from typing import Final

from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM, ELASTIC_TRAINING
from spotctl.job.file import job_table
from spotctl.job.keys import command, elastic
from spotctl.job.keys.shared import ELASTIC_LOCAL_KEYS, LOCAL_KEYS, objective_keys
from spotctl.job.spec import DEFAULT_STRATEGY, STRATEGIES, JobSpec
from spotctl.queue.file import JOB_ENTRY, queue_table
from spotctl.schema.markdown import write_table
from spotctl.schema.table import Key, KeyTable

_PAGE: Final = Template("""\
# The job file

Generated from what reads the files; `python -m spotctl.cli.file_reference > docs/job-file.md` writes it
anew.

YAML, read strictly: an unknown key, a value of the wrong kind and a file that is not there are all said
at once, with their lines, and the exit code is 2. Paths are relative to the job's file. Durations have a
unit (`90s`, `15m`, `6h`, `1h30m`), sizes too (`500MB`, `2GB`, `1GiB`), money is dollars. [The queue's
file](#a-queues-file) is below.

An editor with a YAML language server completes and checks a job file that begins with

```yaml
# yaml-language-server: $$schema=job.schema.json
run: python train.py
```

once `spotctl schema job > job.schema.json` has written that file; `spotctl schema queue` writes the one
for queues.

A job is of the elastic trainer (it has an `app`) or any program that checkpoints (it has `run`). The
least that either has to say:

```yaml
app: agileml.apps.mf:MatrixFactorization
data: ratings.csv.gz
stop: {clocks: 100}
resources:
  reliable: {instance_type: m4.xlarge}
  spot: {max_instances: 8}
```

```yaml
run: python train.py
```

A task of SkyPilot, a configuration of dstack and a job of AWS Batch are recognised, and answered with
what each of their keys is here.

## Of every job

$every_job

### `resources.spot`

What is left out allows everything.

$spot

### `resources.reliable`

Machines on demand that keep the model, of the elastic trainer alone.

$reliable

### `objective`

$objective

### `scaling`

$scaling

### `local`

$local

## Of the elastic trainer

$elastic

### `training`

$training

### `checkpoint` of the elastic trainer

$elastic_checkpoint

## Of a command

[Command jobs](command-jobs.md) has what the program may count on.

$command

### `scaling` of a command

Beside `sigma` and `measure`, as above, it has

$command_scaling

With neither it is taken to be no faster on any machine than on the type that `work.on` names (without
`work`, than on the smallest it may use), and slower in proportion where cores are fewer, until `measure:
true` lets its progress show more. Plans, promises, replays and comparisons rest on that alike.

### `checkpoint` of a command

`checkpoint: off` says that the program keeps nothing and begins anew on every machine. A file that says
nothing of checkpoints is taken to write them, and warned of what it would cost if it did not.

$command_checkpoint

## A queue's file

$queue

### One of its `jobs`

$queue_job
""")


def build_file_reference() -> str:
    """Returns the reference in Markdown."""
    trainer, program = job_table(ELASTIC_TRAINING.kind), job_table(CHECKPOINTING_PROGRAM.kind)
    tables = {
        "every_job": _select_keys(trainer, program, shared=True),
        "spot": elastic.SPOT.keys,
        "reliable": elastic.RELIABLE.keys,
        "objective": objective_keys(STRATEGIES, DEFAULT_STRATEGY),
        "scaling": elastic.SCALING.keys,
        "local": (*LOCAL_KEYS, *ELASTIC_LOCAL_KEYS),
        "elastic": _select_keys(trainer, program, shared=False),
        "training": elastic.TRAINING.keys,
        "elastic_checkpoint": elastic.CHECKPOINT.keys,
        "command": _select_keys(program, trainer, shared=False),
        "command_scaling": command.GAIN_KEYS,
        "command_checkpoint": command.CHECKPOINT.keys,
        "queue": queue_table().keys,
        "queue_job": JOB_ENTRY.keys,
    }
    return _PAGE.substitute({name: write_table(keys) for name, keys in tables.items()})


def _select_keys(table: KeyTable[JobSpec], other: KeyTable[JobSpec], *, shared: bool) -> Iterable[Key]:
    """Returns the keys of ``table`` that ``other`` has too, or those that it does not have."""
    names = {key.name for key in other.keys}
    return (key for key in table.keys if (key.name in names) is shared)


if __name__ == "__main__":
    print(build_file_reference(), end="")
