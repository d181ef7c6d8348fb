"""The stage is a function of the ratio, with slack on the way down."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.controller.stages import choose_stage
from agileml.protocol.events import Setup, Stage

ORDER = [Stage.ONE, Stage.TWO, Stage.THREE]


def setup(hysteresis: float = 0.0) -> Setup:
    return Setup(partitions=1, shards=1, clocks=1, hysteresis=hysteresis)


@pytest.mark.parametrize(
    ("transient", "reliable", "stage"),
    [
        (0, 4, Stage.ONE),
        (4, 4, Stage.ONE),  # 1:1 is still stage 1
        (5, 4, Stage.TWO),
        (60, 4, Stage.TWO),  # and 15:1 still stage 2 (Harlap 4.2.2)
        (61, 4, Stage.THREE),
        (7, 0, Stage.ONE),
    ],
)
@pytest.mark.parametrize("current", ORDER)
def test_the_thresholds_of_the_paper(transient: int, reliable: int, stage: Stage, current: Stage) -> None:
    assert choose_stage(current, transient, reliable, setup()) is stage


def test_with_hysteresis_a_footprint_at_the_border_does_not_flap() -> None:
    stages, stage = [], Stage.ONE
    for transient in (4, 5, 4, 5, 4, 3, 4, 2):
        stage = choose_stage(stage, transient, 4, setup(hysteresis=0.3))
        stages.append(stage.value)
    assert stages == ["1", "2", "2", "2", "2", "2", "2", "1"]


@settings(max_examples=100)
@given(st.sampled_from(ORDER), st.integers(0, 200), st.integers(1, 5), st.floats(0, 0.9))
def test_more_transient_machines_never_lower_the_stage(
    current: Stage, transient: int, reliable: int, hysteresis: float
) -> None:
    fewer = choose_stage(current, transient, reliable, setup(hysteresis))
    more = choose_stage(current, transient + 1, reliable, setup(hysteresis))
    assert ORDER.index(fewer) <= ORDER.index(more)


@settings(max_examples=100)
@given(st.sampled_from(ORDER), st.integers(0, 200), st.integers(1, 5), st.floats(0, 0.9))
def test_the_stage_holds_while_the_footprint_does(
    current: Stage, transient: int, reliable: int, hysteresis: float
) -> None:
    chosen = choose_stage(current, transient, reliable, setup(hysteresis))
    assert choose_stage(chosen, transient, reliable, setup(hysteresis)) is chosen
