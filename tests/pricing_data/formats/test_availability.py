"""Availability and lifetimes as people log them: spells, censoring, and what is said of bad rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.errors import TraceError
from pricing_data.formats.availability import read_availability, read_grid
from pricing_data.formats.quality import Flaw
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, parse_instant

MARKET = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
PROBES = "timestamp_utc,cloud,region,zone,instance_type,available"
LIVES = "cloud,region,zone,instance_type,begin_utc,end_utc,lost"
WHERE = "aws,us-east-1,us-east-1a,p3.2xlarge"
NOON = parse_instant("2023-03-01T12:00:00Z")


def probes(tmp_path: Path, looks: list[tuple[str, object]], header: str = PROBES) -> Path:
    path = tmp_path / "probes.csv"
    path.write_text("\n".join([header, *(f"2023-03-01T{at}Z,{WHERE},{n}" for at, n in looks)]))
    return path


def rows(spells: Spells) -> list[tuple[int, int, bool]]:
    return list(zip(*(spells.begins - NOON, spells.ends - NOON), spells.lost, strict=True))


def test_a_loss_is_at_the_look_that_no_longer_found_it(tmp_path: Path) -> None:
    looks = [("12:00:00", 1), ("12:10:00", 1), ("12:20:00", 0), ("12:30:00", 1), ("12:40:00", 1)]
    spells = read_availability(probes(tmp_path, list(looks))).observations.spells(MARKET)
    assert rows(spells) == [(0, 1200, True), (1800, 2400, False)], "the second is still up: censored"


def test_nobody_looked_for_long_censors_instead_of_losing(tmp_path: Path) -> None:
    looks = [("12:00:00", 1), ("12:10:00", 1), ("12:20:00", 1), ("13:20:00", 0), ("13:30:00", 1)]
    spells = read_availability(probes(tmp_path, list(looks))).observations.spells(MARKET)
    assert rows(spells) == [(0, 1200, False), (5400, 5400, False)]


def test_counts_are_for_as_many_nodes_as_are_asked_for(tmp_path: Path) -> None:
    looks = [("12:00:00", 16), ("12:10:00", 9), ("12:20:00", 0)]
    path = probes(tmp_path, list(looks))
    assert rows(read_availability(path).observations.spells(MARKET)) == [(0, 1200, True)]
    assert rows(read_availability(path, nodes=16).observations.spells(MARKET)) == [(0, 600, True)]


def test_bad_rows_are_counted_and_the_rest_is_used(tmp_path: Path) -> None:
    path = tmp_path / "probes.csv"
    good = [f"2023-03-01T12:{minute}0:00Z,{WHERE},1" for minute in range(3)]
    bad = [
        f"yesterday,{WHERE},1",
        f"2023-03-01T13:00:00Z,{WHERE},-1",
        f"2023-03-01T13:00:00Z,{WHERE},0.5",
        "2023-03-01T13:00:00Z,aws,us-east-1,,p3.2xlarge,1",
        f"2023-03-01T12:00:00Z,{WHERE}",
        f"2023-03-01T12:00:00Z,{WHERE},0",
        f"2023-03-01T12:00:00Z,{WHERE},1",
    ]
    path.write_bytes(gzip.compress("\n".join([PROBES, *good, *bad]).encode()))
    watched = read_availability(path)
    assert dict(watched.quarantined) == {
        Flaw.TIME: 1,
        Flaw.COUNT: 2,
        Flaw.NAME: 1,
        Flaw.FIELDS: 1,
        Flaw.OTHER_COUNT: 1,
    }
    assert (watched.rows_read, watched.rows_used, watched.rows_duplicate) == (10, 3, 1)
    assert rows(watched.observations.spells(MARKET)) == [(0, 1200, False)]


def test_lifetimes_with_their_censoring(tmp_path: Path) -> None:
    path = tmp_path / "lives.csv"
    lines = [
        LIVES,
        f"{WHERE},2023-03-01T12:00:00Z,2023-03-01T13:00:00Z,1",
        f"{WHERE},2023-03-01T12:00:00Z,2023-03-01T12:30:00Z,0",
        f"{WHERE},2023-03-01T12:00:00Z,2023-03-01T11:30:00Z,0",
        f"{WHERE},2023-03-01T12:00:00Z,2023-03-01T12:30:00Z,maybe",
    ]
    path.write_text("\n".join(lines))
    watched = read_availability(path)
    assert rows(watched.observations.spells(MARKET)) == [(0, 3600, True), (0, 1800, False)]
    assert dict(watched.quarantined) == {Flaw.BACKWARDS: 1, Flaw.LOST: 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "an empty file"),
        ("a,b\n1,2\n", "columns 'a,b'"),
        (PROBES + "\n", "no spell in 0 rows"),
        (f"{PROBES}\nnever,{WHERE},1\n", "unreadable time: 1"),
    ],
)
def test_a_file_that_says_nothing_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "file.csv"
    path.write_text(content)
    with pytest.raises(TraceError, match=said):
        read_availability(path)


def test_the_published_grid(tmp_path: Path) -> None:
    path = tmp_path / "zone.json"
    path.write_text('{"metadata": {"gap_seconds": 600.0}, "data": [0, 1, 1, 0, 1]}')
    assert rows(read_grid(path, NOON)) == [(600, 1800, True), (2400, 2400, False)]


@pytest.mark.parametrize("text", ["[]", "{", '{"metadata": {"gap_seconds": 0}, "data": [1]}'])
def test_what_is_no_grid_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "zone.json"
    path.write_text(text)
    with pytest.raises(TraceError, match="expected"):
        read_grid(path, NOON)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(0, 30))
def test_what_was_known_is_what_looks_until_then_say(up: list[bool], seen: int) -> None:
    """Cutting the spells at a look says what reading only the looks until then would have said."""
    times = NOON + 60 * np.arange(len(up))
    until = min(seen, len(up) - 1)
    known = Spells.from_probes(times, up, 100).as_of(Instant(int(times[until])))
    alone = Spells.from_probes(times[: until + 1], up[: until + 1], 100)
    there = alone.ends > alone.begins
    assert known.begins.tolist() == alone.begins[there].tolist()
    assert known.ends.tolist() == alone.ends[there].tolist()
    assert known.lost.tolist() == alone.lost[there].tolist()


def test_the_market_is_as_old_as_its_spell_and_machines_are_as_old_as_they_are() -> None:
    probes = Spells.from_columns([0, 5000], [4000, 9000], [True, False])
    assert float(probes.kept_s(Instant(10_000))) == 5000
    assert not probes.kept_s(Instant(11_000)), "nobody looked for more than half an hour"
    assert not probes.with_spell(6000, 9000, False).kept_s(Instant(10_000))


def test_observations_are_values() -> None:
    none = Observations()
    one = none.with_spell(MARKET, 10, 20, True)
    assert none.markets == ()
    assert one.merge_with(one).spells(MARKET).begins.tolist() == [10, 10]
    with pytest.raises(ValueError, match="before it begins"):
        one.with_spell(MARKET, 10, 9, True)
    with pytest.raises(ValueError, match="expected one"):
        Spells.from_columns([1], [2, 3], [True])
    with pytest.raises(ValueError, match="strictly increase"):
        Spells.from_probes([1, 1], [True, True], 10)
