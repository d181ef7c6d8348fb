"""A short run, entry by entry: enough happens in it to be worth watching."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bidbrain.model import Action, Decision, Limits, ScalingModel
from pricing_data.model.billing import EndReason
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.rules import AWS_2016
from pricing_data.model.units import HOUR_S, Instant, Seconds, UsdPerHour, parse_instant
from spotctl.control import entries as e
from spotctl.control.evolve import evolve, initial_state
from spotctl.control.run_spec import MarketOption, Origin, RunSpec, StopCondition, WorkTerms
from spotctl.control.state import State

START = parse_instant("2016-06-05T14:00:00Z")
SPOT = Market("aws", "us-east-1", "us-east-1b", "c4.xlarge")
RELIABLE = Market("aws", "us-east-1", "us-east-1a", "m4.xlarge")
WHY = "4 more c4.xlarge bring the cost of a core-hour from 0.06 to 0.02"


def at(minutes: float) -> Instant:
    return Instant(START + int(minutes * 60))


def terms() -> RunSpec:
    return RunSpec(
        job="movies",
        origin=Origin(run="movies-1", seed=0, prices="bundled market (generated)"),
        start=START,
        rules=AWS_2016,
        reliable=MarketOption(RELIABLE, UsdPerHour(0.239), 4),
        reliable_count=1,
        spot=(MarketOption(SPOT, UsdPerHour(0.209), 4),),
        limits=Limits(8, 4),
        work=WorkTerms(
            scaling=ScalingModel(0.95, Seconds(60), Seconds(120), 1, 15),
            stop=StopCondition(40),
            core_seconds_per_clock=600.0,
        ),
    )


def decision(minutes: float, action: Action, **fields: object) -> e.Decided:
    made = Decision(at(minutes), action, 2e-5, WHY, weighed=(), considered=81, **fields)  # type: ignore[arg-type]
    return e.Decided(at(minutes), made)


def entries() -> tuple[e.Entry, ...]:
    """One reliable machine, four spot machines that are warned and evicted, one clock lost, the end."""
    four = tuple(f"s1-{n}" for n in range(4))
    return (
        e.Acquire(at(0), "r1", RELIABLE, 1, None, reliable=True),
        e.Granted(at(0), "r1", ("r1-0",)),
        e.InstancesRunning(at(1), ("r1-0",)),
        e.TellJoin(at(1), ("r1-0",), True, 4),
        e.MachineJoined(at(2), "r1-0"),
        decision(2, Action.ACQUIRE, market=SPOT, count=4, bid=UsdPerHour(0.052)),
        e.Acquire(at(2), "s1", SPOT, 4, UsdPerHour(0.052)),
        e.Granted(at(2), "s1", four),
        e.InstancesRunning(at(3), four),
        e.TellJoin(at(3), four, False, 4),
        *(e.MachineJoined(at(4), name) for name in four),
        e.StageEntered(at(4), 2),
        e.Progressed(at(20), 12, 11),
        e.ObjectiveReported(at(20), 12, 0.9134),
        e.PriceChanged(at(32), SPOT, UsdPerHour(0.31)),
        e.EvictionWarned(at(32), four, at(34)),
        e.TellWarning(at(32), four, at(34)),
        *(e.SafeToKill(at(33), name) for name in four[:3]),
        e.InstancesEnded(at(34), four, EndReason.EVICTED),
        e.RolledBack(at(34), 11, 1),
        e.StageEntered(at(35), 1),
        e.Progressed(at(50), 40, 40),
        e.TrainingFinished(at(51), 40, "/models/movies"),
        e.Release(at(51), ("r1-0",), "the job is over"),
        e.InstancesEnded(at(52), ("r1-0",), EndReason.RELEASED),
        e.Close(at(52), e.RunOutcome.DONE, 0, "the work is done"),
    )


def beginning() -> State:
    hours = np.arange(48, dtype=np.int64)
    steps = Series(START - 2 * 86400 + hours * HOUR_S, np.where(hours % 2, 0.05, 0.051))
    return initial_state(e.JobStarted(START, terms()), PriceHistory.from_series({SPOT: steps}))


def told() -> Iterator[tuple[State, e.Entry]]:
    """Every entry with the state it led to."""
    state = beginning()
    for entry in entries():
        state = evolve(state, entry)
        yield state, entry


def state_after(minutes: float) -> State:
    """The run as it stands at that minute."""
    state = beginning()
    for entry in entries():
        if entry.at <= at(minutes):
            state = evolve(state, entry)
    return state
