"""A whole job on a cloud that takes five seconds for everything, and what polling promises of any cloud."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from pricing_data.model.billing import EndReason
from pricing_data.model.rules import AWS
from pricing_data.model.units import Instant, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.drive import drive, start_run
from spotctl.engines.agileml_model import SimulatedTraining
from spotctl.errors import CapacityUnavailable, Throttled
from spotctl.providers.base import InstanceStatus, Notice, Offering, Order, OrderAnswer, Provider, Report
from spotctl.providers.polling import PollingProvider
from spotctl.providers.simulated import SimulatedProvider
from spotctl.records.ledger import Ledger
from spotctl.timesource import PacedTime
from spotctl.worlds.world import TraceWorld
from tests.fakes.slow_cloud import SlowCloud
from tests.spotctl.build import MARKETS, START, Silent, capacity_between, scripted_trace, shortened, terms

SPEED = 300.0
"""Nominal seconds in a real one: while the cloud answers, markets move on by minutes."""
ORDER = Order("s1", MARKETS[0], 2, UsdPerHour(0.05), cores=4)
TAKEN_AFTER_600_S = capacity_between([(START + 600, START + 900)])
T = TypeVar("T")


class Timed:
    """Passes everything on to a provider and measures how long its caller waits, in real seconds."""

    def __init__(self, provider: Provider) -> None:
        self.waits_s: list[float] = []
        self._provider = provider

    def _measure(self, call: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return call()
        finally:
            self.waits_s.append(time.perf_counter() - began)

    def offerings(self) -> tuple[Offering, ...]:
        return self._measure(self._provider.offerings)

    def submit(self, order: Order) -> None:
        self._measure(lambda: self._provider.submit(order))

    def answers(self) -> tuple[OrderAnswer, ...]:
        return self._measure(self._provider.answers)

    def describe(self) -> tuple[Report, ...]:
        return self._measure(self._provider.describe)

    def terminate(self, instances: Sequence[str]) -> None:
        self._measure(lambda: self._provider.terminate(instances))

    def notices(self) -> tuple[Notice, ...]:
        return self._measure(self._provider.notices)

    def next_change(self, after: Instant) -> Instant | None:
        return self._provider.next_change(after)


class Patient(SimulatedTraining):
    """Waits where time is real: it has no news from outside."""

    def poll(self, timeout_s: float) -> bool:
        time.sleep(timeout_s)
        return False


@pytest.mark.process
def test_a_job_ends_on_a_cloud_that_is_slow_loses_answers_lags_and_names_machines_itself(
    request: pytest.FixtureRequest,
) -> None:
    """The market takes machines away in the middle; nothing is bought twice, and nothing is left.

    Every call takes five seconds in the campaign, 0.4 in the sample.
    """
    delay_s = 5.0 if request.config.getoption("--campaign") else 0.4
    of = shortened(terms(AWS), 40)
    trace, clock = scripted_trace(), PacedTime(of.start, SPEED)
    taken_at = int(START + 600 + 1700 * delay_s)
    away = capacity_between([(taken_at, taken_at + 300)])
    market = SimulatedProvider(trace, of.rules, 60, lambda: clock.now, away)
    cloud = SlowCloud(market, delay_s=delay_s, loses=10, lag_s=0.6 * delay_s)
    polling = PollingProvider(cloud, least_s=0.2, most_s=1.0)
    provider, ledger = Timed(polling), Ledger.in_memory()
    world = TraceWorld(clock, trace, provider, Patient(of), lambda: (), of)
    try:
        begun = start_run(e.JobStarted(of.start, of), trace, ledger, Silent(), away)
        state = drive(begun, world, ledger, Silent())
    finally:
        polling.close()
    assert state.ending.closed is not None
    assert (state.ending.closed.exit_code, state.training.clock) == (0, 40)
    assert any(instance.end is EndReason.EVICTED for instance in state.instances.values())
    assert all(name.startswith("i-") for name in state.instances)
    assert {report.standing for report in market.describe()} == {InstanceStatus.ENDED}
    granted = [
        name for entry in ledger.read_entries() if isinstance(entry, e.Granted) for name in entry.instances
    ]
    assert len(granted) == len(set(granted)) == len(market.describe())
    assert sorted(set(cloud.requests)) == sorted(name for name, a in state.allocations.items())
    staying: set[str] = set()
    for entry in ledger.read_entries():
        if isinstance(entry, e.Granted):
            staying.update(entry.instances)
        elif isinstance(entry, (e.EvictionWarned, e.InstancesEnded)):
            staying.difference_update(entry.instances)
        assert len(staying) <= of.limits.max_instances + of.reliable_count
    waits_s = sorted(provider.waits_s)
    assert waits_s[int(0.99 * len(waits_s))] < 0.01, "the loop waits for nobody"
    assert waits_s[-1] < max(0.8, 0.8 * delay_s), "a busy computer may be slow, but not as slow as the cloud"


class _Moody(SlowCloud):
    """Raises what it is told to, once for each call of ``request``."""

    def __init__(self, market: SimulatedProvider, moods: Sequence[Exception]) -> None:
        super().__init__(market)
        self._moods = list(moods)

    def request(self, order: Order) -> tuple[str, ...]:
        if self._moods:
            self.requests.append(order.token)
            raise self._moods.pop(0)
        return super().request(order)


def _market() -> SimulatedProvider:
    return SimulatedProvider(scripted_trace(), AWS, 0, lambda: START)


def _answer_of(provider: PollingProvider, order: Order = ORDER) -> OrderAnswer:
    provider.submit(order)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if answers := provider.answers():
            return answers[0]
        time.sleep(0.005)
    raise AssertionError("no answer")


@pytest.mark.process
def test_lost_and_throttled_orders_are_repeated_until_they_are_answered() -> None:
    moods = [ConnectionResetError("gone"), Throttled("slower", retry_after_s=0.01), TimeoutError("gone")]
    cloud = _Moody(_market(), moods)
    provider = PollingProvider(cloud)
    try:
        assert len(_answer_of(provider).instances) == 2
        assert cloud.requests == ["s1"] * 4
    finally:
        provider.close()


@pytest.mark.process
def test_a_refusal_is_an_answer_and_frees_the_orders_name() -> None:
    provider = PollingProvider(_Moody(_market(), [CapacityUnavailable("none here")]))
    try:
        refusal = _answer_of(provider).refusal
        assert isinstance(refusal, CapacityUnavailable)
        assert len(_answer_of(provider).instances) == 2
    finally:
        provider.close()


@pytest.mark.process
def test_a_bug_of_an_adapter_is_raised_to_the_loop() -> None:
    provider = PollingProvider(_Moody(_market(), [KeyError("Instances")]))
    try:
        with pytest.raises(KeyError, match="Instances"):
            _answer_of(provider)
        with pytest.raises(KeyError, match="Instances"):
            provider.describe()
    finally:
        provider.close()


class _Forgetful(SlowCloud):
    """Shows instances running that it showed as ended before, as a lagging list may."""

    def describe(self) -> tuple[Report, ...]:
        reports = super().describe()
        if self.looks % 2:
            return tuple(
                replace(r, standing=InstanceStatus.RUNNING, ended_at=None, end=None) for r in reports
            )
        return reports


@pytest.mark.process
def test_what_has_ended_stays_ended() -> None:
    cloud = _Forgetful(_market())
    provider = PollingProvider(cloud, least_s=0.002, most_s=0.002)
    try:
        provider.terminate(_answer_of(provider).instances)
        until = time.monotonic() + 30
        while {r.end for r in provider.describe()} != {EndReason.RELEASED}:
            assert time.monotonic() < until
            time.sleep(0.005)
        looked = cloud.looks
        while cloud.looks < looked + 6:
            assert {r.end for r in provider.describe()} == {EndReason.RELEASED}
            time.sleep(0.001)
    finally:
        provider.close()


@pytest.mark.process
def test_machines_that_were_granted_before_a_restart_are_listed_and_warned_of() -> None:
    """The ledger holds their grant, so nobody places that order again."""
    now = START
    market = SimulatedProvider(scripted_trace((0, 600, 1.5)), AWS, 0, lambda: now, TAKEN_AFTER_600_S)
    cloud = SlowCloud(market)
    first = PollingProvider(cloud)
    try:
        names = _answer_of(first).instances
    finally:
        first.close()
    now = Instant(START + 610)
    resumed = PollingProvider(cloud, granted={ORDER.token: names})
    try:
        until = time.monotonic() + 10
        while not resumed.describe():
            assert time.monotonic() < until, "the resumed run never sees its machines"
            time.sleep(0.005)
        assert tuple(report.instance for report in resumed.describe()) == names
        assert tuple(notice.instance for notice in resumed.notices()) == names
        assert resumed.answers() == (), "what is on record is not reported again"
        assert _answer_of(resumed).instances == names
        assert cloud.requests == [ORDER.token], "the order itself reached the cloud once"
    finally:
        resumed.close()
