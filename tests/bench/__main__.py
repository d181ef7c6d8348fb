"""``python -m tests.bench NAME``: run one benchmark, or list them all."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def names() -> list[str]:
    """The benchmarks: the modules beside this one that do not start with an underscore."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def main() -> int:
    """Run the benchmark that was named; 2 where there is none of that name."""
    if len(sys.argv) < 2 or sys.argv[1] not in names():
        print(f"usage: python -m tests.bench {{{','.join(names())}}}", file=sys.stderr)
        return 2
    importlib.import_module(f"tests.bench.{sys.argv[1]}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
