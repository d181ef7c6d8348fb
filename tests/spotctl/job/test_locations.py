"""What only shows when prices and machines are known is said with its line, as all else of a job file is."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.errors import JobError, JobFileError
from spotctl.job.locations import find_field, locate_errors

JOB = """\
# a comment
name: movies
resources:
  reliable: {instance_type: m4.xlarge}
  spot:
    clouds: [aws]
    max_instances: 4
work: {steps: 4, on: c4.xlarge}
"""


@pytest.mark.parametrize(
    ("field", "line", "column"),
    [
        ("name", 2, 7),
        ("resources.spot", 5, 3),
        ("resources.spot.clouds", 6, 13),
        ("resources.reliable.instance_type", 4, 29),
        ("work.on", 8, 22),
        ("resources.spot.zones", 5, 3),
        ("name.of.nothing", 2, 7),
        ("objective.strategy", 1, 1),
    ],
)
def test_a_field_is_where_its_value_is_or_as_much_of_its_path_as_there_is(
    field: str, line: int, column: int
) -> None:
    assert find_field(JOB, field) == (line, column)


def test_an_error_about_a_field_gets_its_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "movies.yaml"
    file.write_text(JOB)
    with pytest.raises(JobFileError) as raised, locate_errors(file):
        raise JobError("resources.spot", "no market has that")
    assert str(raised.value) == f"{file}:5:3: resources.spot: no market has that"
    assert raised.value.exit_code == 2


def test_an_error_without_a_known_file_names_its_field() -> None:
    assert str(JobError("work.on", "expected an instance type")) == "work.on: expected an instance type"
