"""Runs the loop: records and folds a fact, records and folds the commands that follow, then executes them.

Nothing is executed before it is durable. After a crash between recording and executing,
``unexecuted_commands`` finds what is left to do.
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
        """Waits for the next fact, however long it takes. By now the fact before is on record."""
        ...

    def execute(self, command: e.Command) -> None:
        """Carries out a command that is durable. Expected refusals become facts; only bugs raise."""
        ...


class EntrySink(Protocol):
    """Receives entries. A ledger keeps them; a backtest, whose history nobody needs, drops them."""

    def append(self, entry: e.Entry) -> int: ...

    def commit(self) -> None:
        """Makes all appended entries durable."""
        ...


class EntryObserver(Protocol):
    """Watches a run, as the live view and the JSON lines do."""

    def on_entry(self, state: State, entry: e.Entry) -> None:
        """Receives each entry; ``state`` is the fold up to and including it."""
        ...


def drive(state: State, world: World, ledger: EntrySink, observer: EntryObserver) -> State:
    """Drives the run until it is closed; returns its final state."""
    while state.phase is not Phase.CLOSED:
        state, commands = process_fact(state, world.next_fact(), ledger, observer)
        # The commands are on disk by now: after a crash here they may run twice, but never not at all.
        for command in commands:
            world.execute(command)
    # The last prices and wake-ups, if they led to no command, are still uncommitted.
    ledger.commit()
    return state


def process_fact(
    state: State, fact: e.Fact, ledger: EntrySink, observer: EntryObserver
) -> tuple[State, tuple[e.Command, ...]]:
    """Records and folds a fact and the commands that follow from it. Returns the state and those commands."""
    state = _append_entry(state, fact, ledger, observer)
    commands = plan_after(fact, state)
    for command in commands:
        state = _append_entry(state, command, ledger, observer)
    # A commit waits for the disk, and prices are most of all facts. A lost price or wake-up comes again.
    if commands or not isinstance(fact, (e.PriceChanged, e.Woke)):
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
    """Records the first entry of a run, and returns the state that ``evolve.initial_state`` makes of it."""
    ledger.append(terms_entry)
    ledger.commit()
    state = initial_state(terms_entry, history, capacity, crossings)
    observer.on_entry(state, terms_entry)
    return state


def fold_entries(
    entries: Sequence[e.Entry], history: PriceHistory, capacity: Observations = UNWATCHED
) -> State:
    """Returns the state after a ledger's ``entries``.

    ``history`` and ``capacity``: prices and machine lifetimes from before the start. Only the estimates of
    evictions depend on them. Raises ValueError where ``entries`` do not begin with JobStarted.
    """
    first = entries[0]
    if not isinstance(first, e.JobStarted):
        raise ValueError(f"a ledger begins with JobStarted, not with {type(first).__name__}")
    return reduce(evolve, entries[1:], initial_state(first, history, capacity))


def unexecuted_commands(entries: Sequence[e.Entry], state: State) -> tuple[e.Command, ...]:
    """Returns recorded commands that a crash may have kept from the world.

    These are requests without an answer, and releases of instances that still live.
    """
    # Whether they were executed is unknown. The provider's contract makes it harmless to repeat them.
    pending: list[e.Command] = []
    for entry in entries:
        if isinstance(entry, e.Acquire):
            if state.allocations[entry.allocation].awaits_answer:
                pending.append(entry)
        elif isinstance(entry, e.Release) and any(state.instances[name].is_live for name in entry.instances):
            pending.append(entry)
    return tuple(pending)
