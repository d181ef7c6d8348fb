"""The supervisor of a command job: what it makes of what it is told, by example and in random orders."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.node.programs import messages as m
from agileml.node.programs import supervisor as s

STEPS = 50
PROGRAM = m.ProgramDescription("job", "run", "", "true", None, {}, (), "store")


@dataclass(slots=True)
class Job:
    """A supervisor with the events it was told and the effects that followed."""

    state: s.SupervisorState = field(default_factory=lambda: s.SupervisorState(PROGRAM, STEPS, retries=1))
    effects: list[s.Effect] = field(default_factory=list)
    words: dict[str, int] = field(default_factory=dict)
    events: list[m.Event] = field(default_factory=list)

    def told(self, event: m.Told) -> s.Effects:
        return self.take(event)

    def says(self, machine: str, word: m.Word) -> s.Effects:
        self.words[machine] = self.words.get(machine, 0) + 1
        return self.take(m.Said(machine, self.words[machine], word))

    def take(self, event: m.Event) -> s.Effects:
        self.events.append(event)
        self.state, effects = s.step(self.state, event)
        self.effects += effects
        return effects


@pytest.fixture
def running() -> Job:
    """``a`` runs the program, with 20 of its 30 steps in the store; ``b`` stands by."""
    job = Job()
    job.told(m.Joined(("a", "b")))
    job.says("a", m.Ready())
    job.says("b", m.Ready())
    job.says("a", m.Began(1, 0))
    job.says("a", m.Saved(20))
    job.says("a", m.Reached(30))
    return job


def test_the_first_machine_that_is_ready_begins() -> None:
    job = Job()
    assert job.told(m.Joined(("a", "b"))) == (
        s.SentOrder("a", m.Prepare(PROGRAM)),
        s.SentOrder("b", m.Prepare(PROGRAM)),
    )
    assert job.says("b", m.Ready()) == (s.MachineReady("b"), s.SentOrder("b", m.Begin(1)))
    assert job.says("a", m.Ready()) == (s.MachineReady("a"),)


def test_a_warned_machine_stops_and_the_next_one_goes_on(running: Job) -> None:
    assert running.told(m.Warned(("a",), 12.0)) == (s.SentOrder("a", m.Leave(12.0)),)
    assert running.says("a", m.Saved(33)) == (s.ProgramProgress(33, 33),)
    assert running.says("a", m.Left()) == (s.MachineSafeToKill("a"), s.SentOrder("b", m.Begin(2)))
    assert running.says("b", m.Began(2, 33)) == (s.ProgramBegun("b", 33),)


def test_a_lost_machine_costs_what_came_after_the_newest_checkpoint(running: Job) -> None:
    ended = s.SentOrder("a", m.ShutDown())  # should it only have been cut off, and come back
    assert running.told(m.Gone(("a",))) == (ended, s.SentOrder("b", m.Begin(2)))
    assert running.told(m.Gone(("a",))) == ()
    assert running.says("b", m.Began(2, 20)) == (s.ProgramBegun("b", 20), s.WentBack(20, 10))


def test_a_machine_that_stands_by_has_nothing_to_lose(running: Job) -> None:
    assert running.told(m.Warned(("b",), 12.0)) == (s.MachineSafeToKill("b"),)


def test_status_0_is_the_end_of_the_work_and_the_last_step_is_counted_then(running: Job) -> None:
    assert running.says("a", m.Reached(STEPS)) == (s.ProgramProgress(STEPS - 1, 20),)
    assert running.says("a", m.Ended("run", 0, "")) == (s.ProgramFinished(STEPS),)
    assert running.says("a", m.Reached(7)) == ()


@pytest.mark.parametrize(
    ("reached", "counted"), [(31, 31), (STEPS - 2, STEPS - 2), (STEPS - 1, STEPS), (STEPS, STEPS)]
)
def test_a_program_that_ends_early_has_done_no_more_than_it_reported(
    running: Job, reached: int, counted: int
) -> None:
    running.says("a", m.Reached(reached))
    assert running.says("a", m.Ended("run", 0, "")) == (s.ProgramFinished(counted),)


def test_one_that_reports_nothing_has_done_all_whatever_checkpoint_is_its_last() -> None:
    job = Job()
    job.told(m.Joined(("a",)))
    job.says("a", m.Ready())
    job.says("a", m.Began(1, 0))
    job.says("a", m.Saved(25))
    assert job.says("a", m.Ended("run", 0, "")) == (s.ProgramFinished(STEPS),)


def test_a_failure_is_tried_again_as_often_as_the_job_says_and_then_told(running: Job) -> None:
    assert running.says("a", m.Ended("run", 3, "boom")) == (s.SentOrder("a", m.Begin(2)),)
    (failed,) = running.says("a", m.Ended("run", 3, "boom"))
    assert failed == s.ProgramFailed(
        "the program failed 2 times, at last with status 3; its last output:\nboom"
    )


def test_setup_is_tried_again_too() -> None:
    job = Job()
    job.told(m.Joined(("a",)))
    assert job.says("a", m.Ended("setup", 1, "no network")) == (s.SentOrder("a", m.Prepare(PROGRAM)),)
    (failed,) = job.says("a", m.Ended("setup", 1, ""))
    assert failed == s.ProgramFailed("setup failed 2 times, at last with status 1 and printed nothing")


def test_a_machine_that_hears_of_its_eviction_itself_leaves_at_once_and_its_provider_may_say_so_later(
    running: Job,
) -> None:
    heard = running.says("a", m.Noticed(30.0))
    assert heard == (s.NoticeHeard("a", 30.0), s.SentOrder("a", m.Leave(30.0)))
    assert running.told(m.Warned(("a",), 25.0)) == ()
    assert running.says("a", m.Left()) == (s.MachineSafeToKill("a"), s.SentOrder("b", m.Begin(2)))


def test_a_stop_keeps_the_newest_checkpoint(running: Job) -> None:
    assert running.told(m.Stop(30.0)) == (s.SentOrder("a", m.Leave(30.0)),)
    running.says("a", m.Saved(31))
    assert running.says("a", m.Left()) == (s.MachineSafeToKill("a"), s.ProgramFinished(31))


def test_a_stop_that_cannot_store_its_checkpoint_says_so(running: Job) -> None:
    running.told(m.Stop(30.0))
    (failed,) = running.says("a", m.Ended("storing the last checkpoint", 1, "no space"))
    assert isinstance(failed, s.ProgramFailed)
    assert "no space" in failed.why


def test_a_stop_without_a_machine_ends_at_once() -> None:
    assert Job().told(m.Stop(30.0)) == (s.ProgramFinished(0),)


@dataclass(slots=True)
class Agents:
    """Says what the machines of a random job would say next, and keeps what they were ordered."""

    running: dict[str, int] = field(default_factory=dict)
    """By machine: the step its program is at."""
    leaving: set[str] = field(default_factory=set)
    stored: int = 0

    def obey(self, effects: s.Effects, job: Job) -> None:
        for effect in effects:
            if isinstance(effect, s.SentOrder) and isinstance(effect.order, m.Begin):
                assert not self.running, "two machines would run the program"
                assert not job.state.machines[effect.machine].leaving
                self.running[effect.machine] = self.stored
                self.obey(job.says(effect.machine, m.Began(effect.order.attempt, self.stored)), job)
            elif isinstance(effect, s.SentOrder) and isinstance(effect.order, m.Leave):
                assert effect.machine in self.running
                self.leaving.add(effect.machine)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(1, 9)), max_size=60))
def test_whatever_happens_one_machine_runs_the_program_and_no_stored_step_is_lost(
    happenings: list[tuple[int, int, int]],
) -> None:
    job, agents, names = (
        Job(s.SupervisorState(PROGRAM, STEPS, retries=1000)),
        Agents(),
        [f"m{n}" for n in range(4)],
    )
    seen = 0
    for what, which, amount in happenings:
        if job.state.over:
            break
        happen(job, agents, what, names[which], amount)
        assert job.state.saved <= job.state.step < STEPS
        for effect in job.effects[seen:]:
            if isinstance(effect, s.WentBack):
                assert effect.to == min(agents.stored, STEPS - 1)
        seen = len(job.effects)
    again = Job(s.SupervisorState(PROGRAM, STEPS, retries=1000))
    for event in job.events:
        again.take(event)
    assert (again.state, again.effects) == (job.state, job.effects), "a restart is a replay"


def happen(job: Job, agents: Agents, what: int, name: str, amount: int) -> None:
    known = name in job.state.machines
    match what:
        case 0 if not known:
            agents.obey(job.told(m.Joined((name,))), job)
        case 1 if known and not job.state.machines[name].ready:
            agents.obey(job.says(name, m.Ready()), job)
        case 2 if known:
            agents.obey(job.told(m.Warned((name,), 9.0)), job)
        case 3 if known:
            agents.running.pop(name, None)
            agents.leaving.discard(name)
            agents.obey(job.told(m.Gone((name,))), job)
        case 4 if name in agents.running and name not in agents.leaving:
            agents.running[name] += amount
            agents.obey(job.says(name, m.Reached(agents.running[name])), job)
        case 5 if name in agents.running:
            agents.stored = agents.running[name]
            agents.obey(job.says(name, m.Saved(agents.stored)), job)
        case 6 if name in agents.leaving:
            agents.leaving.discard(name)
            agents.running.pop(name)
            agents.obey(job.says(name, m.Left()), job)
        case _:
            pass
