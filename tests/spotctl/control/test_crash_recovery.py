"""What a crash between recording a request and making it leaves, and what the restart makes of it."""

from __future__ import annotations

from pricing_data.model.market import PriceHistory
from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.control.drive import fold_entries, unexecuted_commands
from tests.spotctl.build import RELIABLE, START, terms

ASKED = e.Acquire(START, "r1", RELIABLE.market, 1, None, reliable=True)
LATER = Instant(START + 5000)


def test_a_request_that_was_made_again_counts_from_then() -> None:
    """Else a second restart would have its machines run, and be evicted, before they were granted."""
    entries = (
        e.JobStarted(START, terms()),
        ASKED,
        e.ControllerDown(START, LATER),
        e.Granted(LATER, "r1", ("r1-1",)),
    )
    state = fold_entries(entries, PriceHistory())
    assert state.allocations["r1"].requested_at == LATER
    assert unexecuted_commands(entries, state) == ()
