"""Writes a drawing as PNG, by Pillow, which brings its own font, so that nothing of the system is needed.

Pillow draws without smoothing: everything is drawn larger, and reduced in the end.
"""

from __future__ import annotations

import io
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from spotctl.charts.drawing import WIDTH, Box, Drawing, Line, Mark, Text

_SCALE: Final = 2
"""Dots of the picture for each unit of the drawing."""
_LARGER: Final = 2
_ANCHORS: Final = {"start": "ls", "middle": "ms", "end": "rs"}
"""Pillow's names: left, middle or right end, on the baseline."""


def to_png(drawn: Drawing) -> bytes:
    """Returns the content of the file."""
    size = (WIDTH * _SCALE, drawn.height * _SCALE)
    large = Image.new("RGB", (size[0] * _LARGER, size[1] * _LARGER), "white")
    canvas = ImageDraw.Draw(large)
    for mark in drawn.marks:
        _draw_mark(canvas, mark, _SCALE * _LARGER)
    content = io.BytesIO()
    large.resize(size, Image.Resampling.BOX).save(content, "PNG", optimize=True)
    return content.getvalue()


def _draw_mark(canvas: ImageDraw.ImageDraw, mark: Mark, scale: int) -> None:
    match mark:
        case Line():
            points = [(x * scale, y * scale) for x, y in mark.points]
            canvas.line(points, mark.colour, max(round(mark.width * scale), 1))
        case Box():
            x, y = mark.x * scale, mark.y * scale
            canvas.rectangle((x, y, x + mark.width * scale - 1, y + mark.height * scale - 1), mark.colour)
        case Text():
            font = ImageFont.load_default(mark.size * scale)
            place = (mark.x * scale, mark.y * scale)
            canvas.text(place, mark.text, mark.colour, font, anchor=_ANCHORS[mark.anchor])
