"""Fetches that are killed -9 at any moment: the store holds whole spans, and the next fetch completes it."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pricing_data.model.units import format_instant, parse_instant
from pricing_data.store.store import PriceStore
from tests.fakes.aws import END, Cloud, Row, Trace, recorded_2021, serving

_REGIONS = ("us-east-1", "us-west-2")
_PATIENCE_S = 60.0


def _start_fetch(root: Path, cloud: Cloud) -> subprocess.Popen[str]:
    module = "tests.pricing_data.feeds.fetch_once"
    command = [sys.executable, "-m", module, str(root), cloud.address, format_instant(END), *_REGIONS]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _time_fetch(root: Path, cloud: Cloud) -> float:
    """Seconds a whole fetch takes once it has begun."""
    with _start_fetch(root, cloud) as fetching:
        assert fetching.stdout is not None
        assert fetching.stdout.readline() == "begun\n"
        began = time.monotonic()
        said, _ = fetching.communicate(timeout=_PATIENCE_S)
        assert fetching.returncode == 0, said
    return time.monotonic() - began


def _kill_after(root: Path, cloud: Cloud, after_s: float) -> bool:
    """Whether it was still at work ``after_s`` after it had begun."""
    with _start_fetch(root, cloud) as fetching:
        assert fetching.stdout is not None
        assert fetching.stdout.readline() == "begun\n"
        time.sleep(after_s)
        at_work = fetching.poll() is None
        fetching.kill()
    return at_work


def _stored_rows(root: Path, region: str) -> set[tuple[str, str, int, float]]:
    store = PriceStore(root)
    assert not store.quality.list_quarantined()
    return {
        (summary.market.zone, summary.market.instance_type, int(at), float(price))
        for summary in store.markets(cloud="aws", region=region)
        for series in [store.series(summary.market)]
        for at, price in zip(series.times, series.prices, strict=True)
    }


def _steps(rows: list[Row]) -> set[tuple[str, str, int, float]]:
    """Returns the rows that change their market's price, as a store does."""
    steps, before = set[tuple[str, str, int, float]](), dict[tuple[str, str], float]()
    for at, zone, name, price in sorted(rows):
        if before.get((zone, name)) != float(price):
            steps.add((zone, name, parse_instant(at), float(price)))
        before[zone, name] = float(price)
    return steps


@pytest.mark.process
@pytest.mark.campaign
def test_a_killed_fetch_leaves_whole_spans_and_is_completed(
    recorded_data: Path, tmp_path: Path, campaign: bool
) -> None:
    """50 kills with --campaign; each store is killed three times before it is completed."""
    names = ("c4.xlarge", "c4.2xlarge", "g4dn.xlarge")[: None if campaign else 1]
    rows = recorded_2021(recorded_data, lambda name: name in names)
    steps = _steps(rows)
    chance = random.Random(3)
    kills, struck = 50 if campaign else 3, 0
    with serving(Cloud(traces={region: Trace(rows) for region in _REGIONS})) as cloud:
        whole_s = _time_fetch(tmp_path / "whole", cloud)
        assert _stored_rows(tmp_path / "whole", "us-east-1") == steps
        for kill in range(kills):
            root = tmp_path / f"store-{kill // 3}"
            struck += _kill_after(root, cloud, chance.uniform(0, whole_s))
            for region in _REGIONS:
                stored = _stored_rows(root, region)
                newest = max((step[2] for step in stored), default=0)
                assert stored == {step for step in steps if step[2] <= newest}
            if kill % 3 == 2 or kill == kills - 1:
                _time_fetch(root, cloud)
                assert _stored_rows(root, "us-east-1") == _stored_rows(root, "us-west-2") == steps
    assert struck >= kills // 2
