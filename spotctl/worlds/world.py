"""Implements the world of a price trace: replayed in virtual time, or paced with real side effects.

``local`` and ``replay`` are this one class with other parts: a time source, a provider, a training.
At one nominal moment news come in a fixed order: prices, training, provider, requests of users,
the alarm. So two worlds that differ only in their parts produce the same facts.
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
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State
from spotctl.engines.base import Training, commands_to_training
from spotctl.errors import InstanceNotFound
from spotctl.providers.base import Order, Provider
from spotctl.timesource import Effect, TimeSource
from spotctl.worlds.provider_diff import ProviderDiff

RequestSource = Callable[[], tuple[e.UserRequest, ...]]


class TraceWorld:
    """Gives facts and takes commands, for one run over ``trace`` from the time source's now on."""

    def __init__(
        self,
        time: TimeSource,
        trace: PriceHistory,
        provider: Provider,
        training: Training,
        asks: RequestSource,
        terms: RunSpec,
    ) -> None:
        self._time = time
        self._trace = trace
        self._terms = terms
        self._markets = tuple(sorted(tradable.market for tradable in terms.spot))
        self._provider = provider
        self._training = training
        self._asks = asks
        self._watch = ProviderDiff()
        self._ready: deque[e.Fact] = deque(_opening_prices(trace, self._markets, time.now))
        self._prices = _PriceFeed(trace, dict.fromkeys(self._markets, time.now))
        self._alarm: Instant | None = None
        self._tells = count(1)

    def resume(self, state: State, entries: Sequence[e.Entry], down: e.ControllerDown) -> None:
        """Goes on where a ledger ends: ``state`` is the fold of its ``entries``.

        A process that died before the first prices were on record left a ledger that could not settle bills:
        these prices are given now.
        """
        # The opening prices are those of a new run; a resumed one adds only what its ledger lacks.
        self._ready.clear()
        told = {entry.market for entry in entries if isinstance(entry, e.PriceChanged)}
        untold = [market for market in self._markets if market not in told]
        self._ready.extend(_opening_prices(self._trace, untold, state.terms.start))
        self._prices = _PriceFeed(self._trace, {m: _last_step(state, m) for m in self._markets})
        self._watch = ProviderDiff.from_state(state)
        self._alarm = state.deciding.alarm
        self._tells = count(1 + len(commands_to_training(entries)))
        self._ready.append(down)

    def next_fact(self) -> e.Fact:
        """Returns the next fact; waits, jumps or pauses until there is one."""
        while not self.has_fact():
            self._time.advance(self.next_scheduled(), self._poll_outside, self.pending_effects)
        return self.take_fact()

    # ---- in steps, for a caller that moves the time of several worlds ---------------------------

    def has_fact(self) -> bool:
        """Tells whether there is a fact to take now; never waits."""
        if not self._ready:
            self._ready.extend(self._gather_facts())
        return bool(self._ready)

    def take_fact(self) -> e.Fact:
        """Returns the next fact. Raises IndexError where ``has_fact`` says that there is none."""
        return self._ready.popleft()

    def has_outside_news(self) -> bool:
        """Tells whether anything unscheduled has happened; never waits."""
        return self._poll_outside(0.0)

    def pending_effects(self) -> tuple[Effect, ...]:
        """Returns real effects that nominal time may not run past."""
        return self._training.pending_effects()

    def give_lease(self, lease: Lease | None, allowance: MicroUsd | None) -> None:
        """Tells the job what it may hold from now on."""
        self._ready.append(e.Leased(self._time.now, lease, allowance))

    def execute(self, command: e.Command) -> None:
        """Carries out a recorded command. Expected refusals become facts; anything else is a bug."""
        match command:
            case e.Acquire():
                self._submit_order(command)
                self._ready.extend(self._answers_as_facts())
            case e.Release():
                self._terminate_machines(command)
            case e.WakeAt():
                self._alarm = command.when
            case e.Decided() | e.StopGivenUp() | e.Close():
                pass  # a record; its effects are commands of their own
            case _:
                self._training.send_command(next(self._tells), command)

    def close(self) -> None:
        self._training.close()

    # ---- what happened ----------------------------------------------------------------------

    def _gather_facts(self) -> Iterator[e.Fact]:
        now = self._time.now
        # This order is a contract: worlds with other parts give the facts of one moment in it too.
        yield from self._prices.take_until(now)
        yield from self._training.take_facts(now)
        yield from self._answers_as_facts()
        yield from self._watch.new_facts(self._provider)
        for hold in self._time.take_pauses():
            yield e.Stalled(now, hold.effect.name, round(hold.real_s, 3), hold.done)
        for ask in self._asks():
            yield e.Asked(now, ask)
        if self._alarm is not None and self._alarm <= now:
            self._alarm = None
            yield e.Woke(now)

    def _poll_outside(self, timeout_s: float) -> bool:
        """Waits for unscheduled news: words of the training, machines that die, requests of users."""
        if self._training.poll(timeout_s):
            return True
        # Only the training is waited for; provider and users are looked at when that wait is over.
        self._ready.extend(self._gather_facts())
        return bool(self._ready)

    def next_scheduled(self) -> Instant | None:
        """Returns when the next scheduled thing happens."""
        now = self._time.now
        moments = (
            self._prices.next_change_at(),
            self._alarm,
            self._provider.next_change(now),
            self._training.next_change(now),
        )
        return min((moment for moment in moments if moment is not None), default=None)

    # ---- what is to be done -----------------------------------------------------------------

    def _submit_order(self, command: e.Acquire) -> None:
        cores = self._terms.market_option(command.market).cores
        self._provider.submit(
            Order(command.allocation, command.market, command.count, command.bid, cores, command.reliable)
        )

    def _answers_as_facts(self) -> Iterator[e.Fact]:
        """Yields what has become of orders; one that is answered again, after a crash, is the same fact."""
        for answer in self._provider.answers():
            if answer.refusal is None:
                yield e.Granted(self._time.now, answer.token, answer.instances)
            else:
                why = answer.refusal
                yield e.Refused(self._time.now, answer.token, type(why).__name__, str(why))

    def _terminate_machines(self, command: e.Release) -> None:
        try:
            self._provider.terminate(command.instances)
        except InstanceNotFound:
            return  # the known ones have ended; for an unknown one there is nothing to release


def _opening_prices(trace: PriceHistory, markets: Iterable[Market], start: Instant) -> Iterator[e.Fact]:
    """Yields the prices in force at the start: with them the ledger settles its bills without the trace."""
    for market in markets:
        price = trace.price(market, start)
        if price is not None:
            yield e.PriceChanged(start, market, price)


def _last_step(state: State, market: Market) -> Instant:
    times = state.history.series(market).times
    return Instant(int(times[-1])) if len(times) else state.terms.start


class _PriceFeed:
    """Yields the price steps of a trace, each market's after its own moment, in time order; ties by
    market.
    """

    def __init__(self, trace: PriceHistory, after: Mapping[Market, Instant]) -> None:
        self._markets = tuple(sorted(after))
        tails = [_steps_after(trace.series(market), after[market]) for market in self._markets]
        owners = np.repeat(np.arange(len(tails)), [len(tail) for tail in tails])
        times = np.concatenate([tail.times for tail in tails])
        # The last key of ``lexsort`` decides first: by time, ties by market.
        order = np.lexsort((owners, times))
        self._times, self._owners = times[order], owners[order]
        self._prices = np.concatenate([tail.prices for tail in tails])[order]
        self._cursor = 0

    def take_until(self, now: Instant) -> Iterator[e.Fact]:
        """Yields the steps up to ``now`` that it has not yielded before."""
        while self._cursor < len(self._times) and self._times[self._cursor] <= now:
            at, price = int(self._times[self._cursor]), float(self._prices[self._cursor])
            market = self._markets[int(self._owners[self._cursor])]
            self._cursor += 1
            yield e.PriceChanged(Instant(at), market, UsdPerHour(price))

    def next_change_at(self) -> Instant | None:
        return Instant(int(self._times[self._cursor])) if self._cursor < len(self._times) else None


def _steps_after(series: Series, after: Instant) -> Series:
    first = int(np.searchsorted(series.times, after, side="right"))
    return Series(series.times[first:], series.prices[first:])
