"""Provides job files to begin with: one for each bundled application and one for a program."""

from __future__ import annotations

import os
from pathlib import Path
from string import Template
from typing import Final

import yaml

from spotctl.job.choices import JobKind

_HEAD: Final = Template("""\
# A job file of spotctl. Look at what it would do: spotctl plan $file
# Every key, with its default: docs/job-file.md
""")
_MACHINES: Final = """\
resources:
  reliable: {instance_type: m4.xlarge}    # one machine that keeps the model
  spot:
    clouds: [aws]
    regions: [us-east-1]
    instance_types: [c4.xlarge, m4.xlarge]
    max_instances: 8                      # the most machines at once
    max_per_allocation: 4                 # machines that are bought, and taken away, together
checkpoint: {store: checkpoints, every: 10}  # clocks; with it that one machine may run on spot too
# objective: {deadline: 6h, budget: 5.00} # a deadline is promised, or the launch is refused
# local: {core_seconds_per_clock: 600}    # where the estimate of spotctl plan is not the work of a clock
output: models                            # models/latest/model.npz is the newest
"""
_ELASTIC: Final[dict[JobKind, str]] = {
    JobKind.MF: """\
app: agileml.apps.mf:MatrixFactorization
args: {rank: 16, regularization: 0.02}
data: $data
# columns: {user: userId, item: movieId, value: rating}  # where the headers are not recognised
stop: {clocks: 200, converged: {metric: rmse, delta: 1e-4}}  # whichever comes first
""",
    JobKind.MLR: """\
app: agileml.apps.mlr:LogisticRegression
args: {regularization: 1.0}
data: $data
# columns: {label: species, others: [x1, x2]}  # which column is the class, and which are features
stop: {clocks: 300, converged: {metric: log loss, delta: 1e-5}}  # whichever comes first
""",
    JobKind.LDA: """\
app: agileml.apps.lda:LatentDirichletAllocation
args: {topics: 20, vocabulary: 10000}
data: $data
# columns: {text: body}  # or bags of words: doc, word and count; UCI's docword files as they are
stop: {clocks: 100}
""",
}
_COMMAND: Final = """\
run: $command
workdir: .                                # copied to the machine
# setup: pip install -r requirements.txt  # once on every machine
# secrets: [HF_TOKEN]                     # of your environment; in no file, record or log
# The program appends {"step": 120} to $$SPOTCTL_PROGRESS_FILE, writes checkpoints to $$SPOTCTL_CHECKPOINT_DIR
# and begins with $$SPOTCTL_CHECKPOINT: docs/command-jobs.md
checkpoint: {every: 10m}
# work: {steps: 5000, takes: 3h, on: c4.xlarge}  # how much work it is; plans and deadlines rest on it
resources:
  spot: {clouds: [aws], regions: [us-east-1], instance_types: [c4.xlarge, m4.xlarge]}
# objective: {deadline: 8h, budget: 5.00} # a deadline is promised, or the launch is refused
output: results                           # results/latest has the last checkpoint
"""


def job_file(kind: JobKind, what: str, file: Path) -> str:
    """Returns the text of the job file that is to be ``file``.

    ``what``: its data, or the command of a program. Existing data is named as ``file`` will find it.
    """
    head = _HEAD.substitute(file=file.name)
    if kind is JobKind.COMMAND:
        return head + Template(_COMMAND).substitute(command=_yaml_scalar(what))
    return (
        head
        + Template(_ELASTIC[kind]).substitute(data=_yaml_scalar(_seen_from(file.parent, what)))
        + _MACHINES
    )


def _seen_from(folder: Path, data: str) -> str:
    if "://" in data or Path(data).is_absolute() or not Path(data).exists():
        return data
    return os.path.relpath(data, folder)


def _yaml_scalar(text: str) -> str:
    """Returns the text on one line, as YAML reads it back."""
    return yaml.safe_dump(text, width=10**9, default_flow_style=True).removesuffix("...\n").strip()
