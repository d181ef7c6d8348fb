"""Whole queues in virtual time: quotas, money and promises hold, bills add up, and a restart changes
nothing.
"""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bidbrain.cluster.policies.registry import MENU
from spotctl.control import entries as e
from spotctl.records.run import RunStore
from tests.scenarios.support.market import SPIKE, ZONES, Step
from tests.spotctl.build import is_command
from tests.spotctl.queue.build import (
    Crash,
    Queue,
    Watching,
    command,
    elastic,
    entries_of,
    most_at_once,
    owed,
    queue,
)


def spikes(chance: random.Random) -> list[Step]:
    """In every zone now and then a few minutes above all bids."""
    found: list[Step] = []
    for zone in ZONES:
        at = 0
        for _ in range(chance.randrange(6)):
            at += chance.randrange(600, 7200)
            found += [(zone, at, SPIKE), (zone, at + 300, 0.04)]
            at += 300
    return found


def random_queue(seed: int, folder: Path) -> Queue:
    chance = random.Random(seed)
    jobs = []
    for number in range(chance.randrange(2, 5)):
        name = f"j{number}"
        if chance.random() < 0.6:
            text = command(folder, name, chance.randrange(5, 25), chance.randrange(10, 90))
        else:
            text = elastic(folder, name, chance.randrange(5, 25), chance.randrange(2, 5))
        more = [f"weight: {chance.choice([1, 2, 3])}", f"entity: {chance.choice('xy')}"]
        if chance.random() < 0.5:
            more += [f"deadline: {chance.randrange(60, 400)}m", "best_effort: true"]
        elif number and chance.random() < 0.3:
            more.append("after: [j0]")
        jobs.append((text, ", ".join(more)))
    policy = chance.choice(sorted(set(MENU) - {"makespan-within"}))
    head = [f"policy: {policy}", f"round: {chance.choice([6, 10, 20])}m"]
    head.append(f"quotas: {{c4.xlarge: {chance.randrange(1, 6)}, m4.large: {chance.randrange(1, 4)}}}")
    if chance.random() < 0.4:
        head.append(f"budget: {chance.uniform(0.5, 6):.2f}")
    return queue(folder, "\n".join(head), jobs, spikes(chance), chance.choice(["aws-2016", "aws"]))


def check(of: Queue, final: dict[str, Any], watching: Watching) -> None:
    """What must hold of any queue that has ended."""
    spec = of.settings.spec
    ledgers = entries_of(watching.runs)
    for kind, most in most_at_once(ledgers).items():
        assert most <= spec.quotas[kind], f"{most} x {kind} at once"
    total = Decimal(0)
    for job in final["jobs"]:
        if job["run"] is None:
            continue
        total += Decimal(job["cost"]["total"])
        if of.rules == "aws-2016":
            assert Decimal(job["cost"]["total"]) == owed(ledgers[job["job"]], of.prices)
        assert not job["promised"] or job["exit_code"] == 0, f"{job['job']}: {job['why']}"
    assert Decimal(final["cost"]["total"]) == total
    assert spec.budget is None or total <= Decimal(spec.budget) / 1_000_000
    assert {job["job"] for job in final["jobs"]} == {member.name for member in spec.jobs}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(60 if metafunc.config.getoption("--campaign") else 6))


def test_whatever_is_queued_quotas_money_and_promises_hold(seed: int, tmp_path: Path) -> None:
    of, watching = random_queue(seed, tmp_path), Watching()
    check(of, of.run(watching), watching)


def test_a_restart_at_any_moment_changes_nothing(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, undisturbed = random_queue(seed, tmp_path), Watching()
    before = of.run(undisturbed)
    known = entries_of(undisturbed.runs)
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "again"))
    first = Watching(dies_after=random.Random(seed).randrange(10, undisturbed.seen))
    with pytest.raises(Crash):
        of.run(first)
    after = of.go_on(second := Watching())
    second.runs = {**first.runs, **second.runs}
    check(of, after, second)
    again = entries_of(second.runs)
    for name, entries in known.items():
        commands = [entry for entry in entries if is_command(entry) and not isinstance(entry, e.WakeAt)]
        assert [x for x in again[name] if is_command(x) and not isinstance(x, e.WakeAt)] == commands, name
    assert after["cost"] == before["cost"]
    assert len(RunStore(tmp_path / "again" / "replays").list_runs()) == len(known), "nothing was begun twice"
