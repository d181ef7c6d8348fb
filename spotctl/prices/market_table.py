"""Keeps all markets and their expected costs as columns in one file, so that advice is a look-up.

A table is for one horizon and for one state of the store (its ``fingerprint``). It is made anew whenever
prices were fetched or imported, and on request if it does not fit the store; unchanged rows come from the
table before. Knows no requirements and no time of day: those belong to the question.
"""

from __future__ import annotations

import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pricing_data.formats.layouts import Semantics
from pricing_data.model.market import Market
from spotctl.prices.estimates import Basis, Estimate

_VERSION: Final = 4

_DAY_S: Final = 86400
STALE_AFTER_S: Final = {Semantics.EVENT_STREAM: _DAY_S, Semantics.POLLED: 8 * _DAY_S}
"""Seconds; AWS repeats a price about daily; polled logs are mostly weekly, and late by a day now and then."""
STALE_CAPACITY_S: Final = 14 * _DAY_S
"""Seconds; observations of a market's capacity fade over two weeks: older ones say little about today."""


@dataclass(frozen=True, slots=True)
class LastPrice:
    """Holds the last price of a market that was not quarantined, and the billing rules of that time."""

    price: float
    """Dollars per hour; NaN where the market is no longer listed."""
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
    """"" for a cloud whose rules are unknown."""


@dataclass(frozen=True, slots=True)
class MachineOffer:
    """Describes the machines of a market, as far as the catalogue knows them: else 0, NaN or ""."""

    vcpus: int
    memory_gib: float
    gpus: int
    gpu_name: str
    on_demand: float
    """Dollars per hour."""


@dataclass(frozen=True, slots=True)
class MarketRow:
    """Describes one market as the store and the catalogue know it."""

    market: Market
    last: LastPrice
    machine: MachineOffer
    estimate: Estimate
    unranked: str
    """Why this market must not be ranked; empty if it may be."""


_OWN_COLUMN: Final = "unranked"
_COLUMNS: Final[Mapping[str, tuple[str, str, type]]] = {
    **{name: ("market", name, np.str_) for name in ("cloud", "region", "zone", "instance_type")},
    "price": ("last", "price", np.float64),
    "since": ("last", "since", np.int64),
    "observed": ("last", "observed", np.int64),
    "rows": ("last", "rows", np.int64),
    "source": ("last", "source", np.str_),
    "semantics": ("last", "semantics", np.str_),
    "generated": ("last", "generated", np.int64),
    "rules": ("last", "rules", np.str_),
    "vcpus": ("machine", "vcpus", np.int64),
    "memory_gib": ("machine", "memory_gib", np.float64),
    "gpus": ("machine", "gpus", np.int64),
    "gpu_name": ("machine", "gpu_name", np.str_),
    "on_demand": ("machine", "on_demand", np.float64),
    "basis": ("estimate", "basis", np.str_),
    "beta": ("estimate", "beta", np.float64),
    "low": ("estimate", "low", np.float64),
    "high": ("estimate", "high", np.float64),
    "effective": ("estimate", "effective", np.float64),
    "bid_delta": ("estimate", "bid_delta", np.float64),
    "usd_per_useful_hour": ("estimate", "usd_per_useful_hour", np.float64),
    "evidence": ("estimate", "source", np.str_),
    "evidence_until": ("estimate", "until", np.int64),
}
"""Columns of a table, by name: the part of a row, its field, and the kind of its values."""


@dataclass(frozen=True, slots=True, eq=False)
class MarketTable:
    """Holds ``columns``: the fields of all parts of ``MarketRow``, each of shape (n,)."""

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
            name: np.array([getattr(getattr(row, part), field) for row in rows], dtype=kind)
            for name, (part, field, kind) in _COLUMNS.items()
        }
        columns[_OWN_COLUMN] = np.array([row.unranked for row in rows], dtype=np.str_)
        return cls(fingerprint, horizon_s, columns, watched)

    def __len__(self) -> int:
        return len(self.columns["price"])

    def __iter__(self) -> Iterator[MarketRow]:
        return map(self.row_at, range(len(self)))

    def row_at(self, index: int) -> MarketRow:
        parts: dict[str, dict[str, Any]] = defaultdict(dict)
        for name, (part, field, _) in _COLUMNS.items():
            parts[part][field] = self.columns[name][index].item()
        estimate = parts["estimate"]
        estimate["basis"] = Basis(estimate["basis"])
        return MarketRow(
            Market(**parts["market"]),
            LastPrice(**parts["last"]),
            MachineOffer(**parts["machine"]),
            Estimate(**estimate),
            self.columns[_OWN_COLUMN][index].item(),
        )

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
            # At once: another process may be reading the old table.
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
                # No migration: a table can always be made again from the store.
                if int(kept["_version"]) != _VERSION:
                    return None
                columns = {name: kept[name] for name in (*_COLUMNS, _OWN_COLUMN)}
                horizon_s = float(kept["_horizon_s"])
                return cls(str(kept["_fingerprint"]), horizon_s, columns, str(kept["_watched"]))
        except (FileNotFoundError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
            return None
