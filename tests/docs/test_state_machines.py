"""The page about state machines says what the tables say."""

from __future__ import annotations

from tests.docs.state_machines import PAGE, page


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == page(), "stale: run python -m tests.docs.state_machines"
