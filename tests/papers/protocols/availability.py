"""Recorded availability in ticks, as published with "Can't Be Late" (Wu et al., NSDI 2024).

A file is ``{"metadata": {"gap_seconds": s}, "data": [n, ...]}``: how many machines could be had in each
tick of s seconds. ``pricing_data.formats.availability`` reads the same files as spells, for fitting; the
deadline benchmark wants the ticks themselves, with the time after the last spell.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

_FOLDER = Path("skypilot-spot-traces") / "availability" / "1-node"


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One market, one machine."""

    campaign: str
    """Of probes: cloud and date of its beginning."""
    zone: str
    """With the machine: ``us-west-2a_k80_8``."""
    up: npt.NDArray[np.bool_]
    """Whether a machine could be had, in ticks of 600 s."""

    @property
    def name(self) -> str:
        return f"{self.campaign[-4:]} {self.zone}"


def traces(data: Path, tick_s: int = 600) -> list[Trace]:
    """All traces of one machine, in order of campaign and zone; finer ones are sampled every ``tick_s``."""
    return [
        Trace(path.parent.name, path.name.removesuffix(".json.gz"), _up(path, tick_s))
        for path in sorted((data / _FOLDER).glob("*/*.json.gz"))
    ]


def _up(path: Path, tick_s: int) -> npt.NDArray[np.bool_]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        record = json.load(file)
    gap_s = record["metadata"]["gap_seconds"]
    up = np.array(record["data"]) > 0
    samples = np.arange(int(len(up) * gap_s // tick_s)) * tick_s // gap_s
    sampled: npt.NDArray[np.bool_] = up[samples]
    return sampled
