"""A command job's training, its agent played: what becomes of the program's end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agileml.node.programs import messages as m
from agileml.node.programs.checkpoint_folder import Checkpoint
from agileml.node.programs.checkpoint_store import CheckpointStore
from agileml.node.programs.job_folder import ProgramFolder
from spotctl.control import entries as e
from spotctl.engines.command import FIRST_SIGN_S, SILENCE_S, CommandTraining
from spotctl.records.outputs import keep_checkpoint
from spotctl.timesource import stopwatch
from tests.agileml.processes.program_agents import LIMIT_S, PlayedAgent, described
from tests.spotctl.build import START, changed, terms

STEPS = 3


@contextmanager
def ended(folder: Path, keep: Callable[[], str]) -> Iterator[CommandTraining]:
    """A training whose only machine has said that its program is done."""
    with said(folder, m.Ready(), m.Began(1, 0), m.Ended("run", 0, ""), keep=keep) as training:
        yield training


@contextmanager
def said(
    folder: Path,
    *words: m.Word,
    keep: Callable[[], str] = str,
    end: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = stopwatch,
) -> Iterator[CommandTraining]:
    """A training whose only machine has said ``words``."""
    shared = ProgramFolder.prepare(folder / "training", described("true", folder))
    of = changed(terms(), reliable_count=0, stop=replace(terms().work.stop, clocks=STEPS))
    training = CommandTraining(shared, of, 600.0, 0, keep, end, clock=clock)
    try:
        training.send_command(1, e.TellJoin(START, ("s1-1",), False, 4))
        if words:
            _say(training, PlayedAgent(shared, "s1-1"), words)
        yield training
    finally:
        training.close()
        shared.remove_sockets()


def _say(training: CommandTraining, agent: PlayedAgent, words: Sequence[m.Word]) -> None:
    with closing(agent):
        agent.say(*words)
        until = stopwatch() + LIMIT_S
        while not agent.is_confirmed:
            assert stopwatch() < until
            training.poll(0.0)
            agent.turn()


@pytest.mark.parametrize("output", ["", "out"])
def test_the_end_of_the_program_says_where_its_newest_checkpoint_is(tmp_path: Path, output: str) -> None:
    place, wanted = tmp_path / "store", str(tmp_path / output) if output else ""
    (tmp_path / "step-3").write_text("weights")
    CheckpointStore(str(place)).publish(Checkpoint(STEPS, tmp_path / "step-3"))
    with ended(tmp_path, lambda: keep_checkpoint(str(place), wanted, "r1")) as training:
        last = training.take_facts(START)[-1]
    assert isinstance(last, e.TrainingFinished)
    assert (last.clock, Path(last.model).exists()) == (STEPS, True)
    assert Path(last.model).is_relative_to(wanted or place)


def test_a_store_that_is_gone_by_the_end_fails_the_job_and_keeps_no_bill_open(tmp_path: Path) -> None:
    """Else whoever goes on finds the program done and the store gone, again and again."""
    place = tmp_path / "store"
    (place / "000000000000003-ab" / "manifest.json").mkdir(parents=True)  # which cannot be read
    with ended(tmp_path, lambda: keep_checkpoint(str(place), "", "r1")) as training:
        last = training.take_facts(START)[-1]
    assert isinstance(last, e.TrainingFailed)
    assert last.why.startswith("the program has ended, but its checkpoints cannot be found: ")
    assert str(place) in last.why


def test_a_machine_that_hangs_is_ended_and_one_that_slept_with_everybody_is_not(tmp_path: Path) -> None:
    ended: list[str] = []
    now = 100.0

    def look(after_s: float) -> None:
        nonlocal now
        now += after_s
        training.poll(0.0)

    with said(tmp_path, m.Ready(), end=ended.append, clock=lambda: now) as training:
        look(0.0)
        look(8 * 3600.0)
        assert ended == [], "nobody was there to be heard by"
        for _ in range(int(SILENCE_S) - 3):
            look(1.0)
        assert ended == []
        for _ in range(5):
            look(1.0)
        assert set(ended) == {"s1-1"}


def test_a_machine_has_longer_to_show_that_it_lives_for_the_first_time(tmp_path: Path) -> None:
    ended: list[str] = []
    now = 100.0
    with said(tmp_path, end=ended.append, clock=lambda: now) as training:
        while not ended:
            now += 1.0
            training.poll(0.0)
    assert FIRST_SIGN_S < now - 100.0 < FIRST_SIGN_S + 5.0


def test_the_end_is_waited_for_from_a_stop_until_it_has_come(tmp_path: Path) -> None:
    def waits_for(training: CommandTraining) -> list[str]:
        return [effect.name for effect in training.pending_effects()]

    with said(tmp_path / "runs", m.Ready(), m.Began(1, 0)) as training:
        training.poll(0.0)
        assert waits_for(training) == []
        training.send_command(2, e.TellStop(START))
        assert waits_for(training) == ["the training ends"]
    with ended(tmp_path / "over", str) as training:
        training.send_command(2, e.TellStop(START))
        assert waits_for(training) == []
