"""Estimates what evictions cost a command, as it would be started now. Pure.

h    per second   hazard of the first purchase, from its eviction probability within an hour
x    seconds      from the start of a machine to the end of the work, undisturbed
1/h               expected life between evictions
e^(h x) - 1       expected evictions of a program that keeps nothing and begins anew each time: a try is not
                  evicted with probability e^(-h x), so e^(h x) tries are expected, the last one whole
(e^(h x) - 1)/h   and the machine time that it takes: evictions come at rate h while a machine is held
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from bidbrain.bidding.forecast import CostForecast
from bidbrain.model import Candidate
from pricing_data.model.units import HOUR_S, Seconds, Usd
from spotctl.control.state import State

_MATTERS: Final = 1.1


@dataclass(frozen=True, slots=True)
class Setbacks:
    """Holds what evictions are expected to cost.

    ``life_s``: expected between evictions; ``setup_s``: from a request to the first new step on a machine.
    ``anew_s``, ``anew_cost``, ``evictions``: expected for a program that keeps nothing; None where the amount
    of work is unknown. ``keeps``: whether it writes checkpoints; None: its file does not say.
    """

    life_s: Seconds
    setup_s: Seconds
    keeps: bool | None
    evictions: float | None = None
    anew_s: Seconds | None = None
    anew_cost: Usd | None = None

    @property
    def too_short_lived(self) -> bool:
        """Tells whether a machine is expected to go before its program does anything new."""
        return self.life_s < self.setup_s


def expect_setbacks(state: State, ahead: CostForecast, keeps: bool | None) -> Setbacks | None:
    """Estimates the setbacks of the first purchase in ``ahead``.

    None for an elastic job, whose reliable machines hold its state, and where nothing would be bought.
    """
    terms = state.terms
    chosen = _first_purchase(ahead)
    if chosen is None or not terms.engine.relies_on_checkpoints:
        return None
    # Without a bid nothing is evicted. The bound keeps the logarithm finite at beta = 1.
    hazard = 0.0 if chosen.bid_delta is None else -math.log(max(1 - chosen.beta, 1e-9)) / HOUR_S
    begins_s = terms.work.scaling.sigma_s + terms.checkpointing.restart_s
    life_s = 1 / hazard if hazard > 0 else math.inf
    plain = Setbacks(Seconds(life_s), Seconds(terms.start_s + begins_s), keeps)
    if terms.work.stop.clocks is None or chosen.market is None or not math.isfinite(ahead.expected_s):
        return plain
    # On one machine: a program that keeps nothing cannot share its work.
    run_s = ahead.work / terms.market_option(chosen.market).nu
    # Beyond exp(700) floats overflow; such a program would never end anyway.
    evictions = math.expm1(min(hazard * (begins_s + run_s), 700.0))
    busy_s = evictions / hazard if hazard > 0 else begins_s + run_s
    # The plan's mean dollars per second, as the tries are on machines like the planned ones.
    rate = ahead.expected_cost / ahead.expected_s
    return Setbacks(
        plain.life_s,
        plain.setup_s,
        keeps,
        evictions,
        Seconds(busy_s + terms.start_s * (1 + evictions)),
        Usd(rate * busy_s),
    )


def is_significant(setbacks: Setbacks, ahead: CostForecast) -> bool:
    """Tells whether keeping nothing makes the job noticeably longer: by more than a tenth."""
    return setbacks.anew_s is None or setbacks.anew_s > _MATTERS * ahead.expected_s


def _first_purchase(ahead: CostForecast) -> Candidate | None:
    """Returns what the first decision would buy."""
    bought = (w for w in ahead.decisions[0].weighed if w.chosen and w.market is not None)
    return next(bought, None)
