"""How a queue ends: what each job came to, and what all of them cost beside on-demand machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from spotctl.cli.format import output
from spotctl.cli.views import queue
from spotctl.control import entries as e
from spotctl.report.final import final_object
from tests.spotctl.cli.story import START, state_after


def ended(saved: float, died_of: str | None) -> str:
    failed = structs.replace(
        state_after(52),
        ending=structs.replace(
            state_after(52).ending,
            closed=e.Close(START, e.RunOutcome.FAILED, 1, "no reliable machine is left"),
        ),
    )
    job = final_object(failed, Path("ledger.db"), 8.0, 0, died_of)
    of_the_queue: dict[str, Any] = {
        "jobs": [{**job, "promised": False, "why_not_promised": None, "removed": False}],
        "cost": {**job["cost"], "on_demand_baseline": "1.000000"},
        "savings_fraction": saved,
        "not_compared": "0.239000",
        "held_seconds": 0.0,
        "sim_seconds": 60,
        "rounds": 1,
        "instances_left": 0,
    }
    return " ".join(output.render_text(queue.draw_end(of_the_queue)).split())


@pytest.mark.parametrize(("saved", "said"), [(0.425, "42.5% saved"), (-0.726, "cost 72.6% more")])
def test_what_was_not_saved_is_not_called_saved(saved: float, said: str) -> None:
    told = f"the cheaper way on demand $1.000000: {said}, leaving out $0.239000 of other jobs "
    assert told in ended(saved, None)


def test_a_job_that_failed_says_of_what() -> None:
    assert "no reliable machine is left; the worker of r1 died; `spotctl logs movies`" in ended(
        0.1, "the worker of r1 died"
    )
    assert "died" not in ended(0.1, None)
