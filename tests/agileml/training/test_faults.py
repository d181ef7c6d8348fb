"""Tests what the author of an application is told of its mistakes: before anything starts, with the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agileml.api import (
    ApplicationError,
    ApplicationFault,
    Outcome,
    calling_application,
    load_application,
    validated_delta,
)
from agileml.data.sharding import cut_input
from agileml.data.shards import ShardReader
from agileml.model_shape import Shape
from agileml.protocol.messages import Patch
from agileml.protocol.telemetry import ObjectiveReport, ObjectiveSums, ShardObjective

MEAN = """
import numpy as np
from agileml.api import Columns, Kind, Outcome, Survey
from agileml.protocol.messages import Patch
from agileml.api import Shape

class Mean:
    metric = "mse"
    columns = Columns({"y": Kind.NUMBER})

    def __init__(self, step=0.5):
        self.step = step

    def survey(self, table, shards):
        return Survey(Shape(3, 1), {}, {})

    def prepare(self, rows, numbers, survey):
        return {"y": rows["y"]}

    def initial(self, rows, shape):
        return np.zeros((len(rows), 1), np.float32)

    def rows(self, shard):
        return np.arange(3)

    def process(self, shard, values, seed):
        return Outcome(Patch(np.arange(3), np.zeros((3, 1), np.float32)), 0.0, 1.0)

    def objective(self, total, count):
        return total / count
"""
"""An application, one line of which each test below spoils."""


def cut(tmp_path: Path, before: str = "", after: str = "", **arguments: object) -> None:
    assert before in MEAN
    (tmp_path / "mean.py").write_text(MEAN.replace(before, after, 1))
    np.savez(tmp_path / "y.npz", y=np.arange(40.0))
    app = load_application(f"{tmp_path}/mean.py:Mean", arguments)
    cut_input(app, tmp_path / "y.npz", 4, tmp_path / "cut")


def test_the_application_that_the_others_spoil_is_none_the_worse(tmp_path: Path) -> None:
    cut(tmp_path)
    assert (tmp_path / "cut" / "shape.json").exists()


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("class Mean:", "class Mean(:", r"SyntaxError: invalid syntax \(mean.py, line 7\)$"),
        (
            "import numpy as np",
            "import nothing_of_that_name",
            r"nothing_of_that_name' \(.*mean.py, line 2\)$",
        ),
        (
            "import numpy as np",
            "raise SystemExit(0)",
            r"cannot import .*: SystemExit: 0 \(.*mean.py, line 2\)",
        ),
        (
            "    def objective",
            "    def objektive",
            "Mean has no objective; an application has metric, columns",
        ),
        ('Columns({"y": Kind.NUMBER})', '["y"]', "columns is a list, expected agileml.api.Columns"),
        (
            "self.step = step",
            "self.step = {}[step]",
            r"cannot be made .*KeyError: 0.5 \(.*mean.py, line 12\)",
        ),
    ],
)
def test_a_file_that_is_no_application_is_told_from_one(
    before: str, after: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(ApplicationError, match=told):
        cut(tmp_path, before, after)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("return Survey(Shape(3, 1), {}, {})", "None", "^survey gave NoneType, expected Survey$"),
        (
            "return Survey",
            "return np.linalg.inv(np.zeros(3))",
            r"^survey failed: LinAlg.*mean.py, line 15\)$",
        ),
        ('{"y": rows["y"]}', 'rows["x"]', r"^prepare, of shard 0, failed: KeyError: 'x' \(.*line 18\)$"),
        ('{"y": rows["y"]}', 'rows["y"]', "^prepare gave ndarray, expected Mapping$"),
        ('{"y": rows["y"]}', '{"y": np.array([{}])}', "^prepare gave y: arrays of Python objects "),
        ('{"y": rows["y"]}', '{"y": [[1, 2], [3]]}', "^prepare gave y: ValueError: .*; expected an array$"),
        ('{"y": rows["y"]}', "{0: rows['y']}", "^prepare gave an array called 0, expected text$"),
        (
            "(len(rows), 1), np.float32",
            "(1, len(rows)), np.float32",
            r"^initial gave float32 \(1, 3\) for 3 r",
        ),
        ("(len(rows), 1), np.float32", "(len(rows), 1)", r"float64 \(3, 1\).*expected float32 \(3, 1\)$"),
        (
            "(len(rows), 1), np.float32",
            "shape.cols",
            r"^initial failed: AttributeError: .*mean.py, line 21\)$",
        ),
        ("return np.arange(3)", "return [0, 1]", "^rows gave list, expected ndarray$"),
        (
            "return np.arange(3)",
            "return np.arange(3.0)",
            r"^rows gave float64 \(3,\), expected int64 \(n,\)$",
        ),
        ("np.arange(3)", "np.array([2, 1])", r"^rows gave \[2, 1\], .* sorted, unique, from 0 to 2$"),
        ("np.arange(3)", "np.arange(9, 30)", r"^rows gave \[ 9, 10, 11, ..., 27, 28, 29\], expected rows"),
        ("np.arange(3)", "missing", r"^rows, of shard 0, failed: NameError: .*mean.py, line 24\)$"),
    ],
)
def test_code_that_fails_before_anything_starts_is_its_authors(
    before: str, after: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(ApplicationFault, match=told):
        cut(tmp_path, before, after)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("(3, 1), {}, {}", "^survey, as shape, gave tuple, expected Shape$"),
        ("Shape(3.0, 1), {}, {}", r"^survey gave Shape\(rows=3.0, columns=1\), expected whole numbers of at"),
        ("Shape(3, 0), {}, {}", "columns=0.*, expected whole numbers of at least 1$"),
        ("Shape(3, 1), None, {}", "^survey, as index, gave NoneType, expected Mapping$"),
        ("Shape(3, 1), {'a': [[1, 2], [3]]}, {}", "^survey, as index, gave a: ValueError"),
        (
            "Shape(3, 1), {'a': [{}]}, {}",
            "^survey, as index, gave a: arrays of Python objects cannot be kept",
        ),
        (
            "Shape(3, 1), {'file': [1], 'model': [1]}, {}",
            "^survey, as index, gave file, model; call",
        ),
        ("Shape(3, 1), {}, {}, 'usr', [1, 2, 3]", "^survey gave the key 'usr', expected one of y$"),
        ("Shape(3, 1), {}, {}, ['y'], [1, 2, 3]", r"^survey gave the key \['y'\], expected one of y$"),
        ("Shape(3, 1), {}, {}, 'y'", r"^survey gave the splits None; .* by y into 4 shards takes 3 numbers"),
        ("Shape(3, 1), {}, {}, 'y', [1, 2]", r"^survey gave the splits \[1, 2\]; .* takes 3 numbers"),
        ("Shape(3, 1), {}, {}, 'y', [1, 3, 2]", r"^survey gave the splits \[1, 3, 2\]; .* ascending order$"),
        ("Shape(3, 1), {}, {}, 'y', list('abc')", r"^survey gave the splits \['a', 'b', 'c'\]; "),
    ],
)
def test_a_survey_of_the_wrong_kind_is_told_before_a_shard_is_prepared(
    given: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(ApplicationFault, match=told):
        cut(tmp_path, "Survey(Shape(3, 1), {}, {})", f"Survey({given})")
    assert not (tmp_path / "cut").exists()


@pytest.mark.parametrize("kind", ["TEXT", "NUMBER"])
def test_a_key_is_a_column_of_numbers(kind: str, tmp_path: Path) -> None:
    """Neither of text nor a block of columns."""
    values = {"TEXT": np.array(["a", "b"]), "NUMBER": np.zeros((2, 3))}[kind]
    (tmp_path / "mean.py").write_text(
        MEAN.replace("Kind.NUMBER", f"Kind.{kind}").replace("1), {}, {})", "1), {}, {}, 'y', [1, 2, 3])")
    )
    np.savez(tmp_path / "y.npz", y=values)
    with pytest.raises(ApplicationFault, match="the key y, expected the name of a column of numbers"):
        cut_input(load_application(f"{tmp_path}/mean.py:Mean", {}), tmp_path / "y.npz", 4, tmp_path / "cut")


def test_whole_numbers_of_numpy_are_whole_numbers(tmp_path: Path) -> None:
    cut(tmp_path, "Shape(3, 1)", "Shape(np.int64(3), np.uint8(1))")
    assert ShardReader(tmp_path / "cut").shape == Shape(3, 1)


def test_an_array_of_a_shard_has_any_name(tmp_path: Path) -> None:
    cut(tmp_path, '{"y": rows["y"]}', '{"file": rows["y"], "allow_pickle": [1, 2], "": "text"}')
    shard = ShardReader(tmp_path / "cut").read_shard(1)
    assert shard["file"].tolist() == list(range(10, 20))
    assert (shard["allow_pickle"].tolist(), shard[""].tolist()) == ([1, 2], "text")


def test_what_the_input_lacks_is_not_the_applications_fault(tmp_path: Path) -> None:
    with pytest.raises(ApplicationError, match="expected z") as raised:
        cut(tmp_path, '{"y"', '{"z"')
    assert not isinstance(raised.value, ApplicationFault)


def test_a_disk_that_is_full_is_nobodys_fault() -> None:
    with pytest.raises(OSError, match="no room"), calling_application("survey"):
        raise OSError("no room")


def test_what_an_application_prints_is_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut(tmp_path, "        return np.arange(3)", "        print('here'); return np.arange(3)")
    cut(tmp_path, "import numpy as np", "print('there'); import numpy as np")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "here\n" * 4 + "there\n")


PATCH = Patch(np.arange(3), np.zeros((3, 1), np.float32))


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (None, "process gave NoneType, expected an Outcome"),
        (
            Outcome(Patch(PATCH.rows, PATCH.values[:, 0]), 0, 1),
            r"float32 \(3,\), expected .*float32 \(3, 1\)",
        ),
        (
            Outcome(Patch(PATCH.rows, PATCH.values.astype(float)), 0, 1),
            r"values float64 \(3, 1\), expected int64",
        ),
        (
            Outcome(Patch(PATCH.rows + 1, PATCH.values), 0, 1),
            r"has rows \[1, 2, 3\], expected .* from 0 to 2",
        ),
    ],
)
def test_what_a_clock_must_not_give_is_said_beside_what_it_must(outcome: object, told: str) -> None:
    assert validated_delta(Outcome(PATCH, 0.0, 1.0), Shape(3, 1)) is PATCH
    with pytest.raises(ApplicationError, match=told):
        validated_delta(outcome, Shape(3, 1))


def test_an_objective_may_be_of_numpys_kinds() -> None:
    def single(total: float, count: float) -> Any:
        return np.float32(total / count)

    objectives = ObjectiveSums(1, single)
    found = objectives.add_report(ObjectiveReport("m1", 1, (ShardObjective(0, 1.0, 4.0),)))
    assert found is not None
    assert type(found.value) is float
