"""What a world needs of a training: be told about machines, say what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, get_args

from pricing_data.model.units import Instant, Seconds, later
from spotctl.control.entries import Entry, Fact, Tell, TellJoin, TellWarning
from spotctl.control.run_spec import Terms
from spotctl.timesource import Effect

NOTICE_FLOOR_S: Final = 10.0
"""Real seconds of notice that a training of real processes gets at least, however fast time runs."""


END_FLOOR_S: Final = 300.0
"""Real seconds that a training of real processes gets at least to end and save its model."""


class Training(Protocol):
    """A training under way, modelled or real. Commands are numbered from 1, without gaps."""

    def tell(self, number: int, command: Tell) -> None:
        """Pass a command on. Told again under the same number, it has no further effect."""
        ...

    def facts(self, now: Instant) -> tuple[Fact, ...]:
        """What has become known by ``now`` and was not returned before, in order; never waits."""
        ...

    def next_change(self, after: Instant) -> Instant | None:
        """When ``facts`` will next have news, where that is known beforehand; else None."""
        ...

    def unfinished(self) -> tuple[Effect, ...]:
        """Real effects that nominal time may not run past."""
        ...

    def poll(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` real seconds for news; whether there is any.

        Only called when everything that ``facts`` returned is in the ledger.
        """
        ...

    def close(self) -> None: ...


def tells(entries: Iterable[Entry]) -> tuple[Tell, ...]:
    """What a training was told by a ledger's ``entries``, in order: the first has number 1."""
    return tuple(entry for entry in entries if isinstance(entry, get_args(Tell)))


def tell_again(training: Training, entries: Iterable[Entry]) -> None:
    """Tell a training, after a restart, all that is on record."""
    for number, command in enumerate(tells(entries), start=1):
        training.tell(number, command)


# ---- what nominal time waits for, where processes are real ---------------------------------------


def joins(machine: str, told: TellJoin, sigma_s: Seconds, floor_s: float) -> Effect:
    """The machine takes part, sigma after it was told to."""
    return Effect(f"{machine} joins", later(told.at, sigma_s), floor_s)


def made_safe(machine: str, told: TellWarning) -> Effect:
    """Nothing would be lost with the machine, which is still there while time holds."""
    return Effect(f"{machine} is safe to kill", Instant(told.ends_at - 1), NOTICE_FLOOR_S)


def ends(since: Instant, terms: Terms) -> Effect:
    """It has stopped, and saved its model, before it is given up; ``since`` when it should."""
    due = Instant(later(since, terms.end_within_s) - 1)
    return Effect("the training ends", due, END_FLOOR_S, needs_work=True)


def notice_s(told: TellWarning, speed: float) -> float:
    """Real seconds: the nominal notice at ``speed``, but never less than its floor."""
    return max((told.ends_at - told.at) / speed, NOTICE_FLOOR_S)
