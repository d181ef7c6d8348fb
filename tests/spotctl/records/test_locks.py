"""Locks between processes, where their files come and go."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spotctl.records.locks import JobLocked, hold_lock, is_held


def test_a_lock_that_does_not_exist_is_not_held(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "nobody" / "lock")
    with hold_lock(tmp_path / "job" / "lock"):
        assert is_held(tmp_path / "job" / "lock")
        with pytest.raises(JobLocked, match="job"), hold_lock(tmp_path / "job" / "lock"):
            raise AssertionError("two hold one lock")
    assert not is_held(tmp_path / "job" / "lock")


def test_a_lock_may_vanish_while_it_is_checked(tmp_path: Path) -> None:
    """A refused launch removes its lock, and ``status`` may look at any moment."""
    lock, enough = tmp_path / "lock", threading.Event()

    def come_and_go() -> None:
        while not enough.is_set():
            lock.touch()
            lock.unlink()

    refused = threading.Thread(target=come_and_go)
    refused.start()
    try:
        assert not any(is_held(lock) for _ in range(20_000))
    finally:
        enough.set()
        refused.join()
