"""Pictures of prices."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pricing_data.model.market import Series
from pricing_data.model.units import Instant
from spotctl.charts.axes import Frame, PriceCurve, draw_terminal
from spotctl.charts.drawing import draw_curves, to_html, to_svg
from spotctl.charts.png import to_png

DAY_S = 86400


def curve(prices: list[float], every_s: int = DAY_S, name: str = "m4.xlarge@us-east-1a") -> PriceCurve:
    times = np.arange(len(prices), dtype=np.int64) * every_s
    return PriceCurve(name, Series(times, np.array(prices)), Instant(len(prices) * every_s))


def dots(picture: str) -> list[list[bool]]:
    """The braille dots of a picture of one curve, top row first."""
    rows = []
    for line in picture.splitlines()[1:-2]:
        cells = [ord(cell) - 0x2800 for cell in line.partition("│")[2]]
        for bits in ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80)):
            rows += [[bool(cell & bit) for cell in cells for bit in bits]]
    return rows


def test_a_step_is_drawn_as_a_step() -> None:
    rows = dots(draw_terminal([curve([1.0, 1.0, 3.0, 3.0])], width=46, height=4))
    low, high = [index for index, row in enumerate(rows) if sum(row) > 10]
    level: dict[bool, set[frozenset[int]]] = {True: set(), False: set()}
    for place in range(80):
        lit = {index for index, row in enumerate(rows) if place < len(row) and row[place]}
        level[place < 38].add(frozenset(lit & {low, high}))
    assert level[True] == {frozenset({high})}, "the lower price is the lower line"
    assert frozenset({low}) in level[False]


def test_the_axes_say_dollars_and_days() -> None:
    picture = draw_terminal([curve([0.5, 2.0] * 20)], width=80, height=6)
    lines = picture.splitlines()
    assert lines[0].strip() == "m4.xlarge@us-east-1a"
    assert lines[-1].split() == ["1970-01-01", "1970-02-10"]
    assert all(len(line) <= 80 for line in lines)
    assert "2.1│" in lines[1]


def test_no_spike_is_lost_however_short() -> None:
    """One second of 10 $/h in a hundred days still reaches the top."""
    times = np.array([0, 50 * DAY_S, 50 * DAY_S + 1], np.int64)
    spiked = PriceCurve("x", Series(times, np.array([1.0, 10.0, 1.0])), Instant(100 * DAY_S))
    assert any(map(any, dots(draw_terminal([spiked], 80, 8))[:3]))
    (path,) = re.findall(r'<path d="(M[^"]*)" fill="none" stroke="#0072b2"', to_svg([spiked], "x"))
    tops = [float(y) for y in re.findall(r"V([\d.]+)", path)]
    assert min(tops) < 60 < 300 < max(tops)


def test_the_svg_is_well_formed_and_says_what_it_shows() -> None:
    tree = ET.fromstring(to_svg([curve([1, 2]), curve([2, 1], name="a<b>&c@z")], "two <markets>"))
    texts = ["".join(element.itertext()) for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert "a<b>&c@z" in texts
    assert "two <markets>" in texts
    assert any("$ per hour" in text for text in texts)


def test_the_png_shows_what_the_drawing_has() -> None:
    """The step up in the middle, where the SVG has it, in the first curve's colour and in no other place."""
    picture = Image.open(io.BytesIO(to_png(draw_curves([curve([1.0, 1.0, 3.0, 3.0])], "x"))))
    dots = np.asarray(picture.convert("RGB")).astype(int)
    blue = np.abs(dots - (0x00, 0x72, 0xB2)).sum(axis=2) < 60
    height, width = blue.shape
    assert (width, height) == (1920, 876)
    plot = blue[: 2 * 380]
    columns = [np.flatnonzero(plot[:, x]) for x in (400, 800, 1200, 1700)]
    low, same, high, end = (int(column.mean()) for column in columns)
    assert all(len(column) <= 4 for column in columns)
    assert low == same > 400 > 150 > high == end
    assert not plot[:, :139].any()
    assert not plot[:, 1882:].any()


def test_the_png_has_texts() -> None:
    """Without one system font: of two titles each has its own dots, above the axes."""
    pictures = [
        np.asarray(Image.open(io.BytesIO(to_png(draw_curves([curve([1.0, 2.0])], title)))))[:60]
        for title in ("a", "b")
    ]
    assert all((picture < 128).any() for picture in pictures)
    assert (pictures[0] != pictures[1]).any()


def test_the_page_needs_nothing_else() -> None:
    page = to_html([curve([1, 2])], "x")
    assert page.startswith("<!doctype html>")
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)


@given(
    st.lists(st.floats(1e-5, 900.0), min_size=1, max_size=40),
    st.integers(1, 40 * DAY_S),
    st.integers(40, 200),
)
def test_whatever_the_prices_there_is_a_picture(prices: list[float], every_s: int, width: int) -> None:
    drawn = [curve(prices, every_s)]
    assert all(len(line) <= width for line in draw_terminal(drawn, width, 5).splitlines())
    tree = ET.fromstring(to_svg(drawn, "x"))
    (path,) = [e for e in tree.iter("{http://www.w3.org/2000/svg}path") if e.get("stroke") == "#0072b2"]
    numbers = [float(number) for number in re.findall(r"[\d.]+", path.get("d") or "")]
    assert all(0 <= number <= 960 for number in numbers)


@pytest.mark.parametrize("span_s", [60, 3600, 5 * 3600, 3 * DAY_S, 40 * DAY_S, 4000 * DAY_S])
def test_few_round_moments_are_labelled(span_s: int) -> None:
    frame = Frame(1_465_000_123, 1_465_000_123 + span_s, 0.0, 1.0)
    moments = frame.time_ticks(8)
    assert 1 <= len(moments) <= 9
    assert all(frame.first <= at <= frame.last for at in moments)
    assert 3 <= len(frame.price_ticks()) <= 8
