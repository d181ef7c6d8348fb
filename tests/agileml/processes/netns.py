"""Machines as network namespaces of this host: each with its own address, behind a link of its own.

A bridge joins them; both directions of each link are capped by a token bucket, so that the network binds and
not the processor. Needs root, ``ip`` and ``tc``. All names carry the run's number, under which a lock is held
while its owner lives: what a crashed run left behind is removed by the next one.

What runs on the machines is no business of this module.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from agileml.node.hosts.local import MachineLocation

_NAMESPACES: Final = Path("/run/netns")
_PREFIX: Final = "agileml-"
_BURST_BYTES: Final = 64 * 1024
"""More than the largest packet that veth hands over at once."""
_QUEUE_BYTES: Final = 4 * 1024 * 1024
"""Long enough that many senders at once seldom make it drop: retransmission timeouts would be measured."""


def unavailable() -> str | None:
    """Why there can be no namespaces here; None if there can."""
    if os.geteuid() != 0:
        return "machines as network namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"machines as network namespaces need {' and '.join(missing)} (package iproute2)"
    probe = f"{_PREFIX}probe-{secrets.token_hex(3)}"
    try:
        _run(["ip", "netns", "add", probe])
        _run(["ip", "netns", "del", probe])
    except subprocess.CalledProcessError as error:
        return f"this host makes no network namespaces: {error.stderr.strip()}"
    return None


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes over one machine's link since it was made."""

    received: int
    sent: int


class Network:
    """Machines whose links carry ``mbit_per_s`` each way. The host itself is the address that ends in .1.

    Everybody's link address is known to everybody from the start: all namespaces of a host share one small
    table of those that are asked for, too small for 64 machines, but permanent entries do not count.
    """

    def __init__(self, mbit_per_s: float, most: int = 64) -> None:
        """``most``: how many machines there may be, up to 250."""
        remove_what_crashed_runs_left()
        self.name = secrets.token_hex(3)
        self._lock = _lock_file(self.name).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._rate = f"{round(mbit_per_s * 1000)}kbit"
        self._subnet = _free_subnet()
        self._machines: dict[str, int] = {}
        self._last = 1 + most

    def __enter__(self) -> Self:
        _run(["ip", "link", "add", self._bridge, "address", _mac(1), "type", "bridge"])
        _run(["ip", "addr", "add", f"{self._subnet}.1/24", "dev", self._bridge])
        _run(["ip", "link", "set", self._bridge, "up"])
        return self

    def __exit__(self, *_: object) -> None:
        """Every process on a machine of this network is killed with it."""
        _remove(self.name)
        self._lock.close()
        _lock_file(self.name).unlink(missing_ok=True)

    def add(self, machine: str) -> MachineLocation:
        """Where to start the machine's processes. A machine that is gone keeps its address."""
        self._machines[machine] = number = len(self._machines) + 2
        assert number <= self._last, f"{machine} is one machine too many"
        space, outer = self._space(machine), self._outer(machine)
        _run(["ip", "netns", "add", space])
        _batch(
            [],
            [
                f"link add {outer} type veth peer name eth0 address {_mac(number)} netns {space}",
                f"link set {outer} master {self._bridge} up",
            ],
        )
        _batch(
            ["-n", space],
            [
                f"addr add {self._subnet}.{number}/24 dev eth0",
                "link set eth0 up",
                "link set lo up",
                *(self._neighbour(other) for other in range(1, self._last + 1) if other != number),
            ],
        )
        cap = ["root", "tbf", "rate", self._rate, "burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES)]
        _run(["tc", "qdisc", "add", "dev", outer, *cap])
        _run(["tc", "-n", space, "qdisc", "add", "dev", "eth0", *cap])
        return MachineLocation(f"{self._subnet}.{number}", ("ip", "netns", "exec", space))

    def prioritize(self, machine: str, niceness: int) -> None:
        """Sets the priority on the host's processors of all that runs on ``machine`` now and all that it
        starts.

        Threads have a niceness each; and where the kernel groups tasks by session, their group has one too.
        """
        for process in _run(["ip", "netns", "pids", self._space(machine)]).split():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                for thread in os.listdir(f"/proc/{process}/task"):
                    os.setpriority(os.PRIO_PROCESS, int(thread), niceness)
                Path(f"/proc/{process}/autogroup").write_text(str(niceness))

    def break_connections(self, machine: str) -> int:
        """Reset every TCP connection of its processes, which live on; returns how many there were."""
        reset = ["ip", "netns", "exec", self._space(machine), "ss", "-K", "-H", "-t", "state", "established"]
        return len(_run(reset).splitlines())

    def unplug(self, machine: str) -> None:
        """Nothing gets through to it or from it any more, and nobody is told."""
        _run(["ip", "link", "set", self._outer(machine), "down"])

    def _neighbour(self, number: int) -> str:
        return f"neigh add {self._subnet}.{number} lladdr {_mac(number)} dev eth0 nud permanent"

    def traffic(self, machine: str) -> Traffic:
        """Seen from the host's end: what that sent, the machine received."""
        counters = Path("/sys/class/net") / self._outer(machine) / "statistics"
        sent, received = (int((counters / f"{way}_bytes").read_text()) for way in ("rx", "tx"))
        return Traffic(received, sent)

    @property
    def _bridge(self) -> str:
        return f"am{self.name}"

    def _space(self, machine: str) -> str:
        return f"{_PREFIX}{self.name}-{machine}"

    def _outer(self, machine: str) -> str:
        return f"{self._bridge}.{self._machines[machine]}"


def remove_what_crashed_runs_left() -> None:
    """Runs whose lock nobody holds any more."""
    for path in Path(tempfile.gettempdir()).glob(_lock_file("*").name):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as lock:  # it may be ending just now
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _remove(path.stem.removeprefix(_lock_file("").stem))
            path.unlink(missing_ok=True)


def _remove(run: str) -> None:
    """A namespace lives on while a process does; its link goes with it."""
    for path in _NAMESPACES.glob(f"{_PREFIX}{run}-*"):
        for number in _run(["ip", "netns", "pids", path.name]).split():
            os.kill(int(number), signal.SIGKILL)
        _run(["ip", "netns", "del", path.name])
    if (Path("/sys/class/net") / f"am{run}").exists():
        _run(["ip", "link", "del", f"am{run}"])


def _mac(number: int) -> str:
    """A locally administered address."""
    return f"02:00:00:00:00:{number:02x}"


def _lock_file(run: str) -> Path:
    return Path(tempfile.gettempdir()) / f"{_PREFIX}network-{run}.lock"


def _free_subnet() -> str:
    """The first three bytes of private addresses that no link of this host has."""
    taken = _run(["ip", "-o", "-4", "addr"])
    subnets = (f"10.{secrets.randbelow(120) + 130}.{secrets.randbelow(256)}" for _ in iter(int, 1))
    return next(subnet for subnet in subnets if f" {subnet}." not in taken)


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _batch(options: Sequence[str], lines: Iterable[str]) -> None:
    """Several ``ip`` commands in one process: hundreds of processes take their time."""
    command = ["ip", *options, "-batch", "-"]
    subprocess.run(command, input="\n".join(lines), check=True, capture_output=True, text=True)
