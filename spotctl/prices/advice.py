"""Advises markets: those that meet requirements, ranked by the expected cost of useful work there.

Pure: a table, requirements and the time of day in, an answer out. Markets whose beta is known come first, by
expected cost per useful core-hour (or GPU-hour). Those of which only a lower bound is published follow, then
those of which nothing is known, by their plain price: an unknown risk never counts as none. Stale prices
come after all others, in the same order: what was not seen lately may not be available now.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pricing_data.formats.layouts import Semantics
from pricing_data.model.units import Instant
from spotctl.job.spec import Amount
from spotctl.prices.estimates import Basis
from spotctl.prices.market_table import STALE_AFTER_S, STALE_CAPACITY_S, MarketRow, MarketTable

Mask = npt.NDArray[np.bool_]

_ORDER: Final = {Basis.CROSSINGS: 0, Basis.CAPACITY: 0, Basis.RATE: 0, Basis.OPEN_RATE: 1, Basis.UNKNOWN: 2}
NO_CORES: Final = "the catalogue does not know the instance type"
NO_GPU_NAME: Final = "the catalogue does not know what its GPUs are called; `spotctl prices fetch` tells"


@dataclass(frozen=True, slots=True)
class Gpu:
    """Requires ``count`` GPUs whose name contains ``name``, whatever the case; an empty name fits all."""

    name: str
    count: Amount


@dataclass(frozen=True, slots=True)
class Wish:
    """States what the markets must offer. None and empty tuples allow everything."""

    cpus: Amount | None = None
    memory_gib: Amount | None = None
    gpu: Gpu | None = None
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """Returns the unit whose hours are priced."""
        return "core" if self.gpu is None else "GPU"


@dataclass(frozen=True, slots=True)
class RankedMarket:
    """Holds one ranked market."""

    row: MarketRow
    usd_per_unit_hour: float
    """Expected dollars per useful core-hour or GPU-hour; the plain price where beta is unknown."""
    age_s: int
    """Seconds since the price was last seen."""
    stale: bool
    evidence_stale: bool
    """Whether beta rests on observations of capacity that are too old."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Holds the answer. ``ranked``: best first, as many as requested; ``fitting``: how many fit in all."""

    ranked: tuple[RankedMarket, ...]
    fitting: int
    stale: int
    evidence_stale: int
    known: int
    """Number of markets in the store."""
    unranked: tuple[tuple[str, int], ...]
    """Markets that fit but must not be ranked, counted by the reason."""


def advise(table: MarketTable, wish: Wish, now: Instant, top: int) -> Advice:
    """Returns the best ``top`` markets of ``table`` for ``wish``."""
    columns = table.columns
    fits = _find_fitting(table, wish)
    reasons = _exclusion_reasons(table, wish)
    ranked = np.flatnonzero(fits & (reasons == ""))
    left_out = Counter(reasons[fits & (reasons != "")].tolist())
    # With a GPU wish the GPU is what is paid for; cores come along.
    units = columns["vcpus" if wish.gpu is None else "gpus"][ranked]
    cost = columns["usd_per_useful_hour"][ranked] / units
    basis = columns["basis"][ranked]
    order = np.select([basis == str(kind) for kind in _ORDER], list(_ORDER.values()))
    old = _stale_prices(table, ranked, now)
    unseen = _stale_evidence(table, ranked, now)
    # The last key of ``lexsort`` decides first: stale prices last, then the kind of evidence, then cost.
    best = np.lexsort((columns["instance_type"][ranked], columns["zone"][ranked], cost, order, old))
    return Advice(
        ranked=tuple(
            RankedMarket(
                row=(row := table.row_at(int(ranked[place]))),
                usd_per_unit_hour=float(cost[place]),
                age_s=now - row.last.observed,
                stale=bool(old[place]),
                evidence_stale=bool(unseen[place]),
            )
            for place in best[:top]
        ),
        fitting=len(ranked),
        stale=int(np.count_nonzero(old)),
        evidence_stale=int(np.count_nonzero(unseen)),
        known=len(table),
        unranked=tuple(left_out.most_common()),
    )


def _exclusion_reasons(table: MarketTable, wish: Wish) -> npt.NDArray[Any]:
    """Returns why each market must not be ranked; empty where it may be. A bad price is the first reason."""
    columns = table.columns
    reasons = columns["unranked"].astype(object)
    reasons[(reasons == "") & (columns["vcpus"] == 0)] = NO_CORES
    if wish.gpu is not None and wish.gpu.name:
        reasons[(reasons == "") & (columns["gpu_name"] == "")] = NO_GPU_NAME
    return reasons


def _find_fitting(table: MarketTable, wish: Wish) -> Mask:
    """Selects what fits, and what might fit as far as the catalogue knows: these are named with the
    reason.
    """
    columns, fits = table.columns, np.ones(len(table), np.bool_)
    if wish.clouds:
        fits &= np.isin(columns["cloud"], wish.clouds)
    if wish.regions:
        fits &= np.isin(columns["region"], wish.regions)
    suits = np.ones(len(table), np.bool_)
    if wish.cpus is not None:
        suits &= _is_admitted(wish.cpus, columns["vcpus"])
    if wish.memory_gib is not None:
        suits &= _is_admitted(wish.memory_gib, columns["memory_gib"])
    if wish.gpu is not None:
        names = columns["gpu_name"]
        suits &= (columns["gpus"] > 0) & _is_admitted(wish.gpu.count, columns["gpus"])
        # An unknown GPU name may be the right one, so it too is left out with a reason.
        suits &= (names == "") | (np.char.find(np.char.upper(names), wish.gpu.name.upper()) >= 0)
    # Unknown sizes stay in, to be counted with their reason instead of vanishing.
    return np.asarray(fits & (suits | (columns["vcpus"] == 0)))


def _is_admitted(amount: Amount, values: npt.NDArray[Any]) -> Mask:
    admitted: Mask = values >= amount.value if amount.or_more else values == amount.value
    return admitted


def _stale_prices(table: MarketTable, which: npt.NDArray[np.intp], now: Instant) -> Mask:
    ages = now - table.columns["observed"][which]
    semantics = table.columns["semantics"][which]
    stale = np.zeros(len(ages), np.bool_)
    for kind in Semantics:
        stale |= (semantics == str(kind)) & (ages > STALE_AFTER_S[kind])
    return stale


def _stale_evidence(table: MarketTable, which: npt.NDArray[np.intp], now: Instant) -> Mask:
    """Selects markets whose beta rests on capacity that was last seen too long ago."""
    by_capacity = table.columns["basis"][which] == str(Basis.CAPACITY)
    unseen: Mask = by_capacity & (now - table.columns["evidence_until"][which] > STALE_CAPACITY_S)
    return unseen
