"""Simulates an elastic training by arithmetic: clocks complete as fast as the footprint says.

Used where progress is modelled: in ``replay`` always, in ``local`` when the job says so. All moments follow
from the commands it gets and their nominal times, never from when it is asked, so two worlds that give it the
same commands get the same facts.

The model: joined machines work at nu per core (times the job's own speed on their type, where its spec has
one), together at the efficiency that phi says; reliable machines do not work in stage 3; a machine starts
working sigma seconds after it was told to join; a warned one works until it is drained; an eviction costs
lambda without progress; a loss redoes the clock that the backups did not have yet. If no other machine has
what was on the lost one the training goes back to its newest checkpoint, which is there at once when it is
due, and ends if it keeps none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, assert_never

from pricing_data.model.units import Instant, seconds_after
from spotctl.control import entries as e
from spotctl.control.run_spec import RunSpec
from spotctl.timesource import Effect

DRAIN_S: Final = 10
"""Simulated nominal time from a warning to safe-to-kill, where the notice allows it."""
_CLOCKS_AT_RISK: Final = 1
"""Clocks that the backups lag behind, and that a failure redoes."""
_FOLDER: Final = "modelled"
"""The folder that a simulated checkpoint names."""


@dataclass(frozen=True, slots=True)
class _Machine:
    cores: float
    """Work per second."""
    reliable: bool
    works_from: Instant
    leaving: bool = False


def work_per_s(terms: RunSpec, join: e.TellJoin) -> float:
    """Returns what a joining machine actually does, in nominal core-seconds per second."""
    kind = "" if join.market is None else join.market.instance_type
    offered = None if join.market is None else terms.market_option(join.market)
    per_core = 1.0 if offered is None or not offered.cores else offered.nu / offered.cores
    return join.cores * per_core * terms.work.modelled_speeds.get(kind, 1.0)


class SimulatedTraining:
    """Implements ``spotctl.engines.base.Training`` without a process."""

    def __init__(self, terms: RunSpec) -> None:
        self._terms = terms
        self._machines: dict[str, _Machine] = {}
        self._scheduled: list[e.Fact] = []
        self._news: deque[e.Fact] = deque()
        self._told = 0
        self._stage = 1
        self._clock = 0
        self._work = 0.0
        """Core-seconds done towards the next clock at ``_since``."""
        self._since = terms.start
        self._paused_until = terms.start
        self._over = False
        self._kept = 0
        """The clock of the newest checkpoint; the initial values count as one."""
        self._kept_at = terms.start

    # ---- Training ---------------------------------------------------------------------------

    def send_command(self, number: int, command: e.Tell) -> None:
        # A training that is over hears of nothing but its restart.
        if number <= self._told or (self._over and not isinstance(command, e.TellRestart)):
            return
        self._told = number
        self._advance_to(command.at)
        match command:
            case e.TellJoin():
                self._join_machines(command)
            case e.TellWarning():
                self._warn_machines(command)
            case e.TellLost():
                self._lose_machines(command)
            case e.TellReleased():
                self._drop_machines(command.instances)
            case e.TellStop():
                self._finish_training(command.at)
            case e.TellRestart():
                self._restart_training(command.at)
            case _:
                assert_never(command)

    def take_facts(self, now: Instant) -> tuple[e.Fact, ...]:
        self._advance_to(now)
        news, self._news = tuple(self._news), deque()
        return news

    def next_change(self, after: Instant) -> Instant | None:
        if self._news:
            return after
        return self._next_event_at()

    def pending_effects(self) -> tuple[Effect, ...]:
        return ()

    def poll(self, timeout_s: float) -> bool:
        raise RuntimeError("a modelled training has no news from outside; virtual time jumps")

    def close(self) -> None:
        """Does nothing: it holds nothing."""

    # ---- commands ---------------------------------------------------------------------------

    def _join_machines(self, command: e.TellJoin) -> None:
        works_from = seconds_after(command.at, self._terms.work.scaling.sigma_s)
        for name in command.instances:
            self._machines[name] = _Machine(work_per_s(self._terms, command), command.reliable, works_from)
            self._scheduled.append(e.MachineJoined(works_from, name))

    def _warn_machines(self, command: e.TellWarning) -> None:
        self._pause_for_eviction(command.at)  # before the machines leave: what they did up to now counts
        # A second before the machine goes at the latest: with it, it would be too late.
        safe_at = Instant(min(command.at + DRAIN_S, max(command.at, command.ends_at - 1)))
        for name in command.instances:
            self._machines[name] = replace(self._machines[name], leaving=True)
            self._scheduled.append(e.SafeToKill(safe_at, name))
        self._update_stage(command.at)

    def _lose_machines(self, command: e.TellLost) -> None:
        """Handles lost machines. In stage 1 the reliable ones have the only copies; later they hold
        backups.
        """
        last = [n for n in command.instances if n in self._machines and self._machines[n].reliable]
        only_copies = bool(last) and self._stage == 1
        if only_copies and self._terms.recovery.keeps is None:
            self._over, self._scheduled = True, []
            why = f"the reliable machine {last[0]} was lost with the only copy of its part of the model"
            self._news.append(e.TrainingFailed(command.at, why))
            return
        self._drop_machines(command.instances)
        back_to = self._kept if only_copies else max(0, self._clock - _CLOCKS_AT_RISK)
        self._news.append(e.RolledBack(command.at, back_to, self._clock - back_to))
        self._clock, self._work = back_to, 0.0
        self._pause_for_eviction(command.at)

    def _restart_training(self, at: Instant) -> None:
        """Begins again from the checkpoint; everything else is gone."""
        self._machines, self._scheduled, self._over = {}, [], False
        self._clock, self._work, self._stage = self._kept, 0.0, 1
        self._since = self._paused_until = self._kept_at = at
        self._news.append(e.TrainingResumed(at, self._clock, _FOLDER if self._kept else ""))

    def _drop_machines(self, names: tuple[str, ...]) -> None:
        for name in names:
            self._machines.pop(name, None)
        # What a dropped machine had yet to report never happens.
        self._scheduled = [f for f in self._scheduled if getattr(f, "instance", None) not in names]
        self._update_stage(self._since)

    def _finish_training(self, at: Instant) -> None:
        self._over = True
        self._scheduled = []
        self._news.append(e.TrainingFinished(at, self._clock, ""))

    # ---- time -------------------------------------------------------------------------------

    def _advance_to(self, now: Instant) -> None:
        """Lets everything happen that is due by ``now``, in order."""
        while not self._over and (due := self._next_event_at()) is not None and due <= now:
            self._apply_events(due)

    def _apply_events(self, at: Instant) -> None:
        ready = sorted((f for f in self._scheduled if f.at <= at), key=lambda f: f.at)
        self._scheduled = [f for f in self._scheduled if f.at > at]
        completes = self._clock_completes_at()
        if ready:
            self._accrue_work(at)
            self._news.extend(ready)
            self._update_stage(at)
        elif completes == at:
            self._complete_clock(at)

    def _complete_clock(self, at: Instant) -> None:
        self._accrue_work(at)
        self._work -= self._terms.work.core_seconds_per_clock
        self._clock += 1
        self._news.append(e.Progressed(at, self._clock, max(0, self._clock - _CLOCKS_AT_RISK)))
        if self._clock == self._terms.work.stop.clocks:
            self._finish_training(at)
        else:
            self._checkpoint_if_due(at)

    def _checkpoint_if_due(self, at: Instant) -> None:
        """Writes a checkpoint of what the reliable machines hold, if one is due."""
        keeps, consistent = self._terms.recovery.keeps, self._clock - _CLOCKS_AT_RISK
        if keeps is None or consistent <= self._kept:
            return
        by_clocks = keeps.clocks > 0 and consistent - self._kept >= keeps.clocks
        if by_clocks or (keeps.seconds > 0 and at - self._kept_at >= keeps.seconds):
            self._kept, self._kept_at = consistent, at
            self._news.append(e.Checkpointed(at, consistent, _FOLDER))

    def _next_event_at(self) -> Instant | None:
        if self._over:
            return None
        moments = [f.at for f in self._scheduled]
        completes = self._clock_completes_at()
        return min(moments + ([] if completes is None else [completes]), default=None)

    def _clock_completes_at(self) -> Instant | None:
        rate = self._work_rate()
        if rate <= 0:
            return None
        begins = max(self._since, self._paused_until)
        # Rounded up to whole seconds: a clock is not done before its work is.
        return Instant(begins + max(0, ceil((self._terms.work.core_seconds_per_clock - self._work) / rate)))

    def _accrue_work(self, at: Instant) -> None:
        working_s = max(0, at - max(self._since, self._paused_until))
        self._work += working_s * self._work_rate()
        self._since = at

    def _pause_for_eviction(self, at: Instant) -> None:
        self._accrue_work(at)
        self._paused_until = seconds_after(at, self._terms.work.scaling.lambda_s)

    def _update_stage(self, at: Instant) -> None:
        stage = self._terms.work.scaling.stage(
            len(self._working_machines(reliable=False)), self._terms.reliable_count
        )
        if stage != self._stage:
            self._stage = stage
            self._news.append(e.StageEntered(at, stage))

    def _work_rate(self) -> float:
        """Returns core-seconds of work per second of the current footprint."""
        working = self._working_machines(reliable=False)
        if self._stage < 3:
            working += self._working_machines(reliable=True)
        return sum(m.cores for m in working) * self._terms.work.scaling.efficiency(len(working))

    def _working_machines(self, *, reliable: bool) -> list[_Machine]:
        return [
            m
            for m in self._machines.values()
            if m.reliable is reliable and not m.leaving and m.works_from <= self._since
        ]
