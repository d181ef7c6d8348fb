"""Describes what happened: one sentence per entry that a person watching would want to hear of.

Pure: an entry and the state in which it is already folded give a sentence, or None where there is
nothing to tell. News of single machines are told once per allocation, with the last of it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from bidbrain.model import Action
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Instant, MicroUsd, Usd, format_micros, to_micros
from spotctl.cli.format.amounts import BASELINES as BASELINES
from spotctl.cli.format.amounts import BESIDE as BESIDE
from spotctl.cli.format.amounts import NOMINAL as NOMINAL
from spotctl.cli.format.amounts import counted as counted
from spotctl.cli.format.amounts import exact as exact
from spotctl.cli.format.amounts import money as money
from spotctl.cli.format.amounts import savings as savings
from spotctl.cli.format.amounts import size as size
from spotctl.cli.format.amounts import span as span
from spotctl.control import entries as e
from spotctl.control.billing import instance_bills
from spotctl.control.state import Allocation, Instance, State
from spotctl.report.status import progress_unit as progress_unit

STAGES: Final[Mapping[int, str]] = {
    1: "parameters live on reliable machines; everybody computes",
    2: "parameters live on spot machines, backed up on reliable ones; everybody computes",
    3: "parameters live on spot machines, backed up on reliable ones; reliable machines compute nothing",
}
"""Describes Harlap's stages (4.2.2), in one line each."""


def sentence(state: State, entry: e.Entry) -> str | None:
    """Describes ``entry`` for the run whose ``state`` it led to; None where it is not worth a line."""
    tell = TELLERS.get(type(entry))
    return None if tell is None else tell(state, entry)


def machines(count: int, market: Market) -> str:
    """Formats machines like "4 x c4.xlarge in us-east-1b"."""
    return f"{count} x {market.instance_type} in {market.zone}"


def times(count: int) -> str:
    """Formats a count as "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def listed(parts: Sequence[str]) -> str:
    """Joins a list like "a", "a and b", "a, b and c"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def moment(at: Instant) -> str:
    """Formats the time of day of ``at``, UTC."""
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M")


def estimate(amount: Usd) -> str | None:
    """Formats dollars for scripts; None where they are infinite."""
    return format_micros(to_micros(amount)) if math.isfinite(amount) else None


def finite(value: float) -> float | None:
    """Returns ``value``; None where it is infinite, which JSON cannot say."""
    return value if math.isfinite(value) else None


def price(per_hour: float) -> str:
    """Formats dollars per hour with enough digits to tell a price from a bid: "0.0801", "0.080072"."""
    return f"{per_hour:.6f}".rstrip("0").rstrip(".")


def ending(outcome: str, why: str) -> str:
    """Describes how a run ended, without saying it twice: "the work is done", "failed: no reliable machine
    ...".
    """
    return why if outcome in why else f"{outcome}: {why}"


def died_of(told: str, job: str) -> str:
    """Says why a process died, and where to read more."""
    return f"{told}; `spotctl logs {job}` has it all"


# ---- machines -----------------------------------------------------------------------------------


def _acquire(_: State, entry: e.Acquire) -> str:
    terms = "on-demand" if entry.bid is None else f"bid {price(entry.bid)}"
    return f"asked for {machines(entry.count, entry.market)}, {terms} ({entry.allocation})"


def _granted(state: State, entry: e.Granted) -> str:
    return f"granted: {_those(state, entry.instances)}; booting"


def _refused(state: State, entry: e.Refused) -> str:
    return f"refused: {_whole(state.allocations[entry.allocation])}: {entry.detail} [{entry.error}]"


def _running(state: State, entry: e.InstancesRunning) -> str:
    return f"running: {_those(state, entry.instances)}; the bill starts"


def _warned(state: State, entry: e.EvictionWarned) -> str:
    allocation, _ = _siblings(state, entry.instances[0])
    told = f"warned: {_those(state, entry.instances)} will be taken at {moment(entry.ends_at)}"
    now = state.history.price(allocation.market, entry.at)
    if now is None or allocation.bid is None:
        return told
    return f"{told} (price {price(now)} > bid {price(allocation.bid)})"


def _joined(state: State, entry: e.MachineJoined) -> str | None:
    allocation, members = _siblings(state, entry.instance)
    if any(member.is_staying and not member.joined for member in members):
        return None
    return f"training: {_whole(allocation)} takes part"


def _safe(state: State, entry: e.SafeToKill) -> str | None:
    allocation, members = _siblings(state, entry.instance)
    if any(member.is_live and not member.safe for member in members):
        return None
    return f"safe: nothing would be lost with {_whole(allocation)} now"


def _given_up(state: State, entry: e.MachineGivenUp) -> str:
    return f"given up: {_those(state, [entry.instance])} hangs, or cannot run the job"


def _silent(state: State, entry: e.ControllerSilent) -> str:
    return f"given up: {_those(state, [entry.instance])} hangs, and the training's controller with it"


def _ended(state: State, entry: e.InstancesEnded) -> str:
    told = f"gone: {_those(state, entry.instances)}, {entry.end}"
    ended = set(entry.instances)
    back = sum(bill.refunded for bill in instance_bills(state) if bill.instance.name in ended)
    if not back:
        return told
    return f"{told}; their last hour is free: {money(MicroUsd(back))} comes back"


def _release(state: State, entry: e.Release) -> str | None:
    leaving = [state.instances[name] for name in entry.instances]
    if all(member.ends_at is not None and member.warned_at is None for member in leaving):
        return None  # the decision told that they are not kept, and their end will be told
    return f"released: {_those(state, entry.instances)}: {entry.why}"


def _siblings(state: State, instance: str) -> tuple[Allocation, tuple[Instance, ...]]:
    allocation = state.allocations[state.instances[instance].allocation]
    return allocation, state.instances_of(allocation.name)


def _whole(allocation: Allocation) -> str:
    return f"{machines(allocation.count, allocation.market)} ({allocation.name})"


def _those(state: State, instances: Iterable[str]) -> str:
    counts = Counter(state.instances[name].allocation for name in instances)
    return listed(
        [f"{machines(count, state.allocations[name].market)} ({name})" for name, count in counts.items()]
    )


# ---- training -----------------------------------------------------------------------------------


def _stage(_: State, entry: e.StageEntered) -> str:
    return f"stage {entry.stage}: {STAGES[entry.stage]}"


def _program_began(state: State, entry: e.ProgramBegan) -> str | None:
    if state.program_starts < 2:
        return None
    again = f"{span(state.seconds_redone)} of its time so far is done again" if state.seconds_redone else ""
    where = f"after {progress_unit(state.terms)} {entry.clock}" if entry.clock else "from nothing"
    return f"the program begins again, {where}" + (f": {again}" if again else "")


def _rolled_back(state: State, entry: e.RolledBack) -> str:
    name = progress_unit(state.terms)
    if not entry.redone:
        return f"what was lost is restored as of {name} {entry.to}: no completed {name} is computed again"
    again = f"{name} is" if entry.redone == 1 else f"{name}s are"
    return f"rolled back to {name} {entry.to}: {entry.redone} {again} computed again"


def _fetched(state: State, entry: e.CheckpointFetched) -> str | None:
    last = state.fetched[-1] if state.fetched else None
    if last is None or (last.at, last.instance) != (state.now, entry.instance):
        return None  # within a region it costs nothing
    return (
        f"carried: {size(entry.size_bytes)} of {progress_unit(state.terms)} {entry.clock} from {last.here.cloud} "
        f"{last.here.region} to {last.there.cloud} {last.there.region}, egress {money(last.owed)}"
    )


def _checkpointed(state: State, entry: e.Checkpointed) -> str:
    return f"checkpoint: {progress_unit(state.terms)} {entry.clock} in {entry.folder}"


def _checkpoint_failed(state: State, entry: e.CheckpointFailed) -> str:
    return f"checkpoint failed at {progress_unit(state.terms)} {entry.clock}: {entry.why}"


def _resumed(state: State, entry: e.TrainingResumed) -> str:
    if state.restarts:
        where = f", from {entry.folder}" if entry.folder else ", as no checkpoint was written yet"
        return f"begun again after {progress_unit(state.terms)} {entry.clock}{where}"
    return f"resumed after {progress_unit(state.terms)} {entry.clock}, from {entry.folder}"


def _finished(state: State, entry: e.TrainingFinished) -> str:
    where = f", {state.terms.engine.artifact} in {entry.model}" if entry.model else ""
    over = entry.at if state.training_over_at is None else state.training_over_at
    since = f"; since {moment(over)}, while spotctl was away" if over < entry.at else ""
    return f"trained: {entry.clock} {progress_unit(state.terms)}s done{where}{since}"


def _training_failed(_: State, entry: e.TrainingFailed) -> str:
    return f"training failed: {entry.why}"


def _tell_restart(_: State, entry: e.TellRestart) -> str:
    kept = {
        True: "; its deadline can still be kept",
        False: "; ITS DEADLINE CAN NOT BE KEPT FOR SURE ANY MORE",
    }
    told = "" if entry.in_time is None else kept[entry.in_time]
    return f"the last reliable machine is lost: training begins again from its newest checkpoint{told}"


def _tell_stop(state: State, _: e.TellStop) -> str:
    return f"stopping: the {state.terms.engine.artifact} is being saved"


def _stop_given_up(state: State, _: e.StopGivenUp) -> str:
    minutes = round(state.terms.end_within_s / 60)
    return f"training should have ended {minutes} minutes ago: it is not waited for any longer"


# ---- decisions, requests, time ------------------------------------------------------------------


def _decided(state: State, entry: e.Decided) -> str | None:
    decision = entry.decision
    if decision.action not in (Action.RENEW, Action.TERMINATE) or decision.holding is None:
        return None  # an acquisition is told as the request that follows; holding is no news
    allocation = state.allocations[decision.holding]
    renewed = decision.action is Action.RENEW
    if renewed and state.terms.rules_of(allocation.market).quantum_s < HOUR_S:
        return None  # where seconds are billed, the end of an hour means nothing
    verdict = "kept for another hour" if renewed else "not kept"
    return f"{verdict}: {_whole(allocation)}: {decision.why}"


def _down(_: State, entry: e.ControllerDown) -> str:
    away = f"spotctl was away for {span(entry.until - entry.at)} of the prices' time"
    away += f", from {moment(entry.at)} to {moment(entry.until)}"
    if entry.lapsed_at is None:
        return f"{away}; its machines are billed meanwhile"
    return f"{away}; its machines ended themselves at {moment(entry.lapsed_at)}, when their lease ran out"


def _asked(_: State, entry: e.Asked) -> str:
    return (
        "asked to end gracefully"
        if entry.ask is e.UserRequest.CANCEL
        else "asked to take the machines away now"
    )


def _leased(_: State, entry: e.Leased) -> str:
    if entry.lease is None:
        return "no lease: its spot machines go to another job"
    kinds = " or ".join(sorted({market.instance_type for market in entry.lease.markets}))
    return f"leased: up to {entry.lease.count} x {kinds}, not taken back before {moment(entry.lease.until)}"


def _stalled(_: State, entry: e.Stalled) -> str | None:
    if entry.done:
        return None
    return f"too slow for this speed: gave up waiting for {entry.effect} after {entry.real_s:.1f} s"


def _close(_: State, entry: e.Close) -> str:
    return ending(entry.outcome, entry.why)


TELLERS: Final[Mapping[type, Callable[[State, Any], str | None]]] = {
    e.Acquire: _acquire,
    e.Granted: _granted,
    e.Refused: _refused,
    e.InstancesRunning: _running,
    e.EvictionWarned: _warned,
    e.MachineJoined: _joined,
    e.SafeToKill: _safe,
    e.MachineGivenUp: _given_up,
    e.ControllerSilent: _silent,
    e.InstancesEnded: _ended,
    e.Release: _release,
    e.StageEntered: _stage,
    e.ProgramBegan: _program_began,
    e.RolledBack: _rolled_back,
    e.CheckpointFetched: _fetched,
    e.Checkpointed: _checkpointed,
    e.CheckpointFailed: _checkpoint_failed,
    e.TrainingResumed: _resumed,
    e.TrainingFinished: _finished,
    e.TrainingFailed: _training_failed,
    e.TellStop: _tell_stop,
    e.StopGivenUp: _stop_given_up,
    e.TellRestart: _tell_restart,
    e.Decided: _decided,
    e.ControllerDown: _down,
    e.Asked: _asked,
    e.Leased: _leased,
    e.Stalled: _stalled,
    e.Close: _close,
}
