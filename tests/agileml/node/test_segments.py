from __future__ import annotations

from multiprocessing.shared_memory import SharedMemory

from tests.agileml.processes.segments import orphans, segments


def test_a_segment_that_somebody_maps_is_no_orphan_and_one_left_behind_is() -> None:
    before = segments()
    held = SharedMemory(create=True, size=64)
    try:
        assert held.name in segments() - before
        assert held.name not in orphans(since=before)
        held.close()
        assert held.name in orphans(since=before)
    finally:
        held.unlink()
    assert held.name not in orphans(since=before)
