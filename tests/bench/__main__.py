"""``python -m tests.bench NAME``: run one benchmark, or list them all."""

from __future__ import annotations

import sys

from tests.named import main

if __name__ == "__main__":
    sys.exit(main("bench"))
