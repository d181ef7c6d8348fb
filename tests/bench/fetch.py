"""Fetching AWS price history: rows a second beside the bare boto3 paginator, and over several regions.

The server is moto with a recorded trace (SPOTCTL_DATA), in a process of its own; it is asked everything
once before, and then answers from memory, so that what is timed is the client. Runs alternate and medians
are told. Aim: at least 0.9 of the paginator on one region.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import boto3

from pricing_data.feeds.aws.client import AwsSettings
from pricing_data.feeds.aws.feed import AwsFeed
from pricing_data.feeds.aws.spot_prices import PAGE_ROWS, PRODUCTS, RETENTION_S
from pricing_data.feeds.base import PartKind
from pricing_data.feeds.fetch import fetch_all
from pricing_data.store.store import PriceStore
from tests.fakes.aws import END, Cloud, Trace, recorded_2021, serving

REGIONS = ("us-east-1", "us-west-2", "eu-west-1", "ap-south-1")
FAMILIES = ("c4.", "c5.", "m5.", "r5.", "g4dn.", "p3.")
RUNS = 3
LATENCY_S = 0.1


def main() -> None:
    """Print medians, and ratios within each round of runs."""
    os.environ.update(
        AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_EC2_METADATA_DISABLED="true"
    )
    folder = Path(os.environ["SPOTCTL_DATA"])
    with _server(folder, latency_s=0.0) as (address, rows):
        _beside_the_paginator(address, rows)
        print(f"{rows} rows a region, answers at once: bound by this machine's cores")
        _over_regions(address, rows)
    with _server(folder, latency_s=LATENCY_S) as (address, rows):
        print(f"answers after {LATENCY_S} s each: as over a network")
        _over_regions(address, rows)


def _beside_the_paginator(address: str, rows: int) -> None:
    cases: dict[str, Callable[[], int]] = {
        "boto3 paginator, answers dropped": lambda: _bare(address),
        "fetch, into a store on the disk": lambda: _fetched(address, REGIONS[:1]),
    }
    for run in cases.values():
        assert run() == rows
    rounds = [{name: _costs(run) for name, run in cases.items()} for _ in range(RUNS)]
    for name in cases:
        wall_s, cpu_s = (statistics.median(one[name][what] for one in rounds) for what in (0, 1))
        print(f"{name:36} {rows / wall_s:9.0f} rows/s {rows / cpu_s:9.0f} rows per second of CPU")
    bare, ours = cases
    wall, cpu = (statistics.median(one[bare][what] / one[ours][what] for one in rounds) for what in (0, 1))
    print(f"{'ratio':36} {wall:9.2f}        {cpu:9.2f}")


def _over_regions(address: str, rows: int) -> None:
    alone = 0.0
    for count in (1, 2, 4):
        run = partial(_fetched, address, REGIONS[:count])
        assert run() == count * rows  # the server has its answers ready now
        rate = count * rows / statistics.median(_costs(run)[0] for _ in range(RUNS))
        alone = alone or rate
        print(f"{count} regions{'':27} {rate:9.0f} rows/s {rate / alone:6.2f} x one region")


def _bare(address: str) -> int:
    client = boto3.client("ec2", region_name=REGIONS[0], endpoint_url=address)
    pages = client.get_paginator("describe_spot_price_history").paginate(
        StartTime=dt.datetime.fromtimestamp(END - RETENTION_S, dt.UTC),
        EndTime=dt.datetime.fromtimestamp(END, dt.UTC),
        ProductDescriptions=list(PRODUCTS),
        PaginationConfig={"PageSize": PAGE_ROWS},
    )
    return sum(len(page["SpotPriceHistory"]) for page in pages)


def _fetched(address: str, regions: tuple[str, ...]) -> int:
    """Rows that were new to an empty store."""
    feed = AwsFeed(lambda: END, AwsSettings(regions=regions, endpoints={"ec2": address}))
    with tempfile.TemporaryDirectory() as folder:
        report = fetch_all([feed], PriceStore(Path(folder)), kinds=[PartKind.PRICES])
    assert report.is_complete, report
    return sum(part.new + part.quarantined for part in report.parts)


def _costs(run: Callable[[], int]) -> tuple[float, float]:
    """Seconds by the wall, and of this process's CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


@contextmanager
def _server(folder: Path, latency_s: float) -> Iterator[tuple[str, int]]:
    """Its address, and how many rows each of its regions has."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs, folder, latency_s), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("enough")
        process.join()


def _serve(connection: Connection, folder: Path, latency_s: float) -> None:
    rows = recorded_2021(folder, lambda name: name.startswith(FAMILIES))
    trace = Trace(rows)
    cloud = Cloud(traces=dict.fromkeys(REGIONS, trace), remembers=True, latency_s=latency_s)
    with serving(cloud):
        connection.send((cloud.address, len(rows)))
        connection.recv()
