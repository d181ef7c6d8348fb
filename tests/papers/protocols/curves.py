"""A few curves over one axis, as a picture: what a reproduction found, beside numbers on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotctl.charts.drawing import WIDTH, Drawing, Line, Mark, Point, Text
from spotctl.charts.png import to_png

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 70, 220, 40, 60


def picture(title: str, across: str, up: str, curves: Mapping[str, Sequence[Point]]) -> bytes:
    """PNG; both axes linear, up from 0. ``curves``: points by name."""
    every = [point for points in curves.values() for point in points]
    first, last = min(x for x, _ in every), max(x for x, _ in every)
    most = max(y for _, y in every) * 1.05
    width, height = WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(point: Point) -> Point:
        span = (last - first) or 1.0
        return _LEFT + (point[0] - first) / span * width, _TOP + (1 - point[1] / most) * height

    marks: list[Mark] = [Text(_LEFT, 20, title, size=14)]
    marks.append(Line((place((first, most)), place((first, 0)), place((last, 0))), "#888888"))
    marks.append(Text(_LEFT, _TOP - 6, up))
    marks.append(Text(_LEFT + width, _HEIGHT - 14, across, "end"))
    marks += [Text(place((x, 0))[0], _HEIGHT - 38, f"{x:g}", "middle") for x in sorted({x for x, _ in every})]
    for part in (0.25, 0.5, 0.75, 1.0):
        marks.append(Text(_LEFT - 6, place((first, part * most))[1] + 4, f"{part * most:.3g}", "end"))
    for number, (name, points) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        marks.append(Line(tuple(place(point) for point in sorted(points)), colour, 2.0))
        marks.append(Text(WIDTH - _RIGHT + 16, _TOP + 12 + 20 * number, name, colour=colour))
    return to_png(Drawing(_HEIGHT, tuple(marks)))
