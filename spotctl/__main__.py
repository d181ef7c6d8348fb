"""Runs the program ``spotctl``, also as ``python -m spotctl``."""

from __future__ import annotations

import gc
import os
import sys

_CTRL_C = 130
"""Exit code that a shell reports for a program that Ctrl-C ended."""
_THREADS = "OPENBLAS_NUM_THREADS"
"""NumPy's threads: one on each core but the first spins for a tenth of a second, and never has work here."""
_GARBAGE_AFTER = 50_000
"""Objects made before Python collects the newest garbage. Loaded modules stay, and looking through them
after every 700 objects takes a tenth of a plan's time.
"""


def main() -> None:
    """Runs the command line; Ctrl-C while it is still loading ends it like any other before a start."""
    os.environ.setdefault(_THREADS, "1")
    gc.set_threshold(_GARBAGE_AFTER)
    try:
        from spotctl.cli import app
    except KeyboardInterrupt:
        print("spotctl: interrupted; nothing was started", file=sys.stderr)
        sys.exit(_CTRL_C)
    app.main()


if __name__ == "__main__":
    main()
