"""When a lease moves: for a better place at once, for another's turn when that is worth the move."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.bidding.market_outlook import MarketOutlook
from bidbrain.performance.throughput_completion import Source
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour
from spotctl.control import entries as e
from spotctl.job.choices import WorldKind
from spotctl.queue.allocation.lease_moves import PART, MinHold, keeps_lease, min_hold_s
from spotctl.queue.lifecycle.status import read_status
from tests.spotctl.queue.build import Watching, command, elastic, entries_of, machines, queue

HERE, THERE = "c4.xlarge", "m4.xlarge"
MOVE_S = Seconds(150.0)


def outlook(rate: float, cost: float = 0.04) -> MarketOutlook:
    return MarketOutlook(UsdPerHour(cost), 1.0, rate)


def turn(
    held_s: float = 0.0,
    *,
    chosen: str | None = None,
    entitled: bool = True,
    left_s: float = 10 * HOUR_S,
    there: MarketOutlook | None = None,
) -> MinHold:
    best = {HERE: outlook(4.0), THERE: there or outlook(4.0)}
    return MinHold(HERE, held_s, MOVE_S, left_s, chosen, entitled, best)


def test_a_turn_is_not_ended_for_another_one_before_its_move_is_a_small_part_of_it() -> None:
    assert keeps_lease(turn(MOVE_S / PART - 1), {HERE})
    assert not keeps_lease(turn(MOVE_S / PART), {HERE})


def test_where_nobody_else_is_due_a_job_stays() -> None:
    assert keeps_lease(turn(10 * HOUR_S), set())
    assert keeps_lease(turn(10 * HOUR_S, chosen=THERE), set()), "for a pool that is as good it does not move"
    assert not keeps_lease(turn(10 * HOUR_S, entitled=False), set()), "the policy would not have it run"


def test_a_job_that_is_nearly_done_ends_first_and_is_not_waited_for_longer_than_a_turn() -> None:
    late = replace(turn(left_s=600.0), held_s=MOVE_S / PART)
    assert keeps_lease(late, {HERE})
    assert not keeps_lease(replace(late, held_s=2 * MOVE_S / PART), {HERE})


def test_a_better_place_is_taken_at_once_if_the_work_left_is_worth_the_move() -> None:
    assert not keeps_lease(turn(chosen=THERE, there=outlook(6.0)), set())
    assert not keeps_lease(turn(chosen=THERE, there=outlook(4.0, cost=0.02)), set())
    assert keeps_lease(turn(chosen=THERE, there=outlook(4.1)), set())
    assert keeps_lease(turn(chosen=THERE, there=outlook(6.0), left_s=300.0), set())
    assert keeps_lease(turn(chosen=THERE, there=outlook(6.0, cost=0.12)), set()), (
        "faster, and dearer by the work"
    )


TURNS = st.builds(
    turn,
    st.floats(0, 20 * HOUR_S),
    chosen=st.sampled_from((None, HERE, THERE)),
    entitled=st.booleans(),
    left_s=st.floats(0, 20 * HOUR_S),
    there=st.builds(outlook, st.floats(0.1, 20.0), st.floats(0.001, 2.0)),
)


@given(TURNS)
def test_who_waits_waits_for_two_turns_at_most(of: MinHold) -> None:
    over = replace(of, held_s=max(of.held_s, 2 * min_hold_s(of.move_s)))
    assert keeps_lease(over, {HERE}) == (of.chosen == HERE)


@given(TURNS)
def test_moving_to_a_better_place_never_leads_back(of: MinHold) -> None:
    moved = replace(of, chosen=THERE, entitled=True)
    if keeps_lease(moved, set()):
        return
    back = replace(moved, pool=THERE, chosen=HERE, held_s=0.0)
    assert keeps_lease(back, set())


# ---- whole queues --------------------------------------------------------------------------------


@pytest.fixture
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))


@pytest.mark.usefixtures("_home")
def test_jobs_that_share_one_machine_lose_little_time_to_their_turns(tmp_path: Path) -> None:
    """Three hours of work in all, under billing by the second and rounds of six minutes."""
    boot = "local: {boot: 120s}\n"
    jobs = [(command(tmp_path, name, 30, 60) + boot, "") for name in "abc"]
    of = queue(tmp_path, "policy: las\nround: 6m\nquotas: {c4.xlarge: 1}", jobs, rules="aws")
    watching = Watching()
    final = of.run(watching)
    assert final["exit_code"] == 0
    assert final["sim_seconds"] < 3.5 * HOUR_S
    ledgers = entries_of(watching.runs)
    began = [min(m.granted for m in machines(entries)) for entries in ledgers.values()]
    longest = 2 * min_hold_s(120 + 60 + 30) + 360
    assert max(began) - min(began) <= 2 * longest, "everybody has a turn early on"
    assert sum(1 for entries in ledgers.values() for _ in machines(entries)) <= 10


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize("suits", [("c4.xlarge", "m4.xlarge"), ("m4.xlarge", "c4.xlarge")])
def test_two_jobs_with_opposite_preferences_come_to_be_where_each_is_faster(
    suits: tuple[str, str], tmp_path: Path
) -> None:
    """The catalogue says that both types are alike; each job finds out that one suits it and one does not."""
    both = "instance_types: [c4.xlarge, m4.xlarge]"
    jobs = []
    for name, slow in zip("ab", reversed(suits), strict=True):
        text = command(tmp_path, name, 60, 240).replace("instance_types: [c4.xlarge]", both)
        jobs.append((text + f"local: {{speeds: {{{slow}: 0.4}}}}\n", ""))
    of = queue(
        tmp_path,
        "policy: max-throughput\nround: 6m\nquotas: {c4.xlarge: 1, m4.xlarge: 1}",
        jobs,
        rules="aws",
        types=("c4.xlarge", "m4.xlarge"),
    )
    watching = Watching()
    assert of.run(watching)["exit_code"] == 0
    ledgers = entries_of(watching.runs)
    rows = {row.job: row for row in read_status(of.settings.spec, WorldKind.REPLAY).rows}
    for name, kind, slow in zip("ab", suits, reversed(suits), strict=True):
        held = list(machines(ledgers[name]))
        there = sum(m.ended - m.granted for m in held if m.kind == kind)
        assert there > 0.7 * sum(m.ended - m.granted for m in held), f"{name} was elsewhere"
        shown = rows[name].rates
        assert shown[kind].source is Source.MEASURED
        assert shown[kind].steps_per_s == pytest.approx(4.0, rel=0.1), "its cores"
        if shown[slow].source is Source.MEASURED:
            assert shown[slow].steps_per_s == pytest.approx(0.4 * 4.0, rel=0.1)
    assert len({kind for name in "ab" for kind, rate in rows[name].rates.items() if rate.error < 0.2}) == 2


@pytest.mark.usefixtures("_home")
def test_an_elastic_job_grows_within_its_turn_when_others_leave(tmp_path: Path) -> None:
    jobs = [
        (elastic(tmp_path, "short", 3, 2), "weight: 9"),
        (elastic(tmp_path, "long", 30, 4), ""),
    ]
    of = queue(tmp_path, "policy: las\nround: 6m\nquotas: {c4.xlarge: 3, m4.large: 2}", jobs, rules="aws")
    watching = Watching()
    assert of.run(watching)["exit_code"] == 0
    told = [x.lease for x in entries_of(watching.runs)["long"] if isinstance(x, e.Leased)]
    assert [lease and lease.count for lease in told] == [1, 3]
