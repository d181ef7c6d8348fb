"""A command job at work: ``spotctl launch`` in processes of its own, over a scripted market.

The program is a chain of hashes: every step depends on all steps before it, so a result that is right
was computed from the right checkpoint.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from agileml.node.agent import process_tree
from agileml.node.programs.local_host import ProgramHost
from agileml.node.programs.process import VARIABLE
from spotctl.control import entries as e
from tests.scenarios.support.market import START, Step, owed
from tests.scenarios.support.product import Product
from tests.spotctl.build import redecided

STEPS: Final = 40
PROGRAM: Final = """\
import hashlib, json, os, signal, sys, time
from pathlib import Path

steps, every, pause = 40, int(os.environ.get("EVERY", "10")), float(os.environ.get("PAUSE", "0.05"))
folder = Path(os.environ["SPOTCTL_CHECKPOINT_DIR"])
stop = []
ignore = os.environ.get("IGNORE")
signal.signal(signal.SIGTERM, signal.SIG_IGN if ignore else lambda *_: stop.append(1))

begin_from = os.environ["SPOTCTL_CHECKPOINT"]
step, state = 0, b"nothing"
if begin_from:
    assert not list(Path(begin_from).glob("half*")), "a half-written checkpoint was used"
    step, state = int(begin_from.rpartition("-")[2]), (Path(begin_from) / "state").read_bytes()
print(f"attempt {os.environ['SPOTCTL_ATTEMPT']} begins after step {step}", flush=True)


def save():
    partial = folder / f"writing-{step}"
    partial.mkdir(exist_ok=True)
    (partial / "half").touch()
    (partial / "state").write_bytes(state)
    (partial / "ballast").write_bytes(bytes(int(os.environ.get("BALLAST", "0"))))
    (partial / "half").unlink()
    partial.rename(folder / f"step-{step}")


with open(os.environ["SPOTCTL_PROGRESS_FILE"], "a") as progress:
    while step < steps:
        state = hashlib.sha256(state + str(step).encode()).digest()
        time.sleep(pause)
        step += 1
        progress.write(json.dumps({"step": step}) + "\\n")
        progress.flush()
        if stop or step % every == 0 or step == steps:
            save()
        if stop:
            notice = json.loads(Path(os.environ["SPOTCTL_EVICTION_FILE"]).read_text())
            print(f"stopped after step {step} with {notice['seconds_left']} s left", flush=True)
            sys.exit(0)
"""
_JOB: Final = """\
name: scenario
engine: command
workdir: program
run: python process.py
work: {steps: 40, takes: 75m, on: c4.xlarge}
checkpoint: {every: 20m, restart: 30s}
resources: {spot: {instance_types: [c4.xlarge]}}
scaling: {sigma: 30s}
local: {boot: 60s, lease: 10d}
output: kept
"""


def result() -> bytes:
    """What the program has computed when it is done."""
    state = b"nothing"
    for step in range(STEPS):
        state = hashlib.sha256(state + str(step).encode()).digest()
    return state


class CommandProduct(Product):
    """A command job, the launches of it, and what they left behind."""

    def __init__(
        self, folder: Path, temporary: Path, steps: Sequence[Step], more: str, envs: Mapping[str, str]
    ) -> None:
        super().__init__(folder, temporary, steps, clocks=1)
        (folder / "program").mkdir()
        (folder / "program" / "process.py").write_text(PROGRAM)
        told = "".join(f"  {name}: '{value}'\n" for name, value in envs.items())
        (folder / "scenario.yaml").write_text(_JOB + more + (f"envs:\n{told}" if envs else ""))

    @property
    def host(self) -> ProgramHost:
        return ProgramHost(self.run.training_folder)

    @property
    def running_on(self) -> str:
        """The machine whose program reports progress."""
        return self.transient_machines[-1]

    @property
    def transient_machines(self) -> list[str]:
        joined = [entry.instance for entry in self.all(e.MachineJoined)]
        ended = {name for entry in self.all(e.InstancesEnded) for name in entry.instances}
        return [name for name in joined if name not in ended]

    def log(self) -> str:
        """What the program wrote, on all machines."""
        return "".join(path.read_text() for path in sorted(self.run.machines_folder.glob("*/program.log")))

    def kill_program(self) -> None:
        """SIGKILL to what runs the program on its machine, and to nothing else.

        Between an eviction and the next machine nothing runs it: then to what does so next.
        """
        until = time.monotonic() + self.patience_s
        while not self._killed_program():
            assert time.monotonic() < until, self.chatter
            time.sleep(0.05)

    def _killed_program(self) -> bool:
        attempts = self.log().count("begins after")
        names = [
            f"{self.run.machines_folder / machine}/run {attempts}" for machine in self.transient_machines
        ]
        return any(process_tree.signal_all(signal.SIGKILL, name, VARIABLE) for name in names)

    def check_nothing_left(self) -> None:
        """No process, no disk of a machine, no lock held, no socket."""
        assert self.processes() == []
        assert self.host.alive_machines() == []
        assert list((self.run.training_folder / "disks").iterdir()) == []
        assert list(self._temporary.glob("agileml-*")) == []

    def check_record(self, shown: dict[str, Any]) -> None:
        """The bill ``shown`` is the trace's; the ledger's facts call for exactly its commands."""
        entries = [row.entry for row in self.rows()]
        cost = shown["cost"]
        assert (cost["total"], cost["refunded"]) == owed(entries, self.folder / "prices.csv")
        assert redecided(entries, self.run.prices.load_prices()) == entries

    def check_done(self) -> dict[str, Any]:
        """It ended well, with the result of an undisturbed run, and nothing is left of it."""
        final = self.end()
        assert (final["state"], final["exit_code"], final["clocks"]) == ("done", 0, STEPS), self.chatter
        assert (Path(final["model"]) / "state").read_bytes() == result()
        self.check_nothing_left()
        self.check_record(final)
        return final


@contextmanager
def command(
    folder: Path, steps: Sequence[Step] = (), more: str = "", **envs: str
) -> Iterator[CommandProduct]:
    """A command job ready to be launched; whatever happens, nothing is left of it."""
    folder.mkdir(exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix="s-"))
    made = CommandProduct(folder, temporary, steps, more, envs)
    try:
        yield made
    finally:
        made.clean_up()
        shutil.rmtree(temporary, ignore_errors=True)


def spikes(after: int, lasting: int = 120) -> list[Step]:
    """Every machine is taken ``after`` seconds from the start; soon there are others."""
    from tests.scenarios.support.market import QUIET, SPIKE, ZONES

    there = [(zone, after, SPIKE) for zone in ZONES]
    return [*there, *((zone, after + lasting, QUIET) for zone in ZONES)]


__all__ = ["START", "STEPS", "CommandProduct", "command", "result", "spikes"]
