"""A job whose last reliable machine is lost begins again from its newest checkpoint, if it keeps any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from bidbrain.bidding.decision_times import REFUSED_REST_S
from bidbrain.strategies.reliable_tier import MAX_FAILED_RESTARTS
from pricing_data.model.billing import EndReason
from pricing_data.model.rules import AWS
from pricing_data.model.units import HOUR_S, Instant, MicroUsd, Seconds
from spotctl.cli.format.event_text import describe_entry
from spotctl.control import entries as e
from spotctl.control.billing import instance_bills
from spotctl.control.drive import drive, start_run
from spotctl.control.restart import MOST_IN_VAIN
from spotctl.control.run_spec import CheckpointPolicy, RunSpec
from spotctl.control.state import State
from spotctl.control.state_values import Phase
from spotctl.engines.shadowed import ReplayedFacts
from spotctl.engines.simulated import simulate_training
from spotctl.providers.base import Notice, Offering, Order, OrderAnswer, Report
from spotctl.providers.simulated import SimulatedProvider
from spotctl.records.ledger import Ledger
from spotctl.timesource import VirtualTime
from spotctl.worlds.world import TraceWorld
from tests.spotctl.build import START, Silent, changed, redecided, scripted_trace, shortened, terms
from tests.spotctl.control.test_step import Core, after, only

LOST_S = 300


def keeping(of: RunSpec | None = None, clocks: int = 4) -> RunSpec:
    """Its reliable machines are on demand, as every strategy but the default has them."""
    return changed(of or terms(AWS), keeps=CheckpointPolicy(clocks, Seconds(0.0)), strategy="proteus")


def kept_at(core: Core, clock: int, at_s: int = 200) -> Core:
    core.tell(e.Progressed(after(at_s), clock + 3, clock + 2), e.Checkpointed(after(at_s), clock, "kept/4"))
    return core


def dies(core: Core, name: str, at_s: int) -> list[e.Command]:
    return core.tell(e.InstancesEnded(after(at_s), (name,), EndReason.FAILED))


def emptied(core: Core, at_s: int) -> list[e.Command]:
    """Whatever it released has ended, and whatever was not granted yet is refused."""
    said: list[e.Command] = []
    for allocation in [a for a in core.state.allocations.values() if a.awaits_answer]:
        said += core.tell(e.Refused(after(at_s), allocation.name, "CapacityUnavailable", "no machines"))
    live = tuple(instance.name for instance in core.state.live_instances())
    return said + (core.tell(e.InstancesEnded(after(at_s), live, EndReason.RELEASED)) if live else [])


def back(core: Core, number: int, at_s: int, clock: int) -> list[e.Command]:
    """The training goes on after ``clock``, on the reliable machine that was asked for."""
    name = f"r{number}-1"
    folder = "kept/4" if clock else ""
    said = core.tell(e.Granted(after(at_s), f"r{number}", (name,)))
    said += core.tell(e.TrainingResumed(after(at_s), clock, folder))
    said += core.tell(e.InstancesRunning(after(at_s + 60), (name,)))
    return said + core.tell(e.MachineJoined(after(at_s + 75), name))


# ---- rules, one by one -----------------------------------------------------------------------------


def test_its_machines_are_ended_then_the_training_is_told_then_a_reliable_machine_is_asked_for() -> None:
    core = kept_at(Core(keeping()).training().with_spot(), 4)
    said = dies(core, "r1-1", LOST_S)
    assert core.state.phase is Phase.RESTARTING
    (released,) = only(e.Release, said)
    assert isinstance(released, e.Release)
    assert released.instances == ("s1-1", "s1-2", "s1-3", "s1-4")
    assert not only(e.TellRestart, said)
    said = emptied(core, LOST_S + 1)
    assert [c for c in said if not isinstance(c, e.WakeAt)] == [
        e.TellRestart(after(LOST_S + 1), 1),
        e.Acquire(after(LOST_S + 1), "r2", core.state.terms.reliable.market, 1, None, reliable=True),
    ]
    said = back(core, 2, LOST_S + 2, 4)
    assert not only(e.TellLost, said), "what the training had before is none of the new one's"
    assert [tell.instances for tell in said if isinstance(tell, e.TellJoin)] == [("r2-1",)]
    state = core.state
    assert (state.phase, state.training.clock, state.training.clocks_redone, state.recovery.restarts) == (
        Phase.TRAINING,
        4,
        3,
        1,
    )
    assert (state.recovery.resumed_from, state.training.training_started_at) == (0, after(75)), (
        "it is one run all the same"
    )
    assert only(e.Decided, said), "and spot machines are looked for again"


def test_without_checkpoints_the_run_is_over_as_ever() -> None:
    core = Core(terms()).training()
    dies(core, "r1-1", LOST_S)
    assert core.state.phase is Phase.CLOSING
    assert (
        core.state.ending.failure == "the reliable machine r1-1 was lost with the only safe copy of the model"
    )


def test_before_its_first_checkpoint_it_begins_with_nothing() -> None:
    core = Core(keeping()).training()
    core.tell(e.Progressed(after(200), 2, 1))
    dies(core, "r1-1", LOST_S)
    assert only(e.TellRestart, emptied(core, LOST_S + 1))
    back(core, 2, LOST_S + 2, 0)
    state = core.state
    assert (state.training.clock, state.training.clocks_redone, state.recovery.checkpoint) == (0, 2, None)
    assert describe_entry(state, e.TrainingResumed(state.now, 0, "")) == (
        "restarted from the beginning, as no checkpoint was written before"
    )


def test_a_request_without_an_answer_is_waited_for_and_what_it_grants_released() -> None:
    core = kept_at(Core(keeping()).training(), 4)
    assert core.state.allocations["s1"].awaits_answer
    dies(core, "r1-1", LOST_S)
    assert core.state.phase is Phase.RESTARTING
    names = tuple(f"s1-{n}" for n in range(1, 5))
    (released,) = only(e.Release, core.tell(e.Granted(after(LOST_S + 5), "s1", names)))
    assert released == e.Release(after(LOST_S + 5), names, "the job begins again from its checkpoint")
    assert only(e.TellRestart, emptied(core, LOST_S + 6))


def test_where_the_machine_of_the_controller_is_lost_the_other_one_is_ended_too() -> None:
    """That it cannot go on, the training says."""
    core = Core(replace(keeping(), reliable_count=2))
    core.tell(e.Granted(START, "r1", ("r1-1", "r1-2")), e.InstancesRunning(after(60), ("r1-1", "r1-2")))
    core.tell(e.MachineJoined(after(75), "r1-1"), e.MachineJoined(after(75), "r1-2"))
    assert only(e.TellLost, dies(core, "r1-1", LOST_S))
    said = core.tell(e.TrainingFailed(after(LOST_S + 3), "the elasticity controller is gone"))
    assert core.state.phase is Phase.RESTARTING
    assert "r1-2" in {name for c in said if isinstance(c, e.Release) for name in c.instances}
    core.tell(e.Granted(after(LOST_S + 4), "r2", ("r2-1",)))  # which was to take its place
    (asked,) = (c for c in emptied(core, LOST_S + 5) if isinstance(c, e.Acquire) and c.reliable)
    assert asked.count == 2


def test_what_showed_the_end_of_an_attempt_that_was_lost_does_not_end_the_next_one() -> None:
    """Its model was saved while nobody was there, and its reliable machine died before it could say so."""
    core = kept_at(Core(keeping()).training().with_spot(), 4)
    core.tell(e.ControllerDown(after(250), after(LOST_S), over_at=after(260)))
    dies(core, "r1-1", LOST_S)
    emptied(core, LOST_S + 1)
    back(core, 2, LOST_S + 2, 4)
    core.tell(e.TrainingFinished(after(2000), 60, "model"))
    assert core.state.training.training_over_at == after(2000)


def test_a_training_that_fails_by_itself_does_not_begin_again() -> None:
    core = kept_at(Core(keeping()).training(), 4)
    core.tell(e.TrainingFailed(after(LOST_S), "it cannot compute"))
    assert (core.state.phase, core.state.ending.failure) == (Phase.CLOSING, "it cannot compute")


def test_one_that_is_being_cancelled_ends() -> None:
    core = kept_at(Core(keeping()).training(), 4)
    core.tell(e.Asked(after(250), e.UserRequest.CANCEL))
    dies(core, "r1-1", LOST_S)
    assert core.state.ending.failure is not None
    assert "a launch that resumes goes on after clock 4 or later" in core.state.ending.failure


@pytest.mark.parametrize("told", [False, True])
def test_one_that_is_cancelled_while_it_begins_again_is_cancelled(told: bool) -> None:
    core = kept_at(Core(keeping()).training().with_spot(), 4)
    dies(core, "r1-1", LOST_S)
    if told:
        emptied(core, LOST_S + 1)
    core.tell(e.Asked(after(LOST_S + 2), e.UserRequest.CANCEL))
    emptied(core, LOST_S + 3)
    assert core.state.ending.closed is not None
    assert (core.state.ending.closed.outcome, core.state.ending.closed.exit_code) == (
        e.RunOutcome.CANCELLED,
        7,
    )


def test_a_refused_reliable_machine_is_asked_for_again_later() -> None:
    core = kept_at(Core(keeping()).training(), 4)
    dies(core, "r1-1", LOST_S)
    emptied(core, LOST_S)
    core.tell(e.Refused(after(LOST_S + 1), "r2", "CapacityUnavailable", "no machines"))
    assert core.state.phase is Phase.STARTING
    assert core.state.deciding.alarm == after(LOST_S + REFUSED_REST_S)
    core.tell(e.Woke(after(LOST_S + REFUSED_REST_S)))
    assert core.state.allocations["r3"].awaits_answer


def test_a_model_that_was_about_to_be_saved_is_saved_from_the_checkpoint() -> None:
    """The time of the job is up: it is not trained any further, but nothing that was kept is thrown away."""
    of = keeping()
    core = Core(changed(of, stop=replace(of.work.stop, seconds=Seconds(200.0)))).training()
    kept_at(core, 4)
    core.tell(e.Woke(after(275)))
    assert core.state.phase is Phase.STOPPING
    dies(core, "r1-1", LOST_S)
    emptied(core, LOST_S)
    assert only(e.TellStop, back(core, 2, LOST_S + 1, 4))


def test_it_does_not_begin_again_on_money_it_has_not() -> None:
    core = kept_at(Core(changed(keeping(), budget=MicroUsd(10_000))).training(), 4)
    dies(core, "r1-1", LOST_S)
    assert core.state.ending.failure is not None
    assert "and its budget is spent; a launch that resumes" in core.state.ending.failure


# ---- no end of restarts ----------------------------------------------------------------------------


def lose_again(core: Core, number: int, at_s: int) -> None:
    dies(core, f"r{number}-1", at_s)
    if core.state.phase is Phase.RESTARTING:
        emptied(core, at_s + 1)


def test_restarts_that_come_no_further_end_with_a_word() -> None:
    core = kept_at(Core(keeping()).training(), 4)
    for number in range(1, MOST_IN_VAIN + 2):
        assert core.state.phase is Phase.TRAINING
        lose_again(core, number, LOST_S * number)
        if number <= MOST_IN_VAIN:
            back(core, number + 1, LOST_S * number + 2, 4)
    assert core.state.ending.failure == (
        "the reliable machine r4-1 was lost with the only safe copy of the model; it began 3 times from "
        "clock 4 and reached no newer checkpoint; a launch that resumes goes on after clock 4 or later"
    )
    assert core.state.recovery.restarts == MOST_IN_VAIN


@pytest.mark.parametrize("said", ["by the training", "by the checkpoint it begins from"])
def test_those_that_come_further_go_on(said: str) -> None:
    core = kept_at(Core(keeping()).training(), 4)
    for number in range(1, 3 * MOST_IN_VAIN):
        lose_again(core, number, LOST_S * number)
        clock = 4 * (number + 1)
        if said == "by the training":
            back(core, number + 1, LOST_S * number + 2, 4 * number)
            kept_at(core, clock, LOST_S * number + 100)
        else:  # it had written one that nobody was told of
            back(core, number + 1, LOST_S * number + 2, clock)
    assert (core.state.phase, core.state.recovery.in_vain) == (Phase.TRAINING, 0)


def test_machines_that_the_provider_takes_are_no_fault_and_on_demand_follows_them_in_the_end() -> None:
    core = kept_at(Core(changed(keeping(), strategy="auto")).training(), 4)
    for number in range(1, MAX_FAILED_RESTARTS + 3):
        assert core.state.allocations[f"r{number}"].on_demand == (number > MAX_FAILED_RESTARTS + 1)
        core.tell(e.InstancesEnded(after(LOST_S * number), (f"r{number}-1",), EndReason.EVICTED))
        assert core.state.phase is Phase.RESTARTING
        emptied(core, LOST_S * number + 1)
        back(core, number + 1, LOST_S * number + 2, 4)


def test_machines_that_are_lost_before_they_take_part_count_as_in_vain() -> None:
    core = kept_at(Core(keeping()).training(), 4)
    lose_again(core, 1, LOST_S)
    for number in range(2, MOST_IN_VAIN + 2):
        assert core.state.phase is Phase.STARTING
        core.tell(e.Granted(after(LOST_S * number), f"r{number}", (f"r{number}-1",)))
        lose_again(core, number, LOST_S * number + 1)
    assert core.state.ending.failure is not None
    assert "it began 3 times from clock 4" in core.state.ending.failure


# ---- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "in_time"), [(20, True), (2, False)])
def test_whether_the_deadline_can_still_be_kept_is_said(hours: int, in_time: bool) -> None:
    of = changed(keeping(), deadline_s=Seconds(float(hours * HOUR_S)), start_s=Seconds(60.0))
    core = kept_at(Core(of).training(), 4)
    dies(core, "r1-1", 5400)
    (told,) = only(e.TellRestart, emptied(core, 5401))
    assert isinstance(told, e.TellRestart)
    assert told.in_time is in_time
    shown = describe_entry(core.state, told)
    assert shown is not None
    assert ("can still be kept" in shown) is in_time


# ---- the whole of it, replayed ---------------------------------------------------------------------


class Losing:
    """``provider``, whose instances of some names die at given moments."""

    def __init__(self, provider: SimulatedProvider, time: VirtualTime, deaths: dict[str, int]) -> None:
        self._provider, self._time = provider, time
        self._deaths = {name: after(at_s) for name, at_s in deaths.items()}

    def describe(self) -> tuple[Report, ...]:
        known = {report.instance for report in self._provider.describe()}
        for name in [n for n, at in self._deaths.items() if at <= self._time.now and n in known]:
            del self._deaths[name]
            self._provider.fail_instance(name)
        return self._provider.describe()

    def next_change(self, since: Instant) -> Instant | None:
        moments = [at for at in self._deaths.values() if at > since]
        change = self._provider.next_change(since)
        return min(moments if change is None else [*moments, change], default=None)

    def offerings(self) -> tuple[Offering, ...]:
        return self._provider.offerings()

    def submit(self, order: Order) -> None:
        self._provider.submit(order)

    def answers(self) -> tuple[OrderAnswer, ...]:
        return self._provider.answers()

    def terminate(self, instances: Sequence[str]) -> None:
        self._provider.terminate(instances)

    def notices(self) -> tuple[Notice, ...]:
        return self._provider.notices()


def replayed(of: RunSpec, deaths: dict[str, int]) -> tuple[State, tuple[e.Entry, ...]]:
    trace, time = scripted_trace(), VirtualTime(of.start)
    provider = Losing(SimulatedProvider(trace, of.rules, 60, lambda: time.now), time, deaths)
    world = TraceWorld(time, trace, provider, simulate_training(of), lambda: (), of)
    ledger, observer = Ledger.in_memory(), Silent()
    begun = start_run(e.JobStarted(of.start, of), trace, ledger, observer)
    return drive(begun, world, ledger, observer), ledger.read_entries()


DEATHS = {"r1-1": 2400, "r2-1": 4000}


def test_a_replay_that_loses_its_reliable_machine_twice_does_the_same_work_later() -> None:
    of = keeping()
    calm, _ = replayed(of, {})
    state, entries = replayed(of, DEATHS)
    assert state.ending.closed is not None
    assert (state.ending.closed.outcome, state.ending.closed.exit_code, state.training.clock) == (
        e.RunOutcome.DONE,
        0,
        calm.training.clock,
    )
    assert (state.recovery.restarts, state.recovery.failures, state.work_done) == (2, 2, calm.work_done)
    resumed = [entry for entry in entries if isinstance(entry, e.TrainingResumed)]
    assert all(entry.clock % 4 == 0 and entry.clock > 0 for entry in resumed)
    completed = [entry.clock for entry in entries if isinstance(entry, e.Progressed)]
    assert len(completed) == calm.training.clock + state.training.clocks_redone
    assert state.now > calm.now
    owed = {bill.instance.name: bill for bill in instance_bills(state)}
    for name, at_s in DEATHS.items():
        assert owed[name].instance.ended_at == after(at_s)
        assert owed[name].amount > 0
    assert redecided(entries, scripted_trace()) == list(entries)


def test_a_deadline_that_can_still_be_kept_is_kept() -> None:
    of = replace(keeping(), start_s=Seconds(60.0))
    calm, _ = replayed(of, {})
    tight = changed(of, deadline_s=Seconds(2.0 * (calm.now - START)))
    state, entries = replayed(tight, DEATHS)
    told = [entry.in_time for entry in entries if isinstance(entry, e.TellRestart)]
    assert told == [True, True]
    assert state.ending.closed is not None
    assert (state.ending.closed.outcome, state.ending.closed.exit_code) == (e.RunOutcome.DONE, 0)
    assert state.now <= START + 2 * (calm.now - START)


def test_checkpoints_by_time_cost_at_most_their_interval() -> None:
    of = changed(terms(AWS), keeps=CheckpointPolicy(0, Seconds(600.0)))
    state, entries = replayed(of, {"r1-1": 2400})
    kept = [entry.at for entry in entries if isinstance(entry, e.Checkpointed) and entry.at < after(2400)]
    assert all(600 <= later - earlier < 900 for earlier, later in pairwise(kept))
    assert len(kept) > 2
    newest = max(x.clock for x in entries if isinstance(x, e.Checkpointed) and x.at < after(2400))
    (resumed,) = (x for x in entries if isinstance(x, e.TrainingResumed))
    assert (state.recovery.restarts, resumed.clock) == (1, newest)
    assert after(2400) - kept[-1] < 900


def test_a_replay_that_goes_on_behind_its_record_says_nothing_twice() -> None:
    """As of a queue launched again: the model is told everything and keeps to itself what is known."""
    of = keeping()
    _, entries = replayed(of, DEATHS)
    tells = [entry for entry in entries if isinstance(entry, e.Tell)]
    training = ReplayedFacts(simulate_training(of), entries)
    for number, tell in enumerate(tells, start=1):
        training.send_command(number, tell)
    assert training.take_facts(entries[-1].at) == ()


def test_where_other_reliable_machines_live_the_modelled_training_goes_back_to_its_checkpoint() -> None:
    """In stage 1, in which nobody else has a copy: as the real one."""
    training = simulate_training(replace(shortened(keeping(), 1000), reliable_count=2))
    training.send_command(1, e.TellJoin(START, ("r1-1", "r1-2"), True, 4))
    facts = training.take_facts(after(HOUR_S * 2))
    kept = max(fact.clock for fact in facts if isinstance(fact, e.Checkpointed))
    training.send_command(2, e.TellLost(after(HOUR_S * 2), ("r1-2",)))
    (back_to,) = (f for f in training.take_facts(after(HOUR_S * 2)) if isinstance(f, e.RolledBack))
    reached = max(fact.clock for fact in facts if isinstance(fact, e.Progressed))
    assert (back_to.to, back_to.redone) == (kept, reached - kept)
