"""Tests when the agent of a machine has seen enough deaths of a role; what it does then:
``test_local_host.py``.
"""

from __future__ import annotations

import signal

import pytest

from agileml.role_agent import deaths_in_a_row

KILLED, HUNG, FAILED = -signal.SIGKILL, None, 1


@pytest.mark.parametrize(
    ("lived_s", "code", "counted"),
    [
        (2.0, KILLED, 4),
        (2.0, HUNG, 4),
        (2.0, FAILED, 4),
        (60.0, KILLED, 1),  # it was well for a while: whatever kills it is not the application
        (60.0, HUNG, 1),
        (60.0, FAILED, 4),  # it read its input for a minute, and failed as before
        (3600.0, FAILED, 1),
    ],
)
def test_who_fails_again_as_soon_as_it_can_is_not_started_for_ever(
    lived_s: float, code: int | None, counted: int
) -> None:
    assert deaths_in_a_row(3, lived_s, code) == counted
