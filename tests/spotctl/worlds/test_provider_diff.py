"""What a provider says, turned into what has happened: once, in order, and nothing that is on record."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pricing_data.model.billing import EndReason
from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.providers.base import InstanceStatus, Notice, Offering, Order, OrderAnswer, Report
from spotctl.providers.simulated import SimulatedProvider
from spotctl.worlds.provider_diff import ProviderDiff
from tests.spotctl.build import START, random_trace, replay, terms


class Saying:
    """A provider that says what the test wants: for what a simulation never says, such as nothing yet."""

    def __init__(self) -> None:
        self.reports: tuple[Report, ...] = ()
        self.warnings: tuple[Notice, ...] = ()

    def offerings(self) -> tuple[Offering, ...]:
        return ()

    def submit(self, order: Order) -> None:
        raise AssertionError("nobody should ask")

    def answers(self) -> tuple[OrderAnswer, ...]:
        raise AssertionError("nobody should ask")

    def terminate(self, instances: Sequence[str]) -> None:
        raise AssertionError("nobody should end anything")

    def describe(self) -> tuple[Report, ...]:
        return self.reports

    def notices(self) -> tuple[Notice, ...]:
        return self.warnings

    def next_change(self, after: Instant) -> Instant | None:
        return None


def at(after_s: int) -> Instant:
    return Instant(START + after_s)


def running(name: str, since_s: int = 60) -> Report:
    return Report(name, name.rpartition("-")[0], InstanceStatus.RUNNING, at(since_s))


def ended(name: str, at_s: int, end: EndReason = EndReason.EVICTED) -> Report:
    return Report(name, name.rpartition("-")[0], InstanceStatus.ENDED, at(60), at(at_s), end)


@pytest.fixture
def saying() -> Saying:
    return Saying()


def test_each_thing_is_told_once(saying: Saying) -> None:
    watch = ProviderDiff()
    saying.reports = (running("s1-1"),)
    assert watch.new_facts(saying) == (e.InstancesRunning(at(60), ("s1-1",)),)
    assert watch.new_facts(saying) == ()
    saying.warnings = (Notice("s1-1", "s1", at(100), at(220)),)
    assert watch.new_facts(saying) == (e.EvictionWarned(at(100), ("s1-1",), at(220)),)
    assert watch.new_facts(saying) == ()
    saying.reports = (ended("s1-1", 220),)
    assert watch.new_facts(saying) == (e.InstancesEnded(at(220), ("s1-1",), EndReason.EVICTED),)
    assert watch.new_facts(saying) == ()


def test_what_is_not_listed_yet_is_waited_for(saying: Saying) -> None:
    watch = ProviderDiff()
    assert watch.new_facts(saying) == ()
    saying.reports = (Report("s1-1", "s1", InstanceStatus.PENDING),)
    assert watch.new_facts(saying) == ()
    saying.reports = ()
    assert watch.new_facts(saying) == ()
    saying.reports = (running("s1-1"),)
    assert watch.new_facts(saying) == (e.InstancesRunning(at(60), ("s1-1",)),)


def test_a_life_that_was_missed_is_told_in_its_order(saying: Saying) -> None:
    saying.reports = (ended("s1-1", 220), running("s1-2", since_s=150))
    saying.warnings = (Notice("s1-1", "s1", at(100), at(220)),)
    assert [(type(fact), fact.at) for fact in ProviderDiff().new_facts(saying)] == [
        (e.InstancesRunning, at(60)),
        (e.EvictionWarned, at(100)),
        (e.InstancesRunning, at(150)),
        (e.InstancesEnded, at(220)),
    ]


def test_at_one_moment_things_begin_before_they_are_warned_and_end(saying: Saying) -> None:
    saying.reports = (ended("s1-1", 100, EndReason.FAILED), running("s2-1", since_s=100))
    saying.warnings = (Notice("s2-1", "s2", at(100), at(220)),)
    facts = ProviderDiff().new_facts(saying)
    assert [type(fact) for fact in facts if fact.at == at(100)] == [
        e.InstancesRunning,
        e.EvictionWarned,
        e.InstancesEnded,
    ]


def test_machines_of_one_allocation_to_which_the_same_happens_are_told_together(saying: Saying) -> None:
    saying.reports = (running("s2-1"), running("s1-1"), running("s1-2"), running("s1-3", since_s=61))
    assert ProviderDiff().new_facts(saying) == (
        e.InstancesRunning(at(60), ("s1-1", "s1-2")),
        e.InstancesRunning(at(60), ("s2-1",)),
        e.InstancesRunning(at(61), ("s1-3",)),
    )
    saying.reports = (ended("s1-1", 90, EndReason.FAILED), ended("s1-2", 90, EndReason.RELEASED))
    watch = ProviderDiff()
    assert {(fact.instances, fact.end) for fact in ends(watch.new_facts(saying))} == {
        (("s1-1",), EndReason.FAILED),
        (("s1-2",), EndReason.RELEASED),
    }


def ends(facts: Sequence[e.Fact]) -> list[e.InstancesEnded]:
    return [fact for fact in facts if isinstance(fact, e.InstancesEnded)]


def test_a_resumed_watch_tells_nothing_that_is_on_record() -> None:
    trace, of = random_trace(seed=2), terms()
    state, entries = replay(of, trace)
    provider = SimulatedProvider(trace, of.rules, 60, lambda: state.now)
    for allocation in state.allocations.values():
        if allocation.instances:
            order = Order(allocation.name, allocation.market, allocation.count, allocation.bid, 4)
            provider.restore_order(order, allocation.requested_at)
    for instance in state.instances.values():
        assert instance.ended_at is not None
        assert instance.end is not None
        provider.end_instance(instance.name, instance.ended_at, instance.end)
    assert any(isinstance(entry, e.EvictionWarned) for entry in entries)
    assert ProviderDiff.from_state(state).new_facts(provider) == ()
    told = ProviderDiff().new_facts(provider)
    kinds = (e.InstancesRunning, e.EvictionWarned, e.InstancesEnded)
    assert _by_instance(told) == _by_instance([entry for entry in entries if isinstance(entry, kinds)])


def _by_instance(facts: Sequence[e.Entry]) -> list[tuple[int, str, str]]:
    return sorted(
        (fact.at, type(fact).__name__, name)
        for fact in facts
        if isinstance(fact, (e.InstancesRunning, e.EvictionWarned, e.InstancesEnded))
        for name in fact.instances
    )


@pytest.mark.parametrize(
    "report",
    [
        Report("s1-1", "s1", InstanceStatus.ENDED, at(60), None, EndReason.EVICTED),
        Report("s1-1", "s1", InstanceStatus.ENDED, at(60), at(90), None),
    ],
)
def test_an_end_without_its_time_or_reason_is_a_bug_of_the_provider(saying: Saying, report: Report) -> None:
    saying.reports = (report,)
    with pytest.raises(ValueError, match="reported as ended without a"):
        ProviderDiff().new_facts(saying)
