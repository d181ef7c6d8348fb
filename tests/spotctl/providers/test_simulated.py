"""What the simulated market does under each cloud's rules, and how it is taken up again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pricing_data.model.billing import EndReason
from pricing_data.model.market import MarketRules
from pricing_data.model.rules import AWS, AWS_2016, AZURE, GCP, GCP_PREEMPTIBLE
from pricing_data.model.units import Instant, UsdPerHour
from spotctl.errors import CapacityUnavailable
from spotctl.providers.base import InstanceStatus, Order
from spotctl.providers.simulated import SimulatedProvider
from tests.spotctl.build import MARKETS, START, random_trace, scripted_trace

SPIKE_S = 1000
ORDER = Order("s1", MARKETS[0], 2, UsdPerHour(0.05), cores=4)


class Simulation:
    """A provider over a trace, and its clock."""

    def __init__(self, rules: MarketRules, seed: int | None = None) -> None:
        self.now = START
        trace = scripted_trace((0, SPIKE_S, 1.0)) if seed is None else random_trace(seed)
        self.provider = SimulatedProvider(trace, rules, 60, lambda: self.now)

    def at(self, after_s: int) -> SimulatedProvider:
        self.now = Instant(START + after_s)
        return self.provider


@pytest.mark.parametrize("rules", [AWS, GCP, AZURE], ids=lambda rules: rules.name)
def test_where_bids_decide_nothing_no_price_evicts_or_refuses(rules: MarketRules) -> None:
    simulation = Simulation(rules)
    before = simulation.provider.request(ORDER)
    during = simulation.at(SPIKE_S + 1).request(replace(ORDER, token="s2"))
    reports = simulation.at(10 * SPIKE_S).describe()
    assert {report.instance for report in reports} == {*before, *during}
    assert {report.standing for report in reports} == {InstanceStatus.RUNNING}
    assert simulation.provider.notices() == ()


@pytest.mark.parametrize("notice_s", [30, 120, 600])
def test_the_notice_is_as_long_as_the_rules_say(notice_s: int) -> None:
    simulation = Simulation(replace(AWS_2016, notice_s=notice_s))
    simulation.provider.request(ORDER)
    notices = simulation.at(SPIKE_S).notices()
    assert {(n.at, n.ends_at) for n in notices} == {(START + SPIKE_S, START + SPIKE_S + notice_s)}
    (end,) = {(r.ended_at, r.end) for r in simulation.at(SPIKE_S + notice_s).describe()}
    assert end == (START + SPIKE_S + notice_s, EndReason.EVICTED)


def test_at_the_maximum_lifetime_a_machine_is_warned_and_ended() -> None:
    simulation = Simulation(GCP_PREEMPTIBLE)
    simulation.provider.request(ORDER)
    ends_at = START + 60 + 86400
    assert {(n.at, n.ends_at) for n in simulation.at(86400 + 60).notices()} == {(ends_at - 30, ends_at)}
    assert {(r.ended_at, r.end) for r in simulation.provider.describe()} == {(ends_at, EndReason.EVICTED)}
    simulation.now = START
    assert simulation.provider.notices() == ()


def test_one_that_is_evicted_before_it_booted_never_ran() -> None:
    simulation = Simulation(replace(AWS_2016, notice_s=30))
    simulation.at(SPIKE_S - 10).request(ORDER)
    for report in simulation.at(SPIKE_S + 1000).describe():
        assert (report.running_at, report.end) == (None, EndReason.EVICTED)


def test_a_price_at_the_bid_is_granted_and_held() -> None:
    simulation = Simulation(AWS_2016)
    simulation.provider.request(replace(ORDER, bid=UsdPerHour(0.035)))
    assert simulation.at(SPIKE_S - 1).notices() == ()
    held = Simulation(AWS_2016)
    held.provider.request(replace(ORDER, bid=UsdPerHour(1.0)))
    assert held.at(SPIKE_S + 500).notices() == ()


def test_a_market_that_is_not_traded_yet_has_no_machines() -> None:
    simulation = Simulation(AWS_2016)
    with pytest.raises(CapacityUnavailable, match="not traded"):
        simulation.at(-30 * 86400).request(ORDER)


@pytest.mark.parametrize("seed", range(5))
def test_orders_that_are_taken_up_again_become_what_they_were(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, again = Simulation(AWS_2016, seed), Simulation(AWS_2016, seed)
    requested = sorted(int(after_s) for after_s in rng.integers(0, 20_000, size=6))
    for number, after_s in enumerate(requested):
        bid = UsdPerHour((2.0, 0.06)[number % 2])
        order = replace(ORDER, token=f"s{number}", market=MARKETS[number % 3], bid=bid)
        try:
            first.at(after_s).request(order)
        except CapacityUnavailable:
            continue
        again.provider.restore_order(order, Instant(START + after_s))
    for after_s in range(requested[-1], requested[-1] + 40_000, 4_000):
        assert first.at(after_s).describe() == again.at(after_s).describe()
        assert first.provider.notices() == again.provider.notices()
        assert first.provider.next_change(first.now) == again.provider.next_change(again.now)
