"""Draws docs/state-machines.md from the tables that spotctl and the elasticity controller run by.

``python -m tests.docs.state_machines`` writes it; a test fails while it is not what the tables say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from agileml.controller.cluster import PHASE_EDGES, TrainingPhase
from agileml.controller.invariants import INVARIANTS
from agileml.controller.placement.ownership import EDGES
from agileml.controller.stages import PLACEMENTS
from agileml.controller.state_machine import CLOCK_RULES, HANDLERS, RULES, Rule
from spotctl.control.lifecycle import list_transitions

State = TypeVar("State", bound=StrEnum)

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "state-machines.md"

_HEAD = """# State machines of elastic training

Generated from the tables in `agileml` and, of machines, in `spotctl/control/lifecycle.py`, by
`python -m tests.docs.state_machines`; edit those. B is the clock that every backup holds.
"""


def page() -> str:
    sections = [_HEAD, _stages(), _phases(), _rules(), _partitions(), _invariants(), _machine()]
    return "\n".join(sections)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _diagram(edges: Mapping[tuple[State, State], str]) -> str:
    return _drawn((old, new, why) for (old, new), why in edges.items())


def _drawn(edges: Iterable[tuple[str, str, str]]) -> str:
    """From, to and why of each."""
    arrows = "".join(f"    {old} --> {new}: {why}\n" for old, new, why in edges)
    return f"```mermaid\nstateDiagram-v2\n{arrows}```\n"


def _stages() -> str:
    rows = (
        (
            stage.value,
            placement.served_on.value,
            "reliable" if placement.backed_up else "none",
            ", ".join(sorted(placement.computing)),
        )
        for stage, placement in PLACEMENTS.items()
    )
    return "## Stages\n\n" + _table(("stage", "served on", "backups on", "workers compute on"), rows)


def _phases() -> str:
    events = sorted(HANDLERS[TrainingPhase.FAILED], key=lambda event: event.__name__)
    rows = ((event.__name__, *(_handler(phase, event) for phase in TrainingPhase)) for event in events)
    return (
        "## The job\n\n"
        + _diagram(PHASE_EDGES)
        + "\nWhat handles an event; a dash where it comes too late to matter.\n\n"
        + _table(("event", *TrainingPhase), rows)
    )


def _handler(phase: TrainingPhase, event: type) -> str:
    handler = HANDLERS[phase].get(event)
    if handler is None:
        return "impossible"
    return "-" if handler.__name__.startswith("_") else f"`{handler.__name__}`"


def _rules() -> str:
    rows = [(phase.value, _in_order(RULES[phase])) for phase in TrainingPhase if RULES[phase]]
    rows.append(("training, after a clock", _in_order(CLOCK_RULES)))
    every = {rule.__name__: rule for rules in RULES.values() for rule in rules}
    meaning = "".join(f"- `{name}`: {(rule.__doc__ or '').splitlines()[0]}\n" for name, rule in every.items())
    return (
        "## What follows from an event\n\nAfter its handler, the rules of the phase, in order:\n\n"
        + _table(("phase", "rules"), rows)
        + f"\n{meaning}"
    )


def _in_order(rules: Iterable[Rule]) -> str:
    return ", ".join(f"`{rule.__name__}`" for rule in rules)


def _partitions() -> str:
    return "## A partition\n\n" + _diagram(EDGES)


def _machine() -> str:
    return "## A machine, in spotctl's record\n\n" + _drawn(list_transitions())


def _invariants() -> str:
    return "## Invariants\n\n" + "".join(f"{number}. {text}\n" for number, text in INVARIANTS.items())


if __name__ == "__main__":
    PAGE.write_text(page())
