"""The program ``spotctl``, also ``python -m spotctl``."""

from __future__ import annotations

import sys

_CTRL_C = 130
"""What a shell reports of a program that Ctrl-C ended."""


def main() -> None:
    """The command line; Ctrl-C while it is still being loaded ends it like any other before a start."""
    try:
        from spotctl.cli import app
    except KeyboardInterrupt:
        print("spotctl: interrupted; nothing was started", file=sys.stderr)
        sys.exit(_CTRL_C)
    app.main()


if __name__ == "__main__":
    main()
