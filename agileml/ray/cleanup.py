"""Removes folders when the process they belong to is gone, however it went.

A process killed by SIGKILL removes nothing, and Ray kills the children of the actors it ends. So a shell of
its own, nobody's child, waits for the end of a pipe that only the owner holds open.
"""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from typing import Final

_SCRIPT: Final = """
exec 3<&0
(
    cat <&3 >/dev/null
    left=$1
    while [ "$left" -gt 0 ] && [ "$(cat "$0/owner" 2>/dev/null)" = "$2" ]; do
        sleep 1
        left=$((left - 1))
    done
    [ "$(cat "$0/owner" 2>/dev/null)" != "$2" ] || rm -rf -- "$0"
) &
"""


def remove_afterwards(folder: Path, unless_taken_over_within_s: int = 0) -> object:
    """Removes ``folder`` when this process is gone or drops what is returned here.

    ``unless_taken_over_within_s``: a process that calls this for the same folder within so many seconds after
    that owns it from then on, and it stays.
    """
    owner = secrets.token_hex(8)
    (folder / "owner").write_text(owner)
    shell = subprocess.Popen(
        ["sh", "-c", _SCRIPT, str(folder), str(unless_taken_over_within_s), owner],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # Returns at once, as the script goes on in the background; its parent is then init, which Ray does not
    # kill.
    shell.wait()
    return shell.stdin
