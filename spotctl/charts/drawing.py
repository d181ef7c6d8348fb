"""Draws price curves on paper: lines, boxes and texts at places; and writes these as SVG or HTML.

Pure: values in, text out. Needs no drawing library and loads nothing from the network; ``png.py`` makes dots
of the same drawing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

import numpy as np

from spotctl.charts.axes import Frame, PriceCurve

Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]

_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8c6d31")
"""Okabe and Ito's, which everybody can tell apart; then grey and brown."""
WIDTH: Final = 960
_HEIGHT, _LEFT, _RIGHT, _TOP = 380, 70, 20, 34
_ROW: Final = 18
_INK, _PALE, _GREY, _DIM = "#222222", "#dddddd", "#888888", "#666666"


@dataclass(frozen=True, slots=True)
class Line:
    points: tuple[Point, ...]
    colour: str
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True, slots=True)
class Text:
    """Places a text. ``anchor``: which end of the text is at ``x``; ``y`` is its baseline."""

    x: float
    y: float
    text: str
    anchor: Anchor = "start"
    colour: str = _INK
    size: int = 12


Mark = Line | Box | Text


@dataclass(frozen=True, slots=True)
class Drawing:
    """Holds a picture of ``WIDTH`` by ``height``, the origin at the top left; later marks lie over earlier
    ones.
    """

    height: int
    marks: tuple[Mark, ...]


def draw_curves(curves: Sequence[PriceCurve], title: str) -> Drawing:
    """Draws all curves on the same axes, with a legend below."""
    frame = Frame.from_curves(curves)
    height = _HEIGHT + 40 + _ROW * len(curves)
    marks: list[Mark] = [
        Box(0, 0, WIDTH, height, "#ffffff"),
        Text(_LEFT, 20, title, size=14),
        *_draw_axes(frame),
    ]
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        y = _HEIGHT + 44 + _ROW * number
        note = f" ({curve.note})" if curve.note else ""
        marks.append(Line(_curve_points(curve, frame), colour, 1.3))
        marks.append(Box(_LEFT, y - 9, 18, 4, colour))
        marks.append(Text(_LEFT + 26, y - 3, curve.name + note))
    return Drawing(height, tuple(marks))


def _draw_axes(frame: Frame) -> Iterator[Mark]:
    right, bottom = WIDTH - _RIGHT, _HEIGHT
    for price in frame.price_ticks():
        y = bottom - float(frame.y_positions(np.array([price]), bottom - _TOP)[0])
        yield Line(((_LEFT, y), (right, y)), _PALE)
        yield Text(_LEFT - 6, y + 4, f"{price:g}", "end")
    for at in frame.time_ticks(8):
        x = _LEFT + float(frame.x_positions(np.array([at]), right - _LEFT)[0])
        yield Line(((x, bottom), (x, bottom + 5)), _GREY)
        yield Text(x, bottom + 18, frame.format_tick(at), "end" if x > right - 35 else "middle")
    yield Line(((_LEFT, _TOP), (_LEFT, bottom), (right, bottom)), _GREY)
    yield Text(right, 20, "$ per hour, UTC", "end", _DIM)


def _curve_points(curve: PriceCurve, frame: Frame) -> tuple[Point, ...]:
    """Returns the corners of a curve: across, then up or down; a few points for each tenth of a unit."""
    across = _LEFT + frame.x_positions(curve.series.times, WIDTH - _RIGHT - _LEFT)
    up = _HEIGHT - frame.y_positions(curve.series.prices, _HEIGHT - _TOP)
    pixels = across.round(1)
    last = np.append(pixels[1:] != pixels[:-1], True)
    groups = np.flatnonzero(np.append(True, pixels[1:] != pixels[:-1]))
    highest, lowest = np.minimum.reduceat(up, groups), np.maximum.reduceat(up, groups)
    corners = [(float(pixels[0]), float(up[0]))]
    for x, *heights in zip(pixels[groups], highest, lowest, up[last], strict=True):
        corners.append((float(x), corners[-1][1]))
        corners += [(float(x), float(y)) for y in heights]
    end = _LEFT + float(frame.x_positions(np.array([curve.end]), WIDTH - _RIGHT - _LEFT)[0])
    return (*corners, (end, corners[-1][1]))


def to_svg(curves: Sequence[PriceCurve], title: str) -> str:
    """Writes one picture as SVG."""
    drawn = draw_curves(curves, title)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {drawn.height}" width="{WIDTH}" '
            f'height="{drawn.height}" font-family="sans-serif">',
            f"<title>{escape(title)}</title>",
            *map(_svg_element, drawn.marks),
            "</svg>",
        ]
    )


def _svg_element(mark: Mark) -> str:
    match mark:
        case Line():
            pen = f'fill="none" stroke="{mark.colour}" stroke-width="{mark.width}"'
            return f'<path d="{_svg_path(mark.points)}" {pen}/>'
        case Box():
            size = f'width="{mark.width}" height="{mark.height}"'
            return f'<rect x="{mark.x}" y="{mark.y}" {size} fill="{mark.colour}"/>'
        case Text():
            place = f'x="{mark.x:.1f}" y="{mark.y:.1f}" text-anchor="{mark.anchor}"'
            return f'<text {place} font-size="{mark.size}" fill="{mark.colour}">{escape(mark.text)}</text>'


def _svg_path(points: Sequence[Point]) -> str:
    """Writes a path whose lines go across, or up and down."""
    (x, y), *others = [(f"{x:.1f}", f"{y:.1f}") for x, y in points]
    steps = [f"M{x} {y}"]
    for new_x, new_y in others:
        steps += ([f"H{new_x}"] if new_x != x else []) + ([f"V{new_y}"] if new_y != y else [])
        x, y = new_x, new_y
    return "".join(steps)


def to_html(curves: Sequence[PriceCurve], title: str) -> str:
    """Writes a page of its own: the SVG, nothing else, nothing fetched."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            f'<head><meta charset="utf-8"><title>{escape(title)}</title>',
            "<style>body{margin:2em;font-family:sans-serif}svg{max-width:100%;height:auto}</style></head>",
            f"<body>{to_svg(curves, title)}</body>",
            "</html>",
        ]
    )
