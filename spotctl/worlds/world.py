"""The world of a price trace: replayed in virtual time, or paced with real side effects.

``local`` and ``replay`` are this one class with other parts: a time source, a provider, a training.
At one nominal moment news come in a fixed order: prices, training, provider, requests of people,
the alarm. So two worlds that differ in their parts alone tell the same story.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count

import numpy as np

from bidbrain.cluster.lease import Lease
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.units import Instant, MicroUsd, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.run_spec import Terms
from spotctl.control.state import State
from spotctl.engines.base import Training, tells
from spotctl.errors import BadRequest, InstanceNotFound, ProviderError
from spotctl.providers.base import Order, Provider
from spotctl.timesource import Effect, TimeSource
from spotctl.worlds.provider_diff import Watch

Asks = Callable[[], tuple[e.Ask, ...]]


class TraceWorld:
    """Facts in, commands out, for one run over ``trace`` from the time source's now on."""

    def __init__(
        self,
        time: TimeSource,
        trace: PriceHistory,
        provider: Provider,
        training: Training,
        asks: Asks,
        terms: Terms,
    ) -> None:
        self._time = time
        self._trace = trace
        self._terms = terms
        self._markets = tuple(sorted(tradable.market for tradable in terms.spot))
        self._provider = provider
        self._training = training
        self._asks = asks
        self._watch = Watch()
        self._ready: deque[e.Fact] = deque(_opening(trace, self._markets, time.now))
        self._prices = _PriceFeed(trace, dict.fromkeys(self._markets, time.now))
        self._alarm: Instant | None = None
        self._tells = count(1)

    def resume(self, state: State, entries: Sequence[e.Entry], down: e.ControllerDown) -> None:
        """Go on where a ledger ends: ``state`` is the fold of its ``entries``.

        Whoever died before the first prices were on record left a ledger that could not settle bills: they
        are told now.
        """
        self._ready.clear()
        told = {entry.market for entry in entries if isinstance(entry, e.PriceChanged)}
        untold = [market for market in self._markets if market not in told]
        self._ready.extend(_opening(self._trace, untold, state.terms.start))
        self._prices = _PriceFeed(self._trace, {m: _last_step(state, m) for m in self._markets})
        self._watch = Watch.resumed(state)
        self._alarm = state.alarm
        self._tells = count(1 + len(tells(entries)))
        self._ready.append(down)

    def next(self) -> e.Fact:
        """The next fact; waits, jumps or holds until there is one."""
        while not self.look():
            self._time.advance(self.target(), self._outside, self.unfinished)
        return self.take()

    # ---- in steps, for whoever moves the time of several worlds --------------------------------

    def look(self) -> bool:
        """Whether there is a fact to take now; never waits."""
        if not self._ready:
            self._ready.extend(self._news())
        return bool(self._ready)

    def take(self) -> e.Fact:
        """The next fact. IndexError where ``look`` says that there is none."""
        return self._ready.popleft()

    def outside(self) -> bool:
        """Whether anything has come that no schedule says; never waits."""
        return self._outside(0.0)

    def unfinished(self) -> tuple[Effect, ...]:
        """Real effects that nominal time may not run past."""
        return self._training.unfinished()

    def lease(self, lease: Lease | None, allowance: MicroUsd | None) -> None:
        """Tell the job what it may hold from now on."""
        self._ready.append(e.Leased(self._time.now, lease, allowance))

    def execute(self, command: e.Command) -> None:
        """Carry out a recorded command. Expected refusals become facts; anything else is a bug."""
        match command:
            case e.Acquire():
                self._ready.append(self._request(command))
            case e.Release():
                self._terminate(command)
            case e.WakeAt():
                self._alarm = command.when
            case e.Decided() | e.StopGivenUp() | e.Close():
                pass  # a record; its effects are commands of their own
            case _:
                self._training.tell(next(self._tells), command)

    def close(self) -> None:
        self._training.close()

    # ---- what happened ----------------------------------------------------------------------

    def _news(self) -> Iterator[e.Fact]:
        now = self._time.now
        yield from self._prices.until(now)
        yield from self._training.facts(now)
        yield from self._watch.facts(self._provider)
        for hold in self._time.holds():
            yield e.Stalled(now, hold.effect.name, round(hold.real_s, 3), hold.done)
        for ask in self._asks():
            yield e.Asked(now, ask)
        if self._alarm is not None and self._alarm <= now:
            self._alarm = None
            yield e.Woke(now)

    def _outside(self, timeout_s: float) -> bool:
        """Wait for what no schedule says: words of the training, machines that die, requests of people."""
        if self._training.poll(timeout_s):
            return True
        self._ready.extend(self._news())
        return bool(self._ready)

    def target(self) -> Instant | None:
        """When the next thing happens that is known beforehand."""
        now = self._time.now
        moments = (
            self._prices.next(),
            self._alarm,
            self._provider.next_change(now),
            self._training.next_change(now),
        )
        return min((moment for moment in moments if moment is not None), default=None)

    # ---- what is to be done -----------------------------------------------------------------

    def _request(self, command: e.Acquire) -> e.Fact:
        cores = self._terms.tradable(command.market).cores
        order = Order(command.allocation, command.market, command.count, command.bid, cores, command.reliable)
        try:
            return e.Granted(self._time.now, command.allocation, self._provider.request(order))
        except BadRequest:
            raise  # a bug, as asking for it again would be
        except ProviderError as error:
            return e.Refused(self._time.now, command.allocation, type(error).__name__, str(error))

    def _terminate(self, command: e.Release) -> None:
        try:
            self._provider.terminate(command.instances)
        except InstanceNotFound:
            return  # the others have ended, and of what nobody knows the release is done


def _opening(trace: PriceHistory, markets: Iterable[Market], start: Instant) -> Iterator[e.Fact]:
    """The prices in force at the start: with them the ledger settles its bills without the trace."""
    for market in markets:
        price = trace.price(market, start)
        if price is not None:
            yield e.PriceChanged(start, market, price)


def _last_step(state: State, market: Market) -> Instant:
    times = state.history.series(market).times
    return Instant(int(times[-1])) if len(times) else state.terms.start


class _PriceFeed:
    """The steps of a trace after a moment of each market's own, in time order; ties by market."""

    def __init__(self, trace: PriceHistory, after: Mapping[Market, Instant]) -> None:
        self._markets = tuple(sorted(after))
        tails = [_tail(trace.series(market), after[market]) for market in self._markets]
        owners = np.repeat(np.arange(len(tails)), [len(tail) for tail in tails])
        times = np.concatenate([tail.times for tail in tails])
        order = np.lexsort((owners, times))
        self._times, self._owners = times[order], owners[order]
        self._prices = np.concatenate([tail.prices for tail in tails])[order]
        self._cursor = 0

    def until(self, now: Instant) -> Iterator[e.Fact]:
        """The steps up to ``now`` that were not given yet."""
        while self._cursor < len(self._times) and self._times[self._cursor] <= now:
            at, price = int(self._times[self._cursor]), float(self._prices[self._cursor])
            market = self._markets[int(self._owners[self._cursor])]
            self._cursor += 1
            yield e.PriceChanged(Instant(at), market, UsdPerHour(price))

    def next(self) -> Instant | None:
        return Instant(int(self._times[self._cursor])) if self._cursor < len(self._times) else None


def _tail(series: Series, after: Instant) -> Series:
    first = int(np.searchsorted(series.times, after, side="right"))
    return Series(series.times[first:], series.prices[first:])
