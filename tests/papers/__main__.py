"""``python -m tests.papers NAME``: run one reproduction, or list them all."""

from __future__ import annotations

import sys

from tests.named import main

if __name__ == "__main__":
    sys.exit(main("papers"))
