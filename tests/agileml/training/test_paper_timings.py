"""Tests the paper's measurements of stages and elasticity, in virtual time: see ``timed_experiments``."""

from __future__ import annotations

from functools import cache

import pytest

from agileml.protocol.events import Stage
from tests.agileml.simulated.timed_experiments import (
    MACHINES,
    RATIOS,
    Stages,
    elasticity,
    settles_on,
    stages,
    traditional,
)

NOISE = 0.05
"""What two clocks of the same kind may differ by on real machines."""


@cache
def base() -> float:
    return traditional()


@cache
def at(ratio: str) -> Stages:
    return stages(RATIOS[ratio])


def over_traditional(ratio: str, stage: Stage) -> float:
    return at(ratio).took[stage] / base()


def test_with_many_transient_machines_the_links_of_the_few_reliable_ones_bind_stage_one() -> None:
    """Harlap 4.5.3, Fig. 4.11: at 15:1 stage 1 takes 85 % longer than the traditional layout, stage 2 18."""
    assert 1.5 < over_traditional("15:1", Stage.ONE) < 2.0
    assert 1.1 < over_traditional("15:1", Stage.TWO) < 1.3


def test_with_very_many_the_workers_beside_backups_lag_and_stage_three_does_without_them() -> None:
    """Fig. 4.12: at 63:1 stage 3 matches the traditional layout; stage 2 suffers from one straggler."""
    assert over_traditional("63:1", Stage.THREE) < 1.1
    assert over_traditional("63:1", Stage.TWO) > 1.2 * over_traditional("63:1", Stage.THREE)
    assert over_traditional("63:1", Stage.ONE) > 1.5 * over_traditional("63:1", Stage.TWO)


def test_in_between_stage_two_is_the_best() -> None:
    """At 7:1 stage 3 leaves an eighth of the machines idle, and in stage 1 an eighth serves all."""
    took = at("7:1").took
    assert took[Stage.TWO] < min(took[Stage.ONE], took[Stage.THREE]) * (1 - NOISE)


def test_with_as_many_reliable_machines_stage_one_is_the_traditional_layout() -> None:
    """Fig. 4.13: and stage 3, which idles half of the machines, takes twice as long."""
    assert over_traditional("1:1", Stage.ONE) == pytest.approx(1.0, abs=NOISE)
    assert over_traditional("1:1", Stage.TWO) > 1.0
    assert over_traditional("1:1", Stage.THREE) > 1.8


@pytest.mark.parametrize("ratio", RATIOS)
def test_automatic_stages_are_the_best_or_within_noise_of_it(ratio: str) -> None:
    told = at(ratio)
    assert told.took[told.chosen] <= min(told.took.values()) * (1 + NOISE)
    assert told.automatic <= min(told.took.values()) * (1 + NOISE)


@pytest.mark.campaign
@pytest.mark.parametrize("first", [Stage.ONE, Stage.THREE])
def test_automatic_stages_leave_a_stage_that_turns_out_longer_than_it_promised(
    first: Stage, campaign: bool
) -> None:
    """At 7:1 stages 1 and 3 take a tenth longer than stage 2, which their known costs alone do not show."""
    if first is Stage.ONE and not campaign:
        pytest.skip("only with --campaign: stage 3 is tried in every run")
    assert settles_on(RATIOS["7:1"], first) is Stage.TWO


@pytest.mark.parametrize("warned_within", [0.0, 0.8])
def test_sixty_machines_join_unnoticed_and_leave_with_a_small_blip(warned_within: float) -> None:
    """Fig. 4.15: 4 machines, 60 more, 4 again. The clock of the bulk eviction is 13 % longer in the paper.

    Here it ends what the 60 have begun, and the next is as long as any other of 4 machines.
    """
    told = elasticity(clocks=2, warned_within=warned_within)
    assert told.joining <= NOISE
    assert told.blip <= 0.02
    assert told.safe_s < 30.0
    assert told.steps < 10 * MACHINES, "of the controller: a few for each machine, and for each clock"


def test_an_experiment_says_the_same_every_time() -> None:
    assert traditional() == base()
