"""One job of a running queue: its record, its world, and how it stands. A run like any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event
from typing import Any, Final, Protocol

from bidbrain.cluster.lease import Lease
from pricing_data.formats.traces import Recording
from pricing_data.model.units import Instant, MicroUsd
from spotctl.control import entries as e
from spotctl.control.drive import record
from spotctl.control.state import Phase, State
from spotctl.queue.allocation import job_views
from spotctl.queue.allocation.lease_changes import Holder
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.allocation.round_inputs import Wanting
from spotctl.queue.spec import Member
from spotctl.records.run import Run
from spotctl.report.final import Unscored, final_object, with_score
from spotctl.session.interrupts import Answer, Interrupts
from spotctl.session.open import Recorded
from spotctl.timesource import TimeSource, wall_clock
from spotctl.worlds.built import BuiltWorld
from spotctl.worlds.world import TraceWorld

_UNSCORED: Final = Unscored("models of a queue's jobs are not scored: the other jobs would wait for it")


class Watcher(Protocol):
    """Who watches a queue."""

    def on_start(self, run: Run, recording: Recording) -> None: ...

    def on_entry(self, state: State, entry: e.Entry) -> None: ...

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        """A job has ended; ``final`` is the object of ``launch --json``, None where it never began."""
        ...

    def on_trouble(self, told: str) -> None:
        """Something is wrong that ends no job: what, where, and what to do."""
        ...


@dataclass(frozen=True, slots=True)
class _Watched:
    """What ``Interrupts`` needs to be told; signals are the queue's affair."""

    def ask_interrupt(self, withdrawn: Event) -> Answer:
        return "cancel"

    def leave(self, why: str) -> None:
        """A queue has the terminal."""

    def suspend(self) -> None:
        """A queue has the terminal."""

    def resume(self) -> None:
        """A queue has the terminal."""


class OpenJob:
    """A job that is not closed. ``claim``: its lock and its open record, let go of at its end."""

    def __init__(
        self,
        member: Member,
        opened: Recorded,
        allowance: MicroUsd | None,
        watcher: Watcher,
        claim: ExitStack,
    ) -> None:
        self.member = member
        self.run = opened.run
        self.ledger = opened.ledger
        self.state = opened.state
        self.removed = False
        self._opened: Recorded | None = opened
        self._allowance = allowance
        self._watcher = watcher
        self._claim = claim
        self._asks: list[e.Ask] = []
        self._began = wall_clock()
        self._interrupts = Interrupts(opened.ledger, _Watched())
        self._built: BuiltWorld | None = None

    def build(self, time: TimeSource, down: e.ControllerDown | None) -> None:
        """Make its world; ``down``: for how long nobody was there, None for a new run.

        Raises UsageError where the job cannot work here, Interrupted where it was asked to end by then.
        """
        opened = self._opened
        assert opened is not None
        if down is None:
            self._built = opened.world(self._pending, time)
        else:
            self._built = opened.resumed_world(self._pending, time, down)
        self._opened = None  # its entries are folded
        if self._allowance is not None and self.state.allowance != self._allowance:
            self.world.lease(self.state.lease, self._allowance)

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def world(self) -> TraceWorld:
        assert self._built is not None
        return self._built.world

    @property
    def promised(self) -> bool:
        return job_views.is_promised(self.state)

    @property
    def closed(self) -> bool:
        return self.state.phase is Phase.CLOSED

    def ask(self, ask: e.Ask) -> None:
        self._asks.append(ask)

    def lease(self, lease: Lease | None, allowance: MicroUsd | None) -> None:
        self.world.lease(lease, self._allowance if self.promised else allowance)

    def drain(self, moved: Callable[[e.Fact], None]) -> bool:
        """Take up everything that is known by now; whether there was anything."""
        any_news = False
        while not self.closed and self.world.look():
            fact = self.world.take()
            self.state, commands = record(self.state, fact, self.ledger, self._watcher)
            for command in commands:
                self.world.execute(command)
            moved(fact)
            any_news = True
        return any_news

    def holder(self, pools: Pools, reserved: Counter[str]) -> Holder:
        """As the dealer sees it."""
        return job_views.holder(self.state, pools, reserved)

    def wanting(
        self, pools: Pools, reserved: Counter[str], received: Mapping[str, float], since: Instant | None
    ) -> Wanting | None:
        """As a round sees it; None where machines are no use to it any more."""
        return job_views.wanting(self.state, self.member, pools, reserved, received, since)

    def finish(self) -> dict[str, Any]:
        """It is closed: let go of everything; the final object."""
        assert self._built is not None
        self.ledger.commit()
        self._built.close()
        wall_s, left = wall_clock() - self._began, self._built.machines_left()
        final = final_object(self.state, self.run.ledger_path, wall_s, left, self.run.died_of())
        scored = with_score(final, _UNSCORED) if self._built.scoring(self.state) is not None else final
        self._claim.close()
        return scored

    def abandon(self) -> None:
        """Something is broken: take its machines away."""
        with self._claim:
            if self._built is not None:
                self._built.abandon()

    def _pending(self) -> tuple[e.Ask, ...]:
        asks, self._asks = tuple(self._asks), []
        return (*self._interrupts(), *asks)
