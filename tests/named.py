"""Modules of a folder, run by name: ``python -m tests.bench NAME`` and ``python -m tests.papers NAME``."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from types import FrameType

NOT_TO_BE_RUN = ("support", "protocols")
"""Folders of what benchmarks and reproductions share."""


def names(package: str) -> dict[str, str]:
    """Maps those of ``tests.package`` and its folders that can be run to their modules."""
    root = Path(__file__).parent
    paths = [*(root / package).glob("[!_]*.py"), *(root / package).glob("*/[!_]*.py")]
    found = {
        path.stem: ".".join(("tests", *path.relative_to(root).with_suffix("").parts))
        for path in paths
        if path.parent.name not in NOT_TO_BE_RUN and not path.stem.startswith("test_")
    }
    return dict(sorted(found.items()))


def main(package: str) -> int:
    """Run the one that was named; 2 where there is none of that name.

    Whoever is told to end takes what it started along.
    """
    if len(sys.argv) < 2 or sys.argv[1] not in names(package):
        print(f"usage: python -m tests.{package} {{{','.join(names(package))}}}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    importlib.import_module(names(package)[sys.argv[1]]).main()
    return 0


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
