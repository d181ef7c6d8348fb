"""Tables of many rows, as text."""

from __future__ import annotations

from spotctl.cli.format.text_tables import TextTable

ROWS = TextTable(
    ("job", "cost"), (("a", "$1.00"), ("nightly", "$20.00")), 1, total=("total", "$21.00"), notes=("so",)
)


def test_text_is_to_the_left_and_figures_to_the_right() -> None:
    assert ROWS.to_text() == "job        cost\na         $1.00\nnightly  $20.00\ntotal    $21.00\nso"


def test_on_a_narrow_terminal_each_row_is_a_record() -> None:
    assert ROWS.to_text(15) == ROWS.to_text()
    lines = ROWS.to_text(14).splitlines()
    assert lines[:3] == ["job   a", "cost  $1.00", ""]
    assert lines[-1] == "so"


def test_signs_that_take_two_places_keep_columns_straight() -> None:
    wide = TextTable(("job", "runs"), (("夜", "1"), ("ab", "2"), ("e\u0301", "3")), 1)
    assert wide.to_text() == "job  runs\n夜      1\nab      2\ne\u0301       3"


def test_titles_and_totals_stand_out_on_a_terminal() -> None:
    first, *_, total, _ = ROWS.to_text(80, styled=True).splitlines()
    assert first == "\x1b[1mjob        cost\x1b[0m"
    assert total == "\x1b[1mtotal    $21.00\x1b[0m"
    assert TextTable(("job",), (), 1).to_text(80) == "job"
