"""The queue file: what it means, and what is said where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.errors import JobFileError, UsageError
from spotctl.queue.file import load_queue
from spotctl.queue.spec import (
    POLICY,
    ROUND_S,
    QueueOptions,
    QueueSettings,
    QueueSpec,
    member_text,
    parse_member,
)
from tests.spotctl.queue.build import command

ROOT = Path(__file__).parents[3]


def load(folder: Path, text: str) -> QueueSpec:
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(command(folder, name))
    (folder / "queue.yaml").write_text(text)
    return load_queue(folder / "queue.yaml")


def test_what_is_not_said_has_a_default(tmp_path: Path) -> None:
    spec = load(tmp_path, "jobs: [{job: a.yaml}]\n")
    assert (spec.name, spec.policy.name, spec.round_s) == ("queue", POLICY, ROUND_S)
    assert (spec.budget, spec.quotas) == (None, {})
    (member,) = spec.jobs
    assert (member.name, member.weight, member.best_effort, member.after) == ("a", 1.0, False, ())


def test_what_is_said_of_a_job_goes_before_its_own_file(tmp_path: Path) -> None:
    text = "jobs: [{job: a.yaml, name: mine, deadline: 3h, budget: 2, weight: 2, priority: 5}]\n"
    (member,) = load(tmp_path, text).jobs
    assert (member.name, member.weight, member.priority) == ("mine", 2.0, 5.0)
    assert (member.spec.objective.deadline, member.spec.objective.budget) == (10800.0, 2_000_000)


def test_a_policy_is_told_its_parameters(tmp_path: Path) -> None:
    spec = load(
        tmp_path, "policy: {name: hierarchical, inside: fifo, agnostic: true}\njobs: [{job: a.yaml}]\n"
    )
    assert (spec.policy.name, spec.policy.parameters) == (
        "hierarchical",
        {"inside": "fifo", "agnostic": True},
    )


def test_settings_and_members_come_back_from_the_record_as_they_were(tmp_path: Path) -> None:
    spec = load(tmp_path, "quotas: {c4.xlarge: 2}\njobs: [{job: a.yaml, after: [b]}, {job: b.yaml}]\n")
    settings = QueueSettings(spec, QueueOptions())
    assert QueueSettings.parse(settings.to_text()) == settings
    assert parse_member(member_text(spec.jobs[0])) == spec.jobs[0]


def test_the_example_is_one() -> None:
    spec = load_queue(ROOT / "examples" / "nightly_batch.yaml")
    assert {member.spec.engine.kind for member in spec.jobs} == {"agileml", "command"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("polisy: las\njobs: [{job: a.yaml}]", "1:1: polisy: unknown key"),
        ("polisy: las\njobs: [{job: a.yaml}]", "(did you mean policy?)"),
        ("policy: lass\njobs: [{job: a.yaml}]", "(did you mean las?)"),
        ("policy: {name: las, depth: 3}\njobs: [{job: a.yaml}]", "las does not take depth"),
        ("policy: {name: min-cost, least_share: 2}\njobs: [{job: a.yaml}]", "least_share: found 2.0"),
        ("policy: makespan-within\njobs: [{job: a.yaml}]", "budget: found None"),
        ("round: 6\njobs: [{job: a.yaml}]", "round: found '6', expected a duration with its unit"),
        ("quotas: {c4.xlarge: 0}\njobs: [{job: a.yaml}]", "quotas.c4.xlarge: found '0'"),
        ("quotas: {c4.xlarge: 2, c4.xlarge@us-east-1a: 1}\njobs: [{job: a.yaml}]", "counted twice"),
        ("jobs: []", "jobs: found an empty list"),
        ("name: x", "jobs: missing"),
        ("engine: command\nrun: python train.py", "found a job's file, expected a queue's"),
        ("jobs: [{job: a.yaml, wieght: 2}]", "(did you mean weight?)"),
        ("jobs: [{job: a.yaml}, {job: a.yaml}]", "found 2 jobs called a"),
        ("jobs: [{job: a.yaml, after: [c]}]", "a waits for c, which is no job here"),
        ("jobs: [{job: a.yaml, after: [b]}, {job: b.yaml, after: [a]}]", "a, b wait for each other"),
        ("jobs: [{job: a.yaml, after: [b], deadline: 2h}, {job: b.yaml}]", "cannot be promised"),
        ("jobs: [{job: none.yaml}]", "found 'none.yaml', but there is no file"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        load(tmp_path, text + "\n")
    assert said in str(refused.value)


def test_the_problems_of_a_job_file_are_told_with_that_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("name: c\nengin: command\n")
    with pytest.raises(JobFileError) as refused:
        load(tmp_path, "jobs: [{job: c.yaml}]\n")
    assert "c.yaml:2:1: engin: unknown key" in str(refused.value)
