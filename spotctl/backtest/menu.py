"""The strategies that can be named on the command line, and who they are for a given job."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from bidbrain.strategies.base import Strategy
from bidbrain.strategies.cheapest import Failover, Standard
from bidbrain.strategies.least_cost import BidBrain
from bidbrain.strategies.menu import LIVE
from bidbrain.strategies.recovery import Checkpointing
from spotctl.errors import UsageError

Maker: TypeAlias = Callable[[float, Checkpointing], Strategy]
"""From the cores of the job's whole allowance, and how it would checkpoint."""

BASELINE: Final = "on-demand"
"""What the others are compared with; always run."""


def _live(name: str) -> Maker:
    return lambda cores, _: LIVE[name](cores)


MENU: Final[Mapping[str, Maker]] = {
    BASELINE: _live(BASELINE),
    "standard": lambda cores, checkpoints: Standard(cores, checkpoints, "standard"),
    "failover": lambda cores, checkpoints: Failover(cores, checkpoints),
    "bidbrain-checkpoints": lambda _, checkpoints: BidBrain("bidbrain-checkpoints", checkpoints),
    **{name: _live(name) for name in LIVE if name != BASELINE},
}
"""Those that a running job can be given, and others that need checkpoints, to compare with."""


def named(names: Sequence[str]) -> tuple[str, ...]:
    """The strategies of ``names``, or all, with the baseline first. Raises UsageError for one unknown."""
    wanted = dict.fromkeys((BASELINE, *(names or MENU)))
    for name in wanted:
        if name not in MENU:
            nearest = difflib.get_close_matches(name, list(MENU), n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise UsageError(f"--strategies: {name!r} is unknown{hint} There are: {', '.join(MENU)}")
    return tuple(wanted)
