"""Opens a run: its folder and record, its world, and both again after a crash.

``launch`` uses it for one job, and a queue for each of its jobs. The caller holds the job's lock, drives
the world and closes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from spotctl.control import entries as e
from spotctl.control.drive import fold_entries, start_run, unexecuted_commands
from spotctl.control.evolve import initial_state as begin_state
from spotctl.control.state import State
from spotctl.errors import LedgerError
from spotctl.job.choices import WorldKind
from spotctl.job.resolve import RunInputs
from spotctl.job.settings import Settings
from spotctl.records.run import Run, RunStore, replay_runs
from spotctl.timesource import TimeSource, wall_clock

if TYPE_CHECKING:  # a plan opens nothing: it needs neither records nor worlds
    from spotctl.records.ledger import Ledger
    from spotctl.worlds.handle import WorldHandle
    from spotctl.worlds.world import RequestSource


class RunObserver(Protocol):
    """Watches a run."""

    def on_start(self, run: Run, prices: str) -> None:
        """Notes that a run begins or goes on, at prices of that name."""
        ...

    def on_entry(self, state: State, entry: e.Entry) -> None: ...


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """Holds a run that is on record: its ledger is open, its world not built yet."""

    run: Run
    ledger: Ledger
    settings: Settings
    inputs: RunInputs
    state: State
    entries: tuple[e.Entry, ...] = ()
    """What the ledger held when it was opened again; empty for a new one."""

    def build_world(self, asks: RequestSource, time: TimeSource) -> WorldHandle:
        """Builds the world of a new run. Raises UsageError where the job cannot work here."""
        if self.settings.world is WorldKind.REPLAY:
            from spotctl.worlds.replay import replay_world

            return replay_world(self.inputs, asks, time)
        from spotctl.worlds.local import local_world  # processes and sockets, only where they are wanted

        return local_world(self.settings, self.inputs, self.run, asks, time)

    def prepare(self) -> None:
        """Finishes what a killed process had not prepared: input that is not cut yet, say."""
        if self.settings.world is WorldKind.LOCAL:
            from spotctl.worlds.local import prepare_run

            prepare_run(self.settings, self.inputs, self.run)

    def build_resumed_world(
        self, asks: RequestSource, time: TimeSource, down: e.ControllerDown
    ) -> WorldHandle:
        """Builds the world of a resumed run; commands on record without an answer are executed again."""
        if self.settings.world is WorldKind.REPLAY:
            from spotctl.worlds.replay import resumed_replay_world

            built = resumed_replay_world(self.inputs, asks, time, self.state, self.entries, down)
        else:
            from spotctl.worlds.local import resumed_local_world

            built = resumed_local_world(
                self.settings, self.inputs, self.run, asks, time, self.state, self.entries, down
            )
        try:
            # Commands carry tokens, so one that was carried out before the crash has no second effect.
            for command in unexecuted_commands(self.entries, self.state):
                built.world.execute(command)
        except BaseException:
            built.abandon()
            raise
        return built


def create_run(runs: RunStore, settings: Settings, inputs: RunInputs, observer: RunObserver) -> RecordedRun:
    """Creates a run of ``inputs`` and records its beginning, and its prices as they are now."""
    from spotctl.records.ledger import Ledger

    run = runs.create_run(settings.spec.name)
    # Only the store of runs knows which name is free.
    inputs = inputs.with_run_name(run.id)
    ledger = Ledger.open_file(run.ledger_path)
    try:
        # Durable before the ledger begins, since resuming needs it.
        run.prices.save(inputs.trace, inputs.capacity)
        ledger.put_note("settings", settings.to_text())
        started = e.JobStarted(inputs.terms.start, inputs.terms)
        state = start_run(started, inputs.trace, ledger, observer, inputs.capacity)
    except BaseException:
        ledger.close()
        run.discard()
        raise
    observer.on_start(run, inputs.terms.origin.prices)
    return RecordedRun(run, ledger, settings, inputs, state)


def opening_state(inputs: RunInputs) -> State:
    """Returns the state of a run of ``inputs`` before anything is on record."""
    started = e.JobStarted(inputs.terms.start, inputs.terms)
    return begin_state(started, inputs.trace, inputs.capacity)


def reopen_run(run: Run, ledger: Ledger, settings: Settings) -> RecordedRun:
    """Opens a run again as its record has it: prices or the catalogue may have changed since the start."""
    entries = ledger.read_entries()
    # From the run's own folder, whatever has become of their source.
    trace, capacity = run.prices.load_prices(), run.prices.load_capacity()
    state = fold_entries(entries, trace, capacity)
    return RecordedRun(run, ledger, settings, RunInputs(state.terms, trace, capacity), state, entries)


def has_begun(run: Run) -> bool:
    """Tells whether a run has requested any machine; if not it was refused, or killed while it was made."""
    # A machine may exist before its entry does, after a kill between the two.
    return bool(run.fold_state().allocations) or run.has_machines()


def settings_of(run: Run) -> Settings:
    """Returns the settings of a launch. Raises LedgerError where the record has none."""
    from spotctl.records.ledger import Ledger

    ledger = Ledger.open_file(run.ledger_path)
    try:
        text = ledger.read_note("settings")
    finally:
        ledger.close()
    if text is None:
        raise LedgerError(f"{run.folder}: the record does not say what was launched")
    return Settings.parse(text)


def undriven_now(run: Run) -> float | None:
    """Returns the nominal time of a run that no process drives, by its machines' clock; None without one."""
    from agileml.node.hosts.nominal_time import NominalClock  # only where there are processes

    clock = NominalClock.open_clock(run.training_folder)
    return None if clock is None else clock.undriven_at(wall_clock())


def runs_of(world: WorldKind) -> RunStore:
    """Returns the records of a world's runs. Replays cost nothing and are kept apart: reports never add them
    up.
    """
    return replay_runs() if world is WorldKind.REPLAY else RunStore()
