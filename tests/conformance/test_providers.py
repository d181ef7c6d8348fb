"""The contract of ``spotctl.providers.base``, on every provider there is.

A provider enters with a line in ``BENCHES``: a context manager that sets the market of ``TRACE`` up for it
and says how a test lets time go by and a machine die.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from agileml.apps.planted import planted_ratings, write_ratings
from agileml.job import JobFolder, TrainingJob
from agileml.node.hosts.local import LocalHost
from agileml.protocol.events import Setup
from agileml.training_host import TrainingHost
from pricing_data.model.billing import EndReason
from pricing_data.model.rules import AWS_2016
from pricing_data.model.units import Instant, UsdPerHour
from spotctl.errors import BadRequest, CapacityUnavailable, InstanceNotFound
from spotctl.providers.base import InstanceStatus, Notice, Order, Provider, Report
from spotctl.providers.local import LocalProvider
from spotctl.providers.polling import PollingProvider
from spotctl.providers.simulated import SimulatedProvider
from tests.fakes.slow_cloud import SlowCloud
from tests.spotctl.build import MARKETS, RELIABLE, START, scripted_trace

PATIENCE_S = 30.0
BOOT_S, SPIKE_S, CALM_S, NOTICE_S = 60, 1000, 1030, AWS_2016.notice_s
SPIKY, QUIET, _ = MARKETS
TRACE = scripted_trace((0, SPIKE_S, 1.5), (0, CALM_S, 0.035))
"""SPIKY rises above any bid for 30 seconds, ``SPIKE_S`` after START; QUIET never moves."""


class Clock:
    """Nominal time, moved by hand; ``after_s`` counts from START."""

    def __init__(self) -> None:
        self.after_s = 0

    def __call__(self) -> Instant:
        return Instant(START + self.after_s)


@dataclass(frozen=True, slots=True)
class Bench:
    """A provider under test, and what a test may do to the world around it."""

    provider: Provider
    clock: Clock
    dies: Callable[[str], None]
    """The machine stops existing, and nobody says so."""
    settle: Callable[[], None] = lambda: None
    """Waits until the provider has seen what is so now."""

    def place(self, order: Order) -> tuple[str, ...]:
        """Places an order and waits for its answer; raises what it was refused with."""
        self.provider.submit(order)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for answer in self.provider.answers():
                assert answer.token == order.token
                if answer.refusal is not None:
                    raise answer.refusal
                self.settle()
                return answer.instances
            time.sleep(0.001)
        raise AssertionError(f"no answer to {order} within {PATIENCE_S} s")

    def end(self, instances: Sequence[str]) -> None:
        """Has instances ended, and waits until that is so."""
        self.provider.terminate(instances)
        self.settle()

    def notices(self) -> tuple[Notice, ...]:
        """Returns the notices of now."""
        self.settle()
        return self.provider.notices()

    def reports(self, after_s: int) -> dict[str, Report]:
        """What the provider says ``after_s`` seconds after START, by instance."""
        self.clock.after_s = after_s
        self.settle()
        return {report.instance: report for report in self.provider.describe()}

    def only(self, after_s: int) -> Report:
        (report,) = self.reports(after_s).values()
        return report


@contextmanager
def simulated(_: Path) -> Iterator[Bench]:
    clock = Clock()
    market = SimulatedProvider(TRACE, AWS_2016, BOOT_S, clock)
    yield Bench(market, clock, market.fail_instance)


@contextmanager
def local(folder: Path) -> Iterator[Bench]:
    host = _host(folder)
    clock = Clock()
    market = SimulatedProvider(TRACE, AWS_2016, BOOT_S, clock)
    try:
        yield Bench(LocalProvider(market, host), clock, host.kill)
    finally:
        host.kill_all()


@contextmanager
def polled(_: Path) -> Iterator[Bench]:
    """A cloud that answers late and loses every third answer, asked by threads."""
    clock = Clock()
    cloud = SlowCloud(SimulatedProvider(TRACE, AWS_2016, BOOT_S, clock), delay_s=0.001, loses=3)
    provider = PollingProvider(cloud, least_s=0.002, most_s=0.002)

    def settle() -> None:
        looked, deadline = cloud.looks, time.monotonic() + PATIENCE_S
        while cloud.looks < looked + 2 or provider.is_calling:
            assert time.monotonic() < deadline, "the provider has stopped looking"
            time.sleep(0.001)

    try:
        yield Bench(provider, clock, cloud.fail, settle)
    finally:
        provider.close()


def _host(folder: Path) -> LocalHost:
    write_ratings(planted_ratings(20, 10, 2, 0.1, 0.5, seed=0), folder / "ratings.csv")
    job = TrainingJob(
        "agileml.apps.mf:MatrixFactorization", {"rank": 2}, Setup(partitions=1, shards=2, clocks=1)
    )
    return TrainingHost(JobFolder.prepare(folder / "job", job, folder / "ratings.csv").path)


BENCHES = [
    pytest.param(simulated),
    pytest.param(local, marks=pytest.mark.process),
    pytest.param(polled, marks=pytest.mark.process),
]


@pytest.fixture(params=BENCHES, ids=lambda open_bench: str(open_bench.__name__))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    open_bench: Callable[[Path], AbstractContextManager[Bench]] = request.param
    with open_bench(tmp_path) as opened:
        yield opened


def spot(token: str = "s1", count: int = 1, bid: float = 0.05) -> Order:
    return Order(token, SPIKY, count, UsdPerHour(bid), cores=1)


def reliable(token: str = "r1") -> Order:
    return Order(token, RELIABLE.market, 1, None, cores=1, reliable=True)


# ---- request ---------------------------------------------------------------------------------------


def test_an_order_placed_again_starts_nothing_more(bench: Bench) -> None:
    names = bench.place(spot(count=2))
    assert len(set(names)) == 2
    bench.clock.after_s = 200
    assert bench.place(spot(count=2)) == names
    assert set(bench.reports(200)) == set(names)
    bench.end(names)
    assert bench.place(spot(count=2)) == names, "nor once they have ended"
    assert {report.standing for report in bench.reports(200).values()} == {InstanceStatus.ENDED}


def test_every_instance_of_a_run_has_a_name_of_its_own_and_its_orders_token(bench: Bench) -> None:
    orders = (reliable(), spot("s1", 2), spot("s2", 1))
    names = {order.token: bench.place(order) for order in orders}
    assert len({name for group in names.values() for name in group}) == 4
    reports = bench.reports(0)
    for token, group in names.items():
        assert {reports[name].token for name in group} == {token}


def test_instances_are_pending_until_they_have_booted(bench: Bench) -> None:
    bench.place(spot())
    for after_s in (0, BOOT_S - 1):
        assert (bench.only(after_s).standing, bench.only(after_s).running_at) == (
            InstanceStatus.PENDING,
            None,
        )
    assert bench.only(BOOT_S).standing is InstanceStatus.RUNNING
    assert bench.only(BOOT_S + 100).running_at == START + BOOT_S


def test_a_bid_below_the_price_is_refused_and_nothing_starts(bench: Bench) -> None:
    with pytest.raises(CapacityUnavailable, match="bid"):
        bench.place(spot(bid=0.001))
    assert bench.provider.describe() == ()
    assert bench.place(spot(bid=0.05)), "the token of a refused order is free"


def test_an_order_of_nothing_is_a_bad_request(bench: Bench) -> None:
    with pytest.raises(BadRequest):
        bench.place(spot(count=0))


def test_offerings_are_the_prices_of_now(bench: Bench) -> None:
    def price() -> float:
        bench.settle()
        return next(float(o.price) for o in bench.provider.offerings() if o.market == SPIKY)

    assert price() == 0.035
    bench.clock.after_s = SPIKE_S
    assert price() == 1.5


# ---- terminate -------------------------------------------------------------------------------------


def test_what_we_end_stays_listed_with_when_it_ran(bench: Bench) -> None:
    (first,) = bench.place(spot("s1"))
    bench.clock.after_s = 300
    (second,) = bench.place(spot("s2"))
    bench.end((first, second))
    for after_s in (300, 5000):
        reports = bench.reports(after_s)
        for report in reports.values():
            assert (report.standing, report.ended_at, report.end) == (
                InstanceStatus.ENDED,
                START + 300,
                EndReason.RELEASED,
            )
        assert reports[first].running_at == START + BOOT_S
        assert reports[second].running_at is None, "it ended while it was pending"


def test_to_end_what_has_ended_changes_nothing(bench: Bench) -> None:
    (released,) = bench.place(spot("s1"))
    (evicted,) = bench.place(spot("s2"))
    bench.clock.after_s = 300
    bench.end((released,))
    before = bench.reports(2000)
    bench.end((released, evicted))
    assert bench.reports(3000) == before


def test_an_instance_that_never_was_cannot_be_found_and_keeps_no_other(bench: Bench) -> None:
    first, second = bench.place(spot(count=2))
    unknown = first.replace("1", "9")
    with suppress(InstanceNotFound):  # raised by those who know at once
        bench.end((first, unknown, second))
    assert {report.standing for report in bench.reports(0).values()} == {InstanceStatus.ENDED}


# ---- what the provider does ------------------------------------------------------------------------


def test_a_warning_precedes_the_end_by_the_notice_of_the_rules(bench: Bench) -> None:
    names = bench.place(spot(count=2))
    bench.clock.after_s = SPIKE_S - 1
    assert bench.notices() == ()
    bench.clock.after_s = SPIKE_S
    warned = {notice.instance: notice for notice in bench.notices()}
    assert set(warned) == set(names)
    for notice in warned.values():
        assert (notice.token, notice.at) == ("s1", START + SPIKE_S)
        assert notice.ends_at == START + SPIKE_S + NOTICE_S
    last = bench.reports(SPIKE_S + NOTICE_S - 1)
    assert {report.standing for report in last.values()} == {InstanceStatus.RUNNING}
    for report in bench.reports(SPIKE_S + NOTICE_S).values():
        assert (report.ended_at, report.end) == (START + SPIKE_S + NOTICE_S, EndReason.EVICTED)


def test_a_notice_is_never_taken_back(bench: Bench) -> None:
    names = bench.place(spot(count=2))
    bench.clock.after_s = SPIKE_S
    notices = bench.notices()
    assert len(notices) == 2
    bench.clock.after_s = CALM_S  # the price is below the bid again
    assert bench.notices() == notices
    bench.end(names[:1])
    assert bench.notices() == notices
    assert bench.reports(SPIKE_S + NOTICE_S)[names[1]].end is EndReason.EVICTED
    assert bench.notices() == notices


def test_a_warning_may_come_before_the_instance_runs(bench: Bench) -> None:
    bench.clock.after_s = SPIKE_S - BOOT_S // 2
    bench.place(spot())
    assert bench.only(SPIKE_S).standing is InstanceStatus.PENDING
    assert len(bench.notices()) == 1
    assert bench.only(SPIKE_S + BOOT_S).running_at == START + SPIKE_S + BOOT_S // 2
    assert bench.only(SPIKE_S + NOTICE_S).end is EndReason.EVICTED


def test_on_demand_machines_are_neither_priced_by_bid_nor_warned(bench: Bench) -> None:
    bench.clock.after_s = SPIKE_S
    bench.place(reliable())
    for after_s in (SPIKE_S + BOOT_S, SPIKE_S + NOTICE_S, SPIKE_S + 100 * NOTICE_S):
        assert bench.only(after_s).standing is InstanceStatus.RUNNING
        assert bench.notices() == ()


def test_what_dies_by_itself_has_failed_and_is_not_evicted_later(bench: Bench) -> None:
    dead, alive = bench.place(spot(count=2))
    assert bench.reports(500)[dead].standing is InstanceStatus.RUNNING
    bench.dies(dead)
    report = bench.reports(500)[dead]
    assert (report.standing, report.ended_at, report.end) == (
        InstanceStatus.ENDED,
        START + 500,
        EndReason.FAILED,
    )
    assert bench.reports(SPIKE_S)[dead] == report
    assert [notice.instance for notice in bench.notices()] == [alive]


def test_nothing_changes_but_at_the_moments_that_were_announced(bench: Bench) -> None:
    bench.place(spot())
    bench.place(reliable())
    said = (bench.notices(), bench.provider.describe())
    changes = []
    for after_s in range(10, 1500, 10):
        announced = bench.provider.next_change(bench.clock())
        bench.clock.after_s = after_s
        now = (bench.notices(), bench.provider.describe())
        if now != said:
            changes.append(after_s)
            assert announced in (bench.clock(), None)
        said = now
    assert changes == [BOOT_S, SPIKE_S, SPIKE_S + NOTICE_S]


# ---- what only real machines can show --------------------------------------------------------------


@pytest.mark.process
def test_nothing_is_left_of_a_machine_that_is_reported_as_ended(tmp_path: Path) -> None:
    with local(tmp_path) as bench:
        evicted, released = bench.place(spot(count=2))
        host = TrainingHost(tmp_path / "job")
        assert host.alive_machines() == [evicted, released]
        bench.end((released,))
        assert host.alive_machines() == [evicted]
        assert bench.reports(SPIKE_S + NOTICE_S)[evicted].standing is InstanceStatus.ENDED
        assert host.alive_machines() == []
