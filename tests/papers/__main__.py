"""``python -m tests.papers NAME``: run one reproduction, or list them all."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def names() -> list[str]:
    """The reproductions: the modules beside this one that are neither private nor tests."""
    stems = (path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    return sorted(stem for stem in stems if not stem.startswith("test_"))


def main() -> int:
    """Run the reproduction that was named; 2 where there is none of that name."""
    if len(sys.argv) < 2 or sys.argv[1] not in names():
        print(f"usage: python -m tests.papers {{{','.join(names())}}}", file=sys.stderr)
        return 2
    importlib.import_module(f"tests.papers.{sys.argv[1]}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
