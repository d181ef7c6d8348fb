"""Keeps nominal time for the machines of this computer, and until when each of them may live.

FOLDER/clock                 numbers that every process maps into memory; the driver of the job writes them
FOLDER/driver                locked by the process that drives
FOLDER/machines/NAME/bound   the nominal moment at which the provider takes the machine, or infinity
FOLDER/machines/NAME/life    what the machine records of itself: began, last seen, ended (nominal)

While somebody drives, nominal time goes no further than the driver has released: a driver that is stopped,
or thinks, releases nothing, and no machine computes beyond. While nobody drives, nominal time goes on at
``speed`` from the moment at which the driver was last there. Each machine ends itself then at its bound, or
once nobody has driven for a lease, whichever comes first: none computes, or is billed, beyond either.

A job folder without a clock has no nominal time: its machines go by the seconds of the computer.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import struct
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

_NOMINAL, _REAL, _LIMIT, _SPEED, _SEEN, _BEAT, _AWAITED, _LEASE = range(8)
"""The cells of a clock. Nominal time was NOMINAL at REAL (seconds since the epoch), and goes no further than
LIMIT while driven. SEEN: when a machine last saw that somebody drives; BEAT: when the driver last wrote;
AWAITED: whether the driver holds time until training has done something; LEASE: for how many nominal seconds
machines go on that nobody drives.
"""
_FORMAT: Final = f"{_LEASE + 1}d"
_Cells: TypeAlias = "memoryview[float] | tuple[float, ...]"
_LOOK_EVERY_S: Final = 0.05
"""The time between two looks at the driver's lock: each is a system call, and a worker asks for the time a
hundred times a second.
"""
_LOCKED_WITHIN_S: Final = 5.0
"""How long a new driver waits for the lock. Machines that look whether somebody drives hold it for an
instant.
"""
_RECORD_EVERY_S: Final = 0.1
_STALLED_S: Final = 1.0
"""A driver that has not written for so long is stopped, or busy with something slow."""


class NominalClock:
    """Reads the clock of a job folder. Never goes back."""

    def __init__(self, folder: Path) -> None:
        """Raises FileNotFoundError where the job has no clock."""
        self._cells = _map_cells(folder / "clock")
        self._driver = os.open(folder / "driver", os.O_RDWR | os.O_CREAT, 0o644)
        weakref.finalize(self, os.close, self._driver)
        self._looked_at = -math.inf
        self._driven = False
        self._last = -math.inf

    @classmethod
    def open_clock(cls, folder: Path) -> NominalClock | None:
        """Returns the clock of a job folder; None where it has none."""
        try:
            return cls(folder)
        except FileNotFoundError:
            return None

    @property
    def speed(self) -> float:
        """Nominal seconds per real one."""
        return float(self._cells[_SPEED])

    @property
    def is_held_for_training(self) -> bool:
        """Whether nominal time is held until training has done something, for which it has to go on."""
        return self._cells[_AWAITED] > 0

    def now(self) -> float:
        """Returns the nominal time, in seconds."""
        if time.monotonic() - self._looked_at > _LOOK_EVERY_S:
            self.check_driver()
        real = time.time()
        moment = self._released_time(real) if self._driven else min(self.undriven_at(real), self.lapses_at())
        self._last = max(self._last, moment)
        return self._last

    def check_driver(self) -> bool:
        """Looks whether somebody drives, and leaves a note of when that was.

        The moment is taken before the look, so that nobody was seen after the end.
        """
        self._looked_at, real = time.monotonic(), time.time()
        self._driven = _is_held(self._driver)
        if self._driven:
            self._cells[_SEEN] = max(self._cells[_SEEN], real)
        return self._driven

    def stands_still(self) -> bool:
        """Returns whether nominal time stands still now."""
        return self._driven and self._unlimited_time(time.time()) >= self._cells[_LIMIT]

    def driver_stalled(self) -> bool:
        """Returns whether the driver is stopped, or busy with something slow."""
        return self._driven and time.time() - self._cells[_BEAT] > _STALLED_S

    def undriven_at(self, real: float) -> float:
        """Returns the nominal time at ``real`` (seconds since the epoch), if nobody has driven since."""
        left_at = _driver_left_at(self._cells)
        return self._released_time(left_at) + max(0.0, real - left_at) * self.speed

    def lapses_at(self) -> float:
        """Returns the nominal time at which the lease of machines without a driver runs out."""
        return _lapses_at(self._cells)

    def _released_time(self, real: float) -> float:
        return _released_time(self._cells, real)

    def _unlimited_time(self, real: float) -> float:
        return _unlimited_time(self._cells, real)


class ClockDriver:
    """Drives the clock of a job folder, from construction to ``close``."""

    def __init__(
        self,
        folder: Path,
        nominal: float,
        speed: float,
        within_s: float = _LOCKED_WITHIN_S,
        lease_s: float = math.inf,
    ) -> None:
        """Makes the clock if needed, and starts to drive it.

        ``nominal``: what time it is. ``lease_s``: nominal seconds for which machines go on undriven. Raises
        TimeoutError where another process drives for ``within_s`` real seconds.
        """
        clock = folder / "clock"
        if not clock.exists():
            unfinished = clock.with_suffix(".part")
            unfinished.write_bytes(
                struct.pack(_FORMAT, nominal, time.time(), nominal, speed, 0, 0, 0, lease_s)
            )
            unfinished.replace(clock)
        self._cells = _map_cells(clock)
        self._cells[_SPEED], self._cells[_LEASE] = speed, lease_s
        self.release_until(nominal, time.time(), nominal)
        self._driver = (folder / "driver").open("ab")
        until = time.monotonic() + within_s
        while not _try_lock(self._driver.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > until:
                self._driver.close()
                raise TimeoutError(f"{folder / 'driver'} is held by another process")
            time.sleep(_LOOK_EVERY_S / 10)

    def release_until(self, nominal: float, real: float, limit: float, *, awaited: bool = False) -> None:
        """Lets nominal time, which was ``nominal`` at ``real`` (seconds since the epoch), go on to ``limit``.

        The cells are written in this order, so that a concurrent reader sees less time, never more.
        """
        self._cells[_REAL] = real
        self._cells[_NOMINAL] = nominal
        self._cells[_LIMIT] = limit
        self._cells[_AWAITED] = 1.0 if awaited else 0.0
        self._cells[_BEAT] = time.time()

    def close(self) -> None:
        """Stops driving. Harmless when repeated."""
        self._driver.close()


class Pacer:
    """Tells a worker the time: seconds of the computer, or of the nominal time that was released.

    ``free``: the machine has to finish something within a notice. Its seconds are real ones then, as they are
    while all time is held for the training, and later it waits for as long as it has run ahead.
    """

    def __init__(self, folder: Path, machine: str) -> None:
        self._clock = NominalClock.open_clock(folder)
        self._bound = LifeBound(folder / "machines" / machine)
        self.free = False
        self._last, self._real = -math.inf, time.monotonic()

    def now(self) -> float:
        """Returns seconds from no particular moment."""
        real, clock = time.monotonic(), self._clock
        if clock is None:
            return real
        released = min(clock.now(), self._bound.read()) / clock.speed
        if self.free or clock.is_held_for_training:
            released = max(released, self._last + real - self._real)
        self._last, self._real = max(self._last, released), real
        return self._last

    def stands_still(self) -> bool:
        """Returns whether waiting for a later moment is of no use for now."""
        return self._clock is not None and not self.free and self._clock.stands_still()


class LifeBound:
    """The nominal moment until which a machine may live."""

    def __init__(self, machine: Path) -> None:
        self._file = machine / "bound"
        self._cells: memoryview[float] | None = None

    def write(self, until: float) -> None:
        """Writes when the provider takes the machine: in place, since the machine has mapped it."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("d", until))

    def read(self) -> float:
        """Returns the bound; infinity where nobody has set any."""
        if self._cells is None:
            with contextlib.suppress(FileNotFoundError):
                self._cells = _map_cells(self._file)
        return math.inf if self._cells is None else float(self._cells[0])


@dataclass(frozen=True, slots=True)
class LifeRecord:
    """Holds what a machine recorded of itself, in nominal seconds. ``ended``: None where it could not say."""

    began: float
    seen: float
    ended: float | None

    @classmethod
    def read_record(cls, machine: Path) -> LifeRecord | None:
        """Reads the machine's folder. Returns None where it never got so far."""
        try:
            began, seen, ended = (float(word) for word in (machine / "life").read_text().split())
        except (FileNotFoundError, ValueError):
            return None
        return cls(began, seen, None if math.isnan(ended) else ended)


class MachineEnded(BaseException):
    """The provider takes the machine now. SIGTERM raises it in the machine's agent."""


def raise_ended(*_: object) -> NoReturn:
    """Handles SIGTERM in an agent."""
    raise MachineEnded


class AgentLifetime:
    """Tells an agent how long its machine may live, and records how long it did."""

    def __init__(self, folder: Path, machine: str) -> None:
        self._clock = NominalClock.open_clock(folder)
        self._bound = LifeBound(folder / "machines" / machine)
        self._record: int | None = None
        self._recorded_at = -math.inf
        self._moved_at = time.monotonic()
        if self._clock is not None:
            self._began = self._clock.now()
            self._record = os.open(folder / "machines" / machine / "life", os.O_WRONLY | os.O_CREAT, 0o644)
            weakref.finalize(self, os.close, self._record)
            self._write_record(self._began, math.nan)

    def is_over(self) -> bool:
        """Records that the machine lives. Returns whether it has to end because nobody is there to end it."""
        if self._clock is None:
            return False
        if time.monotonic() - self._recorded_at < _RECORD_EVERY_S:
            return False
        driven, now, bound = self._clock.check_driver(), self._clock.now(), self._bound.read()
        self._write_record(min(now, bound), math.nan)
        return not driven and now >= min(bound, self._clock.lapses_at())

    def limit_wait_ms(self, wait_ms: int) -> int:
        """Shortens ``wait_ms`` to the longest time that the agent may wait."""
        return wait_ms if self._clock is None else min(wait_ms, int(1000 * _RECORD_EVERY_S) + 1)

    def driver_stalled(self) -> bool:
        """Returns whether nominal time stands still because the driver does."""
        return self._clock is not None and self._clock.driver_stalled()

    def stood_s(self) -> float:
        """Returns for how many real seconds nominal time has stood still; 0 where training is waited for.

        A driver is there then, and thinks, waits for a machine or is stopped. Call it often: what happened
        between two calls is not seen.
        """
        now, clock = time.monotonic(), self._clock
        if clock is None or clock.is_held_for_training or not clock.stands_still():
            self._moved_at = now
        return now - self._moved_at

    def record_end(self) -> None:
        """Records that nothing of the machine computes any more."""
        if self._clock is not None:
            ended = min(self._clock.now(), self._bound.read())
            self._write_record(ended, ended)

    def _write_record(self, seen: float, ended: float) -> None:
        assert self._record is not None
        self._recorded_at = time.monotonic()
        os.pwrite(self._record, f"{self._began:20.3f} {seen:20.3f} {ended:20.3f}\n".encode(), 0)


def lapses_at(folder: Path) -> float | None:
    """Returns when the lease of a job's machines runs out, if nobody drives it any more; None without a
    clock.

    It only reads, so the caller needs no right to drive.
    """
    try:
        return _lapses_at(struct.unpack(_FORMAT, (folder / "clock").read_bytes()))
    except FileNotFoundError:
        return None


def _lapses_at(cells: _Cells) -> float:
    return _released_time(cells, _driver_left_at(cells)) + float(cells[_LEASE])


def _driver_left_at(cells: _Cells) -> float:
    """Returns when the driver was last there, in seconds since the epoch."""
    return float(max(cells[_REAL], cells[_SEEN]))


def _released_time(cells: _Cells, real: float) -> float:
    return max(float(cells[_NOMINAL]), min(_unlimited_time(cells, real), float(cells[_LIMIT])))


def _unlimited_time(cells: _Cells, real: float) -> float:
    return float(cells[_NOMINAL] + max(0.0, real - cells[_REAL]) * cells[_SPEED])


def _map_cells(file: Path) -> memoryview[float]:
    """Maps the numbers of a file as cells that every process sees; each is read and written as a whole."""
    with file.open("r+b") as opened:
        return memoryview(mmap.mmap(opened.fileno(), 0)).cast("d")


def _is_held(lock: int) -> bool:
    if _try_lock(lock, fcntl.LOCK_SH):
        fcntl.flock(lock, fcntl.LOCK_UN)
        return False
    return True


def _try_lock(lock: int, how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
