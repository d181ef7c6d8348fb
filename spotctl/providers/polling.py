"""Asks a cloud that answers slowly, in threads of its own, so that the loop of a run never waits for it.

``CloudAdapter`` is what an adapter to a cloud's SDK implements: calls that may take seconds, fail, or be done
although their answer never arrives. ``PollingProvider`` makes a ``Provider`` of it:

- It repeats an order until it is answered. The order's token makes the cloud do it once.
- It shows instances once the loop has taken the answer to their order, so every fact finds its allocation.
  A restarted run passes the answers that its ledger holds.
- It repeats a release until the cloud has taken it.
- What has ended stays ended, though a lagging list may show it running again.

It looks at the cloud every ``least_s`` while an answer, a start or an end is awaited; otherwise less and less
often, down to every ``most_s``. Refuses to decide anything, and to hide a bug: what an adapter raises beside
ProviderErrors and lost connections is raised to the loop.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from pricing_data.model.units import Instant
from spotctl.errors import BadRequest, InstanceNotFound, ProviderError, Throttled
from spotctl.providers.base import InstanceStatus, Notice, Offering, Order, OrderAnswer, Report
from spotctl.timesource import sleep

LEAST_S: Final = 1.0
MOST_S: Final = 15.0
"""Real seconds between two looks. The shortest notice of a cloud is half a minute."""
LOST_CALL: Final = (TimeoutError, ConnectionError)
"""A call that ends with one of these may have been done: nobody knows."""
_REPEAT_AFTER_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Real seconds before a lost or throttled call is repeated; the last of them from then on."""

T = TypeVar("T")


class CloudAdapter(Protocol):
    """Calls a cloud and waits for it. Every call may raise a ProviderError or one of ``LOST_CALL``."""

    def offerings(self) -> tuple[Offering, ...]: ...

    def request(self, order: Order) -> tuple[str, ...]:
        """Returns the names that the cloud gave to the order's instances: for one token always the same."""
        ...

    def describe(self) -> tuple[Report, ...]:
        """Returns the run's instances, as far as the cloud lists them by now."""
        ...

    def terminate(self, instances: Sequence[str]) -> None:
        """Ends instances; those that have ended are no error."""
        ...

    def notices(self) -> tuple[Notice, ...]: ...


class PollingProvider:
    """Implements ``spotctl.providers.base.Provider`` over a ``CloudAdapter``. ``close`` it when the run is
    over.
    """

    def __init__(
        self,
        cloud: CloudAdapter,
        *,
        granted: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        least_s: float = LEAST_S,
        most_s: float = MOST_S,
    ) -> None:
        """``granted``: the instances of each order, by token, that the run's ledger has as granted."""
        self._cloud = cloud
        self._least_s, self._most_s = least_s, most_s
        # Only the loop's thread touches these four.
        self._asked: set[str] = set()
        # Nobody places these orders again after a restart, so without them their machines stay unseen.
        self._granted = {token: OrderAnswer(token, names) for token, names in granted.items()}
        self._reports: tuple[Report, ...] = ()
        self._notices: tuple[Notice, ...] = ()
        # Threads hand these over; the lock is held for moments alone, never while the cloud is called.
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[OrderAnswer] = queue.SimpleQueue()
        self._offerings: tuple[Offering, ...] = ()
        self._latest: dict[str, Report] = {}
        self._warnings: tuple[Notice, ...] = ()
        self._open_calls = 0
        self._bug: BaseException | None = None
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._start_thread("looks", self._keep_looking)

    # ---- Provider: called by the loop, returns at once -----------------------------------------------

    def offerings(self) -> tuple[Offering, ...]:
        with self._lock:
            return self._offerings

    def submit(self, order: Order) -> None:
        self._raise_bug()
        if order.token in self._granted:
            self._answers.put(self._granted[order.token])
        elif order.token not in self._asked:
            self._asked.add(order.token)
            self._start_call(f"order {order.token}", lambda: self._place_order(order))

    def answers(self) -> tuple[OrderAnswer, ...]:
        self._raise_bug()
        found = []
        while not self._answers.empty():
            answer = self._answers.get()
            if answer.refusal is None:
                self._granted[answer.token] = answer
            else:
                self._asked.discard(answer.token)  # the order may be placed again
            found.append(answer)
        return tuple(found)

    def describe(self) -> tuple[Report, ...]:
        """Returns the same tuple for as long as there is nothing new to say."""
        self._raise_bug()
        with self._lock:
            latest = tuple(self._latest.values())
        reports = tuple(report for report in latest if report.token in self._granted)
        # Equal content keeps the old tuple, by which the loop sees at once that nothing changed.
        if reports != self._reports:
            self._reports = reports
        return self._reports

    def terminate(self, instances: Sequence[str]) -> None:
        self._raise_bug()
        names = tuple(instances)
        self._start_call(f"release of {', '.join(names)}", lambda: self._terminate_repeatedly(names))

    def notices(self) -> tuple[Notice, ...]:
        """Returns the same tuple for as long as there is nothing new to say."""
        with self._lock:
            warnings = self._warnings
        notices = tuple(notice for notice in warnings if notice.token in self._granted)
        if notices != self._notices:
            self._notices = notices
        return self._notices

    def next_change(self, after: Instant) -> Instant | None:
        """Returns None: a cloud does not say beforehand."""
        return None

    @property
    def is_calling(self) -> bool:
        """Tells whether an order or a release is under way."""
        with self._lock:
            return self._open_calls > 0

    def close(self) -> None:
        """Stops looking, and repeating calls. A run is closed only when it awaits no answer."""
        self._closed.set()
        self._wake.set()

    def _raise_bug(self) -> None:
        with self._lock:
            bug = self._bug
        if bug is not None:
            raise bug

    # ---- threads: call the cloud, and wait -----------------------------------------------------------

    def _start_call(self, name: str, call: Callable[[], None]) -> None:
        with self._lock:
            self._open_calls += 1

        def run_call() -> None:
            try:
                call()
            finally:
                with self._lock:
                    self._open_calls -= 1
                self._wake.set()

        self._start_thread(name, run_call)

    def _start_thread(self, name: str, run: Callable[[], None]) -> None:
        def run_guarded() -> None:
            try:
                run()
            except BaseException as error:  # whatever it is: the loop raises it
                with self._lock:
                    self._bug = self._bug or error

        threading.Thread(target=run_guarded, name=f"cloud: {name}", daemon=True).start()

    def _place_order(self, order: Order) -> None:
        try:
            answer = OrderAnswer(order.token, self._repeat_until_answered(lambda: self._cloud.request(order)))
        # Our own mistake, which the loop raises: no other market would accept the order.
        except BadRequest:
            raise
        except ProviderError as error:
            answer = OrderAnswer(order.token, refusal=error)
        self._answers.put(answer)

    def _terminate_repeatedly(self, names: tuple[str, ...]) -> None:
        try:
            self._repeat_until_answered(lambda: self._cloud.terminate(names))
        except InstanceNotFound:
            return  # gone already: the release is done

    def _repeat_until_answered(self, call: Callable[[], T]) -> T:
        for attempt in count():
            wait_s = _REPEAT_AFTER_S[min(attempt, len(_REPEAT_AFTER_S) - 1)]
            try:
                return call()
            except Throttled as error:
                # A throttled cloud names its own pause; a shorter one would prolong it.
                sleep(wait_s if error.retry_after_s is None else error.retry_after_s)
            except LOST_CALL:
                sleep(wait_s)
            if self._closed.is_set():
                break
        raise ProviderError("the cloud had not answered when the run was over")

    def _keep_looking(self) -> None:
        wait_s = self._least_s
        while not self._closed.is_set():
            changed = self._look_at_cloud()
            wait_s = self._least_s if changed or self._awaits_news() else min(2 * wait_s, self._most_s)
            self._wake.wait(wait_s)
            self._wake.clear()

    def _awaits_news(self) -> bool:
        with self._lock:
            starting = any(report.standing is InstanceStatus.PENDING for report in self._latest.values())
        return starting or self.is_calling

    def _look_at_cloud(self) -> bool:
        """Looks at the cloud; returns whether anything changed. The next look makes up for a lost one."""
        try:
            offerings, reports = self._cloud.offerings(), self._cloud.describe()
            # After the list: a notice then finds its instance reported.
            warnings = self._cloud.notices()
        except (Throttled, *LOST_CALL):
            return False
        with self._lock:
            before = (dict(self._latest), self._warnings)
            for report in reports:
                known = self._latest.get(report.instance)
                if known is None or known.standing is not InstanceStatus.ENDED:
                    self._latest[report.instance] = report
            self._offerings, self._warnings = offerings, warnings
            return (self._latest, self._warnings) != before
