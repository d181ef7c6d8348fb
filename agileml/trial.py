"""Measures how long a clock of an application takes one core, on a part of its input.

``python -m agileml.trial`` reads a ``Trial`` as JSON and writes a ``ClockTime``. It runs in a process of its
own, so that the planner of a job can end it: the code is the application's author's. Two parts of different
size are tried. The range covers what a row takes in each of them and from run to run, widened by ``_MARGIN``.
It knows neither markets nor how long clocks take on other computers.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from agileml.api import (
    Application,
    ApplicationError,
    ApplicationFault,
    Called,
    calling_application,
    load_application,
)
from agileml.data.sampling import MOST_VALUES, Sample

TAKES_AT_MOST_S: Final = 60.0
"""A trial takes three seconds on an idle computer. A limit of processor time would make its clock coarse."""
_EACH_S: Final = 0.7
"""Processor time for which each of the two parts is tried."""
_MARGIN: Final = 1.25
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Trial:
    """Describes a trial. ``rows``: of the whole input; ``shards``: into how many it is to be cut."""

    application: str
    arguments: Mapping[str, Any]
    data: str
    rows: int
    shards: int
    columns: Called = field(default_factory=dict)
    """What the application's columns are called in the data."""


@dataclass(frozen=True, slots=True)
class ClockTime:
    """Core-seconds of a clock of the whole input. ``rows_tried``: of the larger of the two parts."""

    core_seconds: float
    low: float
    high: float
    rows_tried: int


def measure_clock(
    trial: Trial, at_most_s: float = TAKES_AT_MOST_S, memory_bytes: int | None = None
) -> ClockTime:
    """Runs the trial in a process that is gone when this returns. Raises ApplicationError where it fails.

    ``at_most_s``: wall-clock limit. ``memory_bytes``: how much memory it may use; None: as much as there is.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "agileml.trial"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_ONE_THREAD},
        start_new_session=True,
        text=True,
    ) as process:
        try:
            request = json.dumps({**asdict(trial), "memory_bytes": memory_bytes})
            answer, trouble = process.communicate(request, at_most_s)
        except subprocess.TimeoutExpired as error:
            raise ApplicationError(
                f"measuring a clock takes more than {at_most_s:g} s, and was ended"
            ) from error
        finally:
            if process.poll() is None:
                # The whole group: an application may have started processes of its own.
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        last = trouble.strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise ApplicationError(f"measuring a clock failed: {last[0]}")
    return ClockTime(**json.loads(answer))


def run_trial(trial: Trial, most_values: int = MOST_VALUES, each_s: float = _EACH_S) -> ClockTime:
    """Tries the application in this process. Raises ApplicationError where it, or its input, fails."""
    app = load_application(trial.application, trial.arguments)
    per_row, tried = [], 0
    for part in (most_values // 4, most_values):
        shard = _make_shard(app, Sample(trial.data, app.columns, trial.columns, part), trial)
        times = sorted(_time_clocks(app, shard, each_s))
        # The faster half: what else the computer does only makes clocks longer.
        per_row += [seconds / shard.rows for seconds in times[: len(times) // 2 + 1]]
        tried = max(tried, shard.rows)
    middle = float(np.median(per_row))
    return ClockTime(
        middle * trial.rows,
        min(per_row) / _MARGIN * trial.rows,
        max(per_row) * _MARGIN * trial.rows,
        tried,
    )


def _make_shard(app: Application, sample: Sample, trial: Trial) -> Sample:
    """Returns the first rows of the sample, at most as many as a shard has.

    Where shards are ranges of a key, a shard has all rows of a key. In rows in another order the first ones
    have a few rows of each key. There, keys are made as few as so many rows have in the whole.
    """
    rows = min(sample.rows, max(1, trial.rows // trial.shards))
    batches = list(sample.batches())
    first = {name: np.concatenate([batch[name] for batch in batches])[:rows] for name in batches[0]}
    with calling_application("survey"):
        key = app.survey(sample, 1).key
    if key is None or np.all(first[key][1:] >= first[key][:-1]):
        return sample.with_rows(first)
    kinds, place = np.unique(first[key], return_inverse=True)
    there = max(1, round(len(kinds) * rows / trial.rows))
    return sample.with_rows({**first, key: kinds[place % there]})


def _time_clocks(app: Application, sample: Sample, for_s: float) -> Iterator[float]:
    """Yields core-seconds of clocks of the sample as one shard, until ``for_s`` are over."""
    with calling_application("survey"):
        survey = app.survey(sample, 1)
    (rows,) = sample.batches()
    with calling_application("prepare"):
        shard = app.prepare(rows, np.arange(sample.rows), survey)
    read = app.rows(shard)
    with calling_application("initial"):
        values = app.initial(read, survey.shape)
    began, clock = time.process_time(), 0
    while not clock or time.process_time() - began < for_s:
        at = time.process_time()
        with calling_application("process"):
            outcome = app.process(shard, values, (0, clock))
        clock += 1
        # The clock of processor time is coarse: a short clock may seem to take none.
        yield max(time.process_time() - at, 1e-9)
        if len(outcome.delta.rows) == len(read):
            values = values + outcome.delta.values


def main() -> None:
    """Answers one trial."""
    asked_for = json.load(sys.stdin)
    memory = asked_for.pop("memory_bytes")
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        found = run_trial(Trial(**asked_for))
    except (ApplicationError, ApplicationFault, MemoryError) as error:
        print(str(error) or "it takes more memory than there is", file=sys.stderr)
        raise SystemExit(1) from error
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
