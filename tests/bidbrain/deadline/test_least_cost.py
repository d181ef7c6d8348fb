"""The policy: one rule for the live job and the benchmark, without a look ahead, and right on average."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.arrays import Flags
from bidbrain.deadline.availability_belief import PRIOR, Belief, BeliefBatch, LomaxLaw, SpellPrior
from bidbrain.deadline.baselines import RuleOfThumb, greedy_rule, uniform_progress_rule
from bidbrain.deadline.benchmark import Rule, simulate_rule
from bidbrain.deadline.least_cost import LeastCost
from bidbrain.deadline.model import Codes, DeadlineJob, DeadlineState, DeadlineStates, MachineKind
from bidbrain.deadline.value_iteration import AGE_CLASSES, CostToGo, plan_tick_s
from pricing_data.model.units import Seconds
from tests.bidbrain.deadline.build import TICK_S, job, jobs


def record_answers(rule: Rule) -> tuple[Rule, list[Codes]]:
    """``rule``, and what it answered."""
    answers: list[Codes] = []

    def noting_rule(now: DeadlineStates, beliefs: BeliefBatch) -> Codes:
        answers.append(rule(now, beliefs))
        return answers[-1]

    return noting_rule, answers


@settings(max_examples=30, deadline=None)
@given(jobs(), st.integers(0, 1000))
def test_the_live_choice_is_the_benchmark_s(of: DeadlineJob, seed: int) -> None:
    """Step one window by ``choose_machine`` and a folded ``Belief``; run it among others in the simulator."""
    up = np.random.default_rng(seed).random((5, of.tick_count)) < 0.6
    policy = LeastCost.for_job(of)
    noted, answers = record_answers(policy.cheapest_machines)
    simulate_rule(of, up, noted)

    live = live_course(policy, up[2])

    assert live == [MachineKind(int(machines[2])) for machines in answers[: len(live)]]


@pytest.mark.parametrize("rule", [uniform_progress_rule, greedy_rule])
@settings(max_examples=30, deadline=None)
@given(of=jobs(), seed=st.integers(0, 1000))
def test_the_baselines_choose_live_as_in_the_benchmark(
    rule: Callable[[DeadlineJob], Rule], of: DeadlineJob, seed: int
) -> None:
    up = np.random.default_rng(seed).random((1, of.tick_count)) < 0.6
    noted, answers = record_answers(rule(of))
    simulate_rule(of, up, noted)

    live = live_course(RuleOfThumb("baseline", of, rule(of)), up[0])

    assert live == [MachineKind(int(machines[0])) for machines in answers[: len(live)]]


def live_course(policy: LeastCost | RuleOfThumb, up: Flags) -> list[MachineKind]:
    """Returns what a live job runs until its work is done, by the arithmetic of one machine at a time."""
    of = policy.job
    work_s, running, overhead_s = float(of.work_s), MachineKind.NOTHING, 0.0
    belief: Belief | None = None
    course: list[MachineKind] = []
    for tick, spot_up in enumerate(up.tolist()):
        if work_s <= 0:
            break
        at_s = Seconds(tick * of.tick_s)
        belief = Belief.first_look(PRIOR, spot_up, at_s) if belief is None else belief.observe(spot_up, at_s)
        if running is MachineKind.SPOT and not spot_up:
            running, overhead_s = MachineKind.NOTHING, 0.0
        now = DeadlineState(at_s, Seconds(work_s), running, Seconds(overhead_s), spot_up)
        machine = policy.choose_machine(now, belief).machine
        if machine is not running:
            overhead_s = 0.0 if machine is MachineKind.NOTHING else float(of.overhead_s)
        if machine is not MachineKind.NOTHING:
            work_s -= max(of.tick_s - overhead_s, 0.0)
            overhead_s = max(overhead_s - of.tick_s, 0.0)
        running = machine
        course.append(machine)
    return course


@settings(max_examples=30, deadline=None)
@given(jobs(), st.integers(0, 1000), st.data())
def test_what_comes_later_changes_nothing_now(of: DeadlineJob, seed: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, of.tick_count))
    up = np.random.default_rng(seed).random((4, of.tick_count)) < 0.6
    other = up.copy()
    other[:, cut:] = ~other[:, cut:]
    policy = LeastCost.for_job(of)
    noted, answers = record_answers(policy.cheapest_machines)
    other_noted, other_answers = record_answers(policy.cheapest_machines)

    simulate_rule(of, up, noted)
    simulate_rule(of, other, other_noted)

    for before, after in zip(answers[:cut], other_answers[:cut], strict=False):
        assert before.tolist() == after.tolist()


def test_expected_costs_come_true() -> None:
    """In a market that keeps to one law, the mean cost of many jobs is what was expected of them."""
    law = LomaxLaw(1.0, Seconds(1200))
    of = job(work=40, deadline=60, overhead=0.5)
    prior = SpellPrior((law,), PRIOR.memory_s)
    policy = LeastCost.for_job(of, prior)
    up = spells(law, windows=4000, ticks=of.tick_count, seed=7)
    whole = DeadlineState(Seconds(0), of.work_s, MachineKind.NOTHING, Seconds(0), spot_up=True)

    expected = policy.choose_machine(whole, Belief.first_look(prior, True, Seconds(0))).expected_cost
    mean = simulate_rule(of, up, policy.cheapest_machines, prior).cost.mean()

    # Ages within a class are taken for alike, which costs about a percent.
    assert mean == pytest.approx(expected, rel=0.03)


def spells(law: LomaxLaw, *, windows: int, ticks: int, seed: int) -> Flags:
    """Markets that are up in their first tick, and change sides by the law's hazard at their age."""
    rng = np.random.default_rng(seed)
    up = np.ones((windows, ticks), dtype=np.bool_)
    age_s = np.zeros(windows)
    for tick in range(1, ticks):
        ended = rng.random(windows) < law.hazard(age_s, TICK_S)
        up[:, tick] = up[:, tick - 1] ^ ended
        age_s = np.where(ended, 0.0, age_s + TICK_S)
    return up


def test_learning_pays() -> None:
    """Where spells are long, the policy that may learn so is cheaper than one that is sure they are short."""
    long_lived, short_lived = LomaxLaw(0.5, Seconds(600)), LomaxLaw(4.0, Seconds(1200))
    of = job(work=40, deadline=50, overhead=1.2)
    up = spells(long_lived, windows=400, ticks=of.tick_count, seed=3)
    sure = SpellPrior((short_lived,), PRIOR.memory_s)
    open_minded = SpellPrior((short_lived, long_lived), PRIOR.memory_s)

    stubborn = simulate_rule(of, up, LeastCost.for_job(of, sure).cheapest_machines, sure).cost.mean()
    learning = simulate_rule(
        of, up, LeastCost.for_job(of, open_minded).cheapest_machines, open_minded
    ).cost.mean()

    assert learning < stubborn


@pytest.mark.parametrize("reserve", [0, 1])
def test_the_plan_is_the_least_expectation_on_a_small_instance(reserve: int) -> None:
    """Backward induction on the margin agrees with plain recursion on the work left."""
    of = replace(job(work=2, deadline=4 + reserve, overhead=0.5), reserve_s=reserve * TICK_S)
    hazards = np.tile(np.linspace(0.5, 0.1, len(AGE_CLASSES)), (2, 1))

    plan = CostToGo.from_hazards(of, TICK_S, hazards[None])
    first = LeastCost(of, plan).expected_costs(
        DeadlineState(Seconds(0), of.work_s, MachineKind.NOTHING, Seconds(0), spot_up=True).as_batch(of),
        BeliefBatch.first_look(SpellPrior((LomaxLaw(1.0, Seconds(1)),), PRIOR.memory_s), np.array([True])),
    )[:, 0]

    expected = [least_expected(of, hazards[0].tolist(), machine) for machine in MachineKind]
    assert first == pytest.approx(expected, rel=1e-6)


def least_expected(of: DeadlineJob, hazard: list[float], first: MachineKind) -> float:
    """Expected dollars when ``first`` runs in the first tick, with spot new and up; by recursion."""
    prices: list[float] = of.tick_charges(TICK_S).tolist()
    d, ticks = of.overhead_s / TICK_S, of.tick_count - round(of.reserve_s / TICK_S)

    def cost_after(
        tick: int, work: float, running: MachineKind, up: bool, age: int, machine: MachineKind
    ) -> float:
        start = 0.0 if machine in (running, MachineKind.NOTHING) else d
        left = work - (0.0 if machine is MachineKind.NOTHING else 1.0 - start)
        if machine is not MachineKind.ON_DEMAND and left + d > ticks - tick - 1:
            return math.inf
        if left <= 0:
            return prices[machine]
        ends = hazard[int(np.searchsorted(AGE_CLASSES, age, side="right")) - 1]
        lost = MachineKind.NOTHING if machine is MachineKind.SPOT and up else machine
        gone = best(tick + 1, left, lost, not up, 0)
        return prices[machine] + ends * gone + (1 - ends) * best(tick + 1, left, machine, up, age + 1)

    def best(tick: int, work: float, running: MachineKind, up: bool, age: int) -> float:
        return min(
            cost_after(tick, work, running, up, age, machine)
            for machine in MachineKind
            if up or machine is not MachineKind.SPOT
        )

    return cost_after(0, of.work_s / TICK_S, MachineKind.NOTHING, True, 0, first)


def test_a_choice_says_why() -> None:
    of = job(work=40, deadline=60)
    policy = LeastCost.for_job(of)
    belief = Belief.first_look(PRIOR, True, Seconds(0))
    calm = DeadlineState(Seconds(0), of.work_s, MachineKind.NOTHING, Seconds(0), spot_up=True)
    late = DeadlineState(Seconds(19.5 * TICK_S), of.work_s, MachineKind.NOTHING, Seconds(0), spot_up=True)

    chosen, forced = policy.choose_machine(calm, belief), policy.choose_machine(late, belief)

    assert chosen.machine is MachineKind.SPOT
    assert chosen.why.startswith("run on spot: spot is up, expected ")
    assert chosen.margin_s == (60 - 40 - 0.5 - 0.5) * TICK_S
    assert forced.machine is MachineKind.ON_DEMAND
    assert forced.why == "run on-demand: nothing else is sure to keep deadline and budget"
    assert forced.expected_cost == pytest.approx(41 * 0.6, rel=0.02)


def test_spot_dearer_than_on_demand_is_left_alone() -> None:
    of = job(work=6, deadline=12, spot=4.0, on_demand=3.6)

    runs = simulate_rule(
        of, np.ones((1, of.tick_count), dtype=np.bool_), LeastCost.for_job(of).cheapest_machines
    )

    assert runs.ticks[MachineKind.SPOT, 0] == 0


def test_a_plan_for_a_long_time_takes_longer_ticks() -> None:
    of = job(work=700, deadline=1000)

    assert plan_tick_s(of) == 3 * TICK_S
    policy = LeastCost.for_job(of)
    whole = DeadlineState(Seconds(0), of.work_s, MachineKind.NOTHING, Seconds(0), spot_up=True)
    assert (
        700 * 0.2
        < policy.choose_machine(whole, Belief.first_look(PRIOR, True, Seconds(0))).expected_cost
        < 700 * 0.6
    )
    assert not simulate_rule(of, np.zeros((1, of.tick_count), dtype=np.bool_), policy.cheapest_machines).late[
        0
    ]


@pytest.mark.parametrize("broken", [{"work": 0}, {"deadline": -1}, {"overhead": -1}, {"spot": float("nan")}])
def test_a_job_that_makes_no_sense_is_refused(broken: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be|negative"):
        job(**broken)
