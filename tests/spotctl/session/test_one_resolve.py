"""A launch reads its job file and its prices once, by a short way: the calls of a traced run are counted."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest

from bidbrain.model import Decision
from spotctl.job import file, price_sources, resolve
from tests.spotctl.cli.commandline import TRACE_START, spotctl

ROOT = Path(__file__).parents[3]
JOB_FOLDERS = (str(ROOT / "spotctl" / "job"), str(ROOT / "spotctl" / "schema"))
MOST_CALLS = 229
"""Calls within ``spotctl.job`` and ``spotctl.schema`` from the quickstart's job file to its first decision.

They were twice as many when each field made its own reader, each section was entered and left, and each
market was looked up in a list four times.
"""


@dataclass
class Trace:
    """Counts calls by function, in all and from the job file to the first decision."""

    calls: Counter[object] = field(default_factory=Counter)
    on_the_way: Counter[str] = field(default_factory=Counter)
    reading: bool = False
    decided: bool = False

    def note(self, frame: FrameType, event: str, result: object) -> None:
        code = frame.f_code
        if event == "return" and isinstance(result, Decision):
            self.decided = True
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED:  # bodies of modules are no calls
            return
        self.calls[code] += 1
        self.reading = self.reading or code is file.load_job.__code__
        if self.reading and not self.decided and code.co_filename.startswith(JOB_FOLDERS):
            self.on_the_way[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1


@contextmanager
def traced() -> Iterator[Trace]:
    trace, before = Trace(), sys.getprofile()
    sys.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("options", [(), ("--trace-start", TRACE_START)])
def test_a_launch_resolves_its_job_once_and_by_a_short_way(options: tuple[str, ...], tmp_path: Path) -> None:
    job = str(ROOT / "examples" / "quickstart.yaml")
    (tmp_path / "home").mkdir()
    with traced() as trace:
        launched = spotctl("launch", job, "--world", "replay", "--yes", *options, home=tmp_path / "home")
    assert launched.exit_code == 0, launched.output
    once = (file.load_job, resolve.resolve_job, price_sources.BundledMarket.read_prices)
    assert [trace.calls[function.__code__] for function in once] == [1, 1, 1]
    assert trace.decided
    assert sum(trace.on_the_way.values()) <= MOST_CALLS, trace.on_the_way.most_common(20)
