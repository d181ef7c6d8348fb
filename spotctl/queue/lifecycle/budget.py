"""Accounts for a queue's budget: what ended jobs owe, what promises reserve, what is left for a round."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from pricing_data.model.units import MicroUsd
from spotctl.control.billing import certain_cost
from spotctl.queue.lifecycle.journal import QueueJournal
from spotctl.queue.lifecycle.open_job import OpenJob


class QueueBudget:
    """Accounts for a budget of ``limit`` micro-dollars; None: no limit. ``jobs``: the open jobs, by name."""

    def __init__(self, limit: MicroUsd | None, jobs: Mapping[str, OpenJob], journal: QueueJournal) -> None:
        self.limit = limit
        self._jobs = jobs
        self._journal = journal
        self._spent = MicroUsd(0)
        """What ended jobs owe."""

    def charge(self, cost: MicroUsd) -> None:
        """Adds what an ended job owes."""
        self._spent = MicroUsd(self._spent + cost)

    def uncommitted(self) -> MicroUsd | None:
        """Returns what neither ended jobs owe nor promises reserve; None without a limit."""
        if self.limit is None:
            return None
        # The whole allowance of an open promised job stays reserved, however little it has spent: the promise
        # holds to the end. Once it ends, ``charge`` takes what it owes, and the rest is free.
        entered = self._journal.record.entered
        reserved = sum(entered[name].allowance or 0 for name, job in self._jobs.items() if job.is_promised)
        return MicroUsd(self.limit - self._spent - reserved)

    def left_for_unpromised(self) -> float:
        """Returns what is left for the jobs without a promise; infinity without a limit."""
        money = self.uncommitted()
        if money is None:
            return inf
        # Promised jobs pay from their reserves, which ``uncommitted`` has deducted.
        owed = sum(certain_cost(job.state) for job in self._jobs.values() if not job.is_promised)
        return float(money) - owed

    def left(self) -> float:
        """Returns what no job owes yet, reserved or not; infinity without a limit."""
        if self.limit is None:
            return inf
        return float(self.limit) - self._spent - sum(certain_cost(job.state) for job in self._jobs.values())
