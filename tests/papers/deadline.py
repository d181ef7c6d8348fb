"""The deadline benchmark of "Can't Be Late" (Wu et al., NSDI 2024), on recorded spells of availability.

48 h of work by 52 or 70 h, 180 or 720 s of overhead per start, on-demand at 3.06 $/h and spot at
0.9731 $/h, ticks of 600 s that are paid in full. The policy's prior was chosen on the campaign of probes
of 2022 (the ``train`` zones) and is judged on that of 2023 (``report``): later, and other zones. Windows
are evenly spaced over each trace.

``saved_dollars`` is the share of the possible saving, (on-demand - cost) / (on-demand - clairvoyant). The
column ``hindsight`` is the same dynamic program told the hazards by age that its zone will show in the whole
trace: what knowing them beforehand would be worth, not a policy that could run.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.deadline import baselines, oracle
from bidbrain.deadline.availability_belief import LomaxLaw, SpellPrior
from bidbrain.deadline.benchmark import BenchmarkRuns, Rule, cut_windows, simulate_rule
from bidbrain.deadline.least_cost import LeastCost
from bidbrain.deadline.model import DeadlineJob
from bidbrain.deadline.value_iteration import AGE_CLASSES, CostToGo
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour
from tests.papers.protocols.availability import Trace, traces

TICK_S = 600
WORK_H = 48
DEADLINES_H = (52, 70)
OVERHEADS_S = (180, 720)
TRAIN, REPORT = "aws-10-26-2022", "aws-02-15-2023"
_TOLD = SpellPrior((LomaxLaw(1.0, Seconds(TICK_S)),), Seconds(HOUR_S))
"""For the told hazards: one pair of laws, so that there is nothing to learn."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One zone and variant."""

    zone: str
    job: DeadlineJob
    runs: dict[str, BenchmarkRuns]
    clairvoyant: Floats

    @property
    def possible_saving(self) -> float:
        """Dollars per job between on-demand and the clairvoyant optimum."""
        return self.cost("on-demand") - float(self.clairvoyant.mean())

    def cost(self, rule: str) -> float:
        """Mean dollars per job."""
        return float(self.runs[rule].cost.mean())

    def saved_dollars(self, rule: str) -> float:
        """Mean dollars per job below on-demand."""
        return self.cost("on-demand") - self.cost(rule)


def variants() -> list[DeadlineJob]:
    """Two deadlines by two overheads."""
    return [
        DeadlineJob(
            work_s=Seconds(WORK_H * HOUR_S),
            deadline_s=Seconds(deadline_h * HOUR_S),
            overhead_s=Seconds(overhead_s),
            tick_s=Seconds(TICK_S),
            spot=UsdPerHour(0.9731),
            on_demand=UsdPerHour(3.06),
        )
        for deadline_h in DEADLINES_H
        for overhead_s in OVERHEADS_S
    ]


def run(zones: list[Trace], count: int) -> list[Case]:
    """Every zone in every variant, on at most ``count`` windows each."""
    return [case for job in variants() for case in _variant(job, zones, count)]


def _variant(job: DeadlineJob, zones: list[Trace], count: int) -> list[Case]:
    """All zones go through the simulator together, but for the rule that is told its zone's hazards."""
    cuts = [cut_windows(zone.up, job.tick_count, count) for zone in zones]
    up = np.concatenate(cuts)
    ends = np.cumsum([len(cut) for cut in cuts])
    runs = {name: simulate_rule(job, up, rule) for name, rule in _rules(job).items()}
    clairvoyant = oracle.least_costs(job, up)
    cases = []
    for zone, cut, end in zip(zones, cuts, ends.tolist(), strict=True):
        rows = slice(end - len(cut), end)
        of_zone = {name: of_all.select(rows) for name, of_all in runs.items()}
        told = LeastCost(job, CostToGo.from_hazards(job, TICK_S, hazards_by_age(zone.up)[None]))
        of_zone["hindsight"] = simulate_rule(job, cut, told.cheapest_machines, _TOLD)
        cases.append(Case(zone.name, job, of_zone, clairvoyant[rows]))
    return cases


def _rules(job: DeadlineJob) -> dict[str, Rule]:
    return {
        "on-demand": baselines.on_demand_rule,
        "greedy": baselines.greedy_rule(job),
        "time-sliced": baselines.time_sliced_rule(job),
        "uniform progress": baselines.uniform_progress_rule(job),
        "uniform progress, spot first": baselines.uniform_progress_rule(job, spot_first=True),
        "least cost": LeastCost.for_job(job).cheapest_machines,
    }


def hazards_by_age(up: Flags) -> Floats:
    """Share of spells that end within a tick, by side and age class; shape (2, A), up side first.

    Shrunk towards the side's mean as by three more ticks of watching.
    """
    borders = np.flatnonzero(np.diff(up)) + 1
    begins = np.concatenate([[0], borders])
    age = np.arange(len(up)) - np.repeat(begins, np.diff(begins, append=len(up)))
    at = np.searchsorted(AGE_CLASSES, age[:-1], side="right") - 1
    ended = up[1:] != up[:-1]
    hazards = np.empty((2, len(AGE_CLASSES)))
    for side, of in enumerate((up[:-1], ~up[:-1])):
        watched = np.bincount(at[of], minlength=len(AGE_CLASSES))
        ends = np.bincount(at[of], weights=ended[of], minlength=len(AGE_CLASSES))
        mean = ends.sum() / max(watched.sum(), 1)
        hazards[side] = (ends + 3 * mean) / (watched + 3)
    return hazards


def saved_share(cases: list[Case], rule: str) -> float:
    """Pooled in dollars: what ``rule`` saves of what is possible."""
    return sum(case.saved_dollars(rule) for case in cases) / sum(case.possible_saving for case in cases)


def report(cases: list[Case]) -> None:
    """Print a line per zone and variant, then the means."""
    rules = list(cases[0].runs)
    print("mean $ per job (starts per job); 'saved' is least cost's, of the possible")
    head = "".join(f"{rule.replace('uniform progress', 'UP'):>17}" for rule in rules)
    print(f"{'zone':23} {'by':>3} {'d':>4}{head}{'clairvoyant':>13}{'saved':>8}{'late':>6}")
    for case in cases:
        ours = case.runs["least cost"]
        cells = "".join(f"{case.cost(rule):9.1f} ({case.runs[rule].starts.mean():5.1f})" for rule in rules)
        print(
            f"{case.zone:23} {case.job.deadline_s / HOUR_S:2.0f}h {case.job.overhead_s:3.0f}s{cells}"
            f"{case.clairvoyant.mean():13.1f}{case.saved_dollars('least cost') / case.possible_saving:8.1%}"
            f"{int(ours.late.sum()):6d}"
        )
    print()
    for rule in rules:
        mean = np.mean([case.cost(rule) for case in cases])
        starts = np.mean([case.runs[rule].starts.mean() for case in cases])
        late = sum(int(case.runs[rule].late.sum()) for case in cases)
        share = saved_share(cases, rule)
        print(f"{rule:30} {mean:6.1f} $  {starts:5.1f} starts  {share:6.1%} of the possible  {late} late")
    print(f"{'clairvoyant':30} {np.mean([case.clairvoyant.mean() for case in cases]):6.1f} $")


def choose_traces(data: Path, which: str) -> list[Trace]:
    """The traces of ``train``, ``report`` or ``all`` zones."""
    campaigns = {"train": (TRAIN,), "report": (REPORT,), "all": (TRAIN, REPORT)}[which]
    return [trace for trace in traces(data, TICK_S) if trace.campaign in campaigns]


def main() -> None:
    """``python -m tests.papers deadline``: the table, and the pooled means."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers deadline")
    parser.add_argument("name", choices=["deadline"])
    parser.add_argument("--zones", choices=["train", "report", "all"], default="report")
    parser.add_argument("--windows", type=int, default=60, help="per zone and variant, evenly spaced")
    parser.add_argument("--seed", type=int, default=0, help="nothing here is drawn; printed for the record")
    asked = parser.parse_args()
    data = Path(os.environ.get("SPOTCTL_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
    print(
        f"seed {asked.seed}; {asked.windows} evenly spaced windows per zone and variant, {asked.zones} zones"
    )
    report(run(choose_traces(data, asked.zones), asked.windows))
