"""Nothing that a table says is lost on a narrow terminal, or in a file."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from spotctl.cli.format import output
from spotctl.cli.format.narrow_tables import fit_to_width, least_width

WORDS: Final = st.text("abc0123456789$.", min_size=1, max_size=30)


def table(*rows: tuple[str, ...]) -> Table:
    made = Table(box=None, pad_edge=False, caption="what it means", caption_justify="left")
    for number in range(len(rows[0])):
        made.add_column(f"title-{number}", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def drawn(picture: RenderableType, width: int) -> str:
    console = Console(width=width, color_system=None, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(fit_to_width(picture, width))
    return capture.get()


@given(
    st.integers(1, 5).flatmap(lambda n: st.lists(st.tuples(*[WORDS] * n), min_size=1, max_size=4)),
    st.integers(50, 200),
)
def test_every_cell_is_there_whole_at_any_width(rows: list[tuple[str, ...]], width: int) -> None:
    shown = drawn(table(*rows), width).split()
    for cell in (cell for row in rows for cell in row):
        assert cell in shown


def test_a_table_that_fits_stays_a_table_and_one_that_does_not_becomes_records() -> None:
    made = table(("movies", "3", "$1.959900"), ("total", "3", "$1.959900"))
    needed = len("title-0  title-1  $1.959900")
    assert least_width(made) == needed
    assert drawn(made, needed).splitlines()[0].split() == ["title-0", "title-1", "title-2"]
    records = drawn(Group(Text("first"), made), needed - 1).splitlines()
    assert [line.split() for line in records[:3]] == [["first"], ["title-0", "movies"], ["title-1", "3"]]
    assert records[-1].strip() == "what it means"


@pytest.mark.parametrize("length", [10, 64, 300])
def test_what_goes_into_a_file_is_as_wide_as_it_has_to_be(length: int) -> None:
    assert "n" * length in output.render_text(table(("n" * length, *["$1.959900"] * 12)))
