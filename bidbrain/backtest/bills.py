"""Bills many allocations at once, exact to the micro-dollar: ``pricing_data.model.billing.settle`` in arrays.

    r    allocations that ended
    q    billing hours of all of them, laid end to end

Integers throughout: prices in micro-dollars per hour, each hour rounded once, half up. Rejects prices finer
than a micro-dollar, which no cloud quotes and which integers could not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.job import Accounting
from bidbrain.backtest.price_tape import NEVER, PriceTape
from bidbrain.backtest.terminations import EndedAllocations
from bidbrain.bidding.decision_batch import Codes
from pricing_data.model.market import ChargedPrice, MarketRules, Refund
from pricing_data.model.units import HOUR_S

_MICROS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Bills:
    """Holds the sums of all instances of each allocation, (r,)."""

    amount: Codes
    """Micro-dollars owed, net of refunds."""
    refunded: Codes
    paid_s: Codes
    """Machine-seconds that ran and were paid for."""
    free_s: Codes
    """Machine-seconds that ran and were refunded."""

    def sum_per_job(self, job: Codes, jobs: int) -> Bills:
        """Sums over the allocations of each of ``jobs`` jobs; exact, as no sum comes near 2 ** 53."""

        def sum_by_job(values: Codes) -> Codes:
            sums: Codes = np.bincount(job, weights=values, minlength=jobs).astype(np.int64)
            return sums

        return Bills(
            *(sum_by_job(values) for values in (self.amount, self.refunded, self.paid_s, self.free_s))
        )


def settle_all(
    rules: MarketRules, on_demand: Floats, tape: PriceTape, ended: EndedAllocations, accounting: Accounting
) -> Bills:
    """Settles every allocation by ``rules``; ``on_demand`` are the list prices by market code."""
    if rules.charge is ChargedPrice.BID:
        raise ValueError(
            f"{rules.name}: backtests settle at market prices; markets that charge bids are not run"
        )
    hourly = rules.quantum_s == HOUR_S
    begins = ended.runs_at
    # Billing by the second has a minimum charge, which extends the paid time.
    ends = ended.end if hourly else np.maximum(ended.end, begins + rules.minimum_s)
    ends = np.where(ended.end > begins, ends, begins)
    hours = -(-(ends - begins) // HOUR_S)
    owner = np.repeat(np.arange(len(begins)), hours)
    # The number of each hour within its allocation, from 0.
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(hours) - hours, hours)
    opens = begins[owner] + nth * HOUR_S
    closes = np.minimum(opens + HOUR_S, ends[owner])
    if hourly:
        # Whole hours, at the price of their start.
        amounts = _by_the_hour(on_demand, tape, ended, owner, opens, accounting)
    else:
        amounts = _by_the_second(on_demand, tape, ended, owner, opens, closes)
    ran = np.clip(np.minimum(closes, ended.end[owner]) - opens, 0, None)
    free = _free_hours(rules, ended, owner, opens)
    count = ended.count

    def sum_hours(values: Codes) -> Codes:
        sums: Codes = np.bincount(owner, weights=values, minlength=len(begins)).astype(np.int64) * count
        return sums

    return Bills(
        sum_hours(np.where(free, 0, amounts)),
        sum_hours(np.where(free, amounts, 0)),
        sum_hours(np.where(free, 0, ran)),
        sum_hours(np.where(free, ran, 0)),
    )


def _free_hours(rules: MarketRules, ended: EndedAllocations, owner: Codes, opens: Codes) -> Flags:
    """Returns, (q,), which hours are refunded."""
    end, begins = ended.end[owner], ended.runs_at[owner]
    if rules.refund is Refund.EVICTED_HOUR:
        within = (opens <= end) & (end < opens + HOUR_S)
    else:
        within = end < begins + rules.refund.free_until_s
    free: Flags = ended.evicted[owner] & within
    return free


def _by_the_hour(
    on_demand: Floats,
    tape: PriceTape,
    ended: EndedAllocations,
    owner: Codes,
    opens: Codes,
    accounting: Accounting,
) -> Codes:
    """Returns, (q,), whole hours at the price of their start.

    The paper's accounting cuts the job's last ones.
    """
    spot = tape.price_at(ended.traded_market[owner], opens)
    price = np.where(ended.on_demand[owner], on_demand[ended.market[owner]], spot)
    amounts = _to_micros(price)
    if accounting is Accounting.LEDGER:
        return amounts
    used = np.minimum(ended.end[owner] - opens, HOUR_S)
    cut = ended.at_finish[owner] & (used < HOUR_S)
    return np.where(cut, _round_half_up(amounts * used), amounts)


def _by_the_second(
    on_demand: Floats, tape: PriceTape, ended: EndedAllocations, owner: Codes, opens: Codes, closes: Codes
) -> Codes:
    """Returns, (q,), the integral of the price.

    Seconds after the end (the minimum charge) count at its last price.
    """
    market, end = ended.traded_market[owner], ended.end[owner]
    # No price after the end may enter the bill.
    known = np.minimum(closes, end)
    whole = _integrate_price(tape, market, opens, known)
    last = _to_micros(tape.price_at(market, np.maximum(known - 1, opens)))
    spot = whole + last * (closes - known)
    listed = _to_micros(on_demand[ended.market[owner]]) * (closes - opens)
    return _round_half_up(np.where(ended.on_demand[owner], listed, spot))


def _integrate_price(tape: PriceTape, market: Codes, begins: Codes, ends: Codes) -> Codes:
    """Returns micro-dollar-seconds per hour of a machine from ``begins`` to ``ends``."""
    # Sentinels and unknown prices must not enter the running sum.
    finite = np.isfinite(tape.prices)
    micros = np.zeros(len(tape.prices), np.int64)
    micros[finite] = _to_micros(tape.prices[finite])
    lasts = np.where(finite & (np.append(tape.times[1:], NEVER) != NEVER), np.diff(tape.times, append=0), 0)
    before = np.concatenate([[0], np.cumsum(micros * lasts)])

    def integrate_until(moment: Codes) -> Codes:
        step = tape.step_at(market, moment)
        through: Codes = before[step] + micros[step] * (moment - tape.times[step])
        return through

    return integrate_until(ends) - integrate_until(begins)


def _to_micros(price: Floats) -> Codes:
    """Returns micro-dollars per hour. Raises ValueError where that is not exact."""
    # Rounding tells a price in micro-dollars, which floats miss by a little, from one that is finer.
    whole = np.rint(price * _MICROS)
    if not np.allclose(whole, price * _MICROS, rtol=0, atol=1e-3):
        raise ValueError(
            "a price is unknown or finer than a micro-dollar per hour: it cannot be settled exactly"
        )
    return whole.astype(np.int64)


def _round_half_up(micro_seconds: Codes) -> Codes:
    """Turns micro-dollar-seconds per hour into micro-dollars, half up."""
    amount: Codes = (2 * micro_seconds + HOUR_S) // (2 * HOUR_S)
    return amount
