"""Builds the replay world: virtual time, a simulated provider, a simulated training."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from spotctl.control import entries as e
from spotctl.control.state import State
from spotctl.engines.base import repeat_commands
from spotctl.engines.shadowed import ReplayedFacts
from spotctl.engines.simulated import simulate_training
from spotctl.job.resolve import RunInputs
from spotctl.providers.base import Order
from spotctl.providers.simulated import SimulatedProvider
from spotctl.timesource import TimeSource, VirtualTime
from spotctl.worlds.handle import WorldHandle
from spotctl.worlds.world import RequestSource, TraceWorld


def replay_world(inputs: RunInputs, asks: RequestSource, time: TimeSource | None = None) -> WorldHandle:
    """Builds a world that starts no process. ``time``: virtual where none is given; then a run takes no real
    time either.
    """
    time = VirtualTime(inputs.terms.start) if time is None else time
    provider = _build_provider(inputs, time)
    return _build_handle(
        TraceWorld(time, inputs.trace, provider, simulate_training(inputs.terms), asks, inputs.terms)
    )


def resumed_replay_world(
    inputs: RunInputs,
    asks: RequestSource,
    time: TimeSource,
    state: State,
    entries: Sequence[e.Entry],
    down: e.ControllerDown,
) -> WorldHandle:
    """Builds the world of a replay that goes on where its ledger ends."""
    provider = _build_provider(inputs, time)
    restore_market(provider, state)
    training = ReplayedFacts(simulate_training(inputs.terms), entries)
    repeat_commands(training, entries)
    world = TraceWorld(time, inputs.trace, provider, training, asks, inputs.terms)
    world.resume(state, entries, down)
    return _build_handle(world)


def restore_market(market: SimulatedProvider, state: State) -> None:
    """Restores the market's side of what is on record: what was granted, and what has ended."""
    for allocation in state.allocations.values():
        if not allocation.instances:
            continue
        cores = state.terms.market_option(allocation.market).cores
        order = Order(
            allocation.name,
            allocation.market,
            allocation.count,
            allocation.bid,
            cores,
            allocation.reliable,
        )
        market.restore_order(order, allocation.requested_at)
        for instance in state.instances_of(allocation.name):
            if instance.ended_at is not None and instance.end is not None:
                market.end_instance(instance.name, instance.ended_at, instance.end)


def _build_provider(inputs: RunInputs, time: TimeSource) -> SimulatedProvider:
    terms = inputs.terms
    return SimulatedProvider(
        inputs.trace,
        terms.rules,
        ceil(terms.start_s),
        lambda: time.now,
        inputs.capacity,
        terms.own_rules,
    )


def _build_handle(world: TraceWorld) -> WorldHandle:
    return WorldHandle(
        world,
        close=world.close,
        abandon=world.close,
        machines_left=lambda: 0,
        scoring=lambda _: None,
    )
