"""Frees what no run needs any more: cut input, and records of runs that ended long ago (decision 40).

Only this module removes records. It never touches a run that can still be resumed, one whose machines are
still there, or one of a queue that can be; nor outputs and checkpoint stores, which are the user's folders.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pricing_data.model.units import Seconds, parse_duration
from spotctl.errors import LedgerError, SpotctlError, UsageError
from spotctl.providers.base import live_instances
from spotctl.providers.local import LeftMachines
from spotctl.queue.lifecycle.journal import QueueFolder
from spotctl.records.locks import JobLocked, is_held
from spotctl.records.run import Run, RunStore
from spotctl.records.shared_inputs import CLAIM, InputStore, claim_of
from spotctl.session.open import settings_of
from spotctl.timesource import wall_clock

_DAY_S: Final = 86400
_CLOSE: Final = "Close"
_A_KEEP: Final = "a number of runs of each job, like 10, or a time, like 30d"


@dataclass(frozen=True, slots=True)
class Retention:
    """Says how much to keep of what is not needed: ``runs`` of each job, or what is younger than
    ``seconds``.
    """

    runs: int | None = None
    seconds: Seconds | None = None

    @classmethod
    def parse(cls, text: str) -> Retention:
        """Reads "10" or "30d". Raises UsageError."""
        if re.fullmatch(r"\d{1,9}", text):
            return cls(runs=int(text))
        try:
            return cls(seconds=parse_duration(text))
        except ValueError:
            raise UsageError(f"--keep: found {text!r}, expected {_A_KEEP}") from None


@dataclass(frozen=True, slots=True)
class FreedItem:
    """Describes one thing to free. ``what``: "input" or "run"; ``loses``: what goes with it and is nowhere
    else.
    """

    what: str
    name: str
    size_bytes: int
    why: str
    loses: str
    run: Run | None = None
    key: str | None = None


def find_unneeded(root: Path, keep: Retention | None) -> tuple[list[FreedItem], list[str]]:
    """Returns what can be freed below ``root``, and what cannot be read and is therefore left.

    ``keep`` None: no records, and every input that no unfinished run uses.
    """
    every = (RunStore(root), RunStore(root / "replays"))
    unreadable: list[str] = []
    old = [] if keep is None else list(_old_runs(every, keep, unreadable))
    return [*_unneeded_inputs(every, keep, old), *old], unreadable


def free_unneeded(root: Path, found: Iterable[FreedItem]) -> Iterator[FreedItem]:
    """Frees each that is still not needed, and yields it when it is gone."""
    for one in found:
        gone = _remove_run(one.run) if one.run is not None else _remove_input(root, one)
        if gone:
            yield one


def size_of(folder: Path) -> int:
    """Returns bytes of the files below ``folder``; files that vanish meanwhile count nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
    return total


# ---- inputs --------------------------------------------------------------------------------------


def _unneeded_inputs(
    every: Iterable[RunStore], keep: Retention | None, old: Iterable[FreedItem]
) -> Iterator[FreedItem]:
    leaving = {one.run for one in old}
    for runs in every:
        store, needed = InputStore(runs.root), _claimed_keys(runs)
        recent = {} if keep is None else _claimed_keys(runs, finished=True, but=leaving)
        for kept in store.list_inputs():
            young = (
                keep is not None and keep.seconds is not None and wall_clock() - kept.used_at < keep.seconds
            )
            if (
                kept.key in needed
                or young
                or (keep is not None and keep.seconds is None and kept.key in recent)
            ):
                continue
            why = f"no run uses it; last used {_format_age(wall_clock() - kept.used_at)}"
            yield FreedItem("input", kept.data, kept.size_bytes, why, "", key=kept.key)
        for folder in store.leftover_folders():
            why = "left by a process that was killed"
            yield FreedItem("input", folder.name, size_of(folder), why, "", key=folder.stem)


def _claimed_keys(runs: RunStore, *, finished: bool = False, but: Iterable[Run | None] = ()) -> set[str]:
    """Returns the keys that unfinished runs have claimed; with ``finished`` those of finished ones, too."""
    found = set()
    for claim in runs.root.glob(f"jobs/*/*/{CLAIM}"):
        run = Run(claim.parent)
        if run not in but and (finished or _is_needed(run)):
            found.add(claim_of(run.folder) or "")
    return found


def _remove_input(root: Path, one: FreedItem) -> bool:
    key = one.key or ""
    for runs in (RunStore(root), RunStore(root / "replays")):
        if any((runs.root / "inputs").glob(f"{key}*")):
            return InputStore(runs.root).remove_input(key, partial(_is_claimed, runs, key))
    return False


def _is_claimed(runs: RunStore, key: str) -> bool:
    return key in _claimed_keys(runs)


# ---- records -------------------------------------------------------------------------------------


def _old_runs(every: Iterable[RunStore], keep: Retention, unreadable: list[str]) -> Iterator[FreedItem]:
    for runs in every:
        queues: dict[str, bool] = {}
        by_job: dict[str, list[Run]] = {}
        for run in runs.list_runs():
            by_job.setdefault(run.name, []).append(run)
        for of_job in by_job.values():
            for place, run in enumerate(reversed(of_job)):
                try:
                    why = _why_old(run, place, keep, queues)
                except LedgerError as error:
                    unreadable.append(f"{run.name}/{run.id}: {error}")
                    continue
                if why:
                    yield FreedItem(
                        "run", f"{run.name}/{run.id}", size_of(run.folder), why, _describe_loss(run), run=run
                    )


def _why_old(run: Run, place: int, keep: Retention, queues: dict[str, bool]) -> str:
    """Returns why a run need not be kept; "" where it must be. ``place``: how many of its job began later."""
    if keep.runs is not None and place < keep.runs:
        return ""
    ledger = run.open_ledger()
    try:
        last = ledger.last_entry_times()
    finally:
        ledger.close()
    age_s = 0.0 if last is None else wall_clock() - last[1]
    if keep.seconds is not None and age_s < keep.seconds:
        return ""
    if _is_needed(run) or _of_unfinished_queue(run, queues):
        return ""
    if live_instances(LeftMachines(run.training_folder)):
        return ""
    return f"ended {_format_age(age_s)}"


def _format_age(seconds: float) -> str:
    """Formats an age, like "3 days ago"."""
    days = int(seconds / _DAY_S)
    return "less than a day ago" if days < 1 else f"{days} day{'s' if days > 1 else ''} ago"


def _is_needed(run: Run) -> bool:
    """Tells whether a run can be resumed, or a process works with it now. One that cannot be read may be."""
    if is_held(run.scoring_lock):
        return True
    try:
        ledger = run.open_ledger()
    except LedgerError:
        return run.ledger_path.exists() or run.is_live()
    try:
        return not ledger.has_entry(_CLOSE)
    except LedgerError:
        return True
    finally:
        ledger.close()


def _of_unfinished_queue(run: Run, queues: dict[str, bool]) -> bool:
    queue = settings_of(run).queue
    if queue is None:
        return False
    if queue not in queues:
        try:
            queues[queue] = QueueFolder(queue, run.folder.parents[2]).unfinished_run() is not None
        except SpotctlError:
            queues[queue] = True
    return queues[queue]


def _describe_loss(run: Run) -> str:
    """Returns what would be lost for good: a model or a checkpoint that is stored nowhere else."""
    if (run.folder / "model.npz").exists():
        return "its model, which could not be written to its output"
    if (run.folder / "checkpoints").is_dir():
        return "its checkpoints, which are kept with the record"
    return ""


def _remove_run(run: Run | None) -> bool:
    """Removes a record, its ledger first, so that no process finds half of one; with the last one its job."""
    assert run is not None
    if _is_needed(run):
        return False
    run.ledger_path.unlink(missing_ok=True)
    shutil.rmtree(run.folder)
    with suppress(JobLocked), RunStore(run.folder.parents[2]).lock_job(run.name):
        pass  # whoever lets go of the lock removes the folder of a job without runs
    return True
