"""A line is whole or it was never sent, wherever a write ends and whoever writes next."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agileml.node.programs.jsonl_log import JsonlReader, JsonlWriter
from tests.spotctl.full import no_file_longer_than


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "words.jsonl"


def received(path: Path) -> list[tuple[int, object]]:
    return list(JsonlReader(path).receive())


@pytest.mark.parametrize("durable", [False, True])
def test_a_line_that_the_disk_has_no_room_for_was_never_sent(path: Path, durable: bool) -> None:
    with closing(JsonlWriter(path, durable=durable)) as box:
        box.send({"a": 1})
        length = path.stat().st_size
        with no_file_longer_than(length + 4), pytest.raises(OSError, match="File too large"):
            box.send({"b": "more than there is room for"})
        assert (path.stat().st_size, box.sent) == (length, 1)
        box.send({"c": 3})
    assert received(path) == [(1, {"a": 1}), (2, {"c": 3})]


@given(half=st.binary(max_size=30).filter(lambda text: b"\n" not in text))
def test_what_is_no_line_is_not_read_and_glued_to_nothing(
    half: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("half") / "words.jsonl"
    with closing(JsonlWriter(path)) as box:
        box.send({"a": 1})
        with path.open("ab") as file:
            file.write(half)
        assert received(path) == [(1, {"a": 1})]
        box.send({"b": 2})
        with path.open("ab") as file:
            file.write(half)
    with closing(JsonlWriter(path)) as box:
        assert box.sent == 2
        box.send({"c": 3})
    assert path.read_text() == "".join(json.dumps(line) + "\n" for line in ({"a": 1}, {"b": 2}, {"c": 3}))
