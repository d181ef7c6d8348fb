"""Where a launch on data of real size spends its time and memory: ``python -m tests.bench data mf 20000000``.

Generates the input (matrix factorization, logistic regression or topics, of so many rows), launches a job on
it in the local world, unthrottled, and prints the time of each phase, and the peak memory and processor time
of each role. Without arguments: all three, small.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Final

import numpy as np

from tests.agileml.processes.played import plays
from tests.bench.support.measured_job import processor_s

SEED: Final = 0
BLOCK_ROWS: Final = 1 << 17
SAMPLE_EVERY_S: Final = 0.1
LABELS: Final = {
    "RunStarted": "plan, open the record",
    "Cut": "cut the input",
    "Joined": "start machines, load shards",
    "Trained": "train",
    "Ended": "save the model, close",
    "Final": "score",
}
ROLES: Final = ("worker", "server", "controller")


@dataclass(frozen=True, slots=True)
class Case:
    """``write(rows, folder)`` gives the name of the file it wrote."""

    app: str
    arguments: str
    rows: int
    clocks: int
    write: Callable[[int, Path], str]


def write_ratings(rows: int, folder: Path) -> str:
    """CSV of planted ratings: 140 for each user, items as unequal as MovieLens's."""
    rng = np.random.default_rng(SEED)
    users, items = max(1, rows // 140), max(1, rows // 740)
    left, right = (rng.normal(size=(count, 8)) * 8**-0.25 for count in (users, items))
    with (folder / "ratings.csv").open("w") as out:
        out.write("user,item,value\n")
        for count in _blocks(rows):
            user = rng.integers(users, size=count)
            item = (items * rng.random(count) ** 2).astype(np.int64)
            value = 3.0 + np.sum(left[user] * right[item], axis=1) + 0.3 * rng.normal(size=count)
            columns = zip(user.tolist(), item.tolist(), value.tolist(), strict=True)
            out.writelines(f"{u},{i},{v:.3f}\n" for u, i, v in columns)
    return "ratings.csv"


def write_classes(rows: int, folder: Path) -> str:
    """A label of five and a hundred features, float32 in one array without names."""
    rng = np.random.default_rng(SEED)
    weights = rng.normal(size=(100, 5)) * 0.3
    out = np.lib.format.open_memmap(folder / "classes.npy", "w+", np.float32, (rows, 101))
    first = 0
    for count in _blocks(rows):
        x = rng.normal(size=(count, 100))
        out[first : first + count, 0] = np.argmax(x @ weights + rng.gumbel(size=(count, 5)), axis=1)
        out[first : first + count, 1:] = x
        first += count
    out.flush()
    return "classes.npy"


def write_documents(rows: int, folder: Path) -> str:
    """CSV of texts of 5 to 15 words of 20 000; each has two of 20 topics."""
    rng = np.random.default_rng(SEED)
    topics, of_topic = 20, 1000
    words = np.array([f"w{''.join(chr(97 + int(digit)) for digit in f'{n:05}')}" for n in range(20_000)])
    with (folder / "documents.csv").open("w") as out:
        out.write("text\n")
        for count in _blocks(rows):
            lengths = rng.integers(5, 16, size=count)
            document = np.repeat(np.arange(count), lengths)
            topic = rng.integers(topics, size=(count, 2))[document, rng.integers(2, size=len(document))]
            frequent = (of_topic ** rng.random(len(document))).astype(np.int64)
            text = words[topic * of_topic + frequent - 1].tolist()
            begins = np.concatenate([[0], np.cumsum(lengths)]).tolist()
            out.writelines(f"{' '.join(text[a:b])}\n" for a, b in itertools.pairwise(begins))
    return "documents.csv"


CASES: Final[Mapping[str, Case]] = {
    "mf": Case("agileml.apps.mf:MatrixFactorization", "{rank: 8}", 200_000, 10, write_ratings),
    "mlr": Case("agileml.apps.mlr:LogisticRegression", "{}", 20_000, 10, write_classes),
    "lda": Case("agileml.apps.lda:LatentDirichletAllocation", "{topics: 10}", 20_000, 10, write_documents),
}


def main() -> None:
    """Measures one case, or each of them with few rows."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench data", description=main.__doc__)
    parser.add_argument("case", nargs="?", choices=sorted(CASES))
    parser.add_argument("rows", nargs="?", type=int, help="like 20000000")
    parser.add_argument("clocks", nargs="?", type=int)
    chosen = parser.parse_args(sys.argv[2:])
    for case in [CASES[chosen.case]] if chosen.case else CASES.values():
        measure(case, chosen.rows or case.rows, chosen.clocks or case.clocks)


def measure(case: Case, rows: int, clocks: int) -> None:
    with tempfile.TemporaryDirectory(prefix="spotctl-data-") as place:
        folder = Path(place)
        data = case.write(rows, folder)
        (folder / "job.yaml").write_text(
            f"name: data\napp: {case.app}\nargs: {case.arguments}\ndata: {data}\nstop: {{clocks: {clocks}}}\n"
            "resources:\n  reliable: {instance_type: c4.xlarge}\n"
            "  spot: {instance_types: [c4.xlarge], max_instances: 1}\nlocal: {throttle: off}\n"
        )
        size = (folder / data).stat().st_size
        print(
            f"\n{case.app.partition(':')[2]}: {rows} rows, {size / 1e6:.0f} MB; {clocks} clocks, seed {SEED}"
        )
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        run = Measured(folder)
        final = run.launch()
        print(f"ended with {final['exit_code']}: objective {final['objective']} {final['not_scored'] or ''}")
        run.report()


@dataclass(slots=True)
class Usage:
    """Of all processes of a role: the largest peak, and processor time by process."""

    peak_mb: float = 0.0
    processor: dict[int, float] = field(default_factory=dict)


class Measured:
    """A launch with what all its processes took, looked at many times a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._usage: dict[str, Usage] = defaultdict(Usage)
        self._marks: list[tuple[str, float, float]] = []

    def launch(self) -> dict[str, object]:
        """Runs the job to its end; the final object."""
        self._mark("begin")
        process = subprocess.Popen(
            [sys.executable, "-m", "spotctl", "launch", "job.yaml", "--yes", "--json", "--speed", "600"],
            cwd=self._folder,
            env={**os.environ, "SPOTCTL_HOME": str(self._folder / "home"), "PYTHONPATH": os.getcwd()},
            stdout=subprocess.PIPE,
            text=True,
        )
        over = Event()
        sampler = Thread(target=self._sample, args=(process.pid, over))
        sampler.start()
        line = ""
        assert process.stdout is not None
        for line in process.stdout:
            self._note(str(json.loads(line).get("event")))
        process.wait()
        self._mark("Final")
        over.set()
        sampler.join()
        final: dict[str, object] = json.loads(line)
        return final

    def _note(self, event: str) -> None:
        known = {mark for mark, _, _ in self._marks}
        if event == "JobStarted":
            self._mark("RunStarted")
        elif event == "Acquire" and "Cut" not in known:
            self._mark("Cut")
        elif event == "MachineJoined" and "Joined" not in known:
            self._mark("Joined")
        elif event == "TrainingFinished":
            self._mark("Trained")
        elif event == "RunEnded":
            self._mark("Ended")

    def _mark(self, name: str) -> None:
        self._marks.append((name, time.monotonic(), self._processor_s()))

    def _processor_s(self) -> float:
        return sum(sum(usage.processor.values()) for usage in self._usage.values())

    def _sample(self, root: int, over: Event) -> None:
        while not over.wait(SAMPLE_EVERY_S):
            for number, process, command in _processes(root, str(self._folder)):
                role = _role(number, process, root, command)
                usage = self._usage[role]
                with suppress(OSError, IndexError, StopIteration):  # it ended meanwhile
                    usage.processor[number] = processor_s(number)
                    usage.peak_mb = max(usage.peak_mb, _peak_mb(process))

    def report(self) -> None:
        total = self._marks[-1][1] - self._marks[0][1]
        print(f"{'phase':30}{'wall s':>9}{'cpu s':>9}{'share':>8}")
        outside = 0.0
        for (_, began, used), (name, ended, used_then) in zip(self._marks, self._marks[1:], strict=False):
            share = (ended - began) / total
            outside += 0.0 if name == "Trained" else share
            print(f"{LABELS[name]:30}{ended - began:9.1f}{used_then - used:9.1f}{share:8.0%}")
        print(f"{'all, and outside training':30}{total:9.1f}{self._processor_s():9.1f}{outside:8.0%}")
        print(f"{'role':30}{'peak MB':>9}{'cpu s':>9}")
        for role, usage in sorted(self._usage.items()):
            print(f"{role:30}{usage.peak_mb:9.0f}{sum(usage.processor.values()):9.1f}")


def _processes(root: int, folder: str) -> Iterator[tuple[int, Path, str]]:
    """Gives the launch's process and those that name its folder: machines, and who scores."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            command = (process / "cmdline").read_text()
            if int(process.name) == root or folder in command:
                yield int(process.name), process, command


def _role(number: int, process: Path, root: int, command: str) -> str:
    if number == root:
        return "spotctl"
    if "spotctl.engines.scoring" in command:
        return "scoring"
    return next((role for role in ROLES if plays(process, role)), "agent")


def _peak_mb(process: Path) -> float:
    lines = (process / "status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


def _blocks(rows: int) -> Iterator[int]:
    """Gives how many rows to write at once, until all are written."""
    for first in range(0, rows, BLOCK_ROWS):
        yield min(BLOCK_ROWS, rows - first)


if __name__ == "__main__":
    main()
