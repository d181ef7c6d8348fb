"""Simulates a command job by arithmetic: one machine works at a time, and checkpoints keep its steps.

All moments follow from the commands it gets and their nominal times, as in ``agileml_model.py``.

The model: a machine is ready sigma seconds after it was told to join; the one that joined first of those that
stay runs the program, at nu per core less the share that checkpoints take, from ``restart_s`` after it took
over. With the first step that ends ``interval_s`` after that, or after the last checkpoint, a checkpoint of
the steps done is in the store: the time that it starts or is away does not count. A warned machine stops at
once; it is safe to kill ``DRAIN_S`` later. Where the program checkpoints on a warning no step is lost, else
what came after the newest checkpoint is done again, as after a loss (all of it if the program keeps nothing).
A machine in another region has to fetch the checkpoint first, over the job's link.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil
from typing import assert_never

from bidbrain.relocation.egress import leaves_region
from bidbrain.strategies.recovery import Checkpointing
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, seconds_after
from spotctl.control import entries as e
from spotctl.control.run_spec import RunSpec
from spotctl.engines.agileml_model import DRAIN_S, work_per_s
from spotctl.timesource import Effect


@dataclass(slots=True)
class _Machine:
    cores: float
    """Work per second."""
    ready_at: Instant
    market: Market | None
    ready: bool = False
    leaving: bool = False


class SimulatedProgram:
    """Implements ``spotctl.engines.base.Training`` without a process."""

    def __init__(self, terms: RunSpec, checkpoints: Checkpointing) -> None:
        self._terms = terms
        self._checkpoints = checkpoints
        self._machines: dict[str, _Machine] = {}
        self._safe_at: dict[str, Instant] = {}
        self._news: deque[e.Fact] = deque()
        self._told = 0
        self._active: str | None = None
        self._runs_from = self._since = self._saved_at = terms.start
        self._step = self._saved = 0
        self._saved_by = ""
        self._saved_in: Market | None = None
        self._fetched_at: Instant | None = None
        """When the working machine will have the checkpoint that another one wrote; None once it has."""
        self._work = 0.0
        """Core-seconds done towards the next step at ``_since``."""
        self._over = False

    # ---- Training ---------------------------------------------------------------------------

    def send_command(self, number: int, command: e.Tell) -> None:
        if number <= self._told or self._over:
            return
        self._told = number
        self._advance_to(command.at)
        match command:
            case e.TellJoin():
                ready_at = seconds_after(command.at, self._terms.work.scaling.sigma_s)
                for name in command.instances:
                    self._machines[name] = _Machine(
                        work_per_s(self._terms, command), ready_at, command.market
                    )
            case e.TellWarning():
                for name in command.instances:
                    self._warn_machine(name, command)
            case e.TellLost() | e.TellReleased():
                for name in command.instances:
                    # While the machine is still known: the work it did up to now is counted by its cores.
                    self._stop_program(name, command.at, keeps=False)
                    self._machines.pop(name, None)
                    self._safe_at.pop(name, None)
            case e.TellStop():
                if self._active is not None:
                    self._stop_program(self._active, command.at, keeps=self._checkpoints_on_warning)
                self._finish_program(command.at, self._saved)
            case e.TellRestart():
                raise ValueError("a command begins again with its next machine, not by the core")
            case _:
                assert_never(command)
        self._assign_program(command.at)

    def take_facts(self, now: Instant) -> tuple[e.Fact, ...]:
        self._advance_to(now)
        news, self._news = tuple(self._news), deque()
        return news

    def next_change(self, after: Instant) -> Instant | None:
        return after if self._news else self._next_event_at()

    def pending_effects(self) -> tuple[Effect, ...]:
        return ()

    def poll(self, timeout_s: float) -> bool:
        raise RuntimeError("a modelled command has no news from outside; virtual time jumps")

    def close(self) -> None:
        """Does nothing: it holds nothing."""

    # ---- machines ---------------------------------------------------------------------------

    @property
    def _checkpoints_on_warning(self) -> bool:
        return self._terms.recovery.saves_on_warning

    def _warn_machine(self, name: str, command: e.TellWarning) -> None:
        machine = self._machines.get(name)
        if machine is None or machine.leaving:
            return
        machine.leaving = True
        if name != self._active:
            self._news.append(e.SafeToKill(command.at, name))
            return
        self._safe_at[name] = Instant(min(command.at + DRAIN_S, max(command.at, command.ends_at - 1)))
        self._stop_program(name, command.at, keeps=self._checkpoints_on_warning)

    def _stop_program(self, name: str, at: Instant, *, keeps: bool) -> None:
        """Stops the program on ``name``; ``keeps``: what it has done is in the store."""
        if name != self._active:
            return
        self._accrue_work(at)
        self._active, self._work, self._fetched_at = None, 0.0, None
        if keeps:
            self._save_checkpoint(name, at)
        elif self._saved < self._step:
            self._news.append(e.RolledBack(at, self._saved, self._step - self._saved))
            self._step = self._saved

    def _assign_program(self, at: Instant) -> None:
        """Starts the program on the first machine that can run it, unless one runs it or is still
        draining.
        """
        if self._over or self._active is not None or self._safe_at:
            return
        # In the order in which they joined.
        for name, machine in self._machines.items():
            if machine.ready and not machine.leaving:
                restart_s = self._checkpoints.restart_s if self._step else 0.0
                self._active, self._since = name, at
                self._news.append(e.ProgramBegan(at, name, self._saved))
                if self._saved and name != self._saved_by:
                    carrying_s = self._transfer_s(machine)
                    self._fetched_at, restart_s = seconds_after(at, carrying_s), restart_s + carrying_s
                self._runs_from = self._saved_at = seconds_after(at, restart_s)
                return

    def _transfer_s(self, machine: _Machine) -> float:
        """Returns seconds to move the newest checkpoint to ``machine``: within its region it is there at
        once.
        """
        luggage, here, there = self._terms.recovery.luggage, self._saved_in, machine.market
        if luggage is None or here is None or there is None or not leaves_region(here, there):
            return 0.0
        return luggage.size_bytes / luggage.bytes_per_s

    def _save_checkpoint(self, name: str, at: Instant) -> None:
        """Stores what is done, if it was not stored, as written by ``name``."""
        if self._saved < self._step:
            self._saved = self._step
            if self._active is None:  # otherwise the step that ends reports it
                self._news.append(e.Progressed(at, self._step, self._saved))
            if name != self._saved_by and self._terms.recovery.luggage is not None:
                self._news.append(
                    e.CheckpointStored(at, name, self._step, self._terms.recovery.luggage.size_bytes)
                )
            self._saved_by, self._saved_in = name, self._machines[name].market

    def _finish_program(self, at: Instant, step: int) -> None:
        self._over = True
        self._news.append(e.TrainingFinished(at, step, ""))

    # ---- time -------------------------------------------------------------------------------

    def _advance_to(self, now: Instant) -> None:
        """Lets everything happen that is due by ``now``, in order."""
        while not self._over and (due := self._next_event_at()) is not None and due <= now:
            self._apply_events(due)

    def _apply_events(self, at: Instant) -> None:
        for name, machine in self._machines.items():
            if not machine.ready and machine.ready_at <= at:
                machine.ready = True
                if not machine.leaving:
                    self._news.append(e.MachineJoined(at, name))
        for name in [name for name, safe_at in self._safe_at.items() if safe_at <= at]:
            del self._safe_at[name]
            self._news.append(e.SafeToKill(at, name))
        if self._fetched_at is not None and self._fetched_at <= at:
            self._fetch_checkpoint(at)
        if self._step_completes_at() == at:
            self._complete_step(at)
        self._assign_program(at)

    def _fetch_checkpoint(self, at: Instant) -> None:
        self._fetched_at = None
        if self._active is not None and self._terms.recovery.luggage is not None:
            size = self._terms.recovery.luggage.size_bytes
            self._news.append(e.CheckpointFetched(at, self._active, self._saved_by, self._saved, size))

    def _complete_step(self, at: Instant) -> None:
        self._accrue_work(at)
        self._work -= self._terms.work.core_seconds_per_clock
        self._step += 1
        due = at - self._saved_at >= self._checkpoints.interval_s
        if due and not self._terms.recovery.keeps_nothing:
            assert self._active is not None
            self._save_checkpoint(self._active, at)
            self._saved_at = at
        if self._step == self._terms.work.stop.clocks:
            self._finish_program(at, self._step)
        else:
            self._news.append(e.Progressed(at, self._step, self._saved))

    def _next_event_at(self) -> Instant | None:
        if self._over:
            return None
        moments = [m.ready_at for m in self._machines.values() if not m.ready]
        moments += self._safe_at.values()
        moments += [] if self._fetched_at is None else [self._fetched_at]
        completes = self._step_completes_at()
        return min(moments if completes is None else [*moments, completes], default=None)

    def _step_completes_at(self) -> Instant | None:
        """Returns when the current step will be done, as things stand."""
        rate = self._work_rate()
        if rate <= 0:
            return None
        begins = max(self._since, self._runs_from)
        return Instant(begins + max(0, ceil((self._terms.work.core_seconds_per_clock - self._work) / rate)))

    def _accrue_work(self, at: Instant) -> None:
        self._work += max(0, at - max(self._since, self._runs_from)) * self._work_rate()
        self._since = at

    def _work_rate(self) -> float:
        """Returns core-seconds of work per second."""
        if self._active is None:
            return 0.0
        return self._machines[self._active].cores * (1 - self._checkpoints.overhead)
