"""Keeps all markets and their expected costs as columns in one file, so that advice is a look-up.

A table is for one horizon and for one state of the store (its ``fingerprint``). It is made anew whenever
prices were fetched or imported, and on request if it does not fit the store; unchanged rows come from the
table before. Knows no requirements and no time of day: those belong to the question.
"""

from __future__ import annotations

import os
import typing
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import Market
from pricing_data.model.units import Instant
from spotctl.prices.estimates import Basis, Estimate

_VERSION: Final = 4
_KINDS: Final = {str: np.str_, int: np.int64, float: np.float64}

_DAY_S: Final = 86400
STALE_AFTER_S: Final = {Semantics.EVENT_STREAM: _DAY_S, Semantics.POLLED: 8 * _DAY_S}
"""Seconds; AWS repeats a price about daily; polled logs are mostly weekly, and late by a day now and then."""
STALE_CAPACITY_S: Final = 14 * _DAY_S
"""Seconds; observations of a market's capacity fade over two weeks: older ones say little about today."""


@dataclass(frozen=True, slots=True)
class MarketRow:
    """Describes one market as the store and the catalogue know it. Unknown numbers are NaN, or 0 if whole."""

    cloud: str
    region: str
    zone: str
    instance_type: str
    price: float
    """Dollars per hour; the last price that was not quarantined."""
    since: int
    """Instant of the last row with this price."""
    observed: int
    """Instant at which it was last seen."""
    rows: int
    source: str
    semantics: str
    generated: int
    """1 where the price was generated for trying things out."""
    rules: str
    vcpus: int
    memory_gib: float
    gpus: int
    gpu_name: str
    on_demand: float
    basis: str
    beta: float
    low: float
    high: float
    effective: float
    bid_delta: float
    usd_per_useful_hour: float
    evidence: str
    evidence_until: int
    """Instant; 0 where there is no evidence."""
    unranked: str
    """Why this market must not be ranked; empty if it may be."""

    @property
    def market(self) -> Market:
        return Market(self.cloud, self.region, self.zone, self.instance_type)

    @property
    def estimate(self) -> Estimate:
        return Estimate(
            Basis(self.basis),
            self.beta,
            self.low,
            self.high,
            self.effective,
            self.bid_delta,
            self.usd_per_useful_hour,
            self.evidence,
            Instant(self.evidence_until),
        )


@dataclass(frozen=True, slots=True, eq=False)
class MarketTable:
    """Holds ``columns``: the fields of ``MarketRow``, each of shape (n,)."""

    fingerprint: str
    horizon_s: float
    columns: Mapping[str, npt.NDArray[Any]]
    watched: str = ""
    """The state of the files that estimates from observed capacity rest on."""

    @classmethod
    def from_rows(
        cls, fingerprint: str, horizon_s: float, rows: Iterable[MarketRow], watched: str = ""
    ) -> Self:
        rows = tuple(rows)
        columns: dict[str, npt.NDArray[Any]] = {
            name: np.array([getattr(row, name) for row in rows], dtype=_KINDS[kind])
            for name, kind in _column_types().items()
        }
        return cls(fingerprint, horizon_s, columns, watched)

    def __len__(self) -> int:
        return len(self.columns["price"])

    def __iter__(self) -> Iterator[MarketRow]:
        return map(self.row_at, range(len(self)))

    def row_at(self, index: int) -> MarketRow:
        return MarketRow(**{name: column[index].item() for name, column in self.columns.items()})

    def save(self, path: Path) -> None:
        """Replaces ``path`` at once or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with scratch.open("wb") as file:
                about = {
                    "_version": np.array(_VERSION),
                    "_fingerprint": np.array(self.fingerprint),
                    "_horizon_s": np.array(self.horizon_s),
                    "_watched": np.array(self.watched),
                }
                np.savez(file, allow_pickle=False, **about, **self.columns)
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Loads a table; None where there is none, or none that this version wrote whole: it can be made
        again.
        """
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                if int(kept["_version"]) != _VERSION:
                    return None
                columns = {field.name: kept[field.name] for field in fields(MarketRow)}
                horizon_s = float(kept["_horizon_s"])
                return cls(str(kept["_fingerprint"]), horizon_s, columns, str(kept["_watched"]))
        except (FileNotFoundError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
            return None


@cache
def _column_types() -> dict[str, type]:
    return {field.name: typing.get_type_hints(MarketRow)[field.name] for field in fields(MarketRow)}
