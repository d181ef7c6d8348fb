"""Runs the loop: record and fold a fact, record and fold what follows from it, then execute that.

Nothing is executed before it is durable. If a crash comes between recording and executing,
``unexecuted_commands`` finds what is left to do when the run is resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Protocol

from bidbrain.eviction.price.price_crossing import PriceCrossing
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import PriceHistory
from spotctl.control import entries as e
from spotctl.control.evolve import UNWATCHED, evolve, initial_state
from spotctl.control.state import State
from spotctl.control.state_values import Phase
from spotctl.control.step import plan_after


class World(Protocol):
    """Supplies facts and executes commands."""

    def next_fact(self) -> e.Fact:
        """Waits for the next fact, as long as it takes. By now the one before is recorded."""
        ...

    def execute(self, command: e.Command) -> None:
        """Carries out a durable command. An expected refusal becomes a fact; only bugs raise."""
        ...


class EntrySink(Protocol):
    """Receives entries: a ledger, or nothing in a world whose history nobody needs."""

    def append(self, entry: e.Entry) -> int: ...

    def commit(self) -> None:
        """Makes all appended entries durable."""
        ...


class EntryObserver(Protocol):
    """Watches a run: the live view, the JSON lines, a test."""

    def on_entry(self, state: State, entry: e.Entry) -> None:
        """Receives each entry; ``state`` is the fold up to and including it."""
        ...


def drive(state: State, world: World, ledger: EntrySink, observer: EntryObserver) -> State:
    """Runs until the job is closed; returns the final state."""
    while state.phase is not Phase.CLOSED:
        state, commands = process_fact(state, world.next_fact(), ledger, observer)
        # The commands are on disk by now, so a crash from here on repeats them at most.
        for command in commands:
            world.execute(command)
    # Prices and wake-ups that led to no command are still uncommitted.
    ledger.commit()
    return state


def process_fact(
    state: State, fact: e.Fact, ledger: EntrySink, observer: EntryObserver
) -> tuple[State, tuple[e.Command, ...]]:
    """Records and folds a fact and what follows from it; returns the new state and the commands to
    execute.
    """
    state = _append_entry(state, fact, ledger, observer)
    commands = plan_after(fact, state)
    for command in commands:
        state = _append_entry(state, command, ledger, observer)
    if commands or not isinstance(fact, (e.PriceChanged, e.Woke)):  # those two can be derived again
        ledger.commit()
    return state, commands


def _append_entry(state: State, entry: e.Entry, ledger: EntrySink, observer: EntryObserver) -> State:
    ledger.append(entry)
    state = evolve(state, entry)
    observer.on_entry(state, entry)
    return state


def start_run(
    terms_entry: e.JobStarted,
    history: PriceHistory,
    ledger: EntrySink,
    observer: EntryObserver,
    capacity: Observations = UNWATCHED,
    crossings: PriceCrossing | None = None,
) -> State:
    """Opens a ledger with the spec of its run. See ``evolve.initial_state`` for what the state is made
    from.
    """
    ledger.append(terms_entry)
    ledger.commit()
    state = initial_state(terms_entry, history, capacity, crossings)
    observer.on_entry(state, terms_entry)
    return state


def fold_entries(
    entries: Sequence[e.Entry], history: PriceHistory, capacity: Observations = UNWATCHED
) -> State:
    """Returns the state that a ledger stands for.

    Without what was known before the start (empty histories) only the estimates of evictions differ.
    """
    first = entries[0]
    if not isinstance(first, e.JobStarted):
        raise ValueError(f"a ledger begins with JobStarted, not with {type(first).__name__}")
    return reduce(evolve, entries[1:], initial_state(first, history, capacity))


def unexecuted_commands(entries: Sequence[e.Entry], state: State) -> tuple[e.Command, ...]:
    """Returns recorded commands that the world may not have heard of.

    These are requests without an answer, and releases of instances that have not ended. Executing them again
    is harmless (see the provider's contract).
    """
    pending: list[e.Command] = []
    for entry in entries:
        if isinstance(entry, e.Acquire):
            if state.allocations[entry.allocation].awaits_answer:
                pending.append(entry)
        elif isinstance(entry, e.Release) and any(state.instances[name].is_live for name in entry.instances):
            pending.append(entry)
    return tuple(pending)
