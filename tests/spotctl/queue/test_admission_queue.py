"""Who comes to a queue with a run of its own that was begun, and not yet in the queue's journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.job.choices import WorldKind
from spotctl.queue.allocation.quotas import Pools
from spotctl.queue.lifecycle.admission_queue import AdmissionQueue, Arrival, QueueCapacity, Refusal
from spotctl.queue.lifecycle.job_locks import JobLocks
from spotctl.queue.lifecycle.run_queue import with_start
from spotctl.queue.spec import QueueSettings
from spotctl.records.run import RunStore
from spotctl.session.open import create_run
from tests.scenarios.support.market import START
from tests.spotctl.queue.build import Watching, command, queue


@pytest.mark.parametrize("deadline", ["", "deadline: 10h"])
def test_a_run_that_was_begun_and_not_yet_noted_is_gone_on_with(deadline: str, tmp_path: Path) -> None:
    settings, arrivals = begun(tmp_path, deadline)
    with JobLocks(RunStore()) as claims:
        (again,) = arrivals(settings, claims).admit_each(
            [settings.spec.jobs[0]], QueueCapacity(START, {}, None)
        )
        assert isinstance(again, Arrival)
        assert again.unfinished is not None
        assert again.unfinished.run == RunStore().find_run("a")
        assert again.judgement.is_promised == bool(deadline)


def test_a_run_that_was_begun_under_a_promise_that_cannot_be_made_now_is_not_gone_on_with(
    tmp_path: Path,
) -> None:
    settings, arrivals = begun(tmp_path, "deadline: 10h, best_effort: true")
    with JobLocks(RunStore()) as claims:
        (refusal,) = arrivals(settings, claims).admit_each(
            [settings.spec.jobs[0]], QueueCapacity(START, {"c4.xlarge": 2}, None)
        )
        assert isinstance(refusal, Refusal)
        assert "promised something else" in str(refusal.error)
        assert "spotctl down a" in str(refusal.error)
        with RunStore().lock_job("a"):
            """Nobody runs it."""


def begun(
    folder: Path, more: str
) -> tuple[QueueSettings, Callable[[QueueSettings, JobLocks], AdmissionQueue]]:
    """A local queue whose process died right after it had put the beginning of a on record. ``more``: what
    the queue's file says of a.
    """
    head = "name: night\nround: 6m\nquotas: {c4.xlarge: 2}"
    settings = queue(folder, head, [(command(folder, "a", steps=4, takes=10), more)]).settings
    options = replace(settings.options, world=WorldKind.LOCAL)
    settings = with_start(replace(settings, options=options), START)

    def arrivals(settings: QueueSettings, claims: JobLocks) -> AdmissionQueue:
        return AdmissionQueue(settings, Pools(settings.spec.quotas), claims)

    with JobLocks(RunStore()) as claims:
        (first,) = arrivals(settings, claims).admit_each(
            [settings.spec.jobs[0]], QueueCapacity(START, {}, None)
        )
        assert isinstance(first, Arrival)
        create_run(claims.runs, first.settings, first.resolved, Watching()).ledger.close()
    return settings, arrivals
