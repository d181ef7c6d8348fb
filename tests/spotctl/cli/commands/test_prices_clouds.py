"""``prices fetch`` of GCP and Azure as a process of its own, with the real SDKs; Ctrl-C while importing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pricing_data.model.units import Instant, format_instant
from pricing_data.store.store import PriceStore
from tests.fakes import azure as azure_fake
from tests.fakes import gcp as gcp_fake
from tests.fakes.azure import RETAIL
from tests.fakes.identity import certificate, managed_identity, service_account
from tests.fakes.servers import FakeServer, Fault, Reply
from tests.pricing_data.feeds.populated import azure, gcp, item

ROOT = Path(__file__).resolve().parents[4]
HEADER = "timestamp_utc,region,zone,instance_type,product,price_usd_hour\n"
BEGIN = 1_464_739_200


@dataclass(frozen=True, slots=True)
class Cloud:
    """What a fetch speaks to, and the environment that leads it there."""

    name: str
    servers: tuple[FakeServer, ...]
    environment: dict[str, str]
    refused: Callable[[int], Reply]

    def fetch(self, home: Path, *more: str) -> tuple[int, str, str]:
        ran = subprocess.run(
            [sys.executable, "-m", "spotctl", "prices", "fetch", "--cloud", self.name, *more],
            cwd=ROOT,
            env={**_bare(home), **self.environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return ran.returncode, ran.stdout, ran.stderr


def _bare(home: Path) -> dict[str, str]:
    """The environment without anybody's credentials."""
    ours = ("AWS_", "AZURE_", "GOOGLE_", "IDENTITY_", "MSI_", "SPOTCTL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "SPOTCTL_HOME": str(home), "HOME": str(home), "COLUMNS": "200"}


def _google(folder: Path, stack: ExitStack) -> Cloud:
    google, _ = gcp(zones=("us-central1-a",))
    server = google.server()
    address = stack.enter_context(server.running())
    environment = {
        "GOOGLE_APPLICATION_CREDENTIALS": str(service_account(folder)),
        "SPOTCTL_GCP_COMPUTE": address,
        "SPOTCTL_GCP_BILLING": address,
    }
    return Cloud("gcp", (server,), environment, lambda status: gcp_fake.refused(status, "no"))


def _microsoft(folder: Path, stack: ExitStack) -> Cloud:
    """Its SDK sends tokens over TLS only."""
    microsoft, _ = azure()
    microsoft.page_size = 1000
    microsoft.retail = [item("Standard_D2s_v5", "eastus", 0.1, spot=True)]
    server, public = microsoft.server(), microsoft.server()
    tls, trusted = certificate(folder)
    environment = {
        "IDENTITY_ENDPOINT": stack.enter_context(managed_identity().running()),
        "IDENTITY_HEADER": "somebody",
        "REQUESTS_CA_BUNDLE": str(trusted),
        "SPOTCTL_AZURE_RESOURCES": stack.enter_context(server.running(tls)),
        "SPOTCTL_AZURE_RETAIL": f"{stack.enter_context(public.running())}{RETAIL}",
    }
    servers = (server, public)
    return Cloud("azure", servers, environment, lambda status: azure_fake.refused(status, "No", "no"))


@pytest.fixture(params=[_google, _microsoft], ids=["gcp", "azure"])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    with ExitStack() as stack:
        yield request.param(tmp_path, stack)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.process
def test_a_fetch_through_the_verb_fills_the_store(cloud: Cloud, home: Path) -> None:
    status, told, chatter = cloud.fetch(home, "--json")
    assert status == 0, chatter
    report: dict[str, Any] = json.loads(told)
    assert report["complete"], report
    kinds = {part["kind"] for part in report["parts"] if part["new"]}
    assert kinds >= {"prices", "eviction rates", "instance types"}
    store = PriceStore(home / "prices")
    assert {summary.market.cloud for summary in store.markets()} == {cloud.name}
    assert store.evictions.counts()[cloud.name].rates > 0
    left_out = " ".join(part["left_out"] for part in report["parts"])
    if cloud.name == "gcp":
        assert "no spot price for 1 types (m2-ultramem-208)" in left_out
    else:
        assert left_out.strip() == ""


@pytest.mark.process
@pytest.mark.parametrize("code", [401, 403])
def test_credentials_that_are_refused_everywhere_are_exit_4(cloud: Cloud, home: Path, code: int) -> None:
    for server in cloud.servers:
        server.faults += [Fault("/", cloud.refused(code))] * 200
    status, told, chatter = cloud.fetch(home)
    assert status == 4, (told, chatter)
    assert f"HTTP {code}" in told
    assert "Traceback" not in chatter


@pytest.mark.process
def test_people_are_told_what_a_part_left_out(tmp_path: Path, home: Path) -> None:
    with ExitStack() as stack:
        status, told, _ = _google(tmp_path, stack).fetch(home)
    assert status == 0
    assert "left out: gcp billing catalogue prices: no spot price for 1 types (m2-ultramem-208)" in told


def _file(path: Path, number: int, rows: int) -> Path:
    """Every file has a zone of its own."""
    zone = f"us-east-1,us-east-1{chr(97 + number)}"
    lines = (
        f"{format_instant(Instant(BEGIN + 60 * n))},{zone},c4.xlarge,Linux/UNIX,0.0{1 + n % 9}\n"
        for n in range(rows)
    )
    path.write_text(HEADER + "".join(lines))
    return path


@pytest.mark.process
def test_ctrl_c_during_an_import_keeps_whole_files(tmp_path: Path, home: Path, campaign: bool) -> None:
    """At any moment: before the first file is in, or after any of them, and what follows completes it."""
    rows, random = 20_000, Random(20161120)
    files = [str(_file(tmp_path / f"{number}.csv", number, rows)) for number in range(8)]
    command = [sys.executable, "-m", "spotctl", "prices", "import", *files]
    moments = [(random.randrange(len(files)), random.uniform(0, 0.4)) for _ in range(20 if campaign else 2)]
    ended = []
    for turn, (files_before, later_s) in enumerate([(0, 0.4), *moments]):
        store = home / str(turn) / "prices"
        status, said = _interrupted(command, _bare(store.parent), files_before, later_s)
        assert "a bug in spotctl" not in said
        counts = _rows(store)
        assert set(counts) <= {rows}, "whole files"
        assert len(counts) >= said.count("rows read")
        if status == 7:
            assert "interrupted: " in said
        elif "nothing was started" in said:
            # Under -m, Python ends by the signal where that came within an exec(), as of a dataclass.
            assert (status in (130, -signal.SIGINT), counts) == (True, [])
            assert "rows read" not in said
        elif status in (-signal.SIGINT, 130):  # before the verb began, or after its end
            assert len(counts) in (0, len(files))
        elif "init_import_site" in said:  # Python itself was not up yet
            assert not counts
        else:
            assert (status, len(counts)) == (0, len(files)), f"it had ended by itself: {said}"
        ended.append(status)
        ran = subprocess.run(command, cwd=ROOT, env=_bare(store.parent), capture_output=True, timeout=120)
        assert ran.returncode == 0
        assert _rows(store) == [rows] * len(files)
    assert 7 in ended


def _interrupted(
    command: list[str], environment: dict[str, str], files_before: int, later_s: float
) -> tuple[int, str]:
    """Exit status and chatter of an import that gets SIGINT ``later_s`` after so many files are in."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=quiet, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        said = "".join(running.stderr.readline() for _ in range(files_before))
        time.sleep(later_s)
        running.send_signal(signal.SIGINT)
        said += running.stderr.read()
        return running.wait(timeout=60), said


def _rows(store: Path) -> list[int]:
    """Of each market; opening the store finishes what was begun."""
    return [summary.rows for summary in PriceStore(store).markets()]
