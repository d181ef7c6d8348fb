"""How long a person waits for the command itself: ``--help``, ``plan``, beside a bare typer program.

Bytecode is compiled first, as an installation would have it. Processor time is what the process and its
threads took, in user and system mode. Aims on one quiet core: help 0.15 s, any plan 0.5 s once its data and
prices were looked at. The bare program runs in turn with each command, so that ratios to it hold on any
machine, busy ones too.

    known        a home is there, and what a plan finds out is kept in it: the second plan and all after it
    first        a home is there, and nothing is kept in it yet
    no home      nothing is kept: a plan makes no home

Markets are those of a made price file of two million rows: 1032 of AWS. A job may use as many as said.
"""

from __future__ import annotations

import compileall
import gzip
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from pricing_data.catalogue import Catalogue
from pricing_data.model.units import parse_instant

ROOT = Path(__file__).parents[2]
RUNS = 9
RUNS_OF_THE_FIRST = 3
BARE = """\
import typer
app = typer.Typer(rich_markup_mode=None)
@app.command()
def launch(job: str, yes: bool = False) -> None: ...
@app.command()
def plan(job: str) -> None: ...
app()
"""
SPOTCTL = ("-m", "spotctl")
PACKAGES = ("spotctl", "bidbrain", "agileml", "pricing_data")
TRACE_BEGINS, TRACE_DAYS = "2024-01-01T00:00:00Z", 180
START = ("--trace-start", "2024-06-01T00:00:00Z")
RATINGS = 1_000_000
ELASTIC = """\
name: {name}
app: agileml.apps.mf:MatrixFactorization
args: {{rank: 8}}
data: {data}
stop: {{clocks: 50}}
resources:
  reliable: {{instances: 1, instance_type: {reliable}}}
  spot: {{clouds: [aws], regions: [us-east-1], {types}max_instances: 12}}
local: {{core_seconds_per_clock: 11520}}
"""
COMMAND = """\
name: command
run: python train.py
checkpoint: {every: 15m, restart: 60s, size: 1GB}
work: {steps: 240, takes: 20h, on: c5.2xlarge}
resources: {spot: {clouds: [aws]}}
"""
SMALL = str(ROOT / "examples" / "data" / "ratings.csv.gz")


@dataclass(frozen=True, slots=True)
class Took:
    """In seconds."""

    wall: float
    cpu: float


def main() -> None:
    """Print medians of wall and processor time, and the ratio of the latter to the bare program's."""
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=2)
    with tempfile.TemporaryDirectory() as folder:
        _measure(Path(folder))


def _measure(here: Path) -> None:
    plan, trace = (*SPOTCTL, "plan"), ("--trace", str(_trace(here / "prices.csv.gz")), *START)
    quickstart, (csv, parquet) = str(ROOT / "examples" / "quickstart.yaml"), _ratings(here)
    few = "instance_types: [c5.xlarge, c5.2xlarge, m5.xlarge], "
    old = "instance_types: [c4.xlarge, c4.2xlarge, m4.xlarge], "
    (here / "train.py").write_text("")
    (here / "command.yaml").write_text(COMMAND)

    def job(name: str, data: Path | str, types: str, reliable: str) -> str:
        path = here / f"{name}.yaml"
        path.write_text(ELASTIC.format(name=name, data=data, types=types, reliable=reliable))
        return str(path)

    of_csv, of_parquet = job("csv", csv, old, "m4.xlarge"), job("parquet", parquet, old, "m4.xlarge")
    on_few, on_many = job("few", SMALL, few, "m5.xlarge"), job("many", SMALL, "", "m5.xlarge")
    home = here / "home"
    home.mkdir()
    cases_without_data: dict[str, Sequence[str]] = {
        "an empty interpreter": ("-c", "pass"),
        "import numpy": ("-c", "import numpy"),
        "a bare typer program, launch --help": ("-c", BARE, "launch", "--help"),
        "spotctl --help": (*SPOTCTL, "--help"),
        "spotctl launch --help": (*SPOTCTL, "launch", "--help"),
    }
    for name, arguments in cases_without_data.items():
        _compare(name, arguments, home)
    _compare("plan quickstart, no home", (*plan, quickstart), here / "no home")
    cases: dict[str, Sequence[str]] = {
        "plan quickstart": (*plan, quickstart),
        "plan quickstart --cloud auto": (*plan, quickstart, "--cloud", "auto"),
        "plan, csv of 1 M ratings": (*plan, of_csv),
        "plan, parquet of 1 M ratings": (*plan, of_parquet),
        "plan, 18 of 1032 markets": (*plan, on_few, *trace),
        "plan, 540 of 1032 markets": (*plan, on_many, *trace),
        "plan, 1032 markets": (*plan, str(here / "command.yaml"), *trace),
    }
    for name, arguments in cases.items():
        _compare(f"{name}, first", arguments, home, RUNS_OF_THE_FIRST, lambda: _emptied(home))
        _compare(f"{name}, known", arguments, home)


def _compare(
    name: str,
    arguments: Sequence[str],
    home: Path,
    runs: int = RUNS,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Print the medians of a command and their ratio to the bare program's, each run once after the other.

    The first run does not count: it finds out what all others know, unless something is done ``before`` each.
    """
    found, bare = [], []
    for _ in range(runs + 1):
        before()
        found.append(_once(arguments, home))
        bare.append(_once(("-c", BARE, "--help"), home))
    cpu, cpu_of_bare = (statistics.median(took.cpu for took in each[1:]) for each in (found, bare))
    wall = statistics.median(took.wall for took in found[1:])
    print(
        f"{name:40} {wall * 1000:7.0f} ms {cpu * 1000:7.0f} ms cpu {cpu / cpu_of_bare:6.2f} x bare",
        flush=True,
    )


def _emptied(home: Path) -> None:
    shutil.rmtree(home)
    home.mkdir()


def _once(arguments: Sequence[str], home: Path) -> Took:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPOTCTL_HOME": str(home)}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    quiet = subprocess.DEVNULL
    subprocess.run([sys.executable, *arguments], env=environment, stdout=quiet, stderr=quiet, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Took(time.perf_counter() - began, cpu)


def _settled(path: Path) -> Path:
    """As if nobody had changed it for an hour: of what was changed a moment ago nothing is kept."""
    before = time.time() - 3600
    os.utime(path, (before, before))
    return path


def _ratings(here: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(1)
    users, items = rng.integers(1, 50_001, RATINGS), rng.zipf(1.3, RATINGS) % 20_000 + 1
    values, times = rng.integers(1, 11, RATINGS) / 2, rng.integers(800_000_000, 1_500_000_000, RATINGS)
    rows = zip(users.tolist(), items.tolist(), values.tolist(), times.tolist(), strict=True)
    csv, parquet = here / "ratings.csv", here / "ratings.parquet"
    with csv.open("w") as out:
        out.write("userId,movieId,rating,timestamp\n")
        out.writelines(f"{user},{item},{value},{at}\n" for user, item, value, at in rows)
    duckdb.sql(f"copy (from '{csv}') to '{parquet}'")
    return _settled(csv), _settled(parquet)


def _trace(path: Path) -> Path:
    """An event stream: every AWS type of the catalogue in six zones of its regions, a dozen prices a day."""
    catalogue, rng = Catalogue.bundled(), np.random.default_rng(2)
    begins, span = parse_instant(TRACE_BEGINS), TRACE_DAYS * 86400
    parts: list[tuple[np.ndarray, ...]] = []
    names: list[str] = []
    for cloud, region, kind in sorted(catalogue.list_prices):
        listed = catalogue.on_demand(cloud, region, kind, begins)
        if cloud != "aws" or listed is None or catalogue.instance_type(cloud, kind) is None:
            continue
        for zone in "abcdef":
            count = int(rng.integers(1500, 2380))
            times = np.sort(rng.choice(span, count, replace=False))
            walk = np.clip(0.35 + np.cumsum(rng.normal(0, 0.01, count)), 0.1, 0.99)
            spikes = np.where(rng.random(count) < 0.01, rng.random(count), 0.0)
            prices = np.round(np.clip(walk + spikes, 0.1, 1.5) * listed, 4)
            parts.append((times + begins, np.full(count, len(names)), prices))
            names.append(f"{region},{region}{zone},{kind}")
    times, codes, prices = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((codes, times))
    written = np.datetime_as_string(times[order].astype("datetime64[s]")).tolist()
    with gzip.open(path, "wt", compresslevel=6) as out:
        out.write("timestamp_utc,region,zone,instance_type,product,price_usd_hour\n")
        rows = zip(written, codes[order].tolist(), prices[order].tolist(), strict=True)
        out.writelines(f"{at}Z,{names[code]},Linux/UNIX,{price}\n" for at, code, price in rows)
    return _settled(path)
