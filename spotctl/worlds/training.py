"""What a world needs of a training: be told about machines, say what came of it."""

from __future__ import annotations

from typing import Protocol

from pricing_data.units import Instant
from spotctl.control.events import Fact, Tell
from spotctl.timesource import Effect


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
