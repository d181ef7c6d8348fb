"""What other processes ask of a run is taken up, wherever the process that runs it dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from spotctl.control import entries as e
from spotctl.records.ledger import Ledger
from spotctl.session.interrupts import Answer, Interrupts
from spotctl.timesource import sleep
from tests.spotctl.build import START

_LOOKS_AGAIN_S = 0.25


class Nobody:
    """A watcher that is never asked."""

    def ask_interrupt(self, withdrawn: Event) -> Answer:
        raise AssertionError("nobody pressed Ctrl-C")

    def leave_terminal(self, why: str) -> None:
        raise AssertionError("nobody closed a terminal")

    def suspend(self) -> None:
        raise AssertionError("nobody pressed Ctrl-Z")

    def resume(self) -> None:
        """Harmless."""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open_file(tmp_path / "ledger.db")
    opened.leave_request("down")
    yield opened
    opened.close()


def begun(ledger: Ledger) -> Interrupts:
    """Of a process that begins to run the job now."""
    return Interrupts(ledger, Nobody())


def test_a_request_is_found_again_by_the_next_process_until_it_is_on_record(ledger: Ledger) -> None:
    """The facts of a moment are recorded one by one, and this one is among the last of them."""
    assert begun(ledger)() == (e.UserRequest.DOWN,)
    ledger.append(e.Progressed(START, 1, 0))
    ledger.commit()
    assert begun(ledger)() == (e.UserRequest.DOWN,), "killed before it was recorded, and nobody has done it"


def test_a_request_that_is_on_record_is_given_to_nobody_again(ledger: Ledger) -> None:
    interrupts = begun(ledger)
    assert interrupts() == (e.UserRequest.DOWN,)
    ledger.append(e.Asked(START, e.UserRequest.DOWN))
    ledger.commit()
    sleep(_LOOKS_AGAIN_S)
    assert interrupts() == ()
    ledger.commit()
    assert begun(ledger)() == ()
