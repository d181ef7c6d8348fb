"""Stores the prices and capacity that a run began with, so that it can be resumed and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zipfile import BadZipFile

import numpy as np

from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market, PriceHistory, Series
from spotctl.errors import LedgerError
from spotctl.records.ledger import sync_folder

_NO_CAPACITY: Final = Observations()


@dataclass(frozen=True, slots=True)
class PriceFile:
    """Holds all that the run's markets do, from first to last; decisions see no more than ``as_of`` now."""

    path: Path

    def save(self, trace: PriceHistory, capacity: Observations = _NO_CAPACITY) -> None:
        """Saves prices and capacity; they are durable on return."""
        arrays: dict[str, np.ndarray] = {}
        for market in trace.markets:
            series = trace.series(market)
            key = _market_key(market)
            arrays[f"{key}/times"], arrays[f"{key}/prices"] = series.times, series.prices
        for market in capacity.markets:
            spells = capacity.spells(market)
            arrays[f"{_market_key(market)}/spells"] = np.stack([spells.begins, spells.ends, spells.lost])
        partial = self.path.with_name("prices.partial.npz")
        with partial.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        # Renamed only when whole: a process killed before this leaves no file that looks complete.
        partial.rename(self.path)
        sync_folder(self.path.parent)

    def load_prices(self) -> PriceHistory:
        """Loads the prices. Raises LedgerError where they cannot be read."""
        found = self._load_arrays("times", "prices")
        return PriceHistory.from_series({market: Series(*columns) for market, columns in found.items()})

    def load_capacity(self) -> Observations:
        """Loads when markets had capacity. Raises LedgerError where that cannot be read."""
        found = self._load_arrays("spells")
        return Observations.from_spells(
            {market: Spells.from_columns(*spells) for market, (spells,) in found.items()}
        )

    def _load_arrays(self, *names: str) -> Mapping[Market, tuple[np.ndarray, ...]]:
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                keys = {name.rpartition("/")[0] for name in arrays.files if name.endswith(f"/{names[0]}")}
                return {
                    Market(*key.split("/")): tuple(arrays[f"{key}/{name}"] for name in names)
                    for key in sorted(keys)
                }
        except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
            raise LedgerError(f"{self.path} cannot be read: {error}") from error


def _market_key(market: Market) -> str:
    return "/".join((market.cloud, market.region, market.zone, market.instance_type))
