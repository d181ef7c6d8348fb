"""Small jobs and availability for tests of deadlines."""

from __future__ import annotations

from hypothesis import strategies as st

from bidbrain.deadline.model import DeadlineJob
from pricing_data.model.units import Seconds, UsdPerHour

TICK_S = 600


def job(
    work: float = 4, deadline: float = 8, overhead: float = 0.5, *, spot: float = 1.2, on_demand: float = 3.6
) -> DeadlineJob:
    """Durations in ticks; a tick of spot is 0.20 $ and one of on-demand 0.60 $ unless told otherwise."""
    return DeadlineJob(
        work_s=Seconds(work * TICK_S),
        deadline_s=Seconds(deadline * TICK_S),
        overhead_s=Seconds(overhead * TICK_S),
        tick_s=Seconds(TICK_S),
        spot=UsdPerHour(spot),
        on_demand=UsdPerHour(on_demand),
    )


@st.composite
def jobs(draw: st.DrawFn, most_ticks: int = 12) -> DeadlineJob:
    """Jobs that on-demand alone finishes, down to those that leave no margin at all."""
    overhead_s = draw(st.integers(0, 3 * TICK_S))
    work_s = draw(st.integers(1, most_ticks * TICK_S))
    least = -(-(work_s + overhead_s) // TICK_S)
    deadline = least + draw(st.integers(0, most_ticks))
    work_s += draw(st.sampled_from([0, least * TICK_S - work_s - overhead_s]))
    return DeadlineJob(
        work_s=Seconds(work_s),
        deadline_s=Seconds(deadline * TICK_S),
        overhead_s=Seconds(overhead_s),
        tick_s=Seconds(TICK_S),
        spot=UsdPerHour(draw(st.sampled_from([0.0, 0.9731, 3.06, 5.0]))),
        on_demand=UsdPerHour(3.06),
    )
