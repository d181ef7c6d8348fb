"""Who comes to a running queue and does not fit is refused alone, whatever the policy; promises are kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bidbrain.cluster.policies.registry import MENU
from pricing_data.model.units import Seconds
from spotctl.control import entries as e
from spotctl.control.state import State
from spotctl.errors import DeadlineInfeasible
from spotctl.job.choices import WorldKind
from spotctl.job.file import load_job
from spotctl.job.spec import JobSpec
from spotctl.queue.lifecycle.journal import QueueFolder, root_of
from spotctl.queue.lifecycle.planning import plan_queue
from spotctl.queue.lifecycle.requests import Request
from spotctl.queue.spec import Member, member_text
from tests.scenarios.support.market import SPIKE, ZONES
from tests.spotctl.queue.build import Queue, Watching, command, elastic, queue

HOUR = 3600.0


@dataclass
class Adding(Watching):
    """Jobs are added as soon as a machine runs."""

    members: tuple[Member, ...] = ()
    why: dict[str, str] = field(default_factory=dict)

    def on_entry(self, state: State, entry: e.Entry) -> None:
        super().on_entry(state, entry)
        if isinstance(entry, e.InstancesRunning):
            folder = QueueFolder("night", root_of(WorldKind.REPLAY))
            for member in self.members:
                folder.leave_request(Request(member.name, member_text(member)))
            self.members = ()

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        super().on_left(job, exit_code, why, final)
        self.why[job] = why


def night(folder: Path, policy: str) -> Queue:
    """a is promised its deadline; b is not. In the second hour spot machines are lost everywhere."""
    head = f"name: night\npolicy: {policy}\nround: 6m\nbudget: 9\nquotas: {{c4.xlarge: 2, m4.large: 1}}"
    jobs = [
        (command(folder, "a", steps=6, takes=90), "deadline: 3h, entity: x"),
        (command(folder, "b", steps=6, takes=60), "entity: y"),
    ]
    spikes = [step for zone in ZONES for step in ((zone, 4000, SPIKE), (zone, 5200, 0.04))]
    return queue(folder, f"{head}\nentities: {{x: 1, y: 2}}", jobs, spikes)


def newcomer(folder: Path, text: str, deadline_s: float | None = None) -> Member:
    file = folder / "newcomer.yaml"
    file.write_text(text)
    (folder / "ratings.csv").write_text("1,1,3.0\n")
    spec: JobSpec = load_job(file)
    deadline = None if deadline_s is None else Seconds(deadline_s)
    return Member(replace(spec, objective=replace(spec.objective, deadline=deadline)), entity="x")


def of(name: str) -> str:
    return "{name: makespan-within, budget: 2}" if name == "makespan-within" else name


@pytest.mark.parametrize("name", MENU)
def test_who_does_not_fit_is_refused_alone_with_what_would_have_to_give(name: str, tmp_path: Path) -> None:
    late = newcomer(tmp_path, command(tmp_path, "late", steps=6, takes=60), 600)
    fits = newcomer(tmp_path, command(tmp_path, "fits", steps=3, takes=30), 4 * HOUR)
    third = newcomer(tmp_path, command(tmp_path, "third", steps=3, takes=30), 2 * HOUR)
    text = elastic(tmp_path, "wide").replace("reliable: {", "reliable: {instances: 3, ")
    watching = Adding(members=(late, fits, third, newcomer(tmp_path, text)))
    final = night(tmp_path, of(name)).run(watching)
    assert watching.left == {"a": 0, "b": 0, "late": 6, "fits": 0, "third": 6, "wide": 2}
    assert {job["job"] for job in final["jobs"] if job["promised"]} == {"a", "fits"}
    gives = "Allow more time, machines or money, or add it with --best-effort"
    assert watching.why["late"].startswith("its deadline cannot be promised: with 1 x c4.xlarge on demand")
    assert watching.why["late"].endswith(gives)
    assert "(2 of 2 x c4.xlarge are kept for others)" in watching.why["third"]
    assert watching.why["wide"] == "it needs 3 reliable x m4.large, and the quota of those is 1"
    assert watching.troubles == []


def test_who_is_too_much_for_the_budget_of_a_policy_is_refused_alone(tmp_path: Path) -> None:
    watching = Adding(members=(newcomer(tmp_path, command(tmp_path, "long", steps=400, takes=24000)),))
    night(tmp_path, of("makespan-within")).run(watching)
    assert watching.left == {"a": 0, "b": 0, "long": 6}
    assert watching.why["long"].startswith(
        "makespan-within cannot take it in beside the others: all work costs"
    )
    assert "the budget is $2.000000" in watching.why["long"]
    assert watching.troubles == []


def test_a_budget_that_no_work_can_be_done_for_is_refused_with_the_least_that_would_do(
    tmp_path: Path,
) -> None:
    hopeless = night(tmp_path, "{name: makespan-within, budget: 0.01}")
    told = r"night: nothing was started\. makespan-within: all work costs at least \$0\.\d+ .* Allow as much"
    with pytest.raises(DeadlineInfeasible, match=told):
        plan_queue(hopeless.settings)


def test_jobs_go_on_and_it_is_said_once_where_a_policy_has_no_answer_any_more(tmp_path: Path) -> None:
    watching = Watching()
    night(tmp_path, "{name: makespan-within, budget: 0.01}").run(watching)
    assert watching.left == {"a": 0, "b": 0}
    (told,) = watching.troubles
    assert told.startswith("makespan-within: all work costs at least $")
    assert told.endswith("As long as that is so, machines are shared as by makespan")
