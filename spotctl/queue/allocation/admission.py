"""Decides which jobs may begin now, and with what promises: for a plan, a start, and every round. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pricing_data.model.units import MicroUsd
from spotctl.control.state import State
from spotctl.errors import DeadlineInfeasible, UsageError
from spotctl.queue.allocation.deadline_admission import DeadlineVerdict, judge_deadlines, promise_allowances
from spotctl.queue.allocation.quotas import Pools, why_impossible
from spotctl.queue.spec import Member


@dataclass(frozen=True, slots=True)
class Admission:
    """Holds the verdict on several jobs.

    ``judged``: the verdict on each job; ``allowances``: what each job with a promised deadline may spend.
    """

    judged: Mapping[str, DeadlineVerdict]
    allowances: Mapping[str, MicroUsd | None]
    refused: Mapping[str, str]
    """Jobs whose deadlines must be promised and cannot be, with the reasons."""
    never: Mapping[str, str]
    """Jobs that the quotas can never hold, with the reasons."""

    def raise_if_refused(self, queue: str) -> None:
        """Raises DeadlineInfeasible or UsageError where one of the jobs keeps the queue from starting."""
        if self.refused:
            raise DeadlineInfeasible(
                f"{queue}: nothing was started. Deadlines that cannot be promised: "
                f"{_list_reasons(self.refused)}. "
                "Allow more time, machines or money, or say best_effort: true"
            )
        if self.never:
            raise UsageError(
                f"{queue}: nothing was started. Jobs that the quotas can never hold: "
                f"{_list_reasons(self.never)}"
            )


def decide_admission(
    members: Sequence[Member],
    states: Mapping[str, State],
    pools: Pools,
    taken: Mapping[str, int],
    money: MicroUsd | None,
) -> Admission:
    """Decides which of ``members`` may begin; ``states``: their opening states, by name.

    ``taken``: machines by pool that are reserved for other jobs; ``money``: what is not reserved for others,
    None without a budget.
    """
    judged = judge_deadlines(states, pools, taken, money)
    made = {name: one for name, one in judged.items() if one.is_promised}
    # A promise reserved its machines, so the quotas can hold that job.
    never = {name: why_impossible(state, pools) for name, state in states.items() if name not in made}
    return Admission(
        judged,
        allowances=promise_allowances(made, money) if made else {},
        refused={m.name: why for m in members if (why := judged[m.name].why) and not m.best_effort},
        never={name: why for name, why in never.items() if why},
    )


def _list_reasons(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in reasons.items())
