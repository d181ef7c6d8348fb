"""Finds machines that no process answers for: they run, but no process runs their job, and each costs money.

The machines of this version are processes on this computer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spotctl.control.entries import UserRequest
from spotctl.errors import NothingToDo, SpotctlError
from spotctl.providers.base import live_instances
from spotctl.providers.local import LeftMachines
from spotctl.records.run import Run, RunStore
from spotctl.session.launch import LaunchObserver, end_run


@dataclass(frozen=True, slots=True)
class OrphanedRun:
    """Holds a run that no process works on, and its machines that still live."""

    run: Run
    machines: tuple[str, ...]


def find_orphans(runs: RunStore) -> Iterator[OrphanedRun]:
    """Yields all orphans. Only the newest run of a job can be the one that the job's process works on."""
    # The oldest run comes first, so the newest of each job stays.
    newest = {run.name: run for run in runs.list_runs()}
    for run in runs.list_runs():
        left = live_instances(LeftMachines(run.training_folder))
        # The lock belongs to the job: while it is held, older runs of the job are still unattended.
        if left and not (run == newest[run.name] and run.is_live()):
            yield OrphanedRun(run, left)


def release_orphans(found: Iterable[OrphanedRun], observer: LaunchObserver) -> list[str]:
    """Ends orphaned machines. If their run is still open it is closed properly, so that its bill ends too.

    Returns errors about bills that could not be closed; their machines have ended all the same.
    """
    failures = []
    for orphaned in found:
        try:
            _release_orphan(orphaned, observer)
        except (SpotctlError, OSError) as error:  # the others have to go all the same
            failures.append(f"{orphaned.run.name}: {error}")
    return failures


def _release_orphan(orphaned: OrphanedRun, observer: LaunchObserver) -> None:
    try:
        end_run(orphaned.run, UserRequest.DOWN, observer)
    except NothingToDo:  # its bill had ended before
        LeftMachines(orphaned.run.training_folder).terminate(orphaned.machines)
