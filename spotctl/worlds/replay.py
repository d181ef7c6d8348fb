"""The replay world: virtual time, a simulated provider, a modelled training."""

from __future__ import annotations

from math import ceil

from spotctl.providers.simulated import SimulatedProvider
from spotctl.resolve import Resolved
from spotctl.simulator.modelled import modelled
from spotctl.timesource import VirtualTime
from spotctl.worlds.built import BuiltWorld
from spotctl.worlds.trace import Asks, TraceWorld


def replay_world(resolved: Resolved, asks: Asks) -> BuiltWorld:
    """A world in which the run takes no time and starts no process."""
    terms = resolved.terms
    time = VirtualTime(terms.start)
    provider = SimulatedProvider(
        resolved.trace,
        terms.rules,
        ceil(terms.start_s),
        lambda: time.now,
        resolved.capacity,
        terms.own_rules,
    )
    world = TraceWorld(time, resolved.trace, provider, modelled(terms), asks, terms)
    return BuiltWorld(
        world,
        close=world.close,
        leave=world.close,
        abandon=world.close,
        machines_left=lambda: 0,
        score=lambda _: None,
    )
