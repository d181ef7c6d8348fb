"""Modules of a folder, run by name: ``python -m tests.bench NAME`` and ``python -m tests.papers NAME``."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from types import FrameType


def names(package: str) -> list[str]:
    """Those of ``tests.package`` that are neither private nor tests."""
    stems = (path.stem for path in (Path(__file__).parent / package).glob("[!_]*.py"))
    return sorted(stem for stem in stems if not stem.startswith("test_"))


def main(package: str) -> int:
    """Run the one that was named; 2 where there is none of that name.

    Whoever is told to end takes what it started along.
    """
    if len(sys.argv) < 2 or sys.argv[1] not in names(package):
        print(f"usage: python -m tests.{package} {{{','.join(names(package))}}}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    importlib.import_module(f"tests.{package}.{sys.argv[1]}").main()
    return 0


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
