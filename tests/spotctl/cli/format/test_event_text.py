"""Does a person who watches understand what happened?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from bidbrain.model import Action, Decision
from pricing_data.model.market import MarketRules
from pricing_data.model.rules import AWS, AWS_2016
from pricing_data.model.units import MicroUsd
from spotctl.cli.format import event_text
from spotctl.control import entries as e
from tests.spotctl.cli.story import at, entries, state_after, told

STORY = """\
14:00 requested: 1 x m4.xlarge in us-east-1a, on-demand (r1)
14:00 granted: 1 x m4.xlarge in us-east-1a (r1); booting
14:01 running: 1 x m4.xlarge in us-east-1a (r1); billing starts
14:02 joined: 1 x m4.xlarge in us-east-1a (r1)
14:02 requested: 4 x c4.xlarge in us-east-1b, bid 0.052 (s1)
14:02 granted: 4 x c4.xlarge in us-east-1b (s1); booting
14:03 running: 4 x c4.xlarge in us-east-1b (s1); billing starts
14:04 joined: 4 x c4.xlarge in us-east-1b (s1)
14:04 stage 2: parameters live on spot machines, backed up on reliable ones; everybody computes
14:32 warned: 4 x c4.xlarge in us-east-1b (s1) will be evicted at 14:34 (price 0.31 > bid 0.052)
14:34 ended: 4 x c4.xlarge in us-east-1b (s1), evicted; $0.2000 refunded for the last hour
14:34 rolled back to clock 11: 1 clock is repeated
14:35 stage 1: parameters live on reliable machines; everybody computes
14:51 trained: 40 clocks done, model in /models/movies
14:51 released: 1 x m4.xlarge in us-east-1a (r1): the job is over
14:52 ended: 1 x m4.xlarge in us-east-1a (r1), released
14:52 the work is done"""


def test_a_run_is_told_in_plain_words_each_thing_once() -> None:
    lines = [
        f"{event_text.format_moment(entry.at)} {said}"
        for state, entry in told()
        if (said := event_text.describe_entry(state, entry))
    ]
    assert "\n".join(lines) == STORY


def test_news_of_the_rest_of_an_allocation_are_told_with_the_last_of_it() -> None:
    state = state_after(33)
    assert event_text.describe_entry(state, e.SafeToKill(at(33), "s1-2")) is None, "s1-3 is not safe yet"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            e.ControllerDown(at(1), at(9)),
            "spotctl was away for 0:08:00 of the prices' time, from 14:01 to 14:09; its machines were "
            "billed meanwhile",
        ),
        (
            e.ControllerDown(at(1), at(120), lapsed_at=at(61)),
            "spotctl was away for 1:59:00 of the prices' time, from 14:01 to 16:00; its machines ended "
            "at 15:01 with their lease",
        ),
        (e.Asked(at(1), e.UserRequest.CANCEL), "user request: end gracefully"),
        (e.Asked(at(1), e.UserRequest.DOWN), "user request: release all machines now"),
        (e.Stalled(at(1), "s1-0 joins", 2.04, done=True), None),
        (
            e.Stalled(at(1), "s1-0 joins", 2.04, done=False),
            "this computer is too slow for the speed: s1-0 joins took over 2.0 s",
        ),
        (
            e.MachineGivenUp(at(5), "s1-2"),
            "given up: 1 x c4.xlarge in us-east-1b (s1) hangs or cannot run the job",
        ),
        (
            e.ControllerSilent(at(5), "r1-0"),
            "given up: 1 x m4.xlarge in us-east-1a (r1) hangs, and the training's controller with it",
        ),
        (e.TrainingFailed(at(1), "no backup"), "training failed: no backup"),
        (e.WakeAt(at(1), at(2)), None),
        (
            e.RolledBack(at(1), 12, 0),
            "restored from backups as of clock 12: no completed clock is repeated",
        ),
        (e.RolledBack(at(1), 9, 3), "rolled back to clock 9: 3 clocks are repeated"),
    ],
)
def test_what_is_rarer(entry: e.Entry, said: str | None) -> None:
    assert event_text.describe_entry(state_after(5), entry) == said


def test_every_entry_is_either_told_or_left_out_on_purpose() -> None:
    """A new kind of entry must be thought of here."""
    silent = {"JobStarted", "PriceChanged", "Woke", "Progressed", "ObjectiveReported", "WakeAt"}
    silent |= {"TellJoin", "TellWarning", "TellLost", "TellReleased", "CheckpointStored"}
    kinds = {kind.__name__ for union in (e.Fact, e.Tell, e.Command) for kind in _members(union)}
    assert {kind.__name__ for kind in event_text.TELLERS} | silent == kinds


def _members(union: object) -> tuple[type, ...]:
    members: tuple[type, ...] = union.__args__  # type: ignore[attr-defined]
    return members


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-5, "0:00:00"), (59.2, "0:01:00"), (61, "0:01:01"), (3725, "1:02:05")]
)
def test_spans(seconds: float, shown: str) -> None:
    assert event_text.format_span(seconds) == shown


def test_money_for_people_has_four_decimals() -> None:
    assert event_text.format_money(MicroUsd(1_234_567_890)) == "$1,234.5679"


def test_the_story_is_long_enough_to_mean_something() -> None:
    assert len(entries()) > 25


@pytest.mark.parametrize(("parts", "said"), [("a", "a"), ("ab", "a and b"), ("abc", "a, b and c")])
def test_lists_have_commas_and_one_and(parts: str, said: str) -> None:
    assert event_text.join_list(list(parts)) == said


@pytest.mark.parametrize(("rules", "told"), [(AWS_2016, True), (AWS, False)])
def test_an_hour_is_kept_only_where_hours_are_billed(rules: MarketRules, told: bool) -> None:
    state = state_after(20)
    state = structs.replace(state, terms=replace(state.terms, rules=rules))
    kept = Decision(state.now, Action.RENEW, 1.0, "It is cheap.", (), 2, holding="s1")
    said = event_text.describe_entry(state, e.Decided(state.now, kept))
    assert said == ("kept for another hour: 4 x c4.xlarge in us-east-1b (s1): It is cheap." if told else None)
