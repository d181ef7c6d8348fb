"""A training that should end and does not: what is paid for it has an end all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from pricing_data.model.billing import EndReason
from pricing_data.model.units import Instant, MicroUsd
from spotctl.control import entries as e
from spotctl.control.run_spec import SAVE_WITHIN_S
from spotctl.control.state_values import Phase
from tests.spotctl.build import changed, terms
from tests.spotctl.control.test_step import Core, after, only

CLOCKS = 60
LIMIT_S = int(terms().end_within_s)


def ended(core: Core) -> e.Close:
    """What the run is closed with, once its machines are gone and nobody answers what it asked for."""
    said: list[e.Command] = []
    for name in [a.name for a in core.state.allocations.values() if a.awaits_answer]:
        said += core.tell(e.Refused(core.state.now, name, "CapacityUnavailable", "no machines"))
    live = tuple(instance.name for instance in core.state.live_instances())
    said += core.tell(e.InstancesEnded(core.state.now, live, EndReason.RELEASED))
    (closed,) = only(e.Close, said)
    assert isinstance(closed, e.Close)
    return closed


def given_up_at(core: Core, until: Instant) -> Sequence[Instant]:
    """When it is given up, as alarms ring until then."""
    moments = []
    while core.state.deciding.alarm is not None and core.state.deciding.alarm <= until:
        moments += [
            command.at for command in only(e.StopGivenUp, core.tell(e.Woke(core.state.deciding.alarm)))
        ]
    return moments


def test_the_limit_is_half_an_hour_and_two_clocks_of_the_first_machines_alone() -> None:
    of = changed(terms(), core_seconds_per_clock=600.5, reliable_count=2)
    assert of.end_within_s == SAVE_WITHIN_S + -(-2 * 600.5 // (2 * of.reliable.cores))


def test_a_cancelled_job_whose_training_never_stops_is_ended() -> None:
    core = Core(terms()).training()
    core.tell(e.Progressed(after(200), 3, 2), e.Asked(after(300), e.UserRequest.CANCEL))
    assert core.state.phase is Phase.STOPPING
    assert given_up_at(core, after(300 + LIMIT_S - 1)) == []
    assert given_up_at(core, after(300 + LIMIT_S)) == [after(300 + LIMIT_S)]
    closed = ended(core)
    assert (closed.outcome, closed.exit_code) == (e.RunOutcome.CANCELLED, 7)
    minutes = round(LIMIT_S / 60)
    assert closed.why == (
        f"it was cancelled, but its training had not ended {minutes} minutes later; the model was not saved"
    )


def test_what_is_left_to_go_on_from_is_said() -> None:
    core = Core(terms()).training()
    core.tell(e.Checkpointed(after(200), 20, "store/20"), e.Asked(after(300), e.UserRequest.CANCEL))
    assert given_up_at(core, after(300 + LIMIT_S))
    assert ended(core).why.endswith("; a launch that resumes goes on after clock 20 or later")


def test_a_spent_budget_is_spent_however_long_the_training_takes_to_stop() -> None:
    core = Core(changed(terms(), budget=MicroUsd(300_000))).training().with_spot()
    assert core.state.phase is Phase.STOPPING
    assert given_up_at(core, after(150 + LIMIT_S))
    closed = ended(core)
    assert (closed.outcome, closed.exit_code) == (e.RunOutcome.FAILED, 6)
    assert closed.why.startswith(
        "the budget was spent before the work was done, but its training had not ended"
    )


def test_a_training_whose_last_clock_is_done_and_that_never_saves_has_failed() -> None:
    core = Core(terms()).training()
    core.tell(e.Progressed(after(500), CLOCKS, CLOCKS - 1))
    assert core.state.phase is Phase.TRAINING
    assert given_up_at(core, after(500 + LIMIT_S)) == [after(500 + LIMIT_S)]
    closed = ended(core)
    assert (closed.outcome, closed.exit_code) == (e.RunOutcome.FAILED, 1)
    assert closed.why.startswith("the work is done, but its training had not ended")


def test_a_clock_that_has_to_be_computed_again_gives_it_time_again() -> None:
    core = Core(terms()).training()
    core.tell(e.Progressed(after(500), CLOCKS, CLOCKS - 1), e.RolledBack(after(600), CLOCKS - 1, 1))
    assert given_up_at(core, after(600 + 2 * LIMIT_S)) == []
    again = Instant(core.state.now + 100)
    core.tell(e.Progressed(again, CLOCKS, CLOCKS - 1))
    assert given_up_at(core, Instant(again + LIMIT_S)) == [again + LIMIT_S]


def test_while_spotctl_is_away_nobody_is_waited_for() -> None:
    core = Core(terms()).training()
    core.tell(e.Asked(after(300), e.UserRequest.CANCEL))
    back = after(300 + 3 * LIMIT_S)
    core.tell(e.ControllerDown(after(301), back))
    assert given_up_at(core, Instant(back + LIMIT_S)) == [back + LIMIT_S]


def test_a_model_that_comes_too_late_is_kept_all_the_same() -> None:
    core = Core(terms()).training()
    core.tell(e.Asked(after(300), e.UserRequest.CANCEL))
    assert given_up_at(core, after(300 + LIMIT_S))
    core.tell(e.TrainingFinished(core.state.now, 5, "model.npz"))
    assert core.state.ending.model == "model.npz"
    closed = ended(core)
    assert (closed.outcome, closed.exit_code) == (e.RunOutcome.CANCELLED, 7)
    assert "the model was saved later" in closed.why


def test_a_training_that_fails_as_its_machines_go_was_given_up_before() -> None:
    core = Core(terms()).training()
    core.tell(e.Asked(after(300), e.UserRequest.CANCEL))
    assert given_up_at(core, after(300 + LIMIT_S))
    core.tell(e.TrainingFailed(core.state.now, "no reliable machine is left"))
    assert ended(core).outcome is e.RunOutcome.CANCELLED


@pytest.mark.parametrize("reliable", [0, 1])
def test_a_command_ends_when_its_program_does_whatever_steps_it_counts(reliable: int) -> None:
    core = Core(replace(terms(), reliable_count=1)).training()
    core.state = structs.replace(core.state, terms=replace(core.state.terms, reliable_count=reliable))
    core.tell(e.Progressed(after(500), CLOCKS, CLOCKS - 1))
    assert (core.state.end_by is None) is (reliable == 0)
