"""Machines that nobody answers for: they run, but no process runs their job. An orphan is a bill.

The machines of this version are processes on this computer; what a cloud's tags are there, the run's
folder is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agileml.node.hosts.local import LocalHost
from spotctl.control.entries import Ask
from spotctl.errors import NothingToDo, SpotctlError
from spotctl.records.run import Run, Runs
from spotctl.session.launch import Observer, end


@dataclass(frozen=True, slots=True)
class Orphans:
    """A run that nobody works on, and its machines that are still there."""

    run: Run
    machines: tuple[str, ...]


def orphans(runs: Runs) -> Iterator[Orphans]:
    """All of them. Only the newest run of a job can be the one that the job's process works on."""
    newest = {run.name: run for run in runs.all()}
    for run in runs.all():
        left = LocalHost(run.training).alive_machines() if run.machines.is_dir() else []
        if left and not (run == newest[run.name] and run.is_live()):
            yield Orphans(run, tuple(left))


def take_down(found: Iterable[Orphans], observer: Observer) -> list[str]:
    """End them. Where their run is still open it is closed properly, so that its bill ends too.

    Returns what is wrong with bills that could not be closed; their machines have ended all the same.
    """
    failures = []
    for orphaned in found:
        try:
            _take_down(orphaned.run, observer)
        except (SpotctlError, OSError) as error:  # the others are to go all the same
            failures.append(f"{orphaned.run.name}: {error}")
    return failures


def _take_down(run: Run, observer: Observer) -> None:
    try:
        end(run, Ask.DOWN, observer)
    except NothingToDo:  # its bill had ended before
        LocalHost(run.training).kill_all()
