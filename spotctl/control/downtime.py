"""Reconstructs when training ended, and machine-seconds worked, if it ended while spotctl was down."""

from __future__ import annotations

from collections.abc import Mapping

from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.control.state import State


def training_end(state: State, entry: e.TrainingFinished) -> Instant:
    """Returns when training ended, which spotctl may hear of later."""
    if state.interruptions.away is None:
        return state.now
    known = entry.at if state.interruptions.away.over_at is None else state.interruptions.away.over_at
    return Instant(min(max(state.interruptions.away.since, known), state.now))


def worked_until(state: State, over: Instant) -> Mapping[str, int]:
    """Returns machine-seconds of work by instance type, as ``State.worked``, none of it after ``over``.

    Machines that waited for spotctl to hear of the end did no work. While it is down no machine comes or
    goes, so the work of that time is spread evenly over it.
    """
    away, worked = state.interruptions.away, state.training.worked
    if away is None or over >= state.now:
        return worked
    part = (over - away.since) / (state.now - away.since)
    before = {kind: away.worked.get(kind, 0) for kind in worked}
    return {kind: before[kind] + round(part * (seconds - before[kind])) for kind, seconds in worked.items()}
