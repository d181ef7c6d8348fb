"""What the figures mean is said of every figure."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pricing_data.model.rules import RULES
from spotctl.cli.views import report as reportview
from spotctl.report.final import final_object
from spotctl.report.groupings import Grouping
from spotctl.report.summarize import summarize
from tests.spotctl.cli.story import state_after

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "the-bill.md").read_text()
TOLD = frozenset(re.findall(r"`([a-z0-9_.-]+)`", PAGE))
RUN = state_after(52)


@pytest.mark.parametrize("by", list(Grouping))
def test_every_figure_of_a_report_is_explained(by: Grouping) -> None:
    report = json.loads(reportview.report_document({"movies/1": summarize(RUN, 0.0, {})}, by))
    assert report["total"].keys() - {by.value} <= TOLD
    assert report.keys() - {"schema", "by", "money", "rows", "total"} <= TOLD


def test_every_sum_of_a_run_and_every_set_of_rules_is_explained() -> None:
    assert final_object(RUN, Path("ledger.db"), 1.0, 0)["cost"].keys() <= TOLD
    assert RULES.keys() <= TOLD
