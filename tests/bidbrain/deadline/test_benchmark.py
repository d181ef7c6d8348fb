"""The benchmark's rules, and its baselines', by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.arrays import Flags
from bidbrain.deadline.availability_belief import BeliefBatch
from bidbrain.deadline.baselines import (
    greedy_rule,
    on_demand_rule,
    spot_only_rule,
    time_sliced_rule,
    uniform_progress_rule,
)
from bidbrain.deadline.benchmark import Rule, cut_windows, simulate_rule
from bidbrain.deadline.model import Codes, DeadlineJob, DeadlineStates, MachineKind
from tests.bidbrain.deadline.build import job


def flags(text: str) -> Flags:
    """One window: ``#`` where spot is up."""
    return np.array([[mark == "#" for mark in text]])


def course(of: DeadlineJob, text: str, rule: Rule) -> str:
    """Returns what ran in each tick of one window: ``s``, ``o`` or ``.``, up to the end of the work."""
    ran: list[str] = []

    def noting_rule(now: DeadlineStates, beliefs: BeliefBatch) -> Codes:
        machines = rule(now, beliefs)
        ran.append(".so"[machines[0]])
        return machines

    simulate_rule(of, flags(text), noting_rule)
    return "".join(ran)


def test_a_tick_is_paid_in_full_and_the_start_worked_off_first() -> None:
    of = job(work=4, deadline=8, overhead=0.5)  # half a tick and four: five are paid

    runs = simulate_rule(of, flags("........"), on_demand_rule)

    assert runs.cost[0] == pytest.approx(5 * 0.6)
    assert runs.starts.tolist() == [1]
    assert not runs.late[0]


def test_every_lost_machine_costs_a_start() -> None:
    of = job(work=4, deadline=8, overhead=0.5)  # 1.5 ticks of work in each pair

    runs = simulate_rule(of, flags("##.##.##"), spot_only_rule)

    assert runs.starts.tolist() == [3]
    assert runs.ticks[:, 0].tolist() == [2, 6, 0]
    assert not runs.late[0]


def test_a_start_longer_than_a_tick_goes_on_in_the_next() -> None:
    of = job(work=2, deadline=8, overhead=1.5)

    assert course(of, "#.####..", spot_only_rule) == "s.ssss"


def test_a_job_without_a_net_may_be_late() -> None:
    assert simulate_rule(job(work=4, deadline=8), flags("#.#....."), spot_only_rule).late[0]


def test_greedy_waits_for_the_net_and_stays_on_demand() -> None:
    of = job(work=4, deadline=8, overhead=1)  # the last on-demand start in time is in the fourth tick

    assert course(of, "...#####", greedy_rule(of)) == "...ooooo"


def test_uniform_progress_buys_on_demand_behind_the_line_and_keeps_it_for_a_while() -> None:
    of = job(work=4, deadline=12, overhead=0.5)

    paper = course(of, "..####......", uniform_progress_rule(of))
    spot_first = course(of, "..####......", uniform_progress_rule(of, spot_first=True))

    assert paper == ".oosss"  # on the line; behind it; not yet where the line is 2 d later; ahead
    assert spot_first == ".ossss"


def test_time_slices_have_nets_of_their_own() -> None:
    of = job(work=4, deadline=16, overhead=0.5)

    assert course(of, "." * 16, time_sliced_rule(of, slices=2)) == ".....ooo......oo"


def test_windows_are_evenly_spaced_and_within_the_trace() -> None:
    up = np.arange(10) % 3 == 0

    cut = cut_windows(up, 4, 3)

    assert cut.tolist() == [up[0:4].tolist(), up[3:7].tolist(), up[6:10].tolist()]
    assert len(cut_windows(up, 10, 5)) == 1


def test_a_trace_shorter_than_the_job_is_refused() -> None:
    with pytest.raises(ValueError, match="a window needs 20"):
        cut_windows(np.ones(10, dtype=np.bool_), 20, 3)


def test_windows_that_cannot_show_the_deadline_are_refused() -> None:
    with pytest.raises(ValueError, match="whole ticks"):
        simulate_rule(job(deadline=7.5), flags("########"), on_demand_rule)
    with pytest.raises(ValueError, match="whole ticks"):
        simulate_rule(job(deadline=9), flags("########"), on_demand_rule)


def test_a_rule_cannot_run_spot_that_is_away() -> None:
    with pytest.raises(ValueError, match="not up"):
        simulate_rule(job(), flags("........"), lambda now, _: np.full(len(now), int(MachineKind.SPOT)))
