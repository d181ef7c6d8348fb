"""A world that may do anything a world may do: lawful facts at random moments, from a seed.

It follows no prices and trains nothing. What it says is what clouds and trainers may say: grants that
take their time, refusals, warnings, ends, machines that join late or never; and, once in a run, a fault.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import count
from typing import get_args

import numpy as np

from bidbrain.cluster.lease import Lease
from pricing_data.model.billing import EndReason
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, MicroUsd, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.run_spec import RunSpec

LEASED_EVERY_S = 360
Happening = Callable[[Instant], Iterable[e.Fact]]


class Fault(StrEnum):
    NONE = "none"
    TRANSIENT_DIES = "a transient machine dies"
    ALLOCATION_DIES = "all machines of an allocation die"
    RELIABLE_DIES = "a reliable machine dies"
    RELIABLE_DIE = "reliable machines die over and over"
    MACHINE_HANGS = "the training gives a machine up that lives"
    NOTICE_HEARD = "a machine hears of its eviction, of which its provider knows nothing"
    CONTROLLER_HANGS = "the controller's machine hangs"
    SPOT_REFUSED = "acquisitions are refused for a while"
    RELIABLE_REFUSED = "the reliable machines are refused"
    TRAINING_FAILS = "the training fails"
    STOP_HANGS = "cancel, which the training never carries out"
    SAVE_HANGS = "the training never comes to an end"
    CONTROLLER_DOWN = "spotctl is away for a while"
    CANCEL = "cancel"
    DOWN = "down"
    CRASH = "spotctl dies between recording and executing"


class RandomWorld:
    """Implements ``spotctl.control.drive.World`` from START on, with one ``fault`` at a random moment."""

    def __init__(self, seed: int, terms: RunSpec, fault: Fault) -> None:
        self._rng = np.random.default_rng(seed)
        self._terms = terms
        self._fault = fault
        self.now = terms.start
        """When whatever the world says next is said; facts that were missed are older."""
        self._ready: deque[e.Fact] = deque()
        self._agenda: list[tuple[Instant, int, Happening]] = []
        self._numbers = count()
        self._tokens: set[str] = set()
        self._granted: dict[str, tuple[str, ...]] = {}
        self._running: set[str] = set()
        self._warned: set[str] = set()
        self.ended: set[str] = set()
        self._tells = 0
        self._joined: set[str] = set()
        self._clock = 0
        self._stored_by: str | None = None
        self._training_over = False
        self._hangs = False
        self._attempt = 0
        """Restarts that training was told of: what it still had to say before is lost."""
        self._kept = 0
        self._alarm: Instant | None = None
        self._refusing_until = terms.start
        self.fault_struck = False
        self.crash_now = False
        """Whether spotctl dies before it executes what it records next."""
        for market in sorted({tradable.market for tradable in terms.spot}):
            self._at(terms.start, self._price_of(market))
        if terms.queued is not None:
            self._at(terms.start, self._lease)
        whenever = 120 if self._chance(0.2) else 80 * (terms.work.stop.clocks or 0)
        self._after(self._delay(0, whenever), self._strike)

    # ---- World ----------------------------------------------------------------------------------

    def next_fact(self) -> e.Fact:
        while not self._ready:
            at, _, happens = heapq.heappop(self._agenda)
            self.now = max(self.now, at)
            self._ready.extend(happens(at))
        return self._ready.popleft()

    def execute(self, command: e.Command) -> None:
        match command:
            case e.Acquire():
                self._request(command)
            case e.Release():
                self._after(
                    self._delay(0, 5), lambda at: self._end(at, command.instances, EndReason.RELEASED)
                )
            case e.WakeAt():
                self._alarm = command.when
                self._at(command.when, self._wake)
            case e.Decided() | e.StopGivenUp() | e.Close():
                pass
            case _:
                self._tells += 1
                self._tell(command)

    def restart(
        self, entries: Sequence[e.Entry], alarm: Instant | None, pending: Sequence[e.Command]
    ) -> None:
        """spotctl is back after a crash: it tells the training everything again (numbers tell what is new),
        sets its alarm, and executes again what may not have been heard."""
        tells = [entry for entry in entries if isinstance(entry, get_args(e.Tell))]
        for command in (*tells[self._tells :], *pending):
            self.execute(command)
        if alarm is not None:
            self.execute(e.WakeAt(self.now, alarm))
        self._ready.extend(self._controller_down(entries[-1].at))

    # ---- the agenda -----------------------------------------------------------------------------

    def _at(self, moment: Instant, happens: Happening) -> None:
        heapq.heappush(self._agenda, (moment, next(self._numbers), happens))

    def _after(self, seconds: float, happens: Happening, since: Instant | None = None) -> None:
        self._at(Instant((self.now if since is None else since) + int(seconds)), happens)

    def _delay(self, least: float, most: float) -> float:
        return float(self._rng.uniform(least, most))

    def _chance(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)

    def _wake(self, at: Instant) -> Iterator[e.Fact]:
        if self._alarm == at:
            self._alarm = None
            yield e.Woke(self.now)

    def _price_of(self, market: Market) -> Happening:
        def changes(at: Instant) -> Iterator[e.Fact]:
            self._after(self._delay(120, 1500), changes, since=at)
            yield e.PriceChanged(at, market, UsdPerHour(round(self._delay(0.03, 0.06), 4)))

        return changes

    def _lease(self, at: Instant) -> Iterator[e.Fact]:
        """A round: any lease, or none; more money than any job here costs, or not counted."""
        self._after(LEASED_EVERY_S, self._lease, since=at)
        markets = tuple(t.market for t in self._terms.spot if self._chance(0.6))
        most = self._terms.limits.max_instances
        count = int(self._rng.integers(1, most + 1))
        lease = Lease(markets, count, Instant(at + LEASED_EVERY_S)) if markets else None
        yield e.Leased(at, lease, MicroUsd(10**9) if self._chance(0.5) else None)

    # ---- machines -------------------------------------------------------------------------------

    def _request(self, order: e.Acquire) -> None:
        if order.allocation in self._tokens:
            return  # the order is known: nothing more is started
        self._tokens.add(order.allocation)
        refused = self._refuses_reliable() if order.bid is None else self._refuses_spot()
        names = () if refused else tuple(f"{order.allocation}-{n}" for n in range(1, order.count + 1))

        def answer(at: Instant) -> Iterator[e.Fact]:
            if refused:
                yield e.Refused(at, order.allocation, "CapacityUnavailable", "no machines")
                return
            self._granted[order.allocation] = names
            for group in (names,) if self._chance(0.7) else tuple((name,) for name in names):
                self._after(self._delay(10, 90), self._boot(group))
            if order.bid is not None:
                self._after(float(self._rng.exponential(2400)), lambda at: self._evict(at, names))
            yield e.Granted(at, order.allocation, names)

        self._after(0 if self._chance(0.5) else self._delay(0, 40), answer)

    def _refuses_reliable(self) -> bool:
        self.fault_struck |= self._fault is Fault.RELIABLE_REFUSED
        return self._fault is Fault.RELIABLE_REFUSED

    def _refuses_spot(self) -> bool:
        return self.now < self._refusing_until or self._chance(0.1)

    def _boot(self, names: Sequence[str]) -> Happening:
        def boots(at: Instant) -> Iterator[e.Fact]:
            up = tuple(name for name in names if name not in self.ended)
            self._running.update(up)
            if up:
                yield e.InstancesRunning(at, up)

        return boots

    def _evict(self, at: Instant, names: Sequence[str]) -> Iterator[e.Fact]:
        taken = tuple(n for n in names if n not in self.ended | self._warned and self._chance(0.8))
        if taken:
            self._warned.update(taken)
            ends_at = Instant(at + self._terms.rules.notice_s)
            self._at(ends_at, lambda at: self._end(at, taken, EndReason.EVICTED))
            yield e.EvictionWarned(at, taken, ends_at)

    def _end(self, at: Instant, names: Sequence[str], end: EndReason) -> Iterator[e.Fact]:
        gone = tuple(name for name in names if name not in self.ended)
        self.ended.update(gone)
        if gone:
            yield e.InstancesEnded(at, gone, end)

    def _live(self, *, reliable: bool) -> list[str]:
        machines = [name for names in self._granted.values() for name in names if name not in self.ended]
        return [name for name in machines if name.startswith("r") is reliable]

    # ---- training -------------------------------------------------------------------------------

    def _tell(self, command: e.Tell) -> None:
        match command:
            case e.TellJoin():
                for name in command.instances:
                    if command.reliable or self._chance(0.95):
                        late = self._chance(0.1)
                        self._after(self._delay(60, 600) if late else self._delay(1, 60), self._join(name))
            case e.TellWarning():
                for name in command.instances:
                    within = max(1, command.ends_at - self.now)
                    self._after(self._delay(0, 1.1 * within), self._safe(name))
            case e.TellLost():
                fails = self._chance(0.3) and any(name.startswith("r") for name in command.instances)
                hurt = self._fail if fails else self._roll_back
                self._after(self._delay(0, 3), self._of_this_attempt(hurt))
            case e.TellReleased():
                pass
            case e.TellStop():
                self._after(self._delay(1, 30), self._of_this_attempt(self._finish))
            case e.TellRestart():
                self._attempt, self._training_over, self._stored_by = command.number, False, None
                self._hangs = False
                self._joined.clear()
                self._clock = self._kept
                self._after(0, self._resume(self._clock))

    def _of_this_attempt(self, happens: Happening) -> Happening:
        attempt = self._attempt
        return lambda at: happens(at) if attempt == self._attempt else ()

    def _resume(self, clock: int) -> Happening:
        folder = "checkpoints/now" if clock else ""
        return self._of_this_attempt(lambda at: (e.TrainingResumed(at, clock, folder),))

    def _join(self, name: str) -> Happening:
        def joins(at: Instant) -> Iterator[e.Fact]:
            if name in self.ended or self._training_over:
                return
            if not self._joined:
                self._after(self._delay(20, 90), self._of_this_attempt(self._progress))
                if not self._attempt and self._chance(0.2):
                    self._clock = self._kept = int(self._rng.integers(self._terms.work.stop.clocks or 1))
                    yield e.TrainingResumed(at, self._clock, "checkpoints/before")
            self._joined.add(name)
            yield e.MachineJoined(at, name)
            if len(self._joined) % 3 == 2:
                yield e.ProgramBegan(at, name, self._kept)
            if self._stored_by is not None and self._chance(0.7):
                self._after(self._delay(0, 300), self._fetch(name, self._stored_by))
            if self._chance(0.3):
                yield e.StageEntered(at, int(self._rng.integers(1, 4)))

        return joins

    def _fetch(self, name: str, stored_by: str) -> Happening:
        """Of a machine that may be gone by the time this is told."""

        def fetches(at: Instant) -> Iterator[e.Fact]:
            if not self._training_over:
                size = int(self._delay(0, 1e11))
                yield e.CheckpointFetched(at, name, stored_by, self._clock, size)

        return fetches

    def _store(self, at: Instant) -> Iterator[e.Fact]:
        here = sorted(self._joined - self.ended)
        if here and self._terms.recovery.luggage is not None:
            self._stored_by = here[int(self._rng.integers(len(here)))]
            yield e.CheckpointStored(at, self._stored_by, self._clock, int(self._delay(0, 1e11)))

    def _safe(self, name: str) -> Happening:
        """Now and then the word comes after the end."""
        return lambda at: () if self._training_over else (e.SafeToKill(at, name),)

    def _progress(self, at: Instant) -> Iterator[e.Fact]:
        if self._training_over or self._hangs:
            return
        self._clock += 1
        yield e.Progressed(at, self._clock, max(0, self._clock - 1))
        if self._chance(0.3):
            yield e.ObjectiveReported(at, self._clock, self._delay(0, 1))
        if self._chance(0.2):
            yield from self._store(at)
        if self._chance(0.2):
            self._kept = self._clock
            yield e.Checkpointed(at, self._clock, "checkpoints/now")
        elif self._chance(0.1):
            yield e.CheckpointFailed(at, self._clock, "no space left")
        if self._clock == self._terms.work.stop.clocks:
            yield from self._finish(at)
        else:
            self._after(self._delay(20, 120), self._of_this_attempt(self._progress), since=at)

    def _roll_back(self, at: Instant) -> Iterator[e.Fact]:
        if self._training_over or self._hangs or self._clock <= self._kept:
            return
        self._clock -= 1
        yield e.RolledBack(at, self._clock, 1)

    def _fail(self, at: Instant) -> Iterator[e.Fact]:
        """Of a reliable machine, the only copy may have gone."""
        if not self._training_over:
            self._training_over = True
            yield e.TrainingFailed(at, "no copy is left")

    def _finish(self, at: Instant) -> Iterator[e.Fact]:
        if self._fault is Fault.SAVE_HANGS:
            self._hangs = self.fault_struck = True
        if not (self._training_over or self._hangs):
            self._training_over = True
            yield e.TrainingFinished(at, self._clock, "model.npz")

    # ---- the fault ------------------------------------------------------------------------------

    def _strike(self, at: Instant) -> Iterator[e.Fact]:
        facts = tuple(self._consequences(at))
        if facts or self.fault_struck:
            self.fault_struck = True
            yield from facts
        else:
            self._after(60, self._strike, since=at)  # nobody there whom it could hit

    def _consequences(self, at: Instant) -> Iterator[e.Fact]:
        match self._fault:
            case Fault.TRANSIENT_DIES:
                yield from self._end(at, self._some(self._live(reliable=False)), EndReason.FAILED)
            case Fault.ALLOCATION_DIES:
                for name in self._some(self._live(reliable=False)):
                    yield from self._end(at, self._granted[name.rpartition("-")[0]], EndReason.FAILED)
            case Fault.RELIABLE_DIES:
                yield from self._end(at, self._some(self._live(reliable=True)), EndReason.FAILED)
            case Fault.RELIABLE_DIE:
                victims = self._some(self._live(reliable=True))
                if victims or self.fault_struck:
                    self._after(self._delay(100, 1200), self._strike, since=at)
                yield from self._end(at, victims, EndReason.FAILED)
            case Fault.MACHINE_HANGS:
                for name in self._some(self._live(reliable=False)):
                    yield e.MachineGivenUp(at, name)
            case Fault.NOTICE_HEARD:
                for name in self._some(self._live(reliable=False)):
                    yield e.EvictionNoticed(at, name, Instant(int(at + self._delay(30, 120))))
            case Fault.CONTROLLER_HANGS:
                for name in self._some(self._live(reliable=True) if self._joined else ()):
                    yield e.ControllerSilent(at, name)
            case Fault.SPOT_REFUSED:
                self._refusing_until, self.fault_struck = Instant(at + 1200), True
            case Fault.TRAINING_FAILS:
                if self._joined and not self._training_over:
                    self._training_over = True
                    yield e.TrainingFailed(at, "it cannot compute")
            case Fault.CONTROLLER_DOWN:
                yield from self._controller_down(at)
            case Fault.STOP_HANGS:
                self._hangs = not self._training_over
                yield e.Asked(at, e.UserRequest.CANCEL)
            case Fault.SAVE_HANGS:
                pass  # it comes when it should end
            case Fault.CANCEL:
                yield e.Asked(at, e.UserRequest.CANCEL)
            case Fault.DOWN:
                yield e.Asked(at, e.UserRequest.DOWN)
            case Fault.CRASH:
                self.crash_now = self.fault_struck = True
            case Fault.NONE:
                self.fault_struck = True
            case Fault.RELIABLE_REFUSED:
                pass  # it came with the request

    def _some(self, machines: Sequence[str]) -> tuple[str, ...]:
        return (machines[int(self._rng.integers(len(machines)))],) if machines else ()

    def _controller_down(self, at: Instant) -> Iterator[e.Fact]:
        """What the agenda holds until then is told late, at its own moment: an eviction most of all."""
        until = Instant(at + int(self._delay(1, 1200)))
        victims = tuple(self._live(reliable=False))
        if victims:
            self._at(Instant(at + int(self._delay(1, 300))), lambda at: self._evict(at, victims))
        self.now = max(self.now, until)
        yield e.ControllerDown(at, until)
