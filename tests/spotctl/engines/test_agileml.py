"""What time has to wait for, in a training that is told anew what it was told before."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agileml.apps.planted import planted_ratings, write_ratings
from agileml.client import TrainingClient
from agileml.job import JobFolder, Timing, TrainingJob
from agileml.protocol.commands import Finished, SafeToKill
from agileml.protocol.events import Setup
from agileml.protocol.telemetry import MachineGivenUp, ObjectiveAt, Upward
from agileml.protocol.wire import control_to_json
from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.control.run_spec import StopCondition
from spotctl.engines.agileml import AgileMLTraining, attempt_record
from tests.spotctl.build import START, changed, terms

JOIN = e.TellJoin(START, ("s1-1", "s1-2"), reliable=False, cores=4)
WARN = e.TellWarning(Instant(START + 600), ("s1-1",), Instant(START + 720))
Resumed = Callable[..., AgileMLTraining]
LEASE_S = 0.05


@pytest.fixture
def resumed(tmp_path: Path) -> Iterator[Resumed]:
    """Makes a training of which the given facts were heard before. Its controller is gone."""
    source = tmp_path / "ratings.csv"
    write_ratings(planted_ratings(20, 10, 2, 0.1, 0.5, seed=0), source)
    setup, timing = Setup(partitions=1, shards=2, clocks=5), Timing(lease_s=LEASE_S, first_word_s=0.0)
    job = TrainingJob("agileml.apps.mf:MatrixFactorization", {"rank": 2}, setup, timing=timing)
    folder = JobFolder.prepare(tmp_path / "training", job, source)
    folder.controller_record.write_text("r1-1")
    made: list[AgileMLTraining] = []

    def resume(*heard: e.Fact, end_checkpoints: Callable[[], str] = lambda: "") -> AgileMLTraining:
        client = TrainingClient(folder.path, told=0, heard=len(heard))
        of = changed(terms(), stop=StopCondition(clocks=60, objective_delta=0.01))
        made.append(AgileMLTraining(client, of, 600.0, str, heard, end_checkpoints))
        return made[-1]

    yield resume
    for training in made:
        training.close()
    folder.remove_sockets()


def waits_for(training: AgileMLTraining) -> list[str]:
    return [effect.name for effect in training.pending_effects()]


def test_machines_that_joined_before_are_not_waited_for_again(resumed: Resumed) -> None:
    training = resumed(e.MachineJoined(START, "s1-1"))
    training.send_command(1, JOIN)
    assert waits_for(training) == ["s1-2 joins"]


def test_a_warning_is_waited_for_until_its_machine_was_safe_to_kill(resumed: Resumed) -> None:
    joined = (e.MachineJoined(START, "s1-1"), e.MachineJoined(START, "s1-2"))
    warned, safe = resumed(*joined), resumed(*joined, e.SafeToKill(WARN.at, "s1-1"))
    for training in (warned, safe):
        training.send_command(1, JOIN)
        training.send_command(2, WARN)
    assert waits_for(warned) == ["s1-1 is safe to kill"]
    assert waits_for(safe) == []


def test_the_end_is_waited_for_from_its_last_clock_or_a_stop_until_it_has_come(resumed: Resumed) -> None:
    """However fast time runs: saving takes its real seconds."""
    clocks = terms().work.stop.clocks
    assert clocks is not None
    last, back = e.Progressed(START, clocks, clocks - 1), e.RolledBack(START, clocks - 1, 1)
    finished, failed = (
        e.TrainingFinished(START, clocks, "model.npz"),
        e.TrainingFailed(START, "no copy is left"),
    )
    known = [(), (last,), (last, back), (last, finished), (last, failed)]
    told_now = [waits_for(resumed(*heard)) for heard in known]
    assert told_now == [[], ["the training ends"], [], [], []]
    for heard in known:
        training = resumed(*heard)
        training.send_command(1, e.TellStop(WARN.at))
        over = heard[-1:] in [(finished,), (failed,)]
        assert set(waits_for(training)) == (set() if over else {"the training ends"})
    (effect,) = (effect for effect in resumed(last).pending_effects())
    assert effect.due == START + terms().end_within_s - 1, "just before the core gives it up"


def told(tmp_path: Path, *said: Upward, heard: int = 0) -> None:
    """What the controller says last of all, after ``heard`` words that were heard before."""
    numbered = enumerate(said, heard + 1)
    words = [{"number": number, "message": control_to_json(word)} for number, word in numbered]
    JobFolder(tmp_path / "training").last_words.write_text(json.dumps(words))


def test_checkpoints_are_over_with_the_training_whatever_is_heard_together_with_its_end(
    resumed: Resumed, tmp_path: Path
) -> None:
    told(tmp_path, Finished(60, "model.npz"), SafeToKill("s1-1"))
    training = resumed(end_checkpoints=lambda: "they stay")
    assert training.poll(0.0)
    assert training.take_facts(WARN.at) == (
        e.TrainingFinished(WARN.at, 60, "model.npz"),
        e.SafeToKill(WARN.at, "s1-1"),
        e.CheckpointFailed(WARN.at, 60, "they stay"),
    )


@pytest.mark.parametrize(("last", "over"), [(0.295, True), (0.2, False)])
def test_they_are_over_where_the_objective_has_settled_and_not_where_the_training_was_ended_early(
    last: float, over: bool, resumed: Resumed, tmp_path: Path
) -> None:
    told(tmp_path, ObjectiveAt(39, last), Finished(40, "model.npz"), heard=1)
    training = resumed(e.ObjectiveReported(START, 38, 0.3), end_checkpoints=lambda: "they stay")
    assert training.poll(0.0)
    kept = [fact for fact in training.take_facts(WARN.at) if isinstance(fact, e.CheckpointFailed)]
    assert bool(kept) == over


# ---- machines that hang ----------------------------------------------------------------------------


def test_a_machine_that_was_given_up_is_waited_for_no_more(resumed: Resumed, tmp_path: Path) -> None:
    training = resumed()
    training.send_command(1, JOIN)
    told(tmp_path, MachineGivenUp("s1-1"))
    assert training.poll(0.0)
    (said,) = training.take_facts(WARN.at)
    assert said == e.MachineGivenUp(WARN.at, "s1-1")
    assert waits_for(training) == ["s1-2 joins"]
    again = resumed(said)
    again.send_command(1, JOIN)
    again.send_command(2, WARN)
    assert waits_for(again) == ["s1-2 joins"]


def test_a_controller_that_is_never_heard_is_said_to_be_silent_once(resumed: Resumed) -> None:
    training = resumed()
    training.send_command(1, e.TellJoin(START, ("r1-1",), reliable=True, cores=4))
    until = time.monotonic() + 60
    while not training.poll(0.05):
        assert time.monotonic() < until
    assert training.take_facts(WARN.at) == (e.ControllerSilent(WARN.at, "r1-1"),)
    assert not training.poll(5 * LEASE_S)


# ---- attempts --------------------------------------------------------------------------------------

LOST = Instant(START + 900)
ENTRIES: tuple[e.Entry, ...] = (
    JOIN,
    e.MachineJoined(START, "s1-1"),
    e.Progressed(START, 1, 0),
    e.TellRestart(LOST, 1),
    e.TrainingResumed(LOST, 0, ""),
    e.TellJoin(LOST, ("r2-1",), reliable=True, cores=4),
    e.MachineJoined(LOST, "r2-1"),
    e.TellRestart(LOST, 2),
)


@pytest.mark.parametrize(
    ("number", "told", "facts"),
    [(0, 0, ENTRIES[1:3]), (1, 2, (ENTRIES[4], ENTRIES[6])), (2, 4, ())],
)
def test_of_a_ledger_an_attempt_is_told_what_is_its_own(
    number: int, told: int, facts: tuple[e.Fact, ...]
) -> None:
    """Commands are numbered through; news of a controller are counted from its beginning."""
    assert attempt_record(ENTRIES, number) == (told, facts)


def test_a_training_that_cannot_begin_again_has_failed(resumed: Resumed) -> None:
    """This one keeps no checkpoints."""
    training = resumed()
    training.send_command(1, JOIN)
    training.send_command(2, e.TellRestart(LOST, 1))
    assert waits_for(training) == []
    assert training.take_facts(LOST) == (
        e.TrainingFailed(LOST, "it cannot begin again: it keeps no checkpoints"),
    )
