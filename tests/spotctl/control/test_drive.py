"""What is on record is enough to go on: the fold, and what may not have been executed."""

from __future__ import annotations

import pytest

from pricing_data.model.billing import EndReason
from pricing_data.model.market import PriceHistory
from pricing_data.model.units import Instant, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.drive import drive, fold_entries, start_run, unexecuted_commands
from spotctl.records.ledger import Ledger
from tests.spotctl.build import MARKETS, RELIABLE, START, Silent, terms

STARTED = e.JobStarted(START, terms())
RELIABLE_ASKED = e.Acquire(START, "r1", RELIABLE.market, 1, None, reliable=True)
SPOT_ASKED = e.Acquire(START, "s1", MARKETS[0], 2, UsdPerHour(0.1))
GRANTED = (e.Granted(START, "r1", ("r1-1",)), e.Granted(START, "s1", ("s1-1", "s1-2")))
RELEASED = e.Release(START, ("s1-1", "s1-2"), "the job is over")


def pending(*entries: e.Entry) -> tuple[e.Command, ...]:
    whole = (STARTED, *entries)
    return unexecuted_commands(whole, fold_entries(whole, PriceHistory()))


def test_requests_without_an_answer_may_not_have_been_heard() -> None:
    assert pending(RELIABLE_ASKED, SPOT_ASKED) == (RELIABLE_ASKED, SPOT_ASKED)
    assert pending(RELIABLE_ASKED, SPOT_ASKED, GRANTED[0]) == (SPOT_ASKED,)
    refused = e.Refused(START, "s1", "CapacityUnavailable", "no machines")
    assert pending(RELIABLE_ASKED, SPOT_ASKED, GRANTED[0], refused) == ()


def test_nor_releases_of_machines_that_live() -> None:
    asked = (RELIABLE_ASKED, SPOT_ASKED, *GRANTED, RELEASED)
    assert pending(*asked) == (RELEASED,)
    one = e.InstancesEnded(START, ("s1-1",), EndReason.RELEASED)
    assert pending(*asked, one) == (RELEASED,)
    other = e.InstancesEnded(START, ("s1-2",), EndReason.EVICTED)
    assert pending(*asked, one, other) == ()


def test_a_ledger_begins_with_the_terms_of_its_run() -> None:
    with pytest.raises(ValueError, match="a ledger begins with JobStarted, not with Woke"):
        fold_entries((e.Woke(START),), PriceHistory())


class Refusing:
    """A world in which nothing can be had, and which looks at the record whenever it is asked anything."""

    def __init__(self, record: Ledger) -> None:
        self._record = record
        self._facts: list[e.Fact] = [e.PriceChanged(START, market, UsdPerHour(0.04)) for market in MARKETS]
        self.seen: list[tuple[e.Command, bool]] = []

    def next_fact(self) -> e.Fact:
        return self._facts.pop(0)

    def execute(self, command: e.Command) -> None:
        self.seen.append((command, command in self._record.read_entries()))
        if isinstance(command, e.Acquire):
            self._facts.append(
                e.Refused(Instant(START + 5), command.allocation, "QuotaExceeded", "none left")
            )


def test_nothing_is_executed_that_is_not_on_record() -> None:
    ledger = Ledger.in_memory()
    world, observer = Refusing(ledger), Silent()
    state = drive(start_run(STARTED, PriceHistory(), ledger, observer), world, ledger, observer)
    assert [(type(command), durable) for command, durable in world.seen] == [
        (e.Acquire, True),
        (e.Close, True),
    ]
    assert state.ending.closed == e.Close(
        Instant(START + 5),
        e.RunOutcome.FAILED,
        5,
        "no reliable machine could be had: QuotaExceeded: none left",
    )
    assert tuple(observer.seen) == ledger.read_entries()


def test_a_request_that_was_made_again_counts_from_then() -> None:
    """Else a second restart would have its machines run, and be evicted, before they were granted."""
    later = Instant(START + 5000)
    entries = (STARTED, RELIABLE_ASKED, e.ControllerDown(START, later), e.Granted(later, "r1", ("r1-1",)))
    state = fold_entries(entries, PriceHistory())
    assert state.allocations["r1"].requested_at == later
    assert unexecuted_commands(entries, state) == ()
