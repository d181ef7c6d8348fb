"""A cloud that takes its time: it answers late, loses answers, names machines itself, and lists them late."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from spotctl.providers.base import Notice, Offering, Order, Report
from spotctl.providers.simulated import SimulatedProvider


class SlowCloud:
    """Implements ``spotctl.providers.polling.CloudAdapter`` over a simulated market.

    Every call takes ``delay_s`` real seconds. Of requests and releases, every ``loses``-th is done and its
    answer lost. Lists show what was so ``lag_s`` real seconds ago.
    """

    def __init__(
        self, market: SimulatedProvider, *, delay_s: float = 0.0, loses: int = 0, lag_s: float = 0.0
    ) -> None:
        self.looks = 0
        """Lists that were handed out."""
        self.requests: list[str] = []
        """The token of each request, repeated ones included."""
        self._market = market
        self._delay_s, self._loses, self._lag_s = delay_s, loses, lag_s
        self._lock = threading.Lock()
        self._calls = 0
        self._past: deque[tuple[float, tuple[Report, ...]]] = deque([(0.0, ())])

    def offerings(self) -> tuple[Offering, ...]:
        with self._lock:
            return self._market.offerings()

    def request(self, order: Order) -> tuple[str, ...]:
        time.sleep(self._delay_s)
        with self._lock:
            self.requests.append(order.token)
            names = tuple(map(_own_name, self._market.request(order)))
            self._lose_some("request")
        return names

    def describe(self) -> tuple[Report, ...]:
        time.sleep(self._delay_s)
        with self._lock:
            now = time.monotonic()
            reports = tuple(replace(r, instance=_own_name(r.instance)) for r in self._market.describe())
            self._past.append((now, reports))
            while len(self._past) > 1 and self._past[1][0] <= now - self._lag_s:
                self._past.popleft()
            self.looks += 1
            return self._past[0][1]

    def terminate(self, instances: Sequence[str]) -> None:
        time.sleep(self._delay_s)
        with self._lock:
            self._market.terminate([_market_name(name) for name in instances])
            self._lose_some("release")

    def notices(self) -> tuple[Notice, ...]:
        with self._lock:
            return tuple(replace(n, instance=_own_name(n.instance)) for n in self._market.notices())

    def fail(self, instance: str) -> None:
        """Ends an instance as if it had died by itself."""
        with self._lock:
            self._market.fail_instance(_market_name(instance))

    def _lose_some(self, what: str) -> None:
        self._calls += 1
        if self._loses and self._calls % self._loses == 0:
            raise TimeoutError(f"the answer to the {what} was lost")


def _own_name(name: str) -> str:
    """A name as clouds give them: nothing can be concluded from it."""
    return f"i-{name.encode().hex()}"


def _market_name(own: str) -> str:
    return bytes.fromhex(own.removeprefix("i-")).decode()
