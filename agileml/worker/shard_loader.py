"""Reads shards for a worker: in the background what it should have soon, at once what it computes now.

Only the worker's own thread touches the cache; the reading is done by threads that know nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from agileml.api import Arrays
from agileml.worker.shard_cache import ShardCache

_REPORT_AFTER_S: Final = 1.0
"""While reading goes on, loaded shards are reported no more often than this."""


class ShardLoader:
    """Loads shards into the cache. ``wake_fd`` becomes readable when one was read; ``collect_loaded`` then
    adds it.

    Errors of ``read`` are raised at the next call: a worker that cannot read its input ends, and is started
    again.
    """

    def __init__(self, read: Callable[[int], Arrays], cache: ShardCache, threads: int) -> None:
        self._read = read
        self._cache = cache
        self._background = ThreadPoolExecutor(1)
        self._foreground = ThreadPoolExecutor(threads)
        self._reading: tuple[int, Future[Arrays]] | None = None
        self.wake_fd, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._reported: tuple[frozenset[int], bool] = (frozenset(), False)
        self._report_at = 0.0

    def set_wanted(self, owned: Iterable[int], ahead: Iterable[int]) -> None:
        if self._reading is None:
            self._report_at = time.monotonic() + _REPORT_AFTER_S
        self._cache.set_wanted(owned, ahead)
        self._start_reading()

    def collect_loaded(self) -> tuple[tuple[int, ...], bool] | None:
        """Adds to the cache what was read, and starts on the next.

        Returns the shards that are loaded now, and whether there is no room for the rest; None where that is
        no news.
        """
        if self._reading is not None and self._reading[1].done():
            os.read(self.wake_fd, 1)
            shard, future = self._reading
            self._reading = None
            self._cache.add_shard(shard, future.result())
            self._start_reading()
        loaded, full = self._cache.cached_shards, self._reading is None and self._cache.is_full
        if (loaded, full) == self._reported or (
            self._reading is not None and time.monotonic() < self._report_at
        ):
            return None
        self._reported, self._report_at = (loaded, full), time.monotonic() + _REPORT_AFTER_S
        return tuple(sorted(loaded)), full

    def get_shards(self, shards: Sequence[int]) -> list[Arrays]:
        """Returns these shards, read now where they are not in the cache."""
        found = {shard: self._cache.get_shard(shard) for shard in shards}
        missing = [shard for shard, arrays in found.items() if arrays is None]
        if missing:
            for shard, arrays in zip(missing, self._foreground.map(self._read_now, missing), strict=True):
                self._cache.add_shard(shard, arrays)
                found[shard] = arrays
        return [arrays for arrays in found.values() if arrays is not None]

    def close(self) -> None:
        """Ends the threads; what is being read is finished first."""
        self._background.shutdown()
        self._foreground.shutdown()
        os.close(self.wake_fd)
        os.close(self._wake)

    def _read_now(self, shard: int) -> Arrays:
        # A shard that is being read in the background is not read twice.
        reading = self._reading
        return reading[1].result() if reading is not None and reading[0] == shard else self._read(shard)

    def _start_reading(self) -> None:
        shard = self._cache.next_to_read() if self._reading is None else None
        if shard is not None:
            future = self._background.submit(self._read, shard)
            self._reading = shard, future
            # Wakes the worker's poller, which waits for sockets and this pipe alike.
            future.add_done_callback(lambda _: os.write(self._wake, b"\0"))
