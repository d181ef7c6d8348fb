"""Builds the local world: the replay's market and clockwork, paced, with real machines and a real
training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final

from msgspec import structs

from agileml.node.hosts.local import LocalHost
from agileml.node.hosts.nominal_time import ClockDriver, NominalClock
from agileml.node.programs.local_host import ProgramHost
from agileml.training_host import TrainingHost
from pricing_data.model.billing import EndReason
from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM, ELASTIC_TRAINING
from spotctl.control.lifecycle import InstanceState
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State
from spotctl.engines.base import Training, repeat_commands
from spotctl.engines.registry import EngineAdapter, adapt_engine
from spotctl.engines.shadowed import ReplayedFacts, ShadowedTraining
from spotctl.engines.simulated import simulate_training
from spotctl.errors import Interrupted
from spotctl.job.resolve import RunInputs
from spotctl.job.settings import Settings
from spotctl.providers.base import InstanceStatus
from spotctl.providers.local import LocalProvider
from spotctl.providers.simulated import SimulatedProvider
from spotctl.records.run import Run
from spotctl.timesource import TimeSource, wall_clock
from spotctl.worlds.handle import WorldHandle
from spotctl.worlds.replay import restore_market
from spotctl.worlds.world import RequestSource, TraceWorld

HOSTS: Final[dict[str, Callable[[Path, Mapping[str, str]], LocalHost]]] = {
    ELASTIC_TRAINING.kind: TrainingHost,
    CHECKPOINTING_PROGRAM.kind: ProgramHost,
}
"""Makes the machines of each engine's runs, from the run's training folder and the job's variables."""


class _AskedToEnd(BaseException):
    """Passes through an application's code: its own errors are no reason to end, this one is."""


def local_world(
    settings: Settings, inputs: RunInputs, run: Run, asks: RequestSource, time: TimeSource
) -> WorldHandle:
    """Builds the world of a new run.

    Raises UsageError where the job cannot work on this machine, Interrupted where a user asks it to end
    before it has begun.
    """

    def check() -> None:
        if asks():
            raise _AskedToEnd

    try:
        adapt_engine(settings, inputs.terms, run).prepare(check)
    except _AskedToEnd:
        raise Interrupted(f"{run.name} was asked to end before it began; nothing was started") from None
    return _LocalParts.assemble(settings, inputs, run, asks, time, on_record=()).build_handle()


def prepare_run(settings: Settings, inputs: RunInputs, run: Run) -> None:
    """Prepares a run whose process was killed before it had done so. Raises UsageError where that fails."""
    engine = adapt_engine(settings, inputs.terms, run)
    if not engine.is_prepared:
        engine.prepare()


def resumed_local_world(
    settings: Settings,
    inputs: RunInputs,
    run: Run,
    asks: RequestSource,
    time: TimeSource,
    state: State,
    entries: Sequence[e.Entry],
    down: e.ControllerDown,
) -> WorldHandle:
    """Builds the world of a run that goes on where its ledger ends; on ``time`` it is ``down.until`` now."""
    prepare_run(settings, inputs, run)
    engine = adapt_engine(settings, inputs.terms, run)
    absence = Absence.from_clock(run, down, settings.speed)
    parts = _LocalParts.assemble(settings, inputs, run, asks, time, entries)
    with ExitStack() as failed:
        failed.callback(parts.stop_driving)
        restore_market(parts.market, state)
        seen = last_seen(parts.host, state, absence)
        recorded = {name for name in seen if parts.host.ended_at(name) is not None}
        released = {
            instance.name for instance in state.live_instances() if instance.life is InstanceState.ENDING
        }
        end_dead_machines(parts.market, seen, recorded, released)
        repeat_commands(parts.training, entries)
        # A training that has ended reports it before its machines are found gone.
        parts.training.poll(0.0)
        if settings.spec.local.progress == "measured":  # else the model knows its own moments
            down = structs.replace(down, over_at=absence.nominal_at(engine.finished_at()))
        down = structs.replace(down, lapsed_at=absence.lapse_among(seen.values()))
        parts.world.resume(state, entries, down)
        failed.pop_all()
    return parts.build_handle()


@dataclass(frozen=True, slots=True)
class Absence:
    """Converts real to nominal time for the period in which no process drove a run."""

    down: e.ControllerDown
    nominal: float
    real: float
    speed: float
    lapses_at: float = math.inf
    """When the lease of the machines ran out, in nominal time."""

    @classmethod
    def from_clock(cls, run: Run, down: e.ControllerDown, speed: float) -> Absence:
        """Reads the run's clock. Call it before a process drives the run again."""
        real, clock = wall_clock(), NominalClock.open_clock(run.training_folder)
        if clock is None:
            return cls(down, float(down.until), real, speed)
        return cls(down, clock.undriven_at(real), real, speed, clock.lapses_at())

    def nominal_at(self, real: float | None) -> Instant | None:
        """Returns the nominal time at ``real`` (seconds since the epoch), within the absence."""
        if real is None:
            return None
        return self.clamp_to_absence(self.nominal - (self.real - real) * self.speed)

    def lapse_among(self, ends: Iterable[Instant]) -> Instant | None:
        """Returns when the lease ran out, where a machine is among those that ended then; else None."""
        if self.lapses_at > self.down.until:
            return None
        lapsed = self.clamp_to_absence(self.lapses_at)
        # Both are rounded to whole seconds.
        return next((end for end in ends if abs(end - lapsed) <= 1), None)

    def clamp_to_absence(self, nominal: float) -> Instant:
        """Returns a nominal time, clamped to the absence."""
        return Instant(int(min(max(self.down.at, nominal), self.down.until)))


def last_seen(host: LocalHost, state: State, absence: Absence) -> Mapping[str, Instant]:
    """Returns when each machine that died while spotctl was away ended, or last recorded that it lived.

    Machines end by themselves: when the provider takes them, soon after the training is over, or with the
    computer. They record when, and until then that they live, in nominal time. One that never got so far
    counts as gone since spotctl was.
    """
    seen = {}
    for instance in state.live_instances():
        if not host.is_alive(instance.name):
            life = host.read_life(instance.name)
            at = absence.down.at if life is None else life.seen if life.ended is None else life.ended
            seen[instance.name] = absence.clamp_to_absence(at)
    return seen


def end_dead_machines(
    market: SimulatedProvider,
    seen: Mapping[str, Instant],
    recorded: Container[str] = (),
    released: Container[str] = (),
) -> None:
    """Ends dead machines when they were last seen, unless the provider took them before now.

    Machines in ``recorded`` reported their own end: if that was before they would have been taken, they were
    not taken. Machines in ``released`` were being let go; others died by themselves.
    """
    for report in market.describe():
        name, taken_at = report.instance, report.ended_at
        if name not in seen:
            continue
        before = taken_at is not None and name in recorded and seen[name] < taken_at
        if report.standing is not InstanceStatus.ENDED or before:
            market.end_instance(
                name, seen[name], EndReason.RELEASED if name in released else EndReason.FAILED
            )


@dataclass(frozen=True, slots=True)
class _LocalParts:
    market: SimulatedProvider
    engine: EngineAdapter
    host: LocalHost
    training: Training
    world: TraceWorld
    time: TimeSource
    clock: ClockDriver

    @classmethod
    def assemble(
        cls,
        settings: Settings,
        inputs: RunInputs,
        run: Run,
        asks: RequestSource,
        time: TimeSource,
        on_record: Sequence[e.Entry],
    ) -> _LocalParts:
        terms = inputs.terms
        engine = adapt_engine(settings, terms, run)
        host = HOSTS[terms.engine.kind](run.training_folder, settings.spec.envs)
        boot_s = ceil(settings.spec.local.boot)
        lease_s = settings.spec.local.lease
        clock = ClockDriver(run.training_folder, float(time.now), settings.speed, lease_s=lease_s)
        with ExitStack() as failed:
            # Machines whose clock is driven keep their lease, so a failure must not leave it driven.
            failed.callback(clock.close)
            time.add_follower(clock)
            failed.callback(time.remove_follower, clock)
            market = SimulatedProvider(
                inputs.trace, terms.rules, boot_s, lambda: time.now, inputs.capacity, terms.own_rules
            )
            training = _build_training(settings, engine, terms, host, on_record)
            provider = LocalProvider(market, host)
            world = TraceWorld(time, inputs.trace, provider, training, asks, terms)
            failed.pop_all()
        return cls(market, engine, host, training, world, time, clock)

    def stop_driving(self) -> None:
        self.time.remove_follower(self.clock)
        self.clock.close()

    def build_handle(self) -> WorldHandle:
        def close() -> None:
            try:
                end_training(self.training, self.host)
            finally:
                self.stop_driving()

        return WorldHandle(
            self.world,
            close=close,
            abandon=close,
            machines_left=lambda: len(self.host.alive_machines()),
            scoring=self.engine.plan_scoring,
        )


def end_training(training: Training, host: LocalHost) -> None:
    """Ends the training and all machines; the machines also where the first raises, as on a full disk."""
    try:
        training.close()
    finally:
        host.kill_all()


def _build_training(
    settings: Settings, engine: EngineAdapter, terms: RunSpec, host: LocalHost, on_record: Sequence[e.Entry]
) -> Training:
    """Builds the training.

    Measured: every message of the training is a fact. Modelled: facts are the model's, and nothing that the
    training itself says is recorded.
    """
    if settings.spec.local.progress == "measured":
        return engine.build_training(host, on_record)
    model = ReplayedFacts(simulate_training(terms), on_record)
    return ShadowedTraining(model, engine.build_training(host, []))
