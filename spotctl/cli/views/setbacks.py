"""Warns, before a command starts, of the time and money that evictions would cost it."""

from __future__ import annotations

from typing import Any, Final

from pricing_data.model.units import to_micros
from spotctl.cli.format import event_text
from spotctl.session.eviction_setbacks import Setbacks, is_significant
from spotctl.session.launch_plan import JobPlan

_HARDLY_EVER: Final = 1000
"""Expected evictions above which a program hardly ever ends; their number would mislead."""


def setback_warnings(plan: JobPlan) -> list[str]:
    """Warns of a command that keeps nothing, or needs longer to begin than machines last."""
    found = plan.setbacks
    if found is None:
        return []
    lines = []
    if found.too_short_lived:
        lasts, needs = event_text.format_span(found.life_s), event_text.format_span(found.setup_s)
        lines += [
            f"most of the time would be spent on starting: a machine is expected to last {lasts}, and takes",
            f"  {needs} to boot and start (local.boot, scaling.sigma, checkpoint.restart);",
            "  allow other markets, or set objective: {strategy: on-demand}",
        ]
    if found.keeps is False:
        lines += [
            "the program keeps nothing (checkpoint: off), so an eviction restarts it from the beginning:",
            f"  {_describe_expected(found)};",
            "  let it write checkpoints (docs/command-jobs.md), or set objective: {strategy: on-demand}",
        ]
    elif found.keeps is None and is_significant(found, plan.ahead):
        lines += [
            "the job file does not mention checkpoints, so the plan assumes that the program writes them;",
            "  if the program keeps nothing, an eviction restarts it from the beginning:",
            f"  {_describe_expected(found)};",
            "  set checkpoint: {every: 10m} if it writes them, or checkpoint: off",
        ]
    return lines


def _describe_expected(found: Setbacks) -> str:
    lasts = f"a machine is expected to last {event_text.format_span(found.life_s)}"
    if found.evictions is None or found.anew_s is None or found.anew_cost is None:
        return lasts
    if found.evictions > _HARDLY_EVER:
        return f"{lasts}, so it would hardly ever finish"
    takes = (
        f"{event_text.format_span(found.anew_s)} and {event_text.format_money(to_micros(found.anew_cost))}"
    )
    return f"{lasts}; expect {found.evictions:.1f} evictions, {takes}"


def setback_fields(found: Setbacks | None) -> dict[str, Any] | None:
    """Returns the same for programs; None for an elastic job."""
    if found is None:
        return None
    return {
        "keeps_checkpoints": found.keeps,
        "life_seconds": event_text.finite_or_none(found.life_s),
        "setup_seconds": found.setup_s,
        "too_short_lived": found.too_short_lived,
        "evictions_if_anew": None if found.evictions is None else event_text.finite_or_none(found.evictions),
        "seconds_if_anew": None if found.anew_s is None else event_text.finite_or_none(found.anew_s),
        "cost_if_anew": None if found.anew_cost is None else event_text.format_estimate(found.anew_cost),
    }
