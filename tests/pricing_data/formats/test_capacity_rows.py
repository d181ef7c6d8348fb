"""Probes and lifetimes in the store: every row is accounted for, once, and comes back as spells."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.errors import TraceError
from pricing_data.formats.availability import read_availability
from pricing_data.formats.batches import LifetimeBatch, MachineLifetime, Probe, ProbeBatch
from pricing_data.formats.capacity_rows import build_observations, read_sightings
from pricing_data.formats.csv_columns import CsvTable
from pricing_data.formats.quality import Flaw
from pricing_data.model.capacity_spells import Spells
from pricing_data.model.market import Market
from pricing_data.model.units import Instant, format_instant, parse_instant
from pricing_data.store.evictions import EvictionCounts
from pricing_data.store.importing import import_file
from pricing_data.store.rows import read_observations
from pricing_data.store.store import AddedRows, PriceStore
from tests.pricing_data.store.test_store_kills import IMPORT, ended

MARKET = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
OTHER = Market("aws", "us-east-1", "us-east-1b", "p3.2xlarge")
PROBES = "timestamp_utc,cloud,region,zone,instance_type,available"
LIVES = "cloud,region,zone,instance_type,begin_utc,end_utc,lost"
WHERE = "aws,us-east-1,us-east-1a,p3.2xlarge"
NOON = parse_instant("2023-03-01T12:00:00Z")
NOW = parse_instant("2023-04-01")


def probe_lines(looks: list[int], step_s: int = 600) -> list[str]:
    times = (format_instant(Instant(NOON + n * step_s)) for n in range(len(looks)))
    return [f"{at},{WHERE},{found}" for at, found in zip(times, looks, strict=True)]


def life_line(begin_s: int, end_s: int, lost: int) -> str:
    span = (format_instant(Instant(NOON + at)) for at in (begin_s, end_s))
    return ",".join((WHERE, *span, str(lost)))


def write_lines(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def rows(spells: Spells) -> list[tuple[int, int, bool]]:
    return list(zip(*(spells.begins - NOON, spells.ends - NOON), spells.lost, strict=True))


def test_what_a_file_says_comes_back_and_a_second_import_adds_nothing(tmp_path: Path) -> None:
    good = probe_lines([1, 1, 0, 1, 2, 0, 0, 1])
    bad = [
        f"{format_instant(Instant(NOW + 60))},{WHERE},1",
        f"2023-03-02T12:00:00Z,{WHERE},several",
        f"2023-03-01T12:00:00Z,{WHERE},0",
        "2023-03-02T12:00:00Z,aws",
        f"1970-03-02T12:00:00Z,{WHERE},1",
    ]
    path = write_lines(tmp_path, "probes.csv", [PROBES, *good, good[0], *bad])
    store = PriceStore(tmp_path / "store")
    done = import_file(store, path, NOW)
    assert done.rows_read == 14
    assert done.added == AddedRows(new=8, known=1, quarantined=5)
    assert (done.first, done.last) == (parse_instant("1970-03-02T12:00:00Z"), NOON + 7 * 600)
    found = {finding.kind: finding.count for finding in store.quality.findings()}
    assert found == dict.fromkeys((Flaw.FUTURE, Flaw.COUNT, Flaw.OTHER_COUNT, Flaw.FIELDS, Flaw.TIME), 1)
    assert import_file(store, path, NOW).added == AddedRows(0, 14, 0)
    alone = read_availability(write_lines(tmp_path, "good.csv", [PROBES, *good])).observations
    kept = PriceStore(tmp_path / "store").observations()
    assert kept.markets == (MARKET,)
    assert rows(kept.spells(MARKET)) == rows(alone.spells(MARKET))
    assert store.evictions.counts() == {"aws": EvictionCounts(rates=0, probes=8, lifetimes=0)}


def test_capacity_for_several_machines_and_of_some_markets(tmp_path: Path) -> None:
    store = PriceStore(tmp_path)
    store.add_probes(ProbeBatch("a", tuple(Probe(MARKET, Instant(NOON + 600 * n), 4 - n) for n in range(5))))
    store.add_probes(ProbeBatch("a", (Probe(OTHER, NOON, 1),)))
    assert rows(store.observations(nodes=3).spells(MARKET)) == [(0, 1200, True)]
    assert store.observations([OTHER]).markets == (OTHER,)
    assert store.observations([]).markets == ()


def test_of_two_answers_for_one_moment_the_lesser_counts(tmp_path: Path) -> None:
    for order in (0, 1), (1, 0):
        store = PriceStore(tmp_path / str(order))
        for count in order:
            store.add_probes(
                ProbeBatch("a", (Probe(MARKET, NOON, count), Probe(MARKET, Instant(NOON + 60), 1)))
            )
        assert rows(store.observations().spells(MARKET)) == [(60, 60, False)]


def test_machines_that_are_alike_are_as_many_and_those_still_running_are_replaced(tmp_path: Path) -> None:
    """Three machines begin at once; when the log is written again one was lost and one more began."""
    store = PriceStore(tmp_path / "store")
    early = [LIVES, life_line(0, 3600, 0), life_line(0, 3600, 0), life_line(0, 1800, 1)]
    assert import_file(store, write_lines(tmp_path, "lives.csv", early), NOW).added == AddedRows(3, 0, 0)
    late = [LIVES, early[3], life_line(0, 7200, 0), life_line(0, 5400, 1), life_line(7200, 7200, 0)]
    done = import_file(store, write_lines(tmp_path, "lives.csv", late), NOW)
    assert done.added == AddedRows(3, 1, 0)
    assert sorted(rows(store.observations().spells(MARKET))) == [
        (0, 1800, True),
        (0, 5400, True),
        (0, 7200, False),
        (7200, 7200, False),
    ]
    import_file(store, write_lines(tmp_path, "lives.csv", early), NOW)
    assert len(store.observations().spells(MARKET)) == 4, "what is older replaces nothing"


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2)), max_size=30),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=20),
    st.randoms(use_true_random=False),
)
def test_the_order_and_number_of_imports_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory,
    looks: list[tuple[int, int]],
    lives: list[tuple[int, int, bool]],
    random: Random,
) -> None:
    probes = [Probe(MARKET, Instant(NOON + 60 * at), found) for at, found in looks]
    machines = [
        MachineLifetime(OTHER, Instant(NOON + begin), Instant(NOON + begin + span), lost)
        for begin, span, lost in lives
    ]
    batches: list[ProbeBatch | LifetimeBatch] = [
        *(ProbeBatch("a", tuple(probes[n::3])) for n in range(3)),
        *(LifetimeBatch(f"log {n}", tuple(machines[n::3])) for n in range(3)),
    ]
    stores = []
    for _ in range(2):
        random.shuffle(batches)
        stores.append(PriceStore(tmp_path_factory.mktemp("store")))
        for batch in (*batches, random.choice(batches)):
            if isinstance(batch, ProbeBatch):
                stores[-1].add_probes(batch)
            else:
                stores[-1].add_lifetimes(batch)
    first, second = (
        {path.name: path.read_bytes() for path in store.root.rglob("*.parquet")} for store in stores
    )
    assert first == second
    assert len(stores[0].observations().spells(OTHER)) == len(machines)
    least = read_observations(
        [(*_names(p.market), "a", p.at, p.available, p.at) for p in probes], [], None, 1
    )
    assert rows(stores[0].observations().spells(MARKET)) == rows(least.spells(MARKET))


TEXT = st.one_of(
    st.sampled_from(
        ["2023-03-01T12:00:00Z", "2023-03-01", "9999-01-01", "aws", "0", "1", "16", "", "-1", "²"]
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([PROBES, LIVES]), st.lists(st.lists(TEXT, max_size=8), max_size=6))
def test_whatever_a_row_holds_it_is_a_sighting_or_flawed(header: str, fields: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([header.split(","), *fields])
    try:
        table = CsvTable.parse("file", text.getvalue().splitlines())
    except TraceError:
        return
    found = read_sightings(table, NOW)
    flawed = sum(len(lines) for lines in found.flawed.values())
    assert len(found.probes) + len(found.lifetimes) + flawed == table.row_count
    assert all(life.begin <= life.end <= NOW for life in found.lifetimes)
    build_observations(found.probes, found.lifetimes)


def _names(market: Market) -> tuple[str, ...]:
    return market.cloud, market.region, market.zone, market.instance_type


@pytest.mark.process
def test_a_killed_import_left_all_of_its_probes_or_none(tmp_path: Path) -> None:
    looks = [int(n % 7 > 0) for n in range(20_000)]
    path = write_lines(tmp_path, "probes.csv", [PROBES, *probe_lines(looks, 60)])
    command = [sys.executable, "-c", IMPORT, "", str(NOW), str(path)]
    random, counts = Random(20230301), set()
    for number in range(3):
        command[3] = str(tmp_path / f"store-{number}")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(random.uniform(0.05, 0.6))
        process.kill()
        ended(process)
        store = PriceStore(Path(command[3]))
        counts.add(sum(found.probes for found in store.evictions.counts().values()))
        assert import_file(store, path, NOW).added.quarantined == 0
        assert store.evictions.counts() == {"aws": EvictionCounts(rates=0, probes=20_000, lifetimes=0)}
    assert counts <= {0, 20_000}
