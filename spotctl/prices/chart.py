"""Price steps as a picture: for a terminal, as SVG, and as one page of HTML around that.

Prices hold until the next one: curves are steps, never slopes, and end where the record ends. Pure: values
in, text out. Refuses to know the store; needs no drawing library and loads nothing from the network.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np
import numpy.typing as npt

from pricing_data.market import Series
from pricing_data.units import Instant

_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8c6d31")
"""Okabe and Ito's, told apart by everybody; then grey and brown."""
_DAY_S: Final = 86400
_HOURS: Final = (1 / 60, 1 / 12, 1 / 4, 1, 3, 6, 12)
_DAYS: Final = (1, 2, 7, 14, 30, 91, 182, 365, 730, 1826)
_TICKS_S: Final = (*(round(hours * 3600) for hours in _HOURS), *(days * _DAY_S for days in _DAYS))
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 960, 380, 70, 20, 34
_ROW: Final = 18
_DOTS: Final = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
"""The dots of a braille character, by row and column."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One market's steps; the last price holds until ``end``."""

    name: str
    series: Series
    end: Instant
    note: str = ""
    """Where it is from and how old: shown beside the name."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What the axes span."""

    first: int
    last: int
    low: float
    high: float

    @classmethod
    def around(cls, curves: Sequence[Curve]) -> Frame:
        """All of ``curves``, from a price of zero where that costs little room. None may be empty."""
        low = min(float(curve.series.prices.min()) for curve in curves)
        high = max(float(curve.series.prices.max()) for curve in curves)
        low = 0.0 if low < high / 2 or low == high else low - (high - low) / 10
        first = min(int(curve.series.times[0]) for curve in curves)
        last = max(curve.end for curve in curves)
        return cls(first, max(last, first + 1), low, high + (high - low) / 20)

    def across(self, at: npt.NDArray[np.int64], width: float) -> npt.NDArray[np.float64]:
        return np.asarray((at - self.first) / (self.last - self.first) * width)

    def up(self, price: npt.NDArray[np.float64], height: float) -> npt.NDArray[np.float64]:
        return np.asarray((price - self.low) / (self.high - self.low) * height)

    def prices(self) -> list[float]:
        """Round numbers to label."""
        rough = (self.high - self.low) / 5
        magnitude = 10.0 ** math.floor(math.log10(rough))
        step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [round(n * step, 10) for n in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def moments(self, most: int) -> list[int]:
        """Round moments to label, no more than ``most``."""
        span = self.last - self.first
        step = next((step for step in _TICKS_S if span / step <= most), _TICKS_S[-1])
        return list(range(-(-self.first // step) * step, self.last + 1, step))

    def moment(self, at: int) -> str:
        """As exact as the span asks for."""
        form = "%m-%d %H:%M" if self.last - self.first < 3 * _DAY_S else "%Y-%m-%d"
        return dt.datetime.fromtimestamp(at, dt.UTC).strftime(form)


def terminal(curves: Sequence[Curve], width: int, height: int) -> str:
    """A picture of ``width`` by ``height`` characters for each curve, one below the other, on one scale."""
    frame = Frame.around(curves)
    labels = [f"{price:g}" for price in (frame.high, (frame.high + frame.low) / 2, frame.low)]
    labels = [f"{float(label):.4g}" for label in labels]
    margin = max(map(len, labels)) + 1
    pictures = [_braille(curve, frame, width - margin - 1, height, labels, margin) for curve in curves]
    begin, end = frame.moment(frame.first), frame.moment(frame.last)
    axis = " " * margin + "└" + "─" * (width - margin - 1)
    times = " " * (margin + 1) + begin + end.rjust(width - margin - 1 - len(begin))
    return "\n".join([*pictures, axis, times])


def _braille(curve: Curve, frame: Frame, width: int, height: int, labels: list[str], margin: int) -> str:
    """Each column of dots spans the prices that were in force during it."""
    columns, rows = 2 * width, 4 * height
    borders = np.linspace(frame.first, frame.last, columns + 1)
    dots = np.zeros((rows, columns), np.bool_)
    levels = np.clip(frame.up(curve.series.prices, rows - 1).round().astype(int), 0, rows - 1)
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


def svg(curves: Sequence[Curve], title: str) -> str:
    """One picture, all curves on the same axes, with a legend below."""
    frame = Frame.around(curves)
    height = _HEIGHT + 40 + _ROW * len(curves)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="#222">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
        *_axes(frame),
    ]
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        body.append(f'<path d="{_path(curve, frame)}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        y = _HEIGHT + 44 + _ROW * number
        note = f" ({curve.note})" if curve.note else ""
        body.append(f'<rect x="{_LEFT}" y="{y - 9}" width="18" height="4" fill="{colour}"/>')
        body.append(f'<text x="{_LEFT + 26}" y="{y - 3}">{escape(curve.name + note)}</text>')
    return "\n".join([*body, "</svg>"])


def html(curves: Sequence[Curve], title: str) -> str:
    """A page of its own: the SVG, nothing else, nothing fetched."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            f'<head><meta charset="utf-8"><title>{escape(title)}</title>',
            "<style>body{margin:2em;font-family:sans-serif}svg{max-width:100%;height:auto}</style></head>",
            f"<body>{svg(curves, title)}</body>",
            "</html>",
        ]
    )


def _axes(frame: Frame) -> list[str]:
    right, bottom, lines = _WIDTH - _RIGHT, _HEIGHT, []
    for price in frame.prices():
        y = bottom - float(frame.up(np.array([price]), bottom - _TOP)[0])
        lines.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{price:g}</text>')
    for at in frame.moments(8):
        x = _LEFT + float(frame.across(np.array([at]), right - _LEFT)[0])
        lines.append(f'<path d="M{x:.1f} {bottom}v5" stroke="#888"/>')
        anchor = "end" if x > right - 35 else "middle"
        lines.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="{anchor}">{frame.moment(at)}</text>')
    lines.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#888"/>')
    lines.append(f'<text x="{right}" y="20" text-anchor="end" fill="#666">$ per hour, UTC</text>')
    return lines


def _path(curve: Curve, frame: Frame) -> str:
    """Across, then up or down: at most three points for each hundredth of an inch."""
    across = _LEFT + frame.across(curve.series.times, _WIDTH - _RIGHT - _LEFT)
    up = _HEIGHT - frame.up(curve.series.prices, _HEIGHT - _TOP)
    pixels = across.round(1)
    last = np.append(pixels[1:] != pixels[:-1], True)
    groups = np.flatnonzero(np.append(True, pixels[1:] != pixels[:-1]))
    highest, lowest = np.minimum.reduceat(up, groups), np.maximum.reduceat(up, groups)
    steps = [f"M{pixels[0]:.1f} {up[0]:.1f}"]
    for x, top, foot, rest in zip(pixels[groups], highest, lowest, up[last], strict=True):
        steps.append(f"H{x:.1f}")
        if top != foot:
            steps += [f"V{top:.1f}", f"V{foot:.1f}"]
        steps.append(f"V{rest:.1f}")
    end = _LEFT + float(frame.across(np.array([curve.end]), _WIDTH - _RIGHT - _LEFT)[0])
    return "".join([*steps, f"H{end:.1f}"])
