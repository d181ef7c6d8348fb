"""Defines the strategies that the command line can name, and makes them for a given job."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from bidbrain.strategies.base import Strategy
from bidbrain.strategies.price_only import Failover, StandardBidding
from bidbrain.strategies.proteus import BidBrain
from bidbrain.strategies.recovery import Checkpointing
from bidbrain.strategies.registry import DEFAULT, LIVE, NEED_DEADLINE
from spotctl.errors import UsageError

Maker: TypeAlias = Callable[[float, Checkpointing], Strategy]
"""Takes the cores of the job's whole allowance, and how it would checkpoint."""

BASELINE: Final = "on-demand"
"""The strategy that the others are compared with; always run."""


def _live_maker(name: str) -> Maker:
    return lambda cores, _: LIVE[name](cores)


MENU: Final[Mapping[str, Maker]] = {
    DEFAULT: _live_maker(DEFAULT),
    BASELINE: _live_maker(BASELINE),
    "standard": lambda cores, checkpoints: StandardBidding(cores, checkpoints, "standard"),
    "failover": lambda cores, checkpoints: Failover(cores, checkpoints),
    "bidbrain-checkpoints": lambda _, checkpoints: BidBrain("bidbrain-checkpoints", checkpoints),
    **{name: _live_maker(name) for name in LIVE if name not in (BASELINE, *NEED_DEADLINE)},
}
"""Strategies that a running job can have, and others with checkpoints to compare with. They run in batches,
so without the deadline."""


def check_names(names: Sequence[str]) -> None:
    """Raises UsageError for an unknown name."""
    known = (*MENU, *NEED_DEADLINE)
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]}? " if nearest else ""
            raise UsageError(f"--strategies: {name!r} is unknown; {hint}there are: {', '.join(known)}")


def strategies_without_deadline(names: Sequence[str]) -> tuple[str, ...]:
    """Returns those of ``names`` that run without a deadline, and the baseline; or all, the default first."""
    if not names:
        return tuple(MENU)
    return tuple(dict.fromkeys((BASELINE, *(name for name in names if name in MENU))))


def strategies_with_deadline(deadline_s: float | None, names: Sequence[str], own: str) -> tuple[str, ...]:
    """Returns those of ``names`` that also, or only, run within the deadline; none where the job has none.

    Without names: the default, ``own`` (the job's), and those that are nothing without a deadline. The
    baseline is in time anyway. Raises UsageError where a name needs a deadline that is missing.
    """
    if deadline_s is None:
        if lacking := [name for name in names if name in NEED_DEADLINE]:
            raise UsageError(
                f"--strategies: {lacking[0]} is a way to keep a deadline, and the job has none; "
                "set objective.deadline, or leave it out"
            )
        return ()
    wanted = dict.fromkeys(names or (DEFAULT, own, *NEED_DEADLINE))
    return tuple(name for name in wanted if name in LIVE and name != BASELINE)


def row_name(name: str) -> str:
    """Returns the name of a strategy run within the deadline, as distinct from its run alone."""
    return name if name in NEED_DEADLINE else f"{name}, kept"
