"""Replay a job over months of prices in a second: what would it have cost, and what did BidBrain decide?

Run it from the repository: ``python examples/01_replay_a_trace.py``. No process is started and nothing is
written; the prices are the bundled, generated ones.
"""

from __future__ import annotations

from pathlib import Path

from bidbrain.model import Action
from pricing_data.model.units import format_instant, format_micros
from spotctl.control import entries
from spotctl.control.drive import drive, start_run
from spotctl.control.state import State
from spotctl.job.file import load_job
from spotctl.job.resolve import PriceOptions, resolve_job
from spotctl.records.ledger import Ledger
from spotctl.report.fold import build_account
from spotctl.worlds.replay import replay_world


class Storyteller:
    """Prints the decisions that changed something."""

    def on_entry(self, _: State, entry: entries.Entry) -> None:
        if isinstance(entry, entries.Decided) and entry.decision.action is not Action.HOLD:
            print(format_instant(entry.at)[11:16], entry.decision.action.value, "-", entry.decision.why)


def main() -> None:
    spec = load_job(Path(__file__).with_name("quickstart.yaml"))
    resolved = resolve_job(spec, PriceOptions(), run="example", seed=spec.seed)
    ledger, observer = Ledger.in_memory(), Storyteller()

    begun = entries.JobStarted(resolved.terms.start, resolved.terms)
    state = start_run(begun, resolved.trace, ledger, observer)
    state = drive(state, replay_world(resolved, asks=lambda: ()).world, ledger, observer)

    money = build_account(state)
    assert state.ending.closed is not None
    assert money.baselines is not None
    print(
        f"{state.ending.closed.outcome.value}: {state.ending.closed.why}, at {resolved.terms.origin.prices}"
    )
    print(f"cost ${format_micros(money.spending.total)}, refunded ${format_micros(money.spending.refunded)}")
    for name, way in money.baselines.by_name.items():
        machines = f"{way.machines} x {way.market.instance_type}"
        print(f"on demand, {name}: ${format_micros(way.cost)} by {machines}")
    print(f"{state.recovery.evicted_allocations} evictions")


if __name__ == "__main__":
    main()
