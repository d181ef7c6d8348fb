"""Spans the axes of price curves, and draws them for a terminal. ``drawing.py`` draws them on paper.

Prices hold until the next one: curves are steps, never slopes, and end where the record ends. Pure: values
in, text out. Knows no store.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pricing_data.model.market import Series
from pricing_data.model.units import Instant

_DAY_S: Final = 86400
_HOURS: Final = (1 / 60, 1 / 12, 1 / 4, 1, 3, 6, 12)
_DAYS: Final = (1, 2, 7, 14, 30, 91, 182, 365, 730, 1826)
_TICKS_S: Final = (*(round(hours * 3600) for hours in _HOURS), *(days * _DAY_S for days in _DAYS))
_DOTS: Final = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
"""The dots of a braille character, by row and column."""


@dataclass(frozen=True, slots=True)
class PriceCurve:
    """Holds one market's steps; the last price holds until ``end``."""

    name: str
    series: Series
    end: Instant
    note: str = ""
    """Source and age: shown beside the name."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Holds the span of the axes."""

    first: int
    last: int
    low: float
    high: float

    @classmethod
    def from_curves(cls, curves: Sequence[PriceCurve]) -> Frame:
        """Spans all of ``curves``, from a price of zero where that costs little room. None may be empty."""
        low = min(float(curve.series.prices.min()) for curve in curves)
        high = max(float(curve.series.prices.max()) for curve in curves)
        low = 0.0 if low < high / 2 or low == high else low - (high - low) / 10
        first = min(int(curve.series.times[0]) for curve in curves)
        last = max(curve.end for curve in curves)
        return cls(first, max(last, first + 1), low, high + (high - low) / 20)

    def x_positions(self, at: npt.NDArray[np.int64], width: float) -> npt.NDArray[np.float64]:
        return np.asarray((at - self.first) / (self.last - self.first) * width)

    def y_positions(self, price: npt.NDArray[np.float64], height: float) -> npt.NDArray[np.float64]:
        return np.asarray((price - self.low) / (self.high - self.low) * height)

    def price_ticks(self) -> list[float]:
        """Returns round prices to label."""
        rough = (self.high - self.low) / 5
        magnitude = 10.0 ** math.floor(math.log10(rough))
        step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [round(n * step, 10) for n in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def time_ticks(self, most: int) -> list[int]:
        """Returns round moments to label, no more than ``most``."""
        span = self.last - self.first
        step = next((step for step in _TICKS_S if span / step <= most), _TICKS_S[-1])
        return list(range(-(-self.first // step) * step, self.last + 1, step))

    def format_tick(self, at: int) -> str:
        """Formats a moment, as exactly as the span requires."""
        form = "%m-%d %H:%M" if self.last - self.first < 3 * _DAY_S else "%Y-%m-%d"
        return dt.datetime.fromtimestamp(at, dt.UTC).strftime(form)


def draw_terminal(curves: Sequence[PriceCurve], width: int, height: int) -> str:
    """Draws each curve in ``width`` by ``height`` characters, one below the other, on one scale."""
    frame = Frame.from_curves(curves)
    labels = [f"{price:g}" for price in (frame.high, (frame.high + frame.low) / 2, frame.low)]
    labels = [f"{float(label):.4g}" for label in labels]
    margin = max(map(len, labels)) + 1
    pictures = [_draw_braille(curve, frame, width - margin - 1, height, labels, margin) for curve in curves]
    begin, end = frame.format_tick(frame.first), frame.format_tick(frame.last)
    axis = " " * margin + "└" + "─" * (width - margin - 1)
    times = " " * (margin + 1) + begin + end.rjust(width - margin - 1 - len(begin))
    return "\n".join([*pictures, axis, times])


def _draw_braille(
    curve: PriceCurve, frame: Frame, width: int, height: int, labels: list[str], margin: int
) -> str:
    """Draws one curve; each column of dots spans the prices that were in force during it."""
    columns, rows = 2 * width, 4 * height
    borders = np.linspace(frame.first, frame.last, columns + 1)
    dots = np.zeros((rows, columns), np.bool_)
    levels = np.clip(frame.y_positions(curve.series.prices, rows - 1).round().astype(int), 0, rows - 1)
    begins = np.searchsorted(curve.series.times, borders[:-1], side="right") - 1
    ends = np.searchsorted(curve.series.times, borders[1:], side="left")
    for column in np.flatnonzero((ends > 0) & (borders[:-1] <= curve.end)):
        inside = levels[max(begins[column], 0) : ends[column]]
        dots[rows - 1 - inside.max() : rows - inside.min(), column] = True
    cells = dots.reshape(height, 4, width, 2).transpose(0, 2, 1, 3)
    codes = 0x2800 + (cells * _DOTS).sum(axis=(2, 3))
    marked = {0: labels[0], height // 2: labels[1], height - 1: labels[2]}
    title = " " * margin + f" {curve.name}" + (f"  ({curve.note})" if curve.note else "")
    lines = [
        f"{marked.get(row, ''):>{margin}}│{''.join(map(chr, line)).rstrip(chr(0x2800))}"
        for row, line in enumerate(codes.tolist())
    ]
    return "\n".join([title, *lines])
