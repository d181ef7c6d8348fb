"""The world of a trace: the order of its news, and how it goes on after spotctl was away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import get_args

import pytest

from pricing_data.model.billing import EndReason
from pricing_data.model.market import PriceHistory
from pricing_data.model.units import Instant, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.billing import instance_bills
from spotctl.control.drive import drive, fold_entries
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State
from spotctl.control.state_values import Phase
from spotctl.engines.agileml_model import SimulatedTraining
from spotctl.errors import BadRequest
from spotctl.providers.base import Order
from spotctl.providers.simulated import SimulatedProvider
from spotctl.records.ledger import Ledger
from spotctl.timesource import VirtualTime
from spotctl.worlds.world import TraceWorld
from tests.spotctl.build import (
    MARKETS,
    RELIABLE,
    START,
    Silent,
    asked_once,
    random_trace,
    redecided,
    replay,
    scripted_trace,
    terms,
)

BOOT_S = 60


@dataclass(frozen=True, slots=True)
class Parts:
    """A world in virtual time and what it is made of."""

    time: VirtualTime
    provider: SimulatedProvider
    training: SimulatedTraining
    world: TraceWorld

    @classmethod
    def at(cls, now: Instant, of: RunSpec, trace: PriceHistory, ask: e.UserRequest | None = None) -> Parts:
        time, training = VirtualTime(now), SimulatedTraining(of)
        provider = SimulatedProvider(trace, of.rules, BOOT_S, lambda: time.now)
        asks = asked_once(ask, BOOT_S - 1) if ask is not None else lambda _: ()
        return cls(
            time, provider, training, TraceWorld(time, trace, provider, training, lambda: asks(time.now), of)
        )


def after(seconds: int) -> Instant:
    return Instant(START + seconds)


def facts_until(world: TraceWorld, moment: Instant) -> list[e.Fact]:
    """The world's facts up to the first one later than ``moment``."""
    facts = []
    while (fact := world.next_fact()).at <= moment:
        facts.append(fact)
    return facts


# ---- what comes when -------------------------------------------------------------------------------


def test_a_run_begins_with_the_prices_in_force() -> None:
    trace = scripted_trace((0, 5, 0.04), (1, 30, 0.05)).select(MARKETS[:2])
    world = Parts.at(after(10), terms(), trace).world
    assert facts_until(world, after(29)) == [
        e.PriceChanged(after(10), MARKETS[0], UsdPerHour(0.04)),
        e.PriceChanged(after(10), MARKETS[1], UsdPerHour(0.035)),
    ]


def test_at_one_moment_prices_then_training_then_machines_then_people_then_the_alarm() -> None:
    trace = scripted_trace((1, BOOT_S, 0.05), (0, BOOT_S, 0.04), (2, 3 * BOOT_S, 0.04))
    world = Parts.at(START, terms(), trace, ask=e.UserRequest.CANCEL).world
    world.execute(e.Acquire(START, "r1", RELIABLE.market, 1, None, reliable=True))
    sigma_s = int(terms().work.scaling.sigma_s)
    world.execute(e.TellJoin(after(BOOT_S - sigma_s), ("r1-1",), reliable=True, cores=4))
    world.execute(e.WakeAt(START, after(BOOT_S)))
    due = after(BOOT_S)
    assert [fact for fact in facts_until(world, due) if fact.at == due] == [
        e.PriceChanged(due, MARKETS[0], UsdPerHour(0.04)),
        e.PriceChanged(due, MARKETS[1], UsdPerHour(0.05)),
        e.MachineJoined(due, "r1-1"),
        e.InstancesRunning(due, ("r1-1",)),
        e.Asked(due, e.UserRequest.CANCEL),
        e.Woke(due),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_every_price_of_the_trace_is_told_once_at_its_time(seed: int) -> None:
    trace = random_trace(seed)
    state, entries = replay(terms(), trace)
    for market in MARKETS:
        told = [x for x in entries if isinstance(x, e.PriceChanged) and x.market == market][1:]
        series = trace.series(market)
        due = [(at, p) for at, p in zip(series.times, series.prices, strict=True) if START < at <= state.now]
        assert [(fact.at, fact.price) for fact in told] == due[: len(told)]
        assert len(due) - len(told) <= 1, "but for one of the very moment of the end"


@pytest.mark.parametrize("seed", range(3))
def test_time_never_runs_backwards(seed: int) -> None:
    _, entries = replay(terms(), random_trace(seed))
    assert all(one.at <= other.at for one, other in pairwise(entries))


# ---- what is asked of it ---------------------------------------------------------------------------


def test_a_refusal_is_a_fact() -> None:
    world = Parts.at(START, terms(), scripted_trace()).world
    world.execute(e.Acquire(START, "s1", MARKETS[0], 2, UsdPerHour(0.01)))
    facts = [world.next_fact() for _ in range(len(MARKETS) + 1)]
    refused = facts[-1]
    assert isinstance(refused, e.Refused)
    assert (refused.allocation, refused.error) == ("s1", "CapacityUnavailable")
    assert "bid" in refused.detail


def test_a_request_that_makes_no_sense_is_a_bug_and_no_refusal() -> None:
    world = Parts.at(START, terms(), scripted_trace()).world
    with pytest.raises(BadRequest):
        world.execute(e.Acquire(START, "s1", MARKETS[0], 0, UsdPerHour(0.5)))


def test_to_release_what_is_gone_is_done_already() -> None:
    world = Parts.at(START, terms(), scripted_trace()).world
    world.execute(e.Release(START, ("s7-1",), "the job is over"))
    assert isinstance(world.next_fact(), e.PriceChanged)


# ---- going on --------------------------------------------------------------------------------------

SPIKE_S = 1800


def away(cut_s: int, until_s: int) -> tuple[State, list[e.Entry]]:
    """A run that is evicted at SPIKE_S, whose spotctl was away from ``cut_s`` to ``until_s``: the end of
    it, and its ledger."""
    trace, of = spiked(), terms()
    _, entries = replay(of, trace)
    known = [entry for entry in entries if entry.at <= after(cut_s)]
    state = fold_entries(known, trace)
    parts = resumed(state, known, trace, e.ControllerDown(known[-1].at, after(until_s)))
    ledger = Ledger.in_memory()
    state = drive(state, parts.world, ledger, Silent())
    return state, [*known, *ledger.read_entries()]


def spiked() -> PriceHistory:
    spikes = [(market, SPIKE_S, 1.0) for market in range(len(MARKETS))]
    return scripted_trace(*spikes, *((market, SPIKE_S + 300, 0.035) for market in range(len(MARKETS))))


def resumed(state: State, known: Sequence[e.Entry], trace: PriceHistory, down: e.ControllerDown) -> Parts:
    """A world that goes on behind ``known``, as if it had gone on all the time."""
    parts = Parts.at(down.until, state.terms, trace)
    for allocation in state.allocations.values():
        order = Order(allocation.name, allocation.market, allocation.count, allocation.bid, 4)
        parts.provider.restore_order(order, allocation.requested_at)
    tells = [entry for entry in known if isinstance(entry, get_args(e.Tell))]
    for number, command in enumerate(tells, start=1):
        parts.training.send_command(number, command)
    parts.training.take_facts(known[-1].at)  # what is on record
    parts.world.resume(state, known, down)
    return parts


def test_evictions_that_were_missed_come_at_their_times_and_are_effective_failures() -> None:
    state, entries = away(cut_s=SPIKE_S - 100, until_s=SPIKE_S + 900)
    assert state.phase is Phase.CLOSED
    before = fold_entries([entry for entry in entries if entry.at < after(SPIKE_S)], spiked())
    victims = {i.name for i in before.live_instances() if not before.is_reliable(i)}
    assert victims
    for name in victims:
        victim = state.instances[name]
        assert (victim.warned_at, victim.ended_at, victim.end) == (
            after(SPIKE_S),
            after(SPIKE_S + state.terms.rules.notice_s),
            EndReason.EVICTED,
        )
    assert state.recovery.failures == len(victims)
    lost = [name for entry in entries if isinstance(entry, e.TellLost) for name in entry.instances]
    warned = [name for entry in entries if isinstance(entry, e.TellWarning) for name in entry.instances]
    assert set(lost) == victims
    assert not victims & set(warned)
    assert state.training.clocks_redone > 0
    owed = {bill.instance.name: bill for bill in instance_bills(state)}
    assert all(owed[name].refunded > 0 for name in victims), "and billed as if spotctl had been there"


def test_a_warning_that_still_runs_when_spotctl_is_back_is_passed_on() -> None:
    state, entries = away(cut_s=SPIKE_S - 100, until_s=SPIKE_S + 30)
    warned = [entry for entry in entries if isinstance(entry, e.TellWarning)]
    assert warned
    assert {entry.ends_at for entry in warned} == {after(SPIKE_S + state.terms.rules.notice_s)}
    assert state.recovery.failures == 0


def test_nothing_is_decided_for_the_time_in_which_nobody_was_there() -> None:
    until_s = SPIKE_S + 900
    _, entries = away(cut_s=SPIKE_S - 100, until_s=until_s)
    down = next(n for n, entry in enumerate(entries) if isinstance(entry, e.ControllerDown))
    rest = entries[down:]
    decided = [entry.at for entry in rest if isinstance(entry, e.Decided)]
    assert min(decided) >= after(until_s)
    assert any(isinstance(entry, e.Acquire) for entry in rest), "afterwards it goes on as before"


@pytest.mark.parametrize("until_s", [SPIKE_S - 50, SPIKE_S + 30, SPIKE_S + 900])
def test_a_core_that_is_fed_the_gap_takes_the_same_decisions(until_s: int) -> None:
    _, entries = away(cut_s=SPIKE_S - 100, until_s=until_s)
    assert any(isinstance(entry, e.ControllerDown) for entry in entries)
    assert redecided(entries, spiked()) == entries


def test_prices_of_the_gap_are_told_behind_it_and_none_twice() -> None:
    _, entries = away(cut_s=SPIKE_S - 100, until_s=SPIKE_S + 900)
    told = [(x.market, x.at) for x in entries if isinstance(x, e.PriceChanged)]
    assert len(told) == len(set(told)) == 3 * len(MARKETS)


def test_an_away_of_no_time_changes_nothing() -> None:
    _, entries = away(cut_s=SPIKE_S - 100, until_s=0)
    _, undisturbed = replay(terms(), spiked())
    assert [entry for entry in entries if not isinstance(entry, e.ControllerDown)] == list(undisturbed)
