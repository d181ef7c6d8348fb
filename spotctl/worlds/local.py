"""The local world: the replay's market and clockwork, paced, with real machines and a real training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final, get_args

from agileml.app import ApplicationError
from agileml.events import Setup
from agileml.hosts.client import TrainingClient
from agileml.hosts.job import Job, JobFolder
from agileml.hosts.local import LocalHost
from spotctl.config import JobSpec
from spotctl.control import events as e
from spotctl.control.state import State
from spotctl.control.terms import Terms
from spotctl.errors import UsageError
from spotctl.interrupts import Interrupts
from spotctl.models import keep_model, score_model
from spotctl.providers.base import Order
from spotctl.providers.local import LocalProvider
from spotctl.providers.simulated import SimulatedProvider
from spotctl.resolve import Resolved
from spotctl.runs import Run
from spotctl.settings import Settings
from spotctl.simulator.training import ModelledTraining
from spotctl.timesource import PacedTime
from spotctl.worlds.agileml import HEARD, AgileMLTraining
from spotctl.worlds.built import BuiltWorld
from spotctl.worlds.paired import PairedTraining
from spotctl.worlds.trace import TraceWorld
from spotctl.worlds.training import Training

_NO_LAST_CLOCK: Final = 1_000_000_000
"""For jobs that end by time or convergence."""


def local_world(settings: Settings, resolved: Resolved, run: Run, interrupts: Interrupts) -> BuiltWorld:
    """The world of a new run. Raises UsageError where application and data do not fit."""
    _prepare(settings, resolved.terms, run)
    time = PacedTime(resolved.terms.start, settings.speed)
    return _Parts.of(settings, resolved, run, interrupts, time, on_record=()).built(run, settings.spec)


def resumed_local_world(
    settings: Settings,
    resolved: Resolved,
    run: Run,
    interrupts: Interrupts,
    state: State,
    entries: Sequence[e.Entry],
    down: e.ControllerDown,
) -> BuiltWorld:
    """The world of a run that goes on where its ledger ends, ``down.until`` being now."""
    if not JobFolder(run.training).prepared:
        _prepare(settings, resolved.terms, run)
    time = PacedTime(down.until, settings.speed)
    parts = _Parts.of(settings, resolved, run, interrupts, time, entries)
    parts.restore(state)
    tells = [entry for entry in entries if isinstance(entry, get_args(e.Tell))]
    for number, command in enumerate(tells, start=1):
        parts.training.tell(number, command)
    parts.training.poll(0.0)  # a training that has ended says so before its machines are found gone
    parts.world.resume(state, len(tells), down)
    return parts.built(run, settings.spec)


@dataclass(frozen=True, slots=True)
class _Parts:
    market: SimulatedProvider
    host: LocalHost
    training: Training
    world: TraceWorld

    @classmethod
    def of(
        cls,
        settings: Settings,
        resolved: Resolved,
        run: Run,
        interrupts: Interrupts,
        time: PacedTime,
        on_record: Sequence[e.Entry],
    ) -> _Parts:
        terms, host = resolved.terms, LocalHost(run.training, settings.spec.envs)
        boot_s = ceil(settings.spec.local.boot)
        market = SimulatedProvider(resolved.trace, terms.rules, boot_s, lambda: time.now, resolved.capacity)
        training = _training(settings, terms, run, on_record)
        interrupts.rested = time.rest
        provider = LocalProvider(market, host)
        world = TraceWorld(time, resolved.trace, provider, training, interrupts, terms)
        return cls(market, host, training, world)

    def restore(self, state: State) -> None:
        """The market's side of what is on record: what was granted, and what has ended."""
        for allocation in state.allocations.values():
            if not allocation.instances:
                continue
            order = Order(
                allocation.name,
                allocation.market,
                allocation.count,
                allocation.bid,
                state.terms.tradable(allocation.market).cores,
                allocation.reliable,
            )
            self.market.restore(order, allocation.requested_at)
            for instance in state.of(allocation.name):
                if instance.ended_at is not None and instance.end is not None:
                    self.market.end(instance.name, instance.ended_at, instance.end)

    def built(self, run: Run, spec: JobSpec) -> BuiltWorld:
        def close() -> None:
            self.training.close()
            self.host.kill_all()

        return BuiltWorld(
            self.world,
            close=close,
            leave=self.training.close,
            abandon=close,
            machines_left=lambda: len(self.host.leftovers()),
            score=lambda state: (
                score_model(JobFolder(run.training), Path(spec.data)) if state.model else None
            ),
        )


def _training(settings: Settings, terms: Terms, run: Run, on_record: Sequence[e.Entry]) -> Training:
    """Measured: every message of the trainer is a fact. Modelled: facts are the model's, and nothing of what
    the trainer says is on record."""
    reported = [entry for entry in on_record if isinstance(entry, HEARD)]
    modelled = settings.spec.local.progress == "modelled"
    heard = [] if modelled else reported
    client = TrainingClient(run.training, told=0, heard=len(heard))

    def keep(_: str) -> str:
        return str(keep_model(JobFolder(run.training), Path(settings.spec.output)))

    real = AgileMLTraining(client, terms, settings.speed, keep, heard)
    if not modelled:
        return real
    told = sum(not isinstance(entry, e.ObjectiveReported) for entry in reported)
    return PairedTraining(ModelledTraining(terms), real, told)


def _prepare(settings: Settings, terms: Terms, run: Run) -> None:
    """Cut the input and write down what the processes need to know."""
    spec = settings.spec
    for what, place in (("data", spec.data), ("output", spec.output)):
        if "://" in place:
            raise UsageError(
                f"{what}: {place} is not on this machine; this version reads and writes files only"
            )
    setup = Setup(
        partitions=spec.training.partitions,
        shards=spec.training.shards,
        clocks=spec.stop.clocks or _NO_LAST_CLOCK,
        staleness=spec.training.staleness,
        stage2_above=spec.scaling.stage2_above,
        stage3_above=spec.scaling.stage3_above,
    )
    paced_s = terms.core_seconds_per_clock / settings.speed if spec.local.throttle else 0.0
    job = Job(spec.app, dict(spec.args), setup, core_seconds_per_clock=paced_s)
    try:
        JobFolder.prepare(run.training, job, Path(spec.data))
    except ApplicationError as error:
        raise UsageError(f"{spec.data}: {error}") from error
