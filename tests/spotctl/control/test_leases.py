"""A job of a queue: what it does within leases, and what without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bidbrain.cluster.lease import Lease
from pricing_data.model.market import PriceHistory
from pricing_data.model.rules import AWS, AWS_2016
from pricing_data.model.units import Instant, MicroUsd, Seconds
from spotctl.control import entries as e
from spotctl.control.billing import certain_cost
from spotctl.control.drive import drive, fold_entries, start_run
from spotctl.control.run_spec import QueueMembership, RunSpec
from spotctl.control.state import State
from spotctl.engines.simulated import simulate_training
from spotctl.providers.simulated import SimulatedProvider
from spotctl.records.ledger import Ledger
from spotctl.timesource import VirtualTime
from spotctl.worlds.world import TraceWorld
from tests.spotctl.build import MARKETS, START, Silent, changed, scripted_trace, terms

Given = tuple[int, Lease | None, MicroUsd | None]
"""(seconds after START, lease, allowance)."""


class Leasing:
    """A replay in which leases come at given moments."""

    def __init__(self, of: RunSpec, given: Sequence[Given]) -> None:
        self._time = VirtualTime(of.start)
        trace = scripted_trace()
        provider = SimulatedProvider(trace, of.rules, 60, lambda: self._time.now)
        self._given = list(given)
        self._world = TraceWorld(self._time, trace, provider, simulate_training(of), lambda: (), of)
        self.ledger = Ledger.in_memory()
        self.state = drive(
            start_run(e.JobStarted(of.start, of), trace, self.ledger, Silent()), self, self.ledger, Silent()
        )

    def next_fact(self) -> e.Fact:
        while not self._world.has_fact():
            known = self._world.next_scheduled()
            due = START + self._given[0][0] if self._given else None
            if due is not None and (known is None or due <= known):
                at, lease, allowance = self._given.pop(0)
                self._time.advance(Instant(START + at), lambda _: False, lambda: ())
                self._world.give_lease(lease, allowance)
            else:
                self._time.advance(known, lambda _: False, lambda: ())
        return self._world.take_fact()

    def execute(self, command: e.Command) -> None:
        self._world.execute(command)

    def all(self, kind: type) -> list[e.Entry]:
        return [entry for entry in self.ledger.read_entries() if isinstance(entry, kind)]


def queued(of: RunSpec, *, promised: bool = False) -> RunSpec:
    return replace(of, queued=QueueMembership(promised, tuple(t.market for t in of.spot)))


def lease(count: int, *markets: int) -> Lease:
    return Lease(tuple(MARKETS[number] for number in markets or (0, 1, 2)), count, START)


def spot_at_most(entries: Sequence[e.Entry]) -> int:
    """The most spot machines at any moment, from the ledger alone."""
    held, most = 0, 0
    for entry in entries:
        if isinstance(entry, e.Granted) and entry.allocation.startswith("s"):
            held += len(entry.instances)
        elif isinstance(entry, e.InstancesEnded):
            held -= sum(name.startswith("s") for name in entry.instances)
        most = max(most, held)
    return most


def test_nothing_is_rented_before_the_first_lease() -> None:
    run = Leasing(queued(terms()), [(1800, lease(4), None)])
    first = run.all(e.Acquire)[0]
    assert first.at == START + 1800
    assert run.state.ending.closed is not None
    assert run.state.ending.closed.exit_code == 0


def test_it_holds_what_its_lease_says_and_no_more() -> None:
    run = Leasing(queued(terms()), [(0, lease(3, 1), None)])
    markets = {
        order.market for order in run.all(e.Acquire) if isinstance(order, e.Acquire) and not order.reliable
    }
    assert markets == {MARKETS[1]}
    assert spot_at_most(run.ledger.read_entries()) == 3


def test_a_lease_that_is_over_is_given_back_in_minutes_and_what_was_done_stays() -> None:
    for rules in (AWS, AWS_2016):
        run = Leasing(
            queued(terms(rules, clocks=200)),
            [(0, lease(4), None), (1800, None, None), (7200, lease(2), None)],
        )
        ends = [entry for entry in run.all(e.InstancesEnded) if START + 1800 <= entry.at < START + 7200]
        assert ends
        assert all(entry.at <= START + 1800 + 300 for entry in ends)
        assert (run.state.recovery.failures, run.state.training.clocks_redone) == (0, 0)
        assert run.state.ending.closed is not None
        assert run.state.ending.closed.exit_code == 0


def test_a_smaller_lease_takes_back_what_is_too_many() -> None:
    run = Leasing(queued(terms(AWS, clocks=400)), [(0, lease(8), None), (1800, lease(4), None)])
    entries = run.ledger.read_entries()
    assert spot_at_most([x for x in entries if x.at < START + 1800]) == 8
    later = [x for x in entries if isinstance(x, e.InstancesEnded) and START + 1800 <= x.at <= START + 2100]
    assert sum(len(x.instances) for x in later if isinstance(x, e.InstancesEnded)) == 4


def test_a_job_whose_allowance_is_spent_ends_and_says_so() -> None:
    run = Leasing(queued(terms(clocks=400)), [(0, lease(4), MicroUsd(10**9)), (3000, None, MicroUsd(0))])
    assert run.state.ending.closed is not None
    assert run.state.ending.closed.exit_code == 6
    assert "budget" in run.state.ending.closed.why


def test_bids_stay_at_the_list_price_where_money_is_counted() -> None:
    run = Leasing(queued(terms()), [(0, lease(4), MicroUsd(10**9))])
    bids = [
        order.bid for order in run.all(e.Acquire) if isinstance(order, e.Acquire) and order.bid is not None
    ]
    assert bids
    assert max(bids) <= 0.239 + 1e-9


def test_a_promised_job_keeps_its_deadline_without_any_lease() -> None:
    of = changed(
        queued(terms(clocks=60), promised=True), deadline_s=Seconds(4 * 3600.0), start_s=Seconds(60.0)
    )
    run = Leasing(of, [])
    assert run.state.ending.closed is not None
    assert run.state.ending.closed.exit_code == 0
    assert not [
        order for order in run.all(e.Acquire) if isinstance(order, e.Acquire) and order.bid is not None
    ]
    assert certain_cost(run.state) > 0


def test_a_run_that_died_before_its_first_prices_can_be_read_and_settled(tmp_path: Path) -> None:
    """Only the beginning is on record when spotctl is killed; resumed, the ledger holds all that its
    bill needs.
    """
    of, trace = terms(), scripted_trace()
    ledger = Ledger.open_file(tmp_path / "ledger.db")
    state = start_run(e.JobStarted(of.start, of), trace, ledger, Silent())
    time = VirtualTime(of.start)
    provider = SimulatedProvider(trace, of.rules, 60, lambda: time.now)
    world = TraceWorld(time, trace, provider, simulate_training(of), lambda: (), of)
    world.resume(state, ledger.read_entries(), e.ControllerDown(of.start, of.start))
    ended = drive(state, world, ledger, Silent())
    read: State = fold_entries(ledger.read_entries(), PriceHistory())
    assert read.ending.closed == ended.ending.closed
    assert certain_cost(read) == certain_cost(ended) > 0
