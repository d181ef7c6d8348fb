"""Scores a saved model once its run is over and paid for: its objective, and a trusted solver's beside it.

A process of its own does that (``python -m spotctl.engines.scoring``). Its parent can end it at any moment,
as a solver may take hours, or unlimited memory; what it found by then counts. It prints what it finds as
lines of JSON, and ends with its reader.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final

from agileml.api import ApplicationError, HasReference, calling_application
from agileml.job import JobFolder
from agileml.node.agent.process_tree import machine_environment
from spotctl.report.final import Score, Unscored
from spotctl.timesource import stopwatch

_SHARE_OF_TRAINING: Final = 0.1
_LEAST_S: Final = 10.0
"""A process takes a second or two to start and to read a small input, several on a busy computer."""
_MOST_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.2
INTERRUPTED: Final = "scoring was interrupted"


def limit_s(training_s: float) -> float:
    """Returns how long scoring may take after so many real seconds of training."""
    return max(_LEAST_S, min(_MOST_S, _SHARE_OF_TRAINING * training_s))


@dataclass(frozen=True, slots=True)
class Scoring:
    """Describes a model that can be scored.

    ``training``: the job's folder; ``data``: the input it was trained on; ``envs``: variables of the job.
    """

    training: Path
    data: str
    envs: Mapping[str, str] = field(default_factory=dict)

    def score_model(self, limit_s: float, stopped: Callable[[], bool]) -> Score | Unscored:
        """Scores the model in at most ``limit_s`` seconds, and only until ``stopped()``.

        KeyboardInterrupt ends the scoring at once, but not the caller.
        """
        found: dict[str, Any] = {}
        why = f"it took more than the {limit_s:.0f} s that scoring may take"
        child = subprocess.Popen(
            [sys.executable, "-m", "spotctl.engines.scoring", str(self.training), self.data],
            stdin=subprocess.PIPE,  # its end tells the child that this process is gone
            stdout=subprocess.PIPE,
            env={**machine_environment(), **self.envs},
            process_group=0,  # Ctrl-C of a terminal is this process's to answer
        )
        try:
            until = stopwatch() + limit_s
            for line in _read_lines(child, lambda: stopwatch() > until or stopped()):
                found |= json.loads(line)
            if stopwatch() <= until and child.poll() is None:
                why = INTERRUPTED
            elif child.poll() is not None:
                why = found.get("why", f"the process that scored it ended with status {child.returncode}")
        except KeyboardInterrupt:
            why = INTERRUPTED
        finally:
            child.kill()
            child.communicate()
        return _build_score(found, why)


def _read_lines(child: subprocess.Popen[bytes], over: Callable[[], bool]) -> Iterator[bytes]:
    """Yields what the child prints, line by line, until it ends or ``over()`` is true."""
    assert child.stdout is not None
    pending = b""
    while not over():
        if not select.select([child.stdout], [], [], _LOOK_EVERY_S)[0]:
            continue
        said = os.read(child.stdout.fileno(), 1 << 16)
        if not said:
            child.wait()
            return
        *whole, pending = (pending + said).split(b"\n")
        yield from whole


def _build_score(found: dict[str, Any], why: str) -> Score | Unscored:
    """Builds the score from what was found; ``why`` it ended before it was complete, if it did."""
    if "value" not in found:
        return Unscored(why)
    sweeps, converged = found.get("sweeps", 0), "converged" in found
    missing = None
    if found["reference_name"] is not None and not converged:
        missing = f"after {sweeps} sweeps: {why}" if sweeps else f"not done: {why}"
    return Score(found["metric"], found["value"], found.get("reference"), found["reference_name"], missing)


# ---- in the process of its own -------------------------------------------------------------------


def find_score(training: JobFolder, data: str) -> Iterator[dict[str, Any]]:
    """Yields the saved model's objective over the whole input, then the trusted solver's after each sweep."""
    job = training.read_job()
    app, cut = job.make_application(), training.open_input()
    model = training.load_model(cut.shape, job.setup.partitions)
    total = count = 0.0
    with calling_application("scoring the model"):
        for number in range(job.setup.shards):
            shard = cut.read_shard(number)
            outcome = app.process(shard, model[app.rows(shard)], (number, 0))
            total, count = total + outcome.total, count + outcome.count
        value = float(app.objective(total, count))
    # Frees the memory for the trusted solver.
    del model
    name = app.reference_name if isinstance(app, HasReference) else None
    yield {"metric": app.metric, "value": value, "reference_name": name}
    if isinstance(app, HasReference):
        from agileml.data.tables import Table  # brings pandas and DuckDB

        with calling_application("the trusted solver"):
            for sweeps, reference in enumerate(
                app.reference_objectives(Table(data, app.columns, called=job.columns)), start=1
            ):
                yield {"reference": float(reference), "sweeps": sweeps}
        yield {"converged": True}


def main() -> None:
    """Scores the model of a job's folder, and prints what it finds on standard output."""
    Thread(target=_end_with_parent, daemon=True).start()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps what an application prints out of the results
    try:
        for found in find_score(JobFolder(Path(sys.argv[1])), sys.argv[2]):
            print(json.dumps(found), file=out, flush=True)
    except (ApplicationError, OSError) as error:
        print(json.dumps({"why": str(error)}), file=out, flush=True)


def _end_with_parent() -> None:
    """Ends this process when no process holds the other end of its standard input any more."""
    os.read(0, 1)  # by the file's number: a reader of ``sys.stdin`` could not be left behind at the end
    os._exit(1)


if __name__ == "__main__":
    main()
