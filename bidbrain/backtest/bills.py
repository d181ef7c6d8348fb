"""Bills many allocations at once, exact to the micro-dollar: ``pricing_data.model.billing.settle`` in arrays.

    r    allocations that ended
    q    billing hours of all of them, laid end to end

Integers throughout: prices in micro-dollars per hour, each hour rounded once, half up. Refuses prices finer
than a micro-dollar, which no cloud quotes and which integers could not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Flags, Floats
from bidbrain.backtest.job import Accounting
from bidbrain.backtest.price_tape import NEVER, Tape
from bidbrain.backtest.terminations import Allotments
from bidbrain.bidding.decision_batch import Codes
from pricing_data.model.market import MarketRules, Pays, Refund
from pricing_data.model.units import HOUR_S

_MICROS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Bills:
    """Of all instances of each allocation, (r,)."""

    amount: Codes
    """Micro-dollars owed, net of refunds."""
    refunded: Codes
    paid_s: Codes
    """Machine-seconds that ran and were paid for."""
    free_s: Codes
    """Machine-seconds that ran and were refunded."""

    def by_job(self, job: Codes, jobs: int) -> Bills:
        """Sums over the allocations of each of ``jobs`` jobs; exact, as no sum comes near 2 ** 53."""

        def total(values: Codes) -> Codes:
            sums: Codes = np.bincount(job, weights=values, minlength=jobs).astype(np.int64)
            return sums

        return Bills(*(total(values) for values in (self.amount, self.refunded, self.paid_s, self.free_s)))


def settle_all(
    rules: MarketRules, on_demand: Floats, tape: Tape, ended: Allotments, accounting: Accounting
) -> Bills:
    """Settle every allocation by ``rules``; ``on_demand`` are the list prices by market code."""
    if rules.charge is Pays.BID:
        raise ValueError(
            f"{rules.name}: backtests settle at market prices; markets that charge bids are not run"
        )
    hourly = rules.quantum_s == HOUR_S
    begins = ended.runs_at
    ends = ended.end if hourly else np.maximum(ended.end, begins + rules.minimum_s)
    ends = np.where(ended.end > begins, ends, begins)
    hours = -(-(ends - begins) // HOUR_S)
    owner = np.repeat(np.arange(len(begins)), hours)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(hours) - hours, hours)
    opens = begins[owner] + nth * HOUR_S
    closes = np.minimum(opens + HOUR_S, ends[owner])
    if hourly:
        amounts = _by_the_hour(on_demand, tape, ended, owner, opens, accounting)
    else:
        amounts = _by_the_second(on_demand, tape, ended, owner, opens, closes)
    ran = np.clip(np.minimum(closes, ended.end[owner]) - opens, 0, None)
    free = _free(rules, ended, owner, opens)
    count = ended.count

    def total(values: Codes) -> Codes:
        sums: Codes = np.bincount(owner, weights=values, minlength=len(begins)).astype(np.int64) * count
        return sums

    return Bills(
        total(np.where(free, 0, amounts)),
        total(np.where(free, amounts, 0)),
        total(np.where(free, 0, ran)),
        total(np.where(free, ran, 0)),
    )


def _free(rules: MarketRules, ended: Allotments, owner: Codes, opens: Codes) -> Flags:
    """(q,): hours that are given back."""
    end, begins = ended.end[owner], ended.runs_at[owner]
    if rules.refund is Refund.EVICTED_HOUR:
        within = (opens <= end) & (end < opens + HOUR_S)
    else:
        within = end < begins + rules.refund.free_until_s
    free: Flags = ended.evicted[owner] & within
    return free


def _by_the_hour(
    on_demand: Floats, tape: Tape, ended: Allotments, owner: Codes, opens: Codes, accounting: Accounting
) -> Codes:
    """(q,): whole hours at the price of their start; the paper's accounting cuts the job's last ones."""
    spot = tape.price(ended.traded[owner], opens)
    price = np.where(ended.on_demand[owner], on_demand[ended.market[owner]], spot)
    amounts = _micros(price)
    if accounting is Accounting.LEDGER:
        return amounts
    used = np.minimum(ended.end[owner] - opens, HOUR_S)
    cut = ended.at_finish[owner] & (used < HOUR_S)
    return np.where(cut, _rounded(amounts * used), amounts)


def _by_the_second(
    on_demand: Floats, tape: Tape, ended: Allotments, owner: Codes, opens: Codes, closes: Codes
) -> Codes:
    """(q,): the integral of the price; seconds after the end (the minimum charge) at its last price."""
    market, end = ended.traded[owner], ended.end[owner]
    known = np.minimum(closes, end)
    whole = _integral(tape, market, opens, known)
    last = _micros(tape.price(market, np.maximum(known - 1, opens)))
    spot = whole + last * (closes - known)
    listed = _micros(on_demand[ended.market[owner]]) * (closes - opens)
    return _rounded(np.where(ended.on_demand[owner], listed, spot))


def _integral(tape: Tape, market: Codes, begins: Codes, ends: Codes) -> Codes:
    """Micro-dollar-seconds per hour of a machine from ``begins`` to ``ends``."""
    finite = np.isfinite(tape.prices)
    micros = np.zeros(len(tape.prices), np.int64)
    micros[finite] = _micros(tape.prices[finite])
    lasts = np.where(finite & (np.append(tape.times[1:], NEVER) != NEVER), np.diff(tape.times, append=0), 0)
    before = np.concatenate([[0], np.cumsum(micros * lasts)])

    def until(moment: Codes) -> Codes:
        step = tape.step(market, moment)
        through: Codes = before[step] + micros[step] * (moment - tape.times[step])
        return through

    return until(ends) - until(begins)


def _micros(price: Floats) -> Codes:
    """Micro-dollars per hour. Raises ValueError where that is not exact."""
    whole = np.rint(price * _MICROS)
    if not np.allclose(whole, price * _MICROS, rtol=0, atol=1e-3):
        raise ValueError(
            "a price is unknown or finer than a micro-dollar per hour: it cannot be settled exactly"
        )
    return whole.astype(np.int64)


def _rounded(micro_seconds: Codes) -> Codes:
    """Micro-dollar-seconds per hour to micro-dollars, half up."""
    amount: Codes = (2 * micro_seconds + HOUR_S) // (2 * HOUR_S)
    return amount
