"""An instance hears of its eviction itself: before its provider's word, after it, or instead of it."""

from __future__ import annotations

from pricing_data.model.billing import EndReason
from pricing_data.model.rules import AWS
from spotctl.control import entries as e
from spotctl.control.lifecycle import InstanceState
from tests.spotctl.build import terms
from tests.spotctl.control.test_step import Core, after, only

HEARD_S, NOTICE_S = 300, 120
ENDS = after(HEARD_S + NOTICE_S)


def training() -> Core:
    return Core(terms(AWS)).training().with_spot()


def hears(core: Core, name: str = "s1-1", at_s: int = HEARD_S) -> list[e.Command]:
    return core.tell(e.EvictionNoticed(after(at_s), name, ENDS))


def test_the_training_is_told_at_once_and_the_eviction_counts() -> None:
    core = training()
    assert only(e.TellWarning, hears(core)) == [e.TellWarning(after(HEARD_S), ("s1-1",), ENDS)]
    assert core.state.instances["s1-1"].life is InstanceState.WARNED
    assert core.state.recovery.evicted_allocations == 1


def test_the_providers_own_word_adds_nothing_but_an_earlier_end() -> None:
    core = training()
    hears(core)
    sooner = after(HEARD_S + 60)
    said = core.tell(e.EvictionWarned(after(HEARD_S + 5), ("s1-1",), sooner))
    assert not only(e.TellWarning, said)
    assert core.state.instances["s1-1"].ends_at == sooner
    assert core.state.recovery.evicted_allocations == 1


def test_its_siblings_are_warned_of_all_the_same() -> None:
    core = training()
    hears(core)
    said = core.tell(e.EvictionWarned(after(HEARD_S + 5), ("s1-1", "s1-2"), ENDS))
    assert only(e.TellWarning, said) == [e.TellWarning(after(HEARD_S + 5), ("s1-2",), ENDS)]


def test_what_the_provider_has_said_before_is_not_changed_by_the_instance() -> None:
    core = training()
    core.tell(e.EvictionWarned(after(HEARD_S - 5), ("s1-1",), after(HEARD_S + 60)))
    assert hears(core) == []
    assert core.state.instances["s1-1"].ends_at == after(HEARD_S + 60)


def test_one_that_nobody_takes_is_released_as_it_is_still_paid_for() -> None:
    core = training()
    hears(core)
    core.tell(e.SafeToKill(after(HEARD_S + 10), "s1-1"))
    ends_s, why = HEARD_S + NOTICE_S + 300, "its provider did not take it when it said"
    assert not only(e.Release, core.tell(e.Woke(after(ends_s - 1))))
    assert only(e.Release, core.tell(e.Woke(after(ends_s)))) == [e.Release(after(ends_s), ("s1-1",), why)]
    core.tell(e.InstancesEnded(after(ends_s + 1), ("s1-1",), EndReason.RELEASED))
    assert core.state.instances["s1-1"].life is InstanceState.ENDED
