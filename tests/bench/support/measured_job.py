"""A real job to measure: processes on this machine, their progress, and the processor time they take."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from agileml.client import TrainingClient
from agileml.job import JobFolder, TrainingJob
from agileml.node.hosts.local import HERE, MachineLocation
from agileml.node.tier import Tier
from agileml.protocol.commands import JoinedTraining, Progressed
from agileml.protocol.events import MachineJoined
from agileml.protocol.telemetry import Upward
from agileml.training_host import TrainingHost
from tests.agileml.processes.played import plays

PATIENCE_S = 180.0


class MeasuredJob:
    """``heard``: everything the client heard, and when, by ``time.perf_counter``."""

    def __init__(
        self,
        path: Path,
        job: TrainingJob,
        source: Path,
        where: Callable[[str], MachineLocation] = lambda _: HERE,
    ) -> None:
        """``where`` a machine of some name is to run."""
        self.folder = JobFolder.prepare(path / "job", job, source)
        self.host = TrainingHost(self.folder.path)
        self._where = where
        self.client = TrainingClient(self.folder.path)
        self.heard: list[tuple[float, Upward]] = []

    def start(self, *machines: str, cores: int = 1) -> None:
        """Until all of them take part. Names that begin with "r" are reliable."""
        for name in machines:
            tier = Tier.RELIABLE if name.startswith("r") else Tier.TRANSIENT
            self.host.start_machine(name, tier, cores, self._where(name))
            self.client.send_events(MachineJoined(name, tier, cores))
        missing = set(machines)
        until = time.perf_counter() + PATIENCE_S
        while missing:
            assert time.perf_counter() < until, f"{missing} did not come up:\n{self.logs()}"
            missing -= {said.machine for said in self.listen(0.1) if isinstance(said, JoinedTraining)}

    def listen(self, seconds: float) -> list[Upward]:
        until, heard = time.perf_counter() + seconds, len(self.heard)
        while (left := until - time.perf_counter()) > 0:
            self.heard += [(time.perf_counter(), said) for said in self.client.poll(left)]
        return [said for _, said in self.heard[heard:]]

    def clocks(self, seconds: float) -> tuple[float, float]:
        """Completed a second, and processor seconds for each, from the first to the last that is heard of."""
        seen: list[tuple[float, float, int]] = []
        until = time.perf_counter() + seconds
        roles = self.processes("server", "worker")
        while (left := until - time.perf_counter()) > 0 or len(seen) < 2 or seen[0][2] == seen[-1][2]:
            assert left > -PATIENCE_S, f"no clock is completed:\n{self.logs()}"
            said = self.client.poll(max(left, 0.1))
            self.heard += [(time.perf_counter(), word) for word in said]
            clocks = [word.clock for word in said if isinstance(word, Progressed)]
            if clocks and (not seen or time.perf_counter() > until):  # looking takes time as well
                seen.append((time.perf_counter(), sum(map(processor_s, roles)), clocks[-1]))
        (began, idle, first), (ended, busy, last) = seen[0], seen[-1]
        return (last - first) / (ended - began), (busy - idle) / (last - first)

    def busy_s(self) -> float:
        """Processor time that the workers and servers have taken."""
        return sum(processor_s(process) for process in self.processes("server", "worker"))

    def processes(self, *roles: str, machine: str = "") -> list[int]:
        """Their numbers. ``machine``: on this one only."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                words = (process / "cmdline").read_text().split("\0")
                here = str(self.folder.path) in words and {machine or ""} <= set(words)
                if here and any(plays(process, role) for role in roles):
                    found.append(int(process.name))
        return found

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """All machines stand still meanwhile; they are up to speed again afterwards."""
        machines = self.host.alive_machines()
        for name in machines:
            self.host.freeze(name)
        yield
        for name in machines:
            self.host.thaw(name)
        self.clocks(0.5)

    def logs(self) -> str:
        texts = (log.read_text()[-1500:] for log in sorted(self.folder.path.glob("machines/*/*.log")))
        return "\n".join(text for text in texts if text)


@contextmanager
def measured(
    job: TrainingJob,
    source: str,
    machines: Sequence[str],
    cores: int = 1,
    where: Callable[[str], MachineLocation] = lambda _: HERE,
) -> Iterator[MeasuredJob]:
    """A job that trains on the text ``source``; nothing is left of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "input.csv").write_text(source)
        made = MeasuredJob(path, job, path / "input.csv", where)
        try:
            made.start(*machines, cores=cores)
            made.clocks(1.0)
            yield made
        finally:
            made.client.close()
            made.host.kill_all()


def processor_s(process: int) -> float:
    """See proc(5): fields 14 and 15 of stat are its time in user and kernel mode, in ticks."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
