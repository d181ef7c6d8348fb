"""Runs one job of a running queue: its ledger, its world, and its state. A run like any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event
from typing import Any, Final, Protocol

from bidbrain.cluster.lease import Lease
from pricing_data.model.units import Instant, MicroUsd
from spotctl.control import entries as e
from spotctl.control.drive import process_fact
from spotctl.control.state import State
from spotctl.control.state_values import Phase
from spotctl.queue.allocation import job_views
from spotctl.queue.allocation.lease_changes import LeaseHolder
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.allocation.round_inputs import SchedulableJob
from spotctl.queue.spec import Member
from spotctl.records.run import Run
from spotctl.report.final import Unscored, final_object, with_score
from spotctl.session.interrupts import Answer, Interrupts
from spotctl.session.open import RecordedRun
from spotctl.timesource import TimeSource, wall_clock
from spotctl.worlds.handle import WorldHandle
from spotctl.worlds.world import TraceWorld

_UNSCORED: Final = Unscored("models of a queue's jobs are not scored: the other jobs would wait for it")


class QueueWatcher(Protocol):
    """Watches a queue."""

    def on_start(self, run: Run, prices: str) -> None: ...

    def on_entry(self, state: State, entry: e.Entry) -> None: ...

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        """Notes that a job ended; ``final``: the object of ``launch --json``, None if it never began."""
        ...

    def on_trouble(self, told: str) -> None:
        """Reports a problem that ends no job: what, where, and what to do."""
        ...


@dataclass(frozen=True, slots=True)
class _QueueInterruptHandler:
    """Answers ``Interrupts`` for a job; the queue itself handles signals."""

    def ask_interrupt(self, withdrawn: Event) -> Answer:
        return "cancel"

    def leave_terminal(self, why: str) -> None:
        """Does nothing: the queue has the terminal."""

    def suspend(self) -> None:
        """Does nothing: the queue has the terminal."""

    def resume(self) -> None:
        """Does nothing: the queue has the terminal."""


class OpenJob:
    """Runs a job until it is closed; ``claim`` holds its lock and its open ledger until then."""

    def __init__(
        self,
        member: Member,
        opened: RecordedRun,
        allowance: MicroUsd | None,
        watcher: QueueWatcher,
        claim: ExitStack,
    ) -> None:
        self.member = member
        self.run = opened.run
        self.ledger = opened.ledger
        self.state = opened.state
        self.removed = False
        self._opened: RecordedRun | None = opened
        self._allowance = allowance
        self._watcher = watcher
        self._claim = claim
        self._asks: list[e.UserRequest] = []
        self._began = wall_clock()
        self._interrupts = Interrupts(opened.ledger, _QueueInterruptHandler())
        self._built: WorldHandle | None = None

    def build_world(self, time: TimeSource, down: e.ControllerDown | None) -> None:
        """Builds the job's world; ``down``: the time during which no process ran it, None for a new run.

        Raises UsageError if the job cannot run here, Interrupted if a user ended it meanwhile.
        """
        opened = self._opened
        assert opened is not None
        if down is None:
            self._built = opened.build_world(self._take_requests, time)
        else:
            self._built = opened.build_resumed_world(self._take_requests, time, down)
        self._opened = None  # its entries are folded: a long ledger need not stay in memory
        # A job is new, or its process died before the allowance reached its ledger.
        if self._allowance is not None and self.state.share.allowance != self._allowance:
            self.world.give_lease(self.state.share.lease, self._allowance)

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def world(self) -> TraceWorld:
        assert self._built is not None
        return self._built.world

    @property
    def is_promised(self) -> bool:
        return job_views.is_promised(self.state)

    @property
    def is_closed(self) -> bool:
        return self.state.phase is Phase.CLOSED

    def send_request(self, ask: e.UserRequest) -> None:
        self._asks.append(ask)

    def give_lease(self, lease: Lease | None, allowance: MicroUsd | None) -> None:
        self.world.give_lease(lease, self._allowance if self.is_promised else allowance)

    def process_facts(self, moved: Callable[[e.Fact], None]) -> bool:
        """Processes all facts known by now, and passes each to ``moved``; returns whether there was any."""
        any_news = False
        # ``process_fact`` records fact and commands before it returns: intent before effect. A process that
        # dies between is resumed with the commands that have no answer.
        while not self.is_closed and self.world.has_fact():
            fact = self.world.take_fact()
            self.state, commands = process_fact(self.state, fact, self.ledger, self._watcher)
            for command in commands:
                self.world.execute(command)
            moved(fact)
            any_news = True
        return any_news

    def lease_holder(self, pools: Pools, reserved: Counter[str]) -> LeaseHolder:
        """Returns the job as a holder of leases."""
        return job_views.lease_holder(self.state, pools, reserved)

    def schedulable_job(
        self, pools: Pools, reserved: Counter[str], received: Mapping[str, float], since: Instant | None
    ) -> SchedulableJob | None:
        """Returns the job as a round sees it; None if it can use no machines any more."""
        return job_views.schedulable_job(self.state, self.member, pools, reserved, received, since)

    def close_job(self) -> dict[str, Any]:
        """Releases everything of a closed job; returns its final object."""
        assert self._built is not None
        # The end is on the disk before anything is torn down: no restart may find the job running.
        self.ledger.commit()
        self._built.close()
        wall_s, left = wall_clock() - self._began, self._built.machines_left()
        final = final_object(self.state, self.run.ledger_path, wall_s, left, self.run.died_of())
        scored = with_score(final, _UNSCORED) if self._built.scoring(self.state) is not None else final
        # Last: once it is unlocked, another process may open the same record.
        self._claim.close()
        return scored

    def abandon(self) -> None:
        """Takes the job's machines away, because something is broken."""
        # The lock goes even if that fails; whoever comes next has to be able to mend it.
        with self._claim:
            if self._built is not None:
                self._built.abandon()

    def _take_requests(self) -> tuple[e.UserRequest, ...]:
        asks, self._asks = tuple(self._asks), []
        return (*self._interrupts(), *asks)
