"""The trained model: put where the job wants it, and scored beside a trusted solver on the same data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from agileml.app import HasReference, Input
from agileml.hosts.job import JobFolder
from spotctl.report.final import Score


def keep_model(training: JobFolder, output: Path) -> Path:
    """Write ``output``/model.npz: ``model`` (rows, columns) float32, and what its rows mean.

    The file appears whole or not at all; one that is there is replaced.
    """
    output.mkdir(parents=True, exist_ok=True)
    with np.load(training.input / "index.npz", allow_pickle=False) as arrays:
        index = dict(arrays)
    shape = Input(training.input).shape
    model = training.load_model(shape, training.job().setup.partitions)
    partial = output / "model.partial.npz"
    np.savez(partial, model=model, **index)
    os.replace(partial, output / "model.npz")
    return output / "model.npz"


def score_model(training: JobFolder, data: Path) -> Score:
    """The objective of the saved model over the whole input, and a trusted solver's where there is one."""
    job = training.job()
    app, cut = job.make_application(), Input(training.input)
    model = training.load_model(cut.shape, job.setup.partitions)
    total = count = 0.0
    for number in range(job.setup.shards):
        shard = cut.shard(number)
        outcome = app.process(shard, model[app.rows(shard)], (number, 0))
        total, count = total + outcome.total, count + outcome.count
    reference = app.reference_objective(data) if isinstance(app, HasReference) else None
    name = app.reference_name if isinstance(app, HasReference) else None
    return Score(app.metric, app.objective(total, count), reference, name)
