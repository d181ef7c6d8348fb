"""Says where everything is kept on this machine; a module of its own, as all layers ask."""

from __future__ import annotations

import os
from pathlib import Path


def default_root() -> Path:
    """Returns $SPOTCTL_HOME, else $XDG_STATE_HOME/spotctl, else ~/.local/state/spotctl."""
    if home := os.environ.get("SPOTCTL_HOME"):
        return Path(home)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "spotctl"
