"""The whole product at work: ``spotctl launch`` in processes of its own, watched through its ledger."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final, TypeVar

from agileml.apps.planted import planted_ratings, write_ratings
from agileml.job import JobFolder
from agileml.node.hosts.local import LocalHost
from pricing_data.model.units import format_instant
from spotctl.control import entries as e
from spotctl.records.ledger import Ledger, LedgerRow
from spotctl.records.run import Run, RunStore
from tests.agileml.processes.played import plays
from tests.agileml.processes.real_jobs import serial
from tests.scenarios.support.market import START, Step, owed, write_prices
from tests.spotctl.build import redecided

ROOT: Final = Path(__file__).parents[3]
PATIENCE_S: Final = 120.0
SPEED: Final = 2250
CLOCKS: Final = 40
STALENESS: Final = 0
ON_RELIABLE: Final = "r1-1"
_JOB: Final = Template("""\
name: scenario
app: agileml.apps.mf:MatrixFactorization
args: {rank: 4}
data: ratings.csv
stop: {clocks: $clocks}
resources:
  reliable: {instance_type: m4.large}
  spot: {instance_types: [c4.xlarge], max_instances: 4, max_per_allocation: 2}
scaling: {phi: 1.0, sigma: 100s, lambda: 15s, stage2_above: 1, stage3_above: 2}
training: {staleness: $staleness, partitions: 4}
local: {core_seconds_per_clock: 2700, boot: 60s, lease: 10d}
output: model
""")
"""BidBrain buys two machines, two minutes later two more: stages 2 and 3. A clock takes 600 real milliseconds
on the reliable machine alone and 75 on four transient ones. The sigma is long enough for the second
allocation to be asked for before time holds for the first. The lease is for those who kill spotctl and launch
again: at this speed the usual hour is over in 1.6 real seconds."""
_TERMINAL: Final = """
import os, pty, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""
PROMPT: Final = "at your service> "
"""Of the shell."""
SPOTCTL: Final = (sys.executable, "-c", "from spotctl.cli.app import main; main()")
EntryT = TypeVar("EntryT", bound=e.Entry)


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a run: its id, and its command after ``python -m``."""

    id: int
    command: tuple[str, ...]

    def plays(self, role: str, machine: str) -> bool:
        """``role``: worker, server, controller or agent."""
        return machine in self.command and plays(Path(f"/proc/{self.id}"), role)


class Product:
    """A job over a scripted market, the launches of it, and what they left behind."""

    def __init__(self, folder: Path, temporary: Path, steps: Sequence[Step], clocks: int) -> None:
        write_ratings(planted_ratings(120, 40, 4, 0.2, 0.3, seed=1), folder / "ratings.csv")
        (folder / "scenario.yaml").write_text(_JOB.substitute(clocks=clocks, staleness=STALENESS))
        write_prices(folder / "prices.csv", steps)
        self.folder = folder
        self.output = folder / "model"
        self.patience_s = PATIENCE_S
        self.program: Sequence[str] = SPOTCTL
        self.price_options = [
            *("--trace", str(folder / "prices.csv")),
            *("--trace-start", format_instant(START)),
        ]
        self._temporary = temporary
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # as in an active venv
            "PYTHONPATH": str(ROOT),
            "SPOTCTL_HOME": str(folder / "home"),
            "TMPDIR": str(temporary),
        }
        self._runs = RunStore(folder / "home")
        self._run: Run | None = None
        self._ledger: Ledger | None = None
        self._rows: list[LedgerRow] = []
        self._launch: subprocess.Popen[bytes] | None = None

    # ---- commands ---------------------------------------------------------------------------

    def launch(self, *more: str) -> None:
        """Start ``spotctl launch``; the second time it goes on with what the first has left."""
        job = str(self.folder / "scenario.yaml")
        options = ["--yes", "--json", "--speed", str(SPEED), *more]
        options += self.price_options
        with (self.folder / "stdout").open("wb") as out, (self.folder / "stderr").open("ab") as chatter:
            self._launch = subprocess.Popen(
                [*self.program, "launch", job, *options], env=self._environment, stdout=out, stderr=chatter
            )

    def launch_at_terminal(self, *more: str, **variables: str) -> None:
        """As ``launch``, for a person who watches at a terminal; ``variables`` of the environment."""
        job = str(self.folder / "scenario.yaml")
        command = [*self.program, "launch", job, "--yes", "--speed", str(SPEED), *self.price_options, *more]
        environment = {**self._environment, "TERM": "xterm", **variables}
        self._forget_launch()
        with (self.folder / "screen").open("ab") as screen:
            self._launch = subprocess.Popen(
                [sys.executable, "-c", _TERMINAL, *command],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=screen,
                stderr=subprocess.STDOUT,
            )

    def launch_at_shell(self, *more: str) -> None:
        """As ``launch_at_terminal``, typed at the prompt of a shell that controls its jobs."""
        job = str(self.folder / "scenario.yaml")
        command = [*self.program, "launch", job, "--yes", "--speed", str(SPEED), *self.price_options, *more]
        shell = ["bash", "--noprofile", "--norc", "-i"]
        self._forget_launch()
        with (self.folder / "screen").open("ab") as screen:
            self._launch = subprocess.Popen(
                [sys.executable, "-c", _TERMINAL, *shell],
                env={**self._environment, "TERM": "xterm", "PS1": PROMPT},
                stdin=subprocess.PIPE,
                stdout=screen,
                stderr=subprocess.STDOUT,
            )
        self.wait_for_screen(PROMPT)
        self.press(f"{shlex.join(command)}\n")

    def press(self, text: str) -> None:
        """At the terminal."""
        assert self._launch is not None
        assert self._launch.stdin is not None
        self._launch.stdin.write(text.encode())
        self._launch.stdin.flush()

    @property
    def screen(self) -> str:
        """All that the terminal has shown."""
        return (self.folder / "screen").read_text(errors="replace")

    def wait_for_screen(self, text: str, times: int = 1) -> None:
        """Until the terminal has shown ``text`` so many times."""
        until = time.monotonic() + self.patience_s
        while self.screen.count(text) < times:
            assert time.monotonic() < until, f"{text!r} was not shown: {self.screen[-2000:]}"
            time.sleep(0.02)

    def close_terminal(self) -> None:
        """As a person closes its window."""
        assert self._launch is not None
        self._launch.kill()
        self._launch.wait(timeout=self.patience_s)

    def driver(self) -> int:
        """The process that drives the run: behind the one in front, at a terminal."""
        launches = {process.id for process in self.processes() if "launch" in process.command[:3]}
        parents = {_parent(launch) for launch in launches}
        (driver,) = [process for process in launches if process not in parents]
        return driver

    def front(self) -> int:
        """The process that stands in front of the driver, at a terminal."""
        front = _parent(self.driver())
        assert front in {process.id for process in self.processes()}
        return front

    def kill_driver(self) -> None:
        """SIGKILL, and wait until nobody has the run."""
        os.kill(self.driver(), signal.SIGKILL)
        until = time.monotonic() + self.patience_s
        while self.run.is_live():
            assert time.monotonic() < until
            time.sleep(0.005)

    def wait_until_closed(self) -> e.Close:
        """The end of the run, once nobody drives it any more."""
        closed = self.wait(lambda entry: isinstance(entry, e.Close)).entry
        until = time.monotonic() + self.patience_s
        while self.run.is_live():
            assert time.monotonic() < until
            time.sleep(0.02)
        assert isinstance(closed, e.Close)
        return closed

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command beside it, as from another terminal."""
        return subprocess.run(
            [*self.program, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=self.patience_s,
        )

    def signal(self, number: signal.Signals) -> None:
        """To the process of the launch alone."""
        assert self._launch is not None
        self._launch.send_signal(number)

    def end(self) -> dict[str, Any]:
        """The final object, once the launch has ended."""
        assert self._launch is not None
        code = self._launch.wait(timeout=self.patience_s)
        lines = (self.folder / "stdout").read_text().splitlines()
        assert lines, self.chatter
        final: dict[str, Any] = json.loads(lines[-1])
        assert (code, final["instances_left"]) == (final["exit_code"], 0), self.chatter
        return final

    def exit_code(self) -> int:
        """Of the launch, once it has ended: for those that began nothing."""
        assert self._launch is not None
        return self._launch.wait(timeout=self.patience_s)

    def kill_spotctl(self) -> None:
        self.signal(signal.SIGKILL)
        assert self._launch is not None
        self._launch.wait(timeout=self.patience_s)

    # ---- what happens -----------------------------------------------------------------------

    @property
    def run(self) -> Run:
        run = self._find()
        assert run is not None, self.chatter
        return run

    @property
    def model(self) -> Path:
        """Where the run's model goes."""
        return self.output / self.run.id / "model.npz"

    def _find(self) -> Run | None:
        """A run that had not asked for anything when its spotctl was killed is begun anew."""
        if self._run is not None and not self._run.folder.exists():
            if self._ledger is not None:
                self._ledger.close()
            self._run, self._ledger, self._rows = None, None, []
        if self._run is None:
            self._run = self._runs.find_run("scenario")
        return self._run

    def rows(self) -> list[LedgerRow]:
        """The ledger as it stands; nothing before the run is on record."""
        run = self._find()
        if run is not None:
            self._ledger = self._ledger or run.open_ledger()
            self._rows.extend(self._ledger.read_rows(after=len(self._rows)))
        return self._rows

    def all(self, kind: type[EntryT]) -> list[EntryT]:
        return [row.entry for row in self.rows() if isinstance(row.entry, kind)]

    def wait(self, wanted: Callable[[e.Entry], bool]) -> LedgerRow:
        """The first entry of the ledger that is wanted."""
        until = time.monotonic() + self.patience_s
        while time.monotonic() < until:
            for row in self.rows():
                if wanted(row.entry):
                    return row
            time.sleep(0.02)
        raise AssertionError(f"it did not happen within {self.patience_s} s; {self.chatter}")

    def reach(self, clock: int) -> None:
        self.wait(lambda entry: isinstance(entry, e.Progressed) and entry.clock >= clock)

    def longest_pause_s(self, since: float) -> float:
        """The longest real time without a new clock after the moment ``since`` (seconds since the epoch)."""
        reached, last, longest = 0, since, 0.0
        for row in self.rows():
            if isinstance(row.entry, e.Progressed) and row.entry.clock > reached:
                reached = row.entry.clock
                if row.recorded > since:
                    last, longest = row.recorded, max(longest, row.recorded - last)
        return longest

    def reach_stage(self, stage: int) -> None:
        """That stage or a higher one: machines that join together may skip one."""
        self.wait(lambda entry: isinstance(entry, e.StageEntered) and entry.stage >= stage)

    @property
    def clock(self) -> int:
        return max((entry.clock for entry in self.all(e.Progressed)), default=0)

    @property
    def transient(self) -> list[str]:
        """The transient machines that take part in training."""
        joined = [entry.instance for entry in self.all(e.MachineJoined)]
        ended = {name for entry in self.all(e.InstancesEnded) for name in entry.instances}
        return [name for name in joined if name != ON_RELIABLE and name not in ended]

    @property
    def host(self) -> LocalHost:
        return LocalHost(self.run.training_folder)

    def processes(self) -> list[Process]:
        """Everything on this computer whose command names the folder of the scenario."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                command = (place / "cmdline").read_bytes().decode().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            if any(word.startswith(f"{self.folder}/") for word in command):
                found.append(Process(int(place.name), tuple(command[2:])))
        return found

    def kill_role(self, role: str, machine: str) -> None:
        """SIGKILL to one process of a machine."""
        (process,) = [process for process in self.processes() if process.plays(role, machine)]
        os.kill(process.id, signal.SIGKILL)

    @property
    def chatter(self) -> str:
        logs = sorted((self.folder / "home").glob("jobs/*/*/training/machines/*/*.log"))
        written = [self.folder / "stderr", self.folder / "screen", *logs]
        texts = [path.read_text(errors="replace")[-1500:] for path in written if path.exists()]
        return "\n".join(["what was written:", *filter(None, texts)])

    # ---- what must hold ---------------------------------------------------------------------

    def check_nothing_left(self) -> None:
        """No process, no lock held, no socket."""
        assert self.processes() == []
        assert self.host.alive_machines() == []
        assert list(self._temporary.iterdir()) == []

    def check_record(self, shown: dict[str, Any]) -> None:
        """The bill ``shown`` is the trace's; the ledger's facts call for exactly its commands."""
        entries = [row.entry for row in self.rows()]
        cost = shown["cost"]
        assert (cost["total"], cost["refunded"]) == owed(entries, self.folder / "prices.csv")
        assert redecided(entries, self.run.prices.load_prices()) == entries

    def check_model(self, clocks: int) -> None:
        """Bit for bit what a plain loop computes."""
        training = JobFolder(self.run.training_folder)
        job, data = training.read_job(), training.open_input()
        model, _ = serial(job.make_application(), data, job.setup.shards, clocks)
        saved = training.load_model(data.shape, job.setup.partitions)
        assert saved.tobytes() == model.tobytes()

    def _forget_launch(self) -> None:
        if self._launch is not None:
            self._launch.kill()
            self._launch.wait()
            if self._launch.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._launch.stdin.close()

    def clean_up(self) -> None:
        self._forget_launch()
        if self._ledger is not None:
            self._ledger.close()
        for run in self._runs.list_runs():
            if run.machines_folder.is_dir():
                LocalHost(run.training_folder).kill_all()


def _parent(process: int) -> int:
    """0 where it is gone."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


@contextmanager
def product(folder: Path, steps: Sequence[Step] = (), clocks: int = CLOCKS) -> Iterator[Product]:
    """A job ready to be launched; whatever happens, nothing is left of it."""
    folder.mkdir(exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix="s-"))
    made = Product(folder, temporary, steps, clocks)
    try:
        yield made
    finally:
        made.clean_up()
        shutil.rmtree(temporary, ignore_errors=True)
