"""A machine that hangs lives for its cloud and is of no use to the training: it is ended, as lost."""

from __future__ import annotations

import pytest

from pricing_data.model.billing import EndReason
from pricing_data.model.market import MarketRules
from pricing_data.model.rules import AWS, AWS_2016
from spotctl.control import entries as e
from spotctl.control.state_values import Phase
from tests.spotctl.build import terms
from tests.spotctl.control.test_restart import back, emptied, keeping, kept_at
from tests.spotctl.control.test_step import Core, after, only

HANGS_S = 300
WHY = "the training has given it up"


def hangs(core: Core, name: str, at_s: int = HANGS_S) -> list[e.Command]:
    return core.tell(e.MachineGivenUp(after(at_s), name))


def released(core: Core, name: str, at_s: int = HANGS_S) -> list[e.Command]:
    return core.tell(e.InstancesEnded(after(at_s), (name,), EndReason.RELEASED))


@pytest.mark.parametrize("rules", [AWS, AWS_2016], ids=lambda rules: rules.name)
def test_it_alone_is_ended_at_once(rules: MarketRules) -> None:
    core = Core(terms(rules)).training().with_spot()
    said = hangs(core, "s1-2")
    assert only(e.Release, said) == [e.Release(after(HANGS_S), ("s1-2",), WHY)]
    assert only(e.TellLost, released(core, "s1-2", HANGS_S + 1)) == [
        e.TellLost(after(HANGS_S + 1), ("s1-2",))
    ]
    state = core.state
    assert (state.recovery.failures, state.phase) == (1, Phase.TRAINING)
    assert [i.name for i in state.instances_of("s1") if i.is_live] == ["s1-1", "s1-3", "s1-4"]
    assert {i.name: i.ended_at for i in state.instances_of("s1")}["s1-2"] == after(HANGS_S + 1)


def test_it_does_not_count_for_what_the_job_gets_done() -> None:
    core = Core(terms(AWS)).training().with_spot()
    before = core.state.working_by_type().total()
    hangs(core, "s1-2")
    assert core.state.working_by_type().total() == before - 1


def test_one_that_its_cloud_takes_anyway_is_left_to_it_and_nobody_waits_for_it() -> None:
    """An hour that is cut short by an eviction was free once; what is ended by its owner is paid."""
    core = Core(terms(AWS_2016)).training().with_spot()
    names = ("s1-1", "s1-2")
    hangs(core, "s1-1", 290)
    core.tell(e.EvictionWarned(after(HANGS_S), ("s1-2",), after(HANGS_S + 120)))
    assert not only(e.Release, hangs(core, "s1-2", HANGS_S + 1))
    said = core.tell(e.EvictionWarned(after(HANGS_S + 2), names[:1], after(HANGS_S + 122)))
    assert not only(e.TellWarning, said), "it would never be safe to kill"


def test_what_has_ended_meanwhile_is_not_given_up_any_more() -> None:
    core = Core(terms(AWS)).training().with_spot()
    core.tell(e.InstancesEnded(after(HANGS_S), ("s1-2",), EndReason.FAILED))
    assert not only(e.Release, hangs(core, "s1-2", HANGS_S + 1))
    assert core.state.recovery.failures == 1


def silent(core: Core) -> list[e.Command]:
    return core.tell(e.ControllerSilent(after(HANGS_S), "r1-1"))


def test_where_the_controllers_machine_hangs_it_begins_again_from_its_checkpoint() -> None:
    core = kept_at(Core(keeping()).training().with_spot(), 4)
    assert only(e.Release, silent(core)) == [e.Release(after(HANGS_S), ("r1-1",), WHY)]
    released(core, "r1-1", HANGS_S + 1)
    assert core.state.phase is Phase.RESTARTING
    assert only(e.TellRestart, emptied(core, HANGS_S + 2))
    back(core, 2, HANGS_S + 3, 4)
    assert (core.state.phase, core.state.training.clock, core.state.recovery.restarts) == (
        Phase.TRAINING,
        4,
        1,
    )


def test_without_checkpoints_it_is_over() -> None:
    core = Core(terms(AWS)).training().with_spot()
    silent(core)
    released(core, "r1-1", HANGS_S + 1)
    assert (
        core.state.ending.failure == "the reliable machine r1-1 was lost with the only safe copy of the model"
    )


def test_before_it_trained_it_is_over_and_nobody_pays_for_it_any_more() -> None:
    core = Core(terms(AWS))
    core.tell(e.Granted(after(0), "r1", ("r1-1",)), e.InstancesRunning(after(60), ("r1-1",)))
    assert only(e.Release, silent(core))
    (closed,) = only(e.Close, released(core, "r1-1", HANGS_S + 1))
    assert isinstance(closed, e.Close)
    assert closed.why == "the reliable machines were lost before the training began"


def test_what_is_taken_down_is_taken_down_whatever_hangs() -> None:
    core = Core(terms(AWS)).training().with_spot()
    silent(core)
    core.tell(e.Asked(after(HANGS_S), e.UserRequest.DOWN))
    emptied(core, HANGS_S + 1)
    assert core.state.ending.closed is not None
    assert core.state.ending.closed.outcome is e.RunOutcome.TAKEN_DOWN
