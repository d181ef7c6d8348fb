"""Single rules of the core, at the moments where they matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import pytest

from bidbrain.bidding.decision_times import REFUSED_REST_S
from pricing_data.model.billing import EndReason
from pricing_data.model.rules import AWS, AWS_2016
from pricing_data.model.units import HOUR_S, Instant, MicroUsd, Seconds, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.billing import certain_cost, cost_so_far
from spotctl.control.evolve import RELEASE_LEAD_S, evolve, initial_state
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State
from spotctl.control.state_values import Phase
from spotctl.control.step import plan
from tests.spotctl.build import MARKETS, START, changed, scripted_trace, terms

BID = UsdPerHour(0.1)


def after(seconds: int) -> Instant:
    return Instant(START + seconds)


class Core:
    """The core, fed by hand; at most four transient machines. Alarms ring by themselves, as in a world."""

    def __init__(self, of: RunSpec) -> None:
        of = replace(of, limits=replace(of.limits, max_instances=4))
        self.state: State = initial_state(e.JobStarted(of.start, of), scripted_trace())
        prices = [e.PriceChanged(START, market, UsdPerHour(0.035)) for market in MARKETS]
        self.tell(*prices)

    def tell(self, *facts: e.Fact) -> list[e.Command]:
        """What the core commands on these facts, one after the other."""
        said: list[e.Command] = []
        for fact in facts:
            while self.state.deciding.alarm is not None and self.state.deciding.alarm < fact.at:
                self._feed(e.Woke(self.state.deciding.alarm))
            said += self._feed(fact)
        return said

    def _feed(self, fact: e.Fact) -> tuple[e.Command, ...]:
        self.state = evolve(self.state, fact)
        commands = plan(self.state)
        self.state = reduce(evolve, commands, self.state)
        return commands

    def training(self) -> Core:
        """The reliable machine is there and takes part."""
        self.tell(e.Granted(START, "r1", ("r1-1",)), e.InstancesRunning(after(60), ("r1-1",)))
        self.tell(e.MachineJoined(after(75), "r1-1"))
        assert self.state.phase is Phase.TRAINING
        return self

    def with_spot(self) -> Core:
        """And so are the machines of the first allocation that BidBrain asked for."""
        first = next(a for a in self.state.allocations.values() if not a.reliable)
        names = tuple(f"{first.name}-{n}" for n in range(1, first.count + 1))
        self.tell(e.Granted(after(75), first.name, names), e.InstancesRunning(after(135), names))
        self.tell(*(e.MachineJoined(after(150), name) for name in names))
        return self


def only(kind: type, commands: Sequence[e.Command]) -> list[e.Command]:
    return [command for command in commands if isinstance(command, kind)]


# ---- what was asked for counts ---------------------------------------------------------------------


def test_machines_that_were_asked_for_count_before_they_are_granted() -> None:
    core = Core(terms()).training()
    (holding,) = core.state.current_footprint()
    assert (holding.id, holding.counts_for, holding.started) == ("s1", 4, None)
    core.tell(e.Refused(after(76), "s1", "CapacityUnavailable", "no machines"))
    assert "s1" not in {holding.id for holding in core.state.current_footprint()}


def test_where_a_market_refuses_the_others_are_asked_at_once_and_it_is_left_alone_for_a_while() -> None:
    core = Core(terms()).training()
    asked = [core.state.allocations["s1"].market]
    for number in (1, 2, 3):
        said = core.tell(e.Refused(after(76), f"s{number}", "CapacityUnavailable", "no machines"))
        asked += [c.market for c in said if isinstance(c, e.Acquire)]
    assert sorted(asked) == sorted(MARKETS)
    assert core.state.deciding.alarm is not None
    said = []
    while core.state.now < after(75 + REFUSED_REST_S + 240) and not said:
        said = only(e.Acquire, core.tell(e.Woke(core.state.deciding.alarm)))
    assert said
    assert core.state.now >= after(75 + REFUSED_REST_S)


def test_machines_on_demand_that_are_refused_are_asked_for_again_at_the_next_decision() -> None:
    core = Core(changed(terms(), strategy="on-demand")).training()
    (wanted,) = [a for a in core.state.allocations.values() if not a.reliable]
    assert wanted.on_demand
    refused = e.Refused(after(76), wanted.name, "CapacityUnavailable", "no machines")
    assert only(e.Acquire, core.tell(refused)) == []
    assert core.state.deciding.alarm is not None
    assert core.state.deciding.alarm > after(76)
    (again,) = only(e.Acquire, core.tell(e.Woke(core.state.deciding.alarm)))
    assert isinstance(again, e.Acquire)
    assert (again.bid, again.count) == (None, wanted.count)


# ---- time ------------------------------------------------------------------------------------------


def test_at_the_moment_of_an_alarm_nothing_is_decided_before_it_rings() -> None:
    core = Core(terms()).training()
    due = core.state.deciding.alarm
    assert due is not None
    assert core.tell(e.ObjectiveReported(due, 1, 0.5), e.Progressed(due, 1, 0)) == []
    assert only(e.Decided, core.tell(e.Woke(due)))


def test_a_warning_is_decided_upon_at_once() -> None:
    core = Core(terms()).training().with_spot()
    assert core.state.deciding.alarm != after(200)
    warned = core.tell(e.EvictionWarned(after(200), ("s1-1",), after(320)))
    assert only(e.Decided, warned)
    assert only(e.TellWarning, warned) == [e.TellWarning(after(200), ("s1-1",), after(320))]


# ---- before the training ---------------------------------------------------------------------------


@pytest.mark.parametrize("told", [False, True], ids=["while it boots", "before it has joined"])
def test_a_reliable_machine_that_dies_before_the_training_began_ends_the_run(told: bool) -> None:
    core = Core(terms())
    core.tell(e.Granted(START, "r1", ("r1-1",)))
    if told:
        core.tell(e.InstancesRunning(after(60), ("r1-1",)))
    said = core.tell(e.InstancesEnded(after(70), ("r1-1",), EndReason.FAILED))
    why = "the reliable machines were lost before the training began"
    assert said == [e.Close(after(70), e.RunOutcome.FAILED, 1, why)]


def test_one_of_two_is_enough_to_begin_with() -> None:
    core = Core(replace(terms(), reliable_count=2))
    core.tell(e.Granted(START, "r1", ("r1-1", "r1-2")))
    core.tell(e.InstancesEnded(after(30), ("r1-1",), EndReason.FAILED))
    core.tell(e.InstancesRunning(after(60), ("r1-2",)), e.MachineJoined(after(75), "r1-2"))
    assert core.state.phase is Phase.TRAINING


# ---- reliable machines that are lost ---------------------------------------------------------------


def of_two() -> Core:
    """Both reliable machines take part."""
    core = Core(replace(terms(), reliable_count=2))
    core.tell(e.Granted(START, "r1", ("r1-1", "r1-2")), e.InstancesRunning(after(60), ("r1-1", "r1-2")))
    core.tell(e.MachineJoined(after(75), "r1-1"), e.MachineJoined(after(75), "r1-2"))
    return core


def test_one_of_two_is_told_as_lost_and_replaced() -> None:
    said = of_two().tell(e.InstancesEnded(after(300), ("r1-2",), EndReason.FAILED))
    (asked,) = (c for c in said if isinstance(c, e.Acquire) and c.reliable)
    assert (asked.allocation, asked.count, asked.bid) == ("r2", 1, None)
    assert only(e.TellLost, said) == [e.TellLost(after(300), ("r1-2",))]
    assert not only(e.Close, said)


def test_whether_it_can_go_on_the_training_says() -> None:
    core = of_two()
    core.tell(e.InstancesEnded(after(300), ("r1-2",), EndReason.FAILED))
    core.tell(e.TrainingFailed(after(303), "no copy is left"))
    assert core.state.phase is Phase.CLOSING
    assert core.state.ending.failure == "no copy is left"


def test_without_any_reliable_machine_the_run_is_over() -> None:
    core = of_two()
    core.tell(e.InstancesEnded(after(300), ("r1-2",), EndReason.FAILED))
    core.tell(e.InstancesEnded(after(310), ("r1-1",), EndReason.FAILED))
    assert (
        core.state.ending.failure == "the reliable machine r1-1 was lost with the only safe copy of the model"
    )


def test_a_replacement_that_is_refused_is_asked_for_again_later_and_its_want_fails_nothing() -> None:
    core = of_two()
    core.tell(e.InstancesEnded(after(300), ("r1-2",), EndReason.FAILED))
    core.tell(e.Refused(after(301), "r2", "CapacityUnavailable", "no machines"))
    assert core.state.reliable_missing() == 1
    core.tell(e.PriceChanged(after(300 + REFUSED_REST_S - 1), MARKETS[0], UsdPerHour(0.036)))
    assert "r3" not in core.state.allocations
    core.tell(e.PriceChanged(after(300 + REFUSED_REST_S + 1), MARKETS[0], UsdPerHour(0.035)))
    assert core.state.allocations["r3"].requested_at == after(300 + REFUSED_REST_S)
    core.tell(e.Refused(after(302 + REFUSED_REST_S), "r3", "CapacityUnavailable", "no machines"))
    core.tell(e.TrainingFinished(after(1000), 60, "model.npz"))
    live = tuple(i.name for i in core.state.live_instances())
    core.tell(e.InstancesEnded(after(1001), live, EndReason.RELEASED))
    for allocation in [a for a in core.state.allocations.values() if a.awaits_answer]:
        core.tell(e.Refused(after(1002), allocation.name, "CapacityUnavailable", "no machines"))
    assert core.state.ending.closed is not None
    assert (core.state.ending.closed.outcome, core.state.ending.closed.exit_code) == (e.RunOutcome.DONE, 0)


# ---- ends ------------------------------------------------------------------------------------------


def finished(of: RunSpec) -> tuple[Core, list[e.Command]]:
    core = Core(of).training().with_spot()
    return core, core.tell(e.TrainingFinished(after(1000), 60, "model.npz"))


def test_when_the_work_is_done_everything_is_released() -> None:
    _, said = finished(terms())
    (released,) = only(e.Release, said)
    assert isinstance(released, e.Release)
    assert set(released.instances) == {"r1-1", "s1-1", "s1-2", "s1-3", "s1-4"}


def test_a_drained_run_keeps_paid_hours_to_their_end() -> None:
    core, said = finished(changed(terms(AWS_2016), drain=True))
    assert [command for command in said if not isinstance(command, e.WakeAt)] == [
        e.Release(after(1000), ("r1-1",), "the job is over")
    ]
    ends = after(135 + HOUR_S - RELEASE_LEAD_S)
    assert core.state.deciding.alarm == ends
    (released,) = only(e.Release, core.tell(e.Woke(ends)))
    assert isinstance(released, e.Release)
    assert released.instances == ("s1-1", "s1-2", "s1-3", "s1-4")


def test_where_seconds_are_billed_there_is_no_hour_to_wait_out() -> None:
    _, said = finished(changed(terms(AWS), drain=True))
    (released,) = only(e.Release, said)
    assert isinstance(released, e.Release)
    assert set(released.instances) >= {"r1-1", "s1-1"}


def test_a_run_that_is_cancelled_just_before_it_trains_has_not_failed() -> None:
    core = Core(terms())
    core.tell(e.Granted(START, "r1", ("r1-1",)), e.InstancesRunning(after(60), ("r1-1",)))
    assert only(e.Release, core.tell(e.Asked(after(70), e.UserRequest.CANCEL)))
    core.tell(e.MachineJoined(after(70), "r1-1"), e.InstancesEnded(after(71), ("r1-1",), EndReason.RELEASED))
    core.tell(e.TrainingFailed(after(73), "no copy is left"))
    assert core.state.ending.closed is not None
    assert (core.state.ending.closed.outcome, core.state.ending.closed.exit_code) == (
        e.RunOutcome.CANCELLED,
        7,
    )


@pytest.mark.parametrize("saved", [False, True])
def test_a_run_that_is_taken_down_says_what_became_of_its_model(saved: bool) -> None:
    core = Core(terms()).training()
    for name in ("s1", "s2", "s3"):
        core.tell(e.Refused(after(76), name, "CapacityUnavailable", "no machines"))
    if saved:
        core.tell(e.TrainingFinished(after(100), 60, "model.npz"))
    core.tell(e.Asked(after(101), e.UserRequest.DOWN))
    (closed,) = only(e.Close, core.tell(e.InstancesEnded(after(103), ("r1-1",), EndReason.RELEASED)))
    assert isinstance(closed, e.Close)
    assert ("was not saved" in closed.why, "had been saved" in closed.why) == (not saved, saved)


def test_what_is_taken_down_cannot_be_cancelled_any_more() -> None:
    """Its machines are on their way out: whoever waited for a model would wait for ever."""
    core = Core(terms()).training()
    for name in ("s1", "s2", "s3"):
        core.tell(e.Refused(after(76), name, "CapacityUnavailable", "no machines"))
    core.tell(e.Asked(after(101), e.UserRequest.DOWN))
    assert only(e.TellStop, core.tell(e.Asked(after(101), e.UserRequest.CANCEL))) == []
    (closed,) = only(e.Close, core.tell(e.InstancesEnded(after(103), ("r1-1",), EndReason.RELEASED)))
    assert isinstance(closed, e.Close)
    assert closed.outcome is e.RunOutcome.TAKEN_DOWN


@pytest.mark.parametrize(
    ("stop", "fact"),
    [
        ({"seconds": Seconds(500.0)}, e.Woke(after(75 + 500))),
        ({"objective_delta": 0.1}, e.ObjectiveReported(after(300), 3, 0.95)),
    ],
    ids=["time", "objective"],
)
def test_a_run_stops_gracefully_when_its_end_is_reached(stop: dict[str, float], fact: e.Fact) -> None:
    of = changed(terms(), stop=replace(terms().work.stop, clocks=None, **stop))  # type: ignore[arg-type]
    core = Core(of).training()
    assert only(e.TellStop, core.tell(e.ObjectiveReported(after(200), 2, 1.0))) == []
    assert only(e.TellStop, core.tell(fact)) == [e.TellStop(fact.at)]
    assert core.state.phase is Phase.STOPPING


SPENT = (e.RunOutcome.FAILED, 6, "the budget was spent before the work was done")


def test_a_run_whose_budget_is_spent_stops_and_says_so() -> None:
    core = Core(changed(terms(), budget=MicroUsd(300_000))).training().with_spot()
    assert core.state.phase is Phase.STOPPING
    core.tell(e.TrainingFinished(after(180), 0, "model.npz"))
    for name in [a.name for a in core.state.allocations.values() if a.awaits_answer]:
        core.tell(e.Refused(after(180), name, "CapacityUnavailable", "no machines"))
    live = tuple(i.name for i in core.state.live_instances())
    (closed,) = only(e.Close, core.tell(e.InstancesEnded(after(181), live, EndReason.RELEASED)))
    assert isinstance(closed, e.Close)
    assert (closed.outcome, closed.exit_code, closed.why) == SPENT


@pytest.mark.parametrize("clocks", [60, None])
def test_a_machine_that_never_becomes_ready_costs_the_budget_and_no_more(clocks: int | None) -> None:
    core = Core(changed(terms(AWS), budget=MicroUsd(199_000), stop=replace(terms().work.stop, clocks=clocks)))
    core.tell(e.Granted(START, "r1", ("r1-1",)), e.InstancesRunning(after(60), ("r1-1",)))
    assert core.tell(e.PriceChanged(after(60 + HOUR_S - 10), MARKETS[0], UsdPerHour(0.04))) == []
    assert only(e.Release, core.tell(e.PriceChanged(after(60 + HOUR_S), MARKETS[0], UsdPerHour(0.041)))) == [
        e.Release(after(60 + HOUR_S), ("r1-1",), "the job is over")
    ]
    (closed,) = only(e.Close, core.tell(e.InstancesEnded(after(61 + HOUR_S), ("r1-1",), EndReason.RELEASED)))
    assert isinstance(closed, e.Close)
    assert (closed.outcome, closed.exit_code, closed.why) == SPENT


def test_a_command_whose_setup_never_ends_costs_the_budget_and_no_more() -> None:
    """It decides while it waits: nothing else is bought in the meantime, nor afterwards."""
    core = Core(changed(terms(AWS), reliable_count=0, budget=MicroUsd(30_000)))
    (asked,) = core.state.allocations.values()
    core.tell(e.Granted(START, asked.name, ("s1-1",)), e.InstancesRunning(after(60), ("s1-1",)))
    said = core.tell(e.PriceChanged(after(2 * HOUR_S), MARKETS[0], UsdPerHour(0.036)))
    assert only(e.Acquire, said) == []
    gone = [i.name for i in core.state.instances.values() if i.ends_at is None]
    assert gone == ["s1-1"]
    (closed,) = only(
        e.Close, core.tell(e.InstancesEnded(after(2 * HOUR_S + 1), ("s1-1",), EndReason.RELEASED))
    )
    assert isinstance(closed, e.Close)
    assert (closed.outcome, closed.exit_code, closed.why) == SPENT


@pytest.mark.parametrize(("deadline_s", "code"), [(900.0, 6), (1000.0, 0)])
def test_a_deadline_that_was_missed_shows_in_the_exit_code(deadline_s: float, code: int) -> None:
    core, _ = finished(changed(terms(), deadline_s=Seconds(deadline_s)))
    names = tuple(core.state.instances)
    (closed,) = core.tell(e.InstancesEnded(after(1001), names, EndReason.RELEASED))
    assert isinstance(closed, e.Close)
    assert (closed.outcome, closed.exit_code) == (e.RunOutcome.DONE, code)


def test_an_hour_that_an_announced_eviction_makes_free_spends_no_budget() -> None:
    """Four machines whose hour begins at 0.035 $; the reliable one costs 0.199 $."""
    core = Core(changed(terms(AWS_2016), budget=MicroUsd(300_000))).training().with_spot()
    assert cost_so_far(core.state).total == 199_000 + 4 * 35_000
    assert core.state.phase is not Phase.TRAINING, "339 000 is over the budget"
    warned = Core(changed(terms(AWS_2016), budget=MicroUsd(300_000))).training()
    names = tuple(f"s1-{n}" for n in range(1, 5))
    warned.tell(e.Granted(after(75), "s1", names), e.EvictionWarned(after(100), names, after(220)))
    warned.tell(e.InstancesRunning(after(135), names))
    assert cost_so_far(warned.state).total == 199_000 + 4 * 35_000
    assert certain_cost(warned.state) == 199_000
    assert warned.state.phase is Phase.TRAINING
