"""How a launch ends: is what was saved said with what it is worth?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from pricing_data.model.units import MicroUsd, Seconds
from spotctl.cli.format import output
from spotctl.cli.views import end
from spotctl.control import entries as e
from spotctl.control.run_spec import Expectation
from spotctl.report.final import Score, final_object, with_score
from tests.spotctl.build import changed, random_trace, replay, terms
from tests.spotctl.cli.story import START, state_after


def final() -> dict[str, Any]:
    return final_object(state_after(52), Path("ledger.db"), 8.0, 0)


def lines(final: Mapping[str, Any]) -> str:
    return "\n".join(output.render_text(picture(final)) for picture in (end.draw_end, end.draw_quality))


def test_evictions_are_counted_with_their_machines() -> None:
    assert "1 eviction of 4 machines, 1 failure, 2 changes of stage" in lines(final())


def test_a_command_knows_no_stages_and_leaves_a_checkpoint() -> None:
    shown = lines({**final(), "engine": "command", "model": None})
    assert "changes of stage" not in shown
    assert "checkpoint          none: the program left no complete one" in shown
    assert "checkpoint          out/step-60" in lines(
        {**final(), "engine": "command", "model": "out/step-60"}
    )


def test_what_a_program_that_says_nothing_of_steps_did_twice_is_told_in_time() -> None:
    ended = {**final(), "engine": "command", "clocks_redone": 0}
    assert "60 steps, 0 computed twice" in lines({**ended, "clocks": 60, "seconds_redone": 0})
    shown = lines({**ended, "clocks": 60, "seconds_redone": 7260})
    assert "60 steps, its program lost 2:01:00 of work and restarted;" in shown
    both = lines({**ended, "clocks": 60, "clocks_redone": 4, "seconds_redone": 7260})
    assert "4 computed twice: its program lost 2:01:00 of work and restarted;" in both


def test_both_baselines_are_named_and_what_was_saved_is_beside_the_cheaper() -> None:
    ended = final()
    shown = lines(ended)
    assert f"as fast, on demand  ${ended['baselines']['as_fast']['cost']} for the same work by" in shown
    assert f"cheapest on demand  ${ended['baselines']['cheapest']['cost']} for the same work by" in shown
    saved = f"saved               {ended['savings_fraction']:.1%} against the cheapest way on demand"
    assert saved in shown


def test_a_baseline_that_keeps_no_deadline_says_so() -> None:
    state = state_after(52)
    assert "after the deadline" not in lines(final())
    late = structs.replace(state, terms=changed(state.terms, deadline_s=Seconds(60)))
    shown = lines(final_object(late, Path("ledger.db"), 8.0, 0))
    assert shown.count(", after the deadline") == 2


def test_refunds_are_told_where_there_were_any() -> None:
    ended = final()
    for amount, told in (("0.000000", False), ("0.336400", True)):
        shown = lines({**ended, "cost": {**ended["cost"], "refunded": amount}})
        assert (f"refunded            ${amount} for hours in which machines were evicted" in shown) is told


def test_what_cost_more_is_not_called_saved() -> None:
    shown = lines({**final(), "savings_fraction": -0.12})
    assert "not saved           cost 12.0% more than the cheapest way on demand" in shown


def test_the_plan_is_shown_beside_the_outcome_and_why_they_differ() -> None:
    plan = Expectation(MicroUsd(100_000), Seconds(1800.0), 0.2, 5)
    state = state_after(52)
    planned = structs.replace(state, terms=changed(state.terms, expected=plan))
    ended = final_object(planned, Path("ledger.db"), 8.0, 0, None)
    assert ended["plan"]["finish"] == "2016-06-05T14:30:00Z"
    shown = lines(ended)
    assert "planned             $0.100000 in 0:30:00, 0.2 evictions" in shown
    assert "actual              $0.239000 in 0:51:00, 1 eviction" in shown
    for why in (
        "because             $0.20 refunded; ",
        "1 clock computed twice",
        "3.4 machines worked on average, not 5",
    ):
        assert why in shown
    assert "planned" not in lines(final()), "nothing was on record"


def test_an_outcome_near_its_plan_needs_no_reason() -> None:
    plan = Expectation(MicroUsd(239_000), Seconds(51 * 60.0), 1.0, 5)
    state = state_after(52)
    planned = structs.replace(state, terms=changed(state.terms, expected=plan))
    assert final_object(planned, Path("ledger.db"), 8.0, 0, None)["why_not_as_planned"] == []


def test_a_replay_goes_at_the_pace_that_on_demand_is_reckoned_with() -> None:
    state, _ = replay(terms(), random_trace(1))
    compared = final_object(state, Path("ledger.db"), 0.1, 0)["baseline"]
    assert compared["pace"] == pytest.approx(1.0, abs=0.1)


def test_what_training_reported_last_stands_in_for_a_score() -> None:
    assert "0.9134, the last that training reported" in lines(final())
    assert "not measured" in lines({**final(), "last_reported": None})
    assert "the last that training reported; saved model not scored: it is gone" in lines(
        {**final(), "not_scored": "it is gone"}
    )


def test_an_objective_that_is_no_number_is_said_to_be_at_fault() -> None:
    score = {"metric": "mse", "value": math.nan, "reference": None, "reference_name": None}
    assert "mse nan: training diverged" in lines({**final(), "objective": score})


@pytest.mark.parametrize(
    ("reference", "note", "said"),
    [
        (0.25, None, "rmse 0.3; ALS on the same data: 0.25"),
        (
            0.26,
            "after 7 sweeps: it is late",
            "rmse 0.3; ALS on the same data: 0.26 after 7 sweeps: it is late",
        ),
        (None, "not done: it is late", "rmse 0.3; ALS on the same data not done: it is late"),
    ],
)
def test_a_trusted_solver_that_had_not_converged_is_said_to(
    reference: float | None, note: str | None, said: str
) -> None:
    score = Score("rmse", 0.3, reference, "ALS", note)
    assert said in lines(with_score(final(), score)).splitlines()[-1]


def test_a_job_that_failed_says_what_its_processes_died_of() -> None:
    failed = structs.replace(
        state_after(52),
        ending=structs.replace(
            state_after(52).ending,
            closed=e.Close(START, e.RunOutcome.FAILED, 1, "no reliable machine is left"),
        ),
    )
    shown = lines(final_object(failed, Path("ledger.db"), 8.0, 0, "the worker of r1-1 died"))
    assert "because             the worker of r1-1 died; `spotctl logs movies` has it all" in shown
    assert "saved               not known: it failed" in shown
    assert "because" not in lines(final_object(failed, Path("ledger.db"), 8.0, 0))
    done = final_object(state_after(52), Path("ledger.db"), 8.0, 0, "the worker of s1-1 died")
    assert done["died_of"] is None, "it was done all the same"
