"""Defines what a world needs of a training: it takes news of machines, and reports what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, get_args

from pricing_data.model.units import Instant, Seconds, seconds_after
from spotctl.control.entries import Entry, EvictionNoticed, Fact, Tell, TellJoin, TellWarning
from spotctl.control.run_spec import RunSpec
from spotctl.timesource import Effect

NOTICE_FLOOR_S: Final = 10.0
"""Real seconds of notice that a training of real processes gets at least, however fast time runs."""


END_FLOOR_S: Final = 300.0
"""Real seconds that a training of real processes gets at least to end and save its model."""


class MachineControl(Protocol):
    """Answers what a training asks of the machines that it runs on."""

    def is_alive(self, machine: str) -> bool: ...

    def kill(self, machine: str) -> None:
        """Ends a machine that hangs; it is then gone like one that failed."""
        ...


class Training(Protocol):
    """Represents a training under way, simulated or real. Commands are numbered from 1, without gaps."""

    def send_command(self, number: int, command: Tell) -> None:
        """Passes a command on. Repeated under the same number, it has no further effect."""
        ...

    def take_facts(self, now: Instant) -> tuple[Fact, ...]:
        """Returns what has become known by ``now`` and was not returned before, in order; never waits."""
        ...

    def next_change(self, after: Instant) -> Instant | None:
        """Returns when ``take_facts`` will next have news, where that is known beforehand; else None."""
        ...

    def pending_effects(self) -> tuple[Effect, ...]:
        """Returns real effects that nominal time may not run past."""
        ...

    def poll(self, timeout_s: float) -> bool:
        """Waits up to ``timeout_s`` real seconds for news; returns whether there is any.

        Only called when everything that ``take_facts`` returned is in the ledger.
        """
        ...

    def close(self) -> None: ...


def commands_to_training(entries: Iterable[Entry]) -> tuple[Tell, ...]:
    """Returns the commands to the training in a ledger's ``entries``, in order: the first has number 1."""
    return tuple(entry for entry in entries if isinstance(entry, get_args(Tell)))


def repeat_commands(training: Training, entries: Iterable[Entry]) -> None:
    """Repeats to a training, after a restart, all commands on record."""
    for number, command in enumerate(commands_to_training(entries), start=1):
        training.send_command(number, command)


# ---- what nominal time waits for, where processes are real ---------------------------------------


def join_effect(machine: str, told: TellJoin, sigma_s: Seconds, floor_s: float) -> Effect:
    """Returns the effect that the machine takes part, sigma after it was told to."""
    return Effect(f"{machine} joins", seconds_after(told.at, sigma_s), floor_s)


def safe_effect(machine: str, told: TellWarning) -> Effect:
    """Returns the effect that the machine is safe to kill; it is still there while time stands still."""
    return Effect(f"{machine} is safe to kill", Instant(told.ends_at - 1), NOTICE_FLOOR_S)


def end_effect(since: Instant, terms: RunSpec) -> Effect:
    """Returns the effect that training has stopped and saved its model; ``since``: when it should."""
    due = Instant(seconds_after(since, terms.end_within_s) - 1)
    return Effect("the training ends", due, END_FLOOR_S, needs_work=True)


def noticed_eviction(now: Instant, machine: str, real_s: float, speed: float) -> EvictionNoticed:
    """Returns the fact that a machine heard of its eviction ``real_s`` seconds before it, in nominal time."""
    return EvictionNoticed(now, machine, seconds_after(now, real_s * speed))


def notice_s(told: TellWarning, speed: float) -> float:
    """Returns real seconds of notice: the nominal notice at ``speed``, but never less than its floor."""
    return max((told.ends_at - told.at) / speed, NOTICE_FLOOR_S)
