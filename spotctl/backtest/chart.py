"""Draws the costs of each strategy's jobs beside the clairvoyant optimum. Values in, SVG out.

A row per strategy: a line from the 5th to the 95th percentile, a box around the middle half, a bar at the
median and a dot at the mean. Loads nothing from the network.
"""

from __future__ import annotations

from html import escape
from typing import Final

import numpy as np

from spotctl.backtest.result import BacktestResult, StrategyResult

_WIDTH: Final = 900
_LEFT: Final = 190
_RIGHT: Final = 40
_TOP: Final = 56
_ROW: Final = 44
_COLOUR: Final = "#0072b2"
_ORACLE: Final = "#d55e00"
_STYLE: Final = "font: 13px sans-serif; fill: #222"


def draw_svg(result: BacktestResult) -> str:
    """Draws the picture; a strategy that finished no job has an empty row."""
    most = max([s.cost.p95 for s in result.strategies if s.cost] + [result.oracle_paid.mean, 1e-9]) * 1.05
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    height = _TOP + _ROW * len(result.strategies) + 50
    title = escape(f"{result.job}: dollars per job, {result.starts} starts")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" style="{_STYLE}; font-weight: bold">{title}</text>',
        *_draw_axis(most, scale, height),
        *_draw_oracle(result, scale, height),
    ]
    for row, strategy in enumerate(result.strategies):
        parts += _draw_row(strategy, scale, _TOP + _ROW * row + _ROW / 2)
    return "\n".join([*parts, "</svg>", ""])


def _draw_axis(most: float, scale: float, height: int) -> list[str]:
    bottom = height - 40
    lines = []
    for dollars in np.linspace(0, most, 6):
        x = _LEFT + dollars * scale
        lines.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        lines.append(
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" style="{_STYLE}">${dollars:.3g}</text>'
        )
    return lines


def _draw_oracle(result: BacktestResult, scale: float, height: int) -> list[str]:
    """Draws, dashed, the mean least cost without refunds. With refunds it is often next to nothing."""
    x = _LEFT + result.oracle_paid.mean * scale
    return [
        f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height - 40}" stroke="{_ORACLE}" '
        'stroke-width="2" stroke-dasharray="5 4"/>',
        f'<text x="{x + 4:.1f}" y="{_TOP - 12}" style="font: 12px sans-serif; fill: {_ORACLE}">'
        "least possible without refunds</text>",
    ]


def _draw_row(strategy: StrategyResult, scale: float, y: float) -> list[str]:
    label = f'<text x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end" style="{_STYLE}">'
    parts = [f"{label}{escape(strategy.name)}</text>"]
    if strategy.cost is None:
        return parts
    low, first, middle, third, high = (
        _LEFT + float(q) * scale for q in np.percentile(strategy.costs, (5, 25, 50, 75, 95))
    )
    mean = _LEFT + strategy.cost.mean * scale
    return [
        *parts,
        f'<line x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}" stroke="{_COLOUR}" stroke-width="2"/>',
        f'<rect x="{first:.1f}" y="{y - 9}" width="{max(third - first, 1):.1f}" height="18" '
        f'fill="{_COLOUR}" fill-opacity="0.25" stroke="{_COLOUR}"/>',
        f'<line x1="{middle:.1f}" y1="{y - 9}" x2="{middle:.1f}" y2="{y + 9}" stroke="{_COLOUR}" '
        'stroke-width="3"/>',
        f'<circle cx="{mean:.1f}" cy="{y}" r="4" fill="#222"/>',
    ]
