"""Small markets, terms and worlds for tests of the core."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, get_args

import numpy as np

from bidbrain.model import Limits, ScalingModel
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market, MarketRules, PriceHistory, Series
from pricing_data.model.rules import AWS_2016
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.drive import drive, start_run
from spotctl.control.evolve import evolve, initial_state
from spotctl.control.run_spec import MarketOption, Origin, RunSpec, StopCondition, WorkTerms
from spotctl.control.state import State
from spotctl.control.step import plan
from spotctl.engines.base import Training
from spotctl.engines.simulated import simulate_training
from spotctl.providers.simulated import UNLIMITED, SimulatedProvider
from spotctl.records.ledger import Ledger
from spotctl.timesource import VirtualTime
from spotctl.worlds.world import TraceWorld

START = Instant(1_465_000_000)
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
MARKETS = tuple(Market("aws", "us-east-1", zone, "m4.xlarge") for zone in ZONES)
RELIABLE = MarketOption(Market("aws", "us-east-1", "us-east-1a", "c4.xlarge"), UsdPerHour(0.199), 4)

Away = list[tuple[int, int]]
"""When spot is away: [from, to), in order."""


def terms(rules: MarketRules = AWS_2016, *, clocks: int = 60, work: float = 2400.0) -> RunSpec:
    """One reliable machine, up to eight spot ones in three zones; a clock of ``work`` core-seconds."""
    return RunSpec(
        job="test",
        origin=Origin(run="r", seed=1, prices="synthetic prices (test)"),
        start=START,
        rules=rules,
        reliable=RELIABLE,
        reliable_count=1,
        spot=tuple(MarketOption(market, UsdPerHour(0.239), 4) for market in MARKETS),
        limits=Limits(max_instances=8, max_per_allocation=4),
        work=WorkTerms(
            scaling=ScalingModel(0.98, Seconds(15), Seconds(15), stage2_above=1, stage3_above=4),
            stop=StopCondition(clocks=clocks),
            core_seconds_per_clock=work,
        ),
    )


def changed(spec: RunSpec, **fields: Any) -> RunSpec:
    """Changes fields of ``spec``, or of the values in it that group them."""
    parts = {name: getattr(spec, name) for name in RunSpec.FLAT_OUTSIDE}
    for name, part in parts.items():
        own = {field.name for field in dataclasses.fields(part)} & fields.keys()
        parts[name] = replace(part, **{field: fields.pop(field) for field in own})
    return replace(spec, **parts, **fields)


def random_trace(seed: int, days: int = 12, before_days: int = 6) -> PriceHistory:
    """Small moves every few minutes and spikes above on-demand, from ``before_days`` before START."""
    rng = np.random.default_rng(seed)
    series = {}
    for market in MARKETS:
        gaps = rng.integers(60, 900, size=days * 200)
        times = START - before_days * 24 * HOUR_S + np.cumsum(gaps)
        prices = 0.035 + np.abs(np.cumsum(rng.normal(0, 0.0004, size=len(times)))) % 0.02
        for begins in rng.integers(0, len(times) - 5, size=days * 3):
            prices[begins : begins + int(rng.integers(1, 4))] = rng.uniform(0.05, 1.5)
        series[market] = Series(times.astype(np.int64), np.round(prices, 4))
    return PriceHistory.from_series(series)


def scripted_trace(*steps: tuple[int, int, float], quiet: float = 0.035) -> PriceHistory:
    """Quiet markets with a known past, then ``(market number, seconds after START, price)``."""
    rng = np.random.default_rng(0)
    series = {}
    for number, market in enumerate(MARKETS):
        past = START - np.arange(6 * 24 * 12, 0, -1) * 300
        prices = quiet + rng.choice([0.0, 0.0005, 0.002, 0.02], size=len(past), p=[0.6, 0.3, 0.09, 0.01])
        later = sorted((START + after, price) for which, after, price in steps if which == number)
        times = np.concatenate([past, [START], [at for at, _ in later]]).astype(np.int64)
        series[market] = Series(times, np.concatenate([prices, [quiet], [price for _, price in later]]))
    return PriceHistory.from_series(series)


def capacity_between(away: Away) -> Observations:
    """Capacity at all other times, until long after; in the weeks before, it was away for an hour a day."""
    past = [(START - day * 86400, START - day * 86400 + HOUR_S) for day in range(20, 0, -1)]
    outages = [*past, *away]
    borders = [START - 21 * 86400, *(moment for outage in outages for moment in outage), START + 90 * 86400]
    lost = [True] * len(outages) + [False]
    return Observations.from_spells(
        {m: Spells.from_columns(borders[::2], borders[1::2], lost) for m in MARKETS}
    )


class Silent:
    """An observer that keeps the entries it was shown."""

    def __init__(self) -> None:
        self.seen: list[e.Entry] = []

    def on_entry(self, _: State, entry: e.Entry) -> None:
        self.seen.append(entry)


def replay(
    of: RunSpec,
    trace: PriceHistory,
    asks: Callable[[Instant], tuple[e.UserRequest, ...]] = lambda _: (),
    capacity: Observations = UNLIMITED,
    training: Training | None = None,
) -> tuple[State, tuple[e.Entry, ...]]:
    """Run ``of`` over ``trace`` in virtual time, modelled or by ``training``; the final state, the ledger."""
    time = VirtualTime(of.start)
    provider = SimulatedProvider(trace, of.rules, 60, lambda: time.now, capacity)
    world = TraceWorld(time, trace, provider, training or simulate_training(of), lambda: asks(time.now), of)
    ledger, observer = Ledger.in_memory(), Silent()
    begun = start_run(e.JobStarted(of.start, of), trace, ledger, observer, capacity)
    state = drive(begun, world, ledger, observer)
    return state, ledger.read_entries()


def asked_once(ask: e.UserRequest, after_s: int) -> Callable[[Instant], tuple[e.UserRequest, ...]]:
    """For ``replay``: ``ask``, the first time that anybody looks ``after_s`` seconds after START."""
    pending = [ask]
    return lambda now: (pending.pop(),) if pending and now > START + after_s else ()


def is_command(entry: e.Entry) -> bool:
    return isinstance(entry, get_args(e.Command))


def redecided(entries: Sequence[e.Entry], history: PriceHistory) -> list[e.Entry]:
    """Feed the facts of a ledger to the core, one by one: facts and the commands that the core makes."""
    first = entries[0]
    assert isinstance(first, e.JobStarted)
    state = initial_state(first, history)
    made: list[e.Entry] = [first]
    for fact in entries[1:]:
        if is_command(fact):
            continue
        state = evolve(state, fact)
        commands = plan(state)
        state = reduce(evolve, commands, state)
        made.extend((fact, *commands))
    return made


def shortened(of: RunSpec, clocks: int) -> RunSpec:
    return changed(of, stop=replace(of.work.stop, clocks=clocks))
