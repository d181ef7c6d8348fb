"""The rules are values with sources; a trace's dates choose among them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing_data.model.market import Refund
from pricing_data.model.rules import AWS, AWS_2016, AZURE, GCP, GCP_PREEMPTIBLE, RULES, default_rules
from pricing_data.model.units import parse_instant


def test_rules_are_found_by_their_name_and_name_their_source() -> None:
    assert RULES == {
        "aws-2016": AWS_2016,
        "aws": AWS,
        "gcp": GCP,
        "gcp-preemptible": GCP_PREEMPTIBLE,
        "azure": AZURE,
    }
    assert all(rules.source for rules in RULES.values())


@pytest.mark.parametrize(
    ("cloud", "date", "rules"),
    [
        ("aws", "2016-06-01", AWS_2016),
        ("aws", "2017-10-31T23:59:59Z", AWS_2016),
        ("aws", "2017-11-01", AWS),
        ("gcp", "2016-06-01", GCP),
        ("azure", "2024-01-01", AZURE),
    ],
)
def test_the_first_instant_chooses_the_rules(cloud: str, date: str, rules: object) -> None:
    assert default_rules(cloud, parse_instant(date)) == rules


def test_a_cloud_without_rules_is_an_error() -> None:
    with pytest.raises(KeyError):
        default_rules("moon", parse_instant("2024-01-01"))


def test_what_cannot_be_settled_is_no_rule() -> None:
    with pytest.raises(ValueError, match="quantum_s is 1 or 3600 seconds, not 60"):
        replace(AZURE, quantum_s=60)
    with pytest.raises(ValueError, match="free evicted hours need hourly billing"):
        replace(AWS, refund=Refund.EVICTED_HOUR)
