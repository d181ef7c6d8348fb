"""The core under random schedules, one fault in each; and cores that are wrong in one thing.

The seed of a schedule that fails is in the test's name or, for the campaign, in the message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import get_args

import numpy as np
import pytest

from bidbrain.strategies.registry import DEFAULT, LIVE, NEED_DEADLINE
from pricing_data.model.market import Market, PriceHistory
from pricing_data.model.rules import AWS, AWS_2016, GCP
from pricing_data.model.units import Instant, Seconds
from spotctl.control import entries as e
from spotctl.control.billing import cost_so_far
from spotctl.control.drive import drive, start_run, unexecuted_commands
from spotctl.control.evolve import evolve, initial_state
from spotctl.control.lifecycle import InstanceState
from spotctl.control.run_spec import (
    CheckpointPolicy,
    EgressTariff,
    MovableCheckpoint,
    QueueMembership,
    RunSpec,
)
from spotctl.control.state import State
from spotctl.control.state_values import MarketKnowledge, Phase
from spotctl.control.step import plan
from spotctl.records.codec import decode_entry, encode_entry
from spotctl.records.ledger import Ledger
from tests.spotctl.build import MARKETS, Silent, changed, random_trace, terms
from tests.spotctl.control.random_world import Fault, RandomWorld

MOST_FACTS = 1500
Plan = Callable[[State], tuple[e.Command, ...]]
Evolve = Callable[[State, e.Entry], State]
OHIO = Market("aws", "us-east-2", "us-east-2a", "m4.xlarge")
_THERE = random_trace(seed=0, days=2, before_days=1)
_PLACES = {MARKETS[1]: replace(MARKETS[1], instance_type="m4.2xlarge"), MARKETS[2]: OHIO}
PAST = PriceHistory.from_series({_PLACES.get(market, market): _THERE.series(market) for market in MARKETS})
"""The second zone has larger machines; the third is another region."""
LUGGAGE = MovableCheckpoint(10**9, 1e8, (EgressTariff("aws", "region", 0.02),))


@dataclass(frozen=True, slots=True)
class Outcome:
    state: State
    entries: tuple[e.Entry, ...]
    struck: bool
    """Whether the fault came before the run was over."""


def random_terms(seed: int) -> RunSpec:
    rng = np.random.default_rng((seed, 1))
    of = terms((AWS_2016, AWS, GCP)[int(rng.integers(3))], clocks=int(rng.integers(5, 100)), work=600)
    cores = {MARKETS[1]: 8}
    spot = tuple(
        replace(t, market=_PLACES.get(t.market, t.market), cores=cores.get(t.market, t.cores))
        for t in of.spot
    )
    of = changed(of, spot=spot, luggage=LUGGAGE if rng.random() < 0.5 else None)
    few_bids = replace(of.limits, max_instances=int(rng.integers(1, 9)), bid_deltas=(0.001, 0.02, 0.2))
    until = replace(
        of.work.stop,
        seconds=Seconds(float(rng.integers(600, 7200))) if rng.random() < 0.2 else None,
        objective_delta=0.02 if rng.random() < 0.2 else None,
    )
    machines, drain = int(rng.integers(1, 3)), bool(rng.random() < 0.3)
    of = changed(of, limits=few_bids, stop=until, reliable_count=machines, drain=drain)
    deadline_s = Seconds(float(rng.integers(600, 7200))) if rng.random() < 0.5 else None
    named = [name for name in LIVE if deadline_s is not None or name not in NEED_DEADLINE]
    strategy = str(rng.choice(named)) if rng.random() < 0.5 else DEFAULT
    if np.random.default_rng((seed, 2)).random() < 0.3:
        rents = tuple(tradable.market for tradable in of.spot[seed % 2 :])
        of = replace(of, queued=QueueMembership(deadline_s is not None and seed % 2 == 1, rents))
    keeps = CheckpointPolicy(1, Seconds(0.0)) if np.random.default_rng((seed, 3)).random() < 0.5 else None
    of = changed(of, keeps=keeps)
    return changed(of, deadline_s=deadline_s, strategy=strategy, start_s=Seconds(60.0), measure=seed % 2 == 0)


def run_schedule(seed: int, fault: Fault, plan: Plan = plan, evolve: Evolve = evolve) -> Outcome:
    """``drive``, with all that must hold looked at after each step, and a place to crash."""
    of = random_terms(seed)
    world = RandomWorld(seed, of, fault)
    first = e.JobStarted(of.start, of)
    state, checks = initial_state(first, PAST), Checks(world)
    entries: list[e.Entry] = [first]
    for _ in range(MOST_FACTS):
        if state.phase is Phase.CLOSED:
            break
        fact = world.next_fact()
        state = evolve(state, fact)
        commands = plan(state)
        for command in commands:
            checks.command(state, command)
            state = evolve(state, command)
        entries += [fact, *commands]
        checks.step(state, [fact, *commands])
        assert plan(state) == (), "what was planned and folded is planned again"
        if world.crash_now and commands:
            world.crash_now = False
            executed = int(np.random.default_rng(seed).integers(len(commands)))
            for command in commands[:executed]:
                world.execute(command)
            state = reduce(evolve, entries[1:], initial_state(first, PAST))
            world.restart(entries, state.deciding.alarm, unexecuted_commands(entries, state))
        else:
            for command in commands:
                world.execute(command)
    assert state.phase is Phase.CLOSED, f"the run does not end; it has seen {entries[-8:]}"
    same(reduce(evolve, entries[1:], initial_state(first, PAST)), state)
    assert evolve(state, e.Asked(Instant(state.now + 1), e.UserRequest.DOWN)) is state
    assert plan(state) == ()
    return Outcome(state, tuple(entries), world.fault_struck)


class Checks:
    """What must hold of every command, and after every step, of any run."""

    def __init__(self, world: RandomWorld) -> None:
        self._world = world
        self._said: set[tuple[str, str]] = set()
        self._given_up: set[str] = set()

    def command(self, state: State, command: e.Command) -> None:
        """``state``: before the command."""
        match command:
            case e.Acquire():
                self._once("acquire", command.allocation)
                if state.terms.queued is not None and command.bid is not None:
                    assert state.share.lease is not None, "a spot machine without a lease"
                    assert command.market in state.share.lease.markets
            case e.Release():
                for name in command.instances:
                    self._once("release", name)
                    assert state.instances[name].is_live, f"{name} has ended: it cannot be released"
            case e.TellJoin():
                for name in command.instances:
                    self._once("join", name)
            case e.TellWarning():
                assert command.ends_at > self._world.now, "told of a warning that has run out"
                for name in command.instances:
                    self._once("warning", name)
                    assert ("join", name) in self._said
                    assert ("gone", name) not in self._said
            case e.TellLost() | e.TellReleased():
                for name in command.instances:
                    self._once("gone", name)
                    assert ("join", name) in self._said
                    assert not state.instances[name].is_live
            case e.TellStop():
                self._once("stop", "")
            case e.StopGivenUp():
                self._once("stop given up", "")
            case e.TellRestart():
                self._once("restart", str(command.number))
                assert not list(state.live_instances()), "begun again while machines of before live"
                assert state.terms.recovery.keeps is not None
                self._said.discard(("stop", ""))
            case e.WakeAt():
                assert command.when > command.at
            case e.Close():
                self._once("close", "")
                assert not list(state.live_instances()), "closed while machines live"
                assert not any(a.awaits_answer for a in state.allocations.values()), (
                    "closed while a request is not answered"
                )

    def step(self, state: State, entries: Sequence[e.Entry]) -> None:
        """``state``: after ``entries``."""
        for entry in entries:
            assert decode_entry(*encode_entry(entry)) == entry
        owed = cost_so_far(state)
        assert min(owed.spot, owed.on_demand, owed.refunded, owed.egress) >= 0
        assert owed.total == owed.spot + owed.on_demand + owed.egress
        left = [f for f in state.programs.fetched if f.here.region == f.there.region]
        assert not left, "nothing is owed within a region"
        mine = [a for a in state.allocations.values() if a.reliable]
        wanted = sum(1 for a in mine for i in state.instances_of(a.name) if i.is_live)
        wanted += sum(a.count for a in mine if a.awaits_answer)
        assert wanted <= state.terms.reliable_count, "more reliable machines than the job has"
        for on_demand in (False, True):  # while one takes over from the other there may be both, also of spot
            mine = [a for a in state.allocations.values() if a.on_demand is on_demand and not a.reliable]
            wanted = sum(1 for a in mine for i in state.instances_of(a.name) if i.is_staying)
            wanted += sum(a.count for a in mine if a.awaits_answer)
            exchanged = 1 if on_demand or state.terms.objective.strategy != "auto" else 2
            most = exchanged * state.terms.limits.max_instances
            assert wanted <= most, "more machines than the job allows"
        said = (x for x in entries if isinstance(x, e.MachineGivenUp | e.ControllerSilent))
        self._given_up |= {word.instance for word in said}
        useless = [i for i in state.live_instances() if i.name in self._given_up and i.warned_at is None]
        if state.phase is not Phase.CLOSING:  # where paid hours may be waited out
            assert all(i.life is InstanceState.ENDING for i in useless), "paid for, and of no use any more"
        waits = (
            state.deciding.alarm is not None and state.deciding.alarm <= state.now
        )  # the alarm's word comes within the moment
        if (
            state.phase is Phase.TRAINING
            and state.ending.asked is None
            and state.interruptions.blind_until is None
            and not waits
        ):
            assert state.surplus_allocation() is None, (
                "machines that no lease covers are not on their way out"
            )

    def _once(self, what: str, about: str) -> None:
        assert (what, about) not in self._said, f"{what} {about}: twice"
        self._said.add((what, about))


def same(one: State, other: State) -> None:
    """Equal, where that is defined: histories by their rows; estimates follow from them."""
    for name in State.__struct_fields__:
        if name not in ("history", "knowledge"):
            assert getattr(one, name) == getattr(other, name), name
    for name in MarketKnowledge.__struct_fields__:
        if name != "evictions":
            assert getattr(one.knowledge, name) == getattr(other.knowledge, name), name
    assert rows(one.history) == rows(other.history)


def rows(history: PriceHistory) -> list[tuple[list[int], list[float]]]:
    series = [history.series(market) for market in history.markets]
    return [(steps.times.tolist(), steps.prices.tolist()) for steps in series]


# ---- schedules -------------------------------------------------------------------------------------

DONE = (e.RunOutcome.DONE, 0)
ENDS = {
    Fault.RELIABLE_DIES: (e.RunOutcome.FAILED, 1),
    Fault.RELIABLE_DIE: (e.RunOutcome.FAILED, 1),
    Fault.CONTROLLER_HANGS: (e.RunOutcome.FAILED, 1),
    Fault.RELIABLE_REFUSED: (e.RunOutcome.FAILED, 5),
    Fault.TRAINING_FAILS: (e.RunOutcome.FAILED, 1),
    Fault.STOP_HANGS: (e.RunOutcome.CANCELLED, 7),
    Fault.SAVE_HANGS: (e.RunOutcome.FAILED, 1),
    Fault.CANCEL: (e.RunOutcome.CANCELLED, 7),
    Fault.DOWN: (e.RunOutcome.TAKEN_DOWN, 7),
}
"""How a run ends in which the fault came before its training was over; else the work is done."""
RELIABLE = (Fault.RELIABLE_DIES, Fault.RELIABLE_DIE, Fault.CONTROLLER_HANGS)
"""Another one may have a copy, so that the work is done all the same."""


def check_end(outcome: Outcome, fault: Fault) -> None:
    closed = outcome.state.ending.closed
    assert closed is not None
    missed = (
        closed.exit_code == 6 and outcome.state.terms.objective.deadline_s is not None
    )  # nobody promised it here
    ending = (closed.outcome, 0 if missed else closed.exit_code)
    too_late = fault in (Fault.CANCEL, Fault.STOP_HANGS) and outcome.state.work_left == 0
    survived = fault in (Fault.RELIABLE_DIES, Fault.CONTROLLER_HANGS) and outcome.state.recovery.restarts > 0
    if too_late or survived:
        assert ending == DONE
    elif outcome.struck and fault not in RELIABLE:
        assert ending == ENDS.get(fault, DONE)
    else:
        assert ending in (ENDS.get(fault, DONE), DONE)


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_once_the_run_ends_in_good_order(seed: int, fault: Fault) -> None:
    check_end(run_schedule(seed, fault), fault)


@pytest.mark.campaign
def test_campaign(campaign: bool) -> None:
    """A thousand schedules, every fault in turn."""
    faults = list(Fault)
    for seed in range(10_000, 11_000 if campaign else 10_011):
        fault = faults[seed % len(faults)]
        try:
            check_end(run_schedule(seed, fault), fault)
        except Exception as error:
            error.add_note(f"seed {seed}, {fault}")
            raise


@pytest.mark.parametrize(
    ("seed", "fault"),
    [
        (10_084, Fault.CANCEL),  # cancelled in the moment before it trains: it had failed
        (10_687, Fault.TRAINING_FAILS),  # a request without an answer was to be let go, over and over
    ],
)
def test_schedules_that_found_something(seed: int, fault: Fault) -> None:
    check_end(run_schedule(seed, fault), fault)


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_loop_of_drive_that_was_tested(seed: int) -> None:
    of = random_terms(seed)
    ledger, observer = Ledger.in_memory(), Silent()
    state = start_run(e.JobStarted(of.start, of), PAST, ledger, observer)
    drive(state, RandomWorld(seed, of, Fault.ALLOCATION_DIES), ledger, observer)
    assert ledger.read_entries() == run_schedule(seed, Fault.ALLOCATION_DIES).entries
    assert tuple(observer.seen) == ledger.read_entries()


def test_the_schedules_see_everything_there_is() -> None:
    """Else they try too little."""
    seen: set[type] = set()
    struck: set[Fault] = set()
    wanted = set(get_args(e.Entry)) - {e.Stalled}
    for seed in range(109, 121):  # the first of which has seen it all, so far
        for fault in Fault:
            outcome = run_schedule(seed, fault)
            seen.update(type(entry) for entry in outcome.entries)
            struck.update({fault} if outcome.struck else ())
        if struck == set(Fault) and seen == wanted:
            break
    assert struck == set(Fault)
    assert seen == wanted


# ---- cores that are wrong in one thing -------------------------------------------------------------


def tells_nobody(state: State) -> tuple[e.Command, ...]:
    return tuple(command for command in plan(state) if not isinstance(command, get_args(e.Tell)))


def releases_nothing(state: State) -> tuple[e.Command, ...]:
    return tuple(command for command in plan(state) if not isinstance(command, e.Release))


def closes_with_the_training(state: State) -> tuple[e.Command, ...]:
    if state.phase is not Phase.CLOSING:
        return plan(state)
    return (e.Close(state.now, e.RunOutcome.DONE, 0, "the work is done"),)


def without(*forgotten: type) -> Evolve:
    """A fold that takes no notice of some entries but the time."""

    def forgets(state: State, entry: e.Entry) -> State:
        return evolve(state, e.Stalled(entry.at, "", 0.0, True) if isinstance(entry, forgotten) else entry)

    return forgets


WRONG_PLANS: Sequence[tuple[Plan, Fault]] = [
    (tells_nobody, Fault.NONE),
    (releases_nothing, Fault.NONE),
    (closes_with_the_training, Fault.NONE),
]
WRONG_FOLDS: Sequence[tuple[type, Fault]] = [
    (e.Acquire, Fault.NONE),
    (e.Release, Fault.NONE),
    (e.InstancesEnded, Fault.NONE),
    (e.TellJoin, Fault.NONE),
    (e.TellWarning, Fault.NONE),
    (e.TellLost, Fault.TRANSIENT_DIES),
    (e.ControllerSilent, Fault.CONTROLLER_HANGS),
    (e.WakeAt, Fault.NONE),
    (e.ControllerDown, Fault.CONTROLLER_DOWN),
    (e.Asked, Fault.CANCEL),
    (e.Leased, Fault.NONE),
    (e.Refused, Fault.RELIABLE_REFUSED),
]


@pytest.mark.parametrize(("wrong", "fault"), WRONG_PLANS, ids=[wrong.__name__ for wrong, _ in WRONG_PLANS])
def test_a_wrong_plan_is_caught(wrong: Plan, fault: Fault) -> None:
    assert any(notices(seed, fault, plan=wrong) for seed in range(20))


@pytest.mark.parametrize(("entry", "fault"), WRONG_FOLDS, ids=[entry.__name__ for entry, _ in WRONG_FOLDS])
def test_a_fold_that_forgets_is_caught(entry: type, fault: Fault) -> None:
    assert any(notices(seed, fault, evolve=without(entry)) for seed in range(20))


def notices(seed: int, fault: Fault, plan: Plan = plan, evolve: Evolve = evolve) -> bool:
    try:
        check_end(run_schedule(seed, fault, plan, evolve), fault)
    except Exception:  # whichever part notices first
        return True
    return False
