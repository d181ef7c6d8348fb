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
from spotctl.cli.format.amounts import count_noun as count_noun
from spotctl.cli.format.amounts import format_exact as format_exact
from spotctl.cli.format.amounts import format_money as format_money
from spotctl.cli.format.amounts import format_savings as format_savings
from spotctl.cli.format.amounts import format_size as format_size
from spotctl.cli.format.amounts import format_span as format_span
from spotctl.control import entries as e
from spotctl.control.billing import instance_bills
from spotctl.control.state import State
from spotctl.control.state_values import Allocation, Instance
from spotctl.report.status import progress_unit as progress_unit

STAGES: Final[Mapping[int, str]] = {
    1: "parameters live on reliable machines; everybody computes",
    2: "parameters live on spot machines, backed up on reliable ones; everybody computes",
    3: "parameters live on spot machines, backed up on reliable ones; reliable machines compute nothing",
}
"""Describes Harlap's stages (4.2.2), in one line each."""


def describe_entry(state: State, entry: e.Entry) -> str | None:
    """Describes ``entry`` for the run whose ``state`` it led to; None where it is not worth a line."""
    tell = TELLERS.get(type(entry))
    return None if tell is None else tell(state, entry)


def format_machines(count: int, market: Market) -> str:
    """Formats machines like "4 x c4.xlarge in us-east-1b"."""
    return f"{count} x {market.instance_type} in {market.zone}"


def format_times(count: int) -> str:
    """Formats a count as "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def join_list(parts: Sequence[str]) -> str:
    """Joins a list like "a", "a and b", "a, b and c"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def format_moment(at: Instant) -> str:
    """Formats the time of day of ``at``, UTC."""
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M")


def format_estimate(amount: Usd) -> str | None:
    """Formats dollars for scripts; None where they are infinite."""
    return format_micros(to_micros(amount)) if math.isfinite(amount) else None


def finite_or_none(value: float) -> float | None:
    """Returns ``value``; None where it is infinite, which JSON cannot say."""
    return value if math.isfinite(value) else None


def format_price(per_hour: float) -> str:
    """Formats dollars per hour with enough digits to tell a price from a bid: "0.0801", "0.080072"."""
    return f"{per_hour:.6f}".rstrip("0").rstrip(".")


def describe_end(outcome: str, why: str) -> str:
    """Describes how a run ended, without saying it twice: "the work is done", "failed: no reliable machine
    ...".
    """
    return why if outcome in why else f"{outcome}: {why}"


def describe_death(told: str, job: str) -> str:
    """Says why a process died, and where to read more."""
    return f"{told}; `spotctl logs {job}` has it all"


# ---- machines -----------------------------------------------------------------------------------


def _describe_acquire(_: State, entry: e.Acquire) -> str:
    terms = "on-demand" if entry.bid is None else f"bid {format_price(entry.bid)}"
    return f"requested: {format_machines(entry.count, entry.market)}, {terms} ({entry.allocation})"


def _describe_grant(state: State, entry: e.Granted) -> str:
    return f"granted: {_format_instances(state, entry.instances)}; booting"


def _describe_refusal(state: State, entry: e.Refused) -> str:
    return (
        f"refused: {_format_allocation(state.allocations[entry.allocation])}: {entry.detail} [{entry.error}]"
    )


def _describe_running(state: State, entry: e.InstancesRunning) -> str:
    return f"running: {_format_instances(state, entry.instances)}; billing starts"


def _describe_warning(state: State, entry: e.EvictionWarned) -> str:
    allocation, _ = _allocation_of(state, entry.instances[0])
    machines, ends = _format_instances(state, entry.instances), format_moment(entry.ends_at)
    told = f"warned: {machines} will be evicted at {ends}"
    now = state.history.price(allocation.market, entry.at)
    # Where capacity decides, the price explains nothing.
    if now is None or allocation.bid is None:
        return told
    return f"{told} (price {format_price(now)} > bid {format_price(allocation.bid)})"


def _describe_noticed_eviction(state: State, entry: e.EvictionNoticed) -> str:
    return f"warned: {_format_instances(state, [entry.instance])} by a notice on the machine itself"


def _describe_join(state: State, entry: e.MachineJoined) -> str | None:
    allocation, members = _allocation_of(state, entry.instance)
    # Told once, with the last machine of the allocation.
    if any(member.is_staying and not member.joined for member in members):
        return None
    return f"joined: {_format_allocation(allocation)}"


def _describe_safety(state: State, entry: e.SafeToKill) -> str | None:
    allocation, members = _allocation_of(state, entry.instance)
    # Likewise: one line when the whole allocation is safe.
    if any(member.is_live and not member.safe for member in members):
        return None
    return f"safe: {_format_allocation(allocation)} may end without loss of work"


def _describe_giving_up(state: State, entry: e.MachineGivenUp) -> str:
    return f"given up: {_format_instances(state, [entry.instance])} hangs or cannot run the job"


def _describe_silence(state: State, entry: e.ControllerSilent) -> str:
    return (
        f"given up: {_format_instances(state, [entry.instance])} hangs, and the training's controller with it"
    )


def _describe_end_of_machines(state: State, entry: e.InstancesEnded) -> str:
    told = f"ended: {_format_instances(state, entry.instances)}, {entry.end}"
    ended = set(entry.instances)
    # The bill is the one source of refunds, so that this line and the report agree.
    back = sum(bill.refunded for bill in instance_bills(state) if bill.instance.name in ended)
    if not back:
        return told
    return f"{told}; {format_money(MicroUsd(back))} refunded for the last hour"


def _describe_release(state: State, entry: e.Release) -> str | None:
    leaving = [state.instances[name] for name in entry.instances]
    if all(member.ends_at is not None and member.warned_at is None for member in leaving):
        return None  # the decision said that they are not kept, and their end follows
    return f"released: {_format_instances(state, entry.instances)}: {entry.why}"


def _allocation_of(state: State, instance: str) -> tuple[Allocation, tuple[Instance, ...]]:
    allocation = state.allocations[state.instances[instance].allocation]
    return allocation, state.instances_of(allocation.name)


def _format_allocation(allocation: Allocation) -> str:
    return f"{format_machines(allocation.count, allocation.market)} ({allocation.name})"


def _format_instances(state: State, instances: Iterable[str]) -> str:
    counts = Counter(state.instances[name].allocation for name in instances)
    return join_list(
        [
            f"{format_machines(count, state.allocations[name].market)} ({name})"
            for name, count in counts.items()
        ]
    )


# ---- training -----------------------------------------------------------------------------------


def _describe_stage(_: State, entry: e.StageEntered) -> str:
    return f"stage {entry.stage}: {STAGES[entry.stage]}"


def _describe_program_start(state: State, entry: e.ProgramBegan) -> str | None:
    # The first start is no news: its machine has just joined.
    if state.programs.program_starts < 2:
        return None
    lost = state.programs.seconds_redone
    where = f"after {progress_unit(state.terms)} {entry.clock}" if entry.clock else "from nothing"
    again = f"; so far it repeats {format_span(lost)} of work" if lost else ""
    return f"the program restarts {where}{again}"


def _describe_rollback(state: State, entry: e.RolledBack) -> str:
    name = progress_unit(state.terms)
    if not entry.redone:
        return f"restored from backups as of {name} {entry.to}: no completed {name} is repeated"
    again = f"{name} is" if entry.redone == 1 else f"{name}s are"
    return f"rolled back to {name} {entry.to}: {entry.redone} {again} repeated"


def _describe_transfer(state: State, entry: e.CheckpointFetched) -> str | None:
    last = state.programs.fetched[-1] if state.programs.fetched else None
    if last is None or (last.at, last.instance) != (state.now, entry.instance):
        return None  # within a region it costs nothing
    return (
        f"moved: {format_size(entry.size_bytes)} of {progress_unit(state.terms)} {entry.clock} from "
        f"{last.here.cloud} "
        f"{last.here.region} to {last.there.cloud} {last.there.region}, egress {format_money(last.owed)}"
    )


def _describe_checkpoint(state: State, entry: e.Checkpointed) -> str:
    return f"checkpoint: {progress_unit(state.terms)} {entry.clock} in {entry.folder}"


def _describe_failed_checkpoint(state: State, entry: e.CheckpointFailed) -> str:
    return f"checkpoint failed at {progress_unit(state.terms)} {entry.clock}: {entry.why}"


def _describe_resumption(state: State, entry: e.TrainingResumed) -> str:
    if state.recovery.restarts:
        if not entry.folder:
            return "restarted from the beginning, as no checkpoint was written before"
        return f"restarted after {progress_unit(state.terms)} {entry.clock}, from {entry.folder}"
    return f"resumed after {progress_unit(state.terms)} {entry.clock}, from {entry.folder}"


def _describe_finish(state: State, entry: e.TrainingFinished) -> str:
    where = f", {state.terms.engine.artifact} in {entry.model}" if entry.model else ""
    over = entry.at if state.training.training_over_at is None else state.training.training_over_at
    since = f"; since {format_moment(over)}, while spotctl was away" if over < entry.at else ""
    return f"trained: {entry.clock} {progress_unit(state.terms)}s done{where}{since}"


def _describe_failure(_: State, entry: e.TrainingFailed) -> str:
    return f"training failed: {entry.why}"


def _describe_restart(_: State, entry: e.TellRestart) -> str:
    kept = {
        True: "; the deadline can still be kept",
        False: "; THE DEADLINE CAN NO LONGER BE GUARANTEED",
    }
    told = "" if entry.in_time is None else kept[entry.in_time]
    return f"the last reliable machine is lost: training restarts from its newest checkpoint{told}"


def _describe_stop(state: State, _: e.TellStop) -> str:
    return f"stopping: saving the {state.terms.engine.artifact}"


def _describe_stop_given_up(state: State, _: e.StopGivenUp) -> str:
    minutes = round(state.terms.end_within_s / 60)
    return f"training did not end within {minutes} minutes: the run ends without it"


# ---- decisions, requests, time ------------------------------------------------------------------


def _describe_decision(state: State, entry: e.Decided) -> str | None:
    decision = entry.decision
    if decision.action not in (Action.RENEW, Action.TERMINATE) or decision.holding is None:
        return None  # an acquisition shows as the request that follows; holding is no news
    allocation = state.allocations[decision.holding]
    renewed = decision.action is Action.RENEW
    if renewed and state.terms.rules_of(allocation.market).quantum_s < HOUR_S:
        return None  # where seconds are billed, the end of an hour means nothing
    verdict = "kept for another hour" if renewed else "not kept"
    return f"{verdict}: {_format_allocation(allocation)}: {decision.why}"


def _describe_downtime(_: State, entry: e.ControllerDown) -> str:
    away = f"spotctl was away for {format_span(entry.until - entry.at)} of the prices' time"
    away += f", from {format_moment(entry.at)} to {format_moment(entry.until)}"
    if entry.lapsed_at is None:
        return f"{away}; its machines were billed meanwhile"
    return f"{away}; its machines ended at {format_moment(entry.lapsed_at)} with their lease"


def _describe_request(_: State, entry: e.Asked) -> str:
    return (
        "user request: end gracefully"
        if entry.ask is e.UserRequest.CANCEL
        else "user request: release all machines now"
    )


def _describe_lease(_: State, entry: e.Leased) -> str:
    if entry.lease is None:
        return "no lease: its spot machines go to another job"
    kinds = " or ".join(sorted({market.instance_type for market in entry.lease.markets}))
    return f"leased: up to {entry.lease.count} x {kinds}, at least until {format_moment(entry.lease.until)}"


def _describe_stall(_: State, entry: e.Stalled) -> str | None:
    if entry.done:
        return None
    return f"this computer is too slow for the speed: {entry.effect} took over {entry.real_s:.1f} s"


def _describe_close(_: State, entry: e.Close) -> str:
    return describe_end(entry.outcome, entry.why)


TELLERS: Final[Mapping[type, Callable[[State, Any], str | None]]] = {
    e.Acquire: _describe_acquire,
    e.Granted: _describe_grant,
    e.Refused: _describe_refusal,
    e.InstancesRunning: _describe_running,
    e.EvictionWarned: _describe_warning,
    e.MachineJoined: _describe_join,
    e.SafeToKill: _describe_safety,
    e.EvictionNoticed: _describe_noticed_eviction,
    e.MachineGivenUp: _describe_giving_up,
    e.ControllerSilent: _describe_silence,
    e.InstancesEnded: _describe_end_of_machines,
    e.Release: _describe_release,
    e.StageEntered: _describe_stage,
    e.ProgramBegan: _describe_program_start,
    e.RolledBack: _describe_rollback,
    e.CheckpointFetched: _describe_transfer,
    e.Checkpointed: _describe_checkpoint,
    e.CheckpointFailed: _describe_failed_checkpoint,
    e.TrainingResumed: _describe_resumption,
    e.TrainingFinished: _describe_finish,
    e.TrainingFailed: _describe_failure,
    e.TellStop: _describe_stop,
    e.StopGivenUp: _describe_stop_given_up,
    e.TellRestart: _describe_restart,
    e.Decided: _describe_decision,
    e.ControllerDown: _describe_downtime,
    e.Asked: _describe_request,
    e.Leased: _describe_lease,
    e.Stalled: _describe_stall,
    e.Close: _describe_close,
}
