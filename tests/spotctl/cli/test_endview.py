"""How a launch ends: is what was saved said with what it is worth?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from spotctl.cli import endview, screen
from spotctl.control import events as e
from spotctl.report.final import final_object
from tests.spotctl.build import random_trace, replay, terms
from tests.spotctl.cli.story import START, state_after


def final() -> dict[str, Any]:
    return final_object(state_after(52), Path("ledger.db"), 8.0, 0, None)


def lines(final: Mapping[str, Any]) -> str:
    return screen.text(endview.picture(final))


def test_evictions_are_counted_with_their_machines() -> None:
    assert "1 eviction of 4 machines, 1 failure, 2 changes of stage" in lines(final())


def test_a_command_knows_no_stages_and_leaves_a_checkpoint() -> None:
    shown = lines({**final(), "engine": "command", "model": None})
    assert "changes of stage" not in shown
    assert "checkpoint       none: the program left no whole one" in shown
    assert "checkpoint       out/step-60" in lines({**final(), "engine": "command", "model": "out/step-60"})


def test_what_a_program_that_says_nothing_of_steps_did_twice_is_told_in_time() -> None:
    ended = {**final(), "engine": "command", "clocks_redone": 0}
    assert "60 steps, 0 computed twice" in lines({**ended, "clocks": 60, "seconds_redone": 0})
    shown = lines({**ended, "clocks": 60, "seconds_redone": 7260})
    assert "60 steps, its program ran 2:01:00 for nothing and began again;" in shown
    both = lines({**ended, "clocks": 60, "clocks_redone": 4, "seconds_redone": 7260})
    assert "4 computed twice: its program ran 2:01:00 for nothing and began again;" in both


@pytest.mark.parametrize(("pace", "said"), [(1.0, False), (0.5, False), (2.9, True)])
def test_work_that_went_faster_than_it_is_reckoned_with_flatters_and_is_said_to(
    pace: float, said: bool
) -> None:
    ended = final()
    shown = lines({**ended, "baseline": {**ended["baseline"], "pace": pace}})
    assert ("but here it went 2.9 times as fast as it is reckoned with" in shown) is said


def test_a_replay_goes_at_the_pace_that_on_demand_is_reckoned_with() -> None:
    state, _ = replay(terms(), random_trace(1))
    compared = final_object(state, Path("ledger.db"), 0.1, 0, None)["baseline"]
    assert compared["pace"] == pytest.approx(1.0, abs=0.1)


def test_what_training_reported_last_stands_in_for_a_score() -> None:
    assert "0.9134, as it reported last" in lines(final())
    assert "not measured" in lines({**final(), "last_reported": None})
    assert "last; not of the saved model: it is gone" in lines({**final(), "not_scored": "it is gone"})


def test_an_objective_that_is_no_number_is_said_to_be_at_fault() -> None:
    score = {"metric": "mse", "value": math.nan, "reference": 0.1, "reference_name": "scipy"}
    assert "mse nan: training has diverged" in lines({**final(), "objective": score})


def test_a_job_that_failed_says_what_its_processes_died_of() -> None:
    failed = structs.replace(
        state_after(52), closed=e.Close(START, e.Outcome.FAILED, 1, "no reliable machine is left")
    )
    shown = lines(final_object(failed, Path("ledger.db"), 8.0, 0, None, "the worker of r1-1 died"))
    assert "because          the worker of r1-1 died; `spotctl logs movies` has it all" in shown
    nothing = {**final_object(failed, Path("ledger.db"), 8.0, 0, None), "model": None}
    assert "had anything come of it" in lines(nothing)
    assert "had anything come of it" not in shown
    assert "because" not in lines(final_object(failed, Path("ledger.db"), 8.0, 0, None))
    done = final_object(state_after(52), Path("ledger.db"), 8.0, 0, None, "the worker of s1-1 died")
    assert done["died_of"] is None, "it was done all the same"
