"""Which jobs may begin now, and what is promised to them: for a plan, a start, and every round. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pricing_data.model.units import MicroUsd
from spotctl.control.state import State
from spotctl.errors import DeadlineInfeasible, UsageError
from spotctl.queue.allocation.deadline_admission import Promised, allowances, judge_all
from spotctl.queue.allocation.quotas import Pools, impossible
from spotctl.queue.spec import Member


@dataclass(frozen=True, slots=True)
class Admission:
    """``judged``: every job that was asked about; ``allowances``: what those may spend that were promised
    their deadline.
    """

    judged: Mapping[str, Promised]
    allowances: Mapping[str, MicroUsd | None]
    refused: Mapping[str, str]
    """Jobs whose deadlines cannot be promised and must be, with the reasons."""
    never: Mapping[str, str]
    """Jobs that the quotas can never hold, with the reasons."""

    def check(self, queue: str) -> None:
        """Raises DeadlineInfeasible or UsageError where one of the jobs keeps the queue from starting."""
        if self.refused:
            raise DeadlineInfeasible(
                f"{queue}: nothing was started. Deadlines that cannot be promised: {_told(self.refused)}. "
                "Allow more time, machines or money, or say best_effort: true"
            )
        if self.never:
            raise UsageError(
                f"{queue}: nothing was started. Jobs that the quotas can never hold: {_told(self.never)}"
            )


def admission(
    members: Sequence[Member],
    states: Mapping[str, State],
    pools: Pools,
    taken: Mapping[str, int],
    money: MicroUsd | None,
) -> Admission:
    """``states``: of each member before anything happened. ``taken``: machines by pool that are reserved for
    others; ``money``: what is not put aside for others, None without a budget.
    """
    judged = judge_all(states, pools, taken, money)
    made = {name: one for name, one in judged.items() if one.made}
    never = {name: impossible(state, pools) for name, state in states.items() if name not in made}
    return Admission(
        judged,
        allowances=allowances(made, money) if made else {},
        refused={m.name: why for m in members if (why := judged[m.name].why) and not m.best_effort},
        never={name: why for name, why in never.items() if why},
    )


def _told(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in reasons.items())
