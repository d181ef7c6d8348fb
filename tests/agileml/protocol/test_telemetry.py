from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agileml.protocol.telemetry import ObjectiveAt, ObjectiveReport, ObjectiveSums, ShardObjective

SHARDS = 3


def report(clock: int, *shards: int) -> ObjectiveReport:
    """Each shard contributes 0.1 x its number (which sums differently in another order) of 1 term."""
    return ObjectiveReport("m", clock, tuple(ShardObjective(shard, 0.1 * shard, 1.0) for shard in shards))


def objectives() -> ObjectiveSums:
    return ObjectiveSums(SHARDS, lambda total, count: total / count)


@given(st.permutations(range(SHARDS)))
def test_the_sum_is_the_same_in_whatever_order_parts_come(order: list[int]) -> None:
    told = objectives()
    known = [told.add_report(report(1, shard)) for shard in order]
    assert known == [None, None, ObjectiveAt(0, (0.0 + 0.1 * 1 + 0.1 * 2) / 3)]


def test_a_clock_that_is_computed_again_is_told_once() -> None:
    told = objectives()
    assert told.add_report(report(1, 0, 1, 2)) is not None
    assert told.add_report(report(1, 0, 1, 2)) is None


def test_a_part_that_died_costs_its_clock_and_no_other() -> None:
    told = objectives()
    told.add_report(report(1, 0, 1))
    assert told.add_report(report(2, 0, 1, 2)) == ObjectiveAt(1, (0.1 + 0.2) / 3)
    assert told.add_report(report(1, 2)) is None
