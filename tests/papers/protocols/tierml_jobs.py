"""One job from every starting minute, under a scheme of TierML's protocol; all of them in lockstep.

Each job jumps from event to event of its own: its hour ends, its machines are evicted, requested ones arrive,
a move falls due. Between events it works and pays at constant rates, so every sum is exact to the minute. A
job's course does not depend on its length: one run to the longest gives all lengths.

The engine of ``bidbrain.backtest`` decides every two minutes; from 46 000 starts a zone, times lengths, bids
and schemes, jumping is what makes the protocol affordable. The rules of choice are those of
``bidbrain.strategies.tierml``.
A fleet is the machines that do a job's work between them; a scheme's share of it is transient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bidbrain.strategies.mttf import HORIZON_S
from bidbrain.strategies.tierml import worth_a_move
from tests.papers.protocols.fleets import (
    HOUR,
    NEVER,
    NOWHERE,
    ON_DEMAND,
    Fleets,
    Ints,
    never_times,
    no_markets,
)
from tests.papers.protocols.market_classes import MINUTE_S, Flags, Floats, Tables, first_from


@dataclass(frozen=True, slots=True)
class Scheme:
    """Describes how jobs choose machines and cope with losing them."""

    name: str
    reliable: int
    """Machines of 64 that are never given up: on demand, idle while there are others (stage 3)."""
    overhead: float = 0.0
    """Of checkpoints: running time over useful time, less 1, while on spot machines. 0: elastic."""
    rolls_back: bool = False
    """Whether an eviction loses what was done since the last checkpoint; the paper counts that nowhere."""
    moves_at: float | None = None
    """Moves to the other class when machines there fail this many times less often; None: never moves."""
    classes: tuple[int, ...] = (0, 1)
    pays_bid: bool = False
    delay: int = 5
    """Minutes from a request to machines that work (TierML 3.4)."""

    @property
    def is_elastic(self) -> bool:
        return self.overhead == 0.0

    @property
    def share(self) -> float:
        """Returns the transient share of a fleet."""
        return 1.0 - self.reliable / 64


@dataclass(frozen=True, slots=True)
class Jobs:
    """Costs and durations, (starts, lengths); NaN where the data ended before the job."""

    cost: Floats
    """Dollars; of the last hour only the part that was used (the papers' accounting)."""
    minutes: Floats
    evictions: Floats
    """(starts, lengths): times that a whole fleet was lost."""
    on_demand: Floats
    """(starts, lengths): minutes with a fleet on demand."""


def run(scheme: Scheme, tables: Tables, starts: Ints, lengths: Ints) -> Jobs:
    """Jobs of ``lengths`` minutes of a whole fleet's work from each start, ascending lengths."""
    lanes = _Lanes(scheme, tables, starts, lengths)
    while len(lanes.time):
        lanes.step()
        lanes.drop_finished()
    return Jobs(lanes.cost, lanes.minutes, lanes.evictions, lanes.on_demand)


class _Lanes:
    """The jobs still running, as parallel arrays, and the results by start.

    done     useful minutes so far             held      machines that work
    spent    dollars for finished hours        vacated   those that work until their hour ends
    lost     evictions of a whole fleet        asked     place that machines were requested at, due when ready
    rented   minutes on demand                 ran       when the machines held began to work
    """

    def __init__(self, scheme: Scheme, tables: Tables, starts: Ints, lengths: Ints) -> None:
        self.scheme, self.tables, self.lengths = scheme, tables, lengths
        shape = (len(starts), len(lengths))
        self.cost, self.minutes = np.full(shape, np.nan), np.full(shape, np.nan)
        self.evictions, self.on_demand = np.full(shape, np.nan), np.full(shape, np.nan)
        self.due = _due(tables, scheme)
        self.opens = first_from(np.asarray((tables.level[list(scheme.classes)] >= 0).any(axis=0)))
        size = len(starts)
        self.row = np.arange(size)
        self.began, self.time = starts.copy(), starts.copy()
        self.done, self.spent = np.zeros(size), np.zeros(size)
        self.lost, self.rented = np.zeros(size), np.zeros(size)
        self.ran = starts.copy()
        self.vacated = Fleets.without_machines(size)
        self.asked, self.asked_level, self.ready = (
            no_markets(size),
            np.zeros(size, np.int64),
            never_times(size),
        )
        self.held = Fleets.without_machines(size)
        place, level = self._choice(starts)
        self._settle_in(np.ones(size, np.bool_), place, level)

    # ---- one event of every job -----------------------------------------------------------------

    def step(self) -> None:
        until = self._next_event()
        self._advance(until)
        self._hours_end()
        self._evict()
        self._arrive()
        self._ask_to_move()

    def _next_event(self) -> Ints:
        limit = np.int64(self.tables.minutes)
        events = [self.held.hour_ends, self._evicted_at(self.held), self.ready]
        events += [self.vacated.hour_ends, self._evicted_at(self.vacated), self._moves_at()]
        result: Ints = np.minimum(np.minimum.reduce(events), limit)
        return result

    def _evicted_at(self, fleets: Fleets) -> Ints:
        """Returns when the spot machines of ``fleets`` are evicted; never for others."""
        spot = (fleets.place == 0) | (fleets.place == 1)
        place, time = np.where(spot, fleets.place, 0), np.minimum(self.time, self.tables.minutes - 1)
        return np.where(spot, self.tables.evicted[place, fleets.level, time], NEVER)

    def _moves_at(self) -> Ints:
        """Returns when a move falls due: at the earliest a minute after the last event, one at a time."""
        free = (self.asked == NOWHERE) & (self.vacated.place == NOWHERE) & (self.held.place != NOWHERE)
        if not self.scheme.is_elastic:
            return never_times(len(self.time))
        ahead = np.minimum(self.time + 1, self.tables.minutes - 1)
        spot = self.held.place != ON_DEMAND
        place = np.where(free & spot, self.held.place, 0)
        due = self.due[place, self.held.level, ahead]
        opens = self.opens[ahead]
        return np.where(free, np.where(spot, due, opens), NEVER).astype(np.int64)

    def _advance(self, until: Ints) -> None:
        """Work and pay until the event; note the lengths that are done on the way."""
        share, slow = self.scheme.share, 1 + self.scheme.overhead
        speed = np.where(self.held.place == ON_DEMAND, share, np.where(self.held.is_spot, share / slow, 0.0))
        speed += np.where(self.vacated.place == NOWHERE, 0.0, share)
        speed = np.where(speed > 0, speed, self.scheme.reliable / 64)
        for column, length in enumerate(self.lengths):
            with np.errstate(divide="ignore", invalid="ignore"):
                at = self.time + (length - self.done) / speed
            passes = np.isnan(self.minutes[self.row, column]) & (at <= until)
            self._finish(passes, column, at)
        passed = until - self.time
        self.rented += np.where(self.held.place == ON_DEMAND, passed, 0)
        self.done += speed * passed
        self.time = until

    def _finish(self, passes: Flags, column: int, at: Floats) -> None:
        rows, at = self.row[passes], at[passes]
        used = self.held.cost_of_hour(at, passes) + self.vacated.cost_of_hour(at, passes)
        elapsed = at - self.began[passes]
        kept = self.scheme.reliable / 64 * self.tables.on_demand * elapsed / HOUR
        self.cost[rows, column] = self.spent[passes] + used + kept
        self.minutes[rows, column] = elapsed
        self.evictions[rows, column] = self.lost[passes]
        on_demand = np.where(self.held.place[passes] == ON_DEMAND, at - self.time[passes], 0.0)
        self.on_demand[rows, column] = self.rented[passes] + on_demand

    def _hours_end(self) -> None:
        """A finished hour is paid. Held machines begin the next one; vacated ones go."""
        over = self.held.hour_ends == self.time
        self.spent += np.where(over, self.held.price, 0.0)
        self.held.open_hour(over, self.time, self._price(self.held.place, self.held.level))
        gone = self.vacated.hour_ends == self.time
        self.spent += np.where(gone, self.vacated.price, 0.0)
        self.vacated.clear_rows(gone)

    def _evict(self) -> None:
        """The price exceeds the bid: the hour is free; checkpointed jobs lose what they did since."""
        evicted = self.held.is_spot & (self._evicted_at(self.held) == self.time)
        if self.scheme.rolls_back:
            self.done -= np.where(evicted, self._unsaved_minutes(), 0.0)
        self.lost += evicted
        self.held.clear_rows(evicted)
        self.vacated.clear_rows(self.vacated.is_spot & (self._evicted_at(self.vacated) == self.time))
        self._ask(evicted & (self.asked == NOWHERE))

    def _unsaved_minutes(self) -> Floats:
        """Useful minutes since the last checkpoint. By Young's rule an overhead o comes of the interval
        2 o MTTF; an MTTF longer than the horizon of its estimate is not believed.
        """
        place = np.where(self.held.is_spot, self.held.place, 0)
        rate = self.tables.rates[place, self.held.level, self.ran].astype(np.float64)
        interval = 2 * self.scheme.overhead / (np.maximum(rate, 1 / HORIZON_S) * MINUTE_S)
        unsaved: Floats = np.mod(self.time - self.ran, interval) / (1 + self.scheme.overhead)
        return unsaved

    def _arrive(self) -> None:
        """Requested machines join, and those they replace work until their hour ends."""
        due = self.ready == self.time
        place, level = self.asked, self.asked_level
        spot = due & (place != ON_DEMAND)
        now = np.minimum(self.time, self.tables.minutes - 1)
        code = np.where(spot, place, 0)
        refused = spot & (self.tables.evicted[code, level, now] <= self.time)
        joins = due & ~refused
        self.asked = np.where(due, NOWHERE, self.asked)
        self.ready = np.where(due, NEVER, self.ready)
        self.vacated.take(joins & (self.held.place != NOWHERE), self.held)
        self._settle_in(joins, place, level)
        self._ask(refused & (self.held.place == NOWHERE))

    def _ask_to_move(self) -> None:
        now = np.minimum(self.time, self.tables.minutes - 1)
        idle = (self.asked == NOWHERE) & (self.vacated.place == NOWHERE)
        spot, rented = idle & self.held.is_spot, idle & (self.held.place == ON_DEMAND)
        if self.scheme.moves_at is not None:
            place = np.where(spot, self.held.place, 0)
            moves = spot & (self.due[place, self.held.level, now] == self.time)
            self._request(moves, 1 - place, self.tables.level[1 - place, now])
        if self.scheme.is_elastic:
            self._ask(rented & (self.opens[now] == self.time))

    # ---- choosing -------------------------------------------------------------------------------

    def _choice(self, time: Ints) -> tuple[Ints, Ints]:
        """Where to go at ``time``: the class that fails least, or, checkpointing, the cheapest option."""
        now = np.minimum(time, self.tables.minutes - 1)
        worth = np.full((3, len(now)), np.inf)
        for c in self.scheme.classes:
            level = self.tables.level[c, now]
            price = self._price(np.full(len(now), c), level)
            if self.scheme.is_elastic:
                # Rates first; among machines that have never been seen to fail, dollars.
                worth[c] = self.tables.rates[c, level, now] + 1e-12 * price
            else:
                worth[c] = price
            worth[c][level < 0] = np.inf
        worth[ON_DEMAND] = 1e9 if self.scheme.is_elastic else self.tables.on_demand
        place = worth.argmin(axis=0)
        level = np.where(
            place == ON_DEMAND, 0, self.tables.level[np.where(place == ON_DEMAND, 0, place), now]
        )
        return place, level.astype(np.int64)

    def _ask(self, wanted: Flags) -> None:
        if wanted.any():
            place, level = self._choice(self.time)
            self._request(wanted, place, level)

    def _request(self, wanted: Flags, place: Ints, level: npt.NDArray[np.integer]) -> None:
        self.asked = np.where(wanted, place, self.asked)
        self.asked_level = np.where(wanted, level, self.asked_level)
        self.ready = np.where(wanted, self.time + self.scheme.delay, self.ready)

    def _settle_in(self, joins: Flags, place: Ints, level: Ints) -> None:
        self.held.move_in(joins, place, level)
        self.held.open_hour(joins, self.time, self._price(place, level))
        self.ran = np.where(joins, np.minimum(self.time, self.tables.minutes - 1), self.ran)

    def _price(self, place: Ints, level: npt.NDArray[np.integer]) -> Floats:
        """Dollars per hour for the transient share of a fleet, from now."""
        now, spot = np.minimum(self.time, self.tables.minutes - 1), (place == 0) | (place == 1)
        code = np.where(spot, place, 0)
        each = self.tables.bids[code, level] if self.scheme.pays_bid else self.tables.prices[code, now]
        return self.scheme.share * np.where(spot, each * self.tables.fleet[code], self.tables.on_demand)

    def drop_finished(self) -> None:
        """Forget jobs that are done, and those that ran out of data."""
        stay = (self.done < self.lengths[-1]) & (self.time < self.tables.minutes)
        if stay.all():
            return
        for name in ("row", "began", "time", "done", "spent", "lost", "rented", "ran"):
            setattr(self, name, getattr(self, name)[stay])
        for name in ("asked", "asked_level", "ready"):
            setattr(self, name, getattr(self, name)[stay])
        self.held, self.vacated = self.held.select(stay), self.vacated.select(stay)


def _due(tables: Tables, scheme: Scheme) -> Ints:
    """(2, L, T): the first minute from t on at which machines held at that bid should be left."""
    due = np.full(tables.evicted.shape, tables.minutes, np.int32)
    if scheme.moves_at is None:
        return due.astype(np.int64)
    for c in (0, 1):
        other = tables.level[1 - c]
        rate = tables.rates[1 - c, np.maximum(other, 0), np.arange(tables.minutes)]
        for level in range(tables.bids.shape[1]):
            due[c, level] = first_from(
                (other >= 0) & worth_a_move(tables.rates[c, level], rate, scheme.moves_at)
            )
    return due.astype(np.int64)
