"""The reference of the job file is what reads it, and has every key, each in its table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spotctl.cli.file_reference import build_file_reference
from spotctl.errors import JobFileError
from spotctl.job.file import parse_job
from spotctl.queue.file import load_queue

REFERENCE = (Path(__file__).resolve().parents[2] / "docs" / "job-file.md").read_text()
TABLES = {
    title: frozenset(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE))))
    for title, text in re.findall(r"^##+ (.*?)\n(.*?)(?=^##|\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
}
BLOCKS = re.findall(r"```yaml\n(.*?)```", REFERENCE, re.DOTALL)

COMMON, ELASTIC, COMMAND = "Of every job", "Of the elastic trainer", "Of a command"
SECTIONS = {
    "agileml": {
        "resources.spot": "`resources.spot`",
        "resources.reliable": "`resources.reliable`",
        "objective": "`objective`",
        "scaling": "`scaling`",
        "local": "`local`",
        "training": "`training`",
        "checkpoint": "`checkpoint` of the elastic trainer",
    },
    "command": {
        "resources.spot": "`resources.spot`",
        "objective": "`objective`",
        "checkpoint": "`checkpoint` of a command",
    },
}


def known(text: str, field: str, folder: Path) -> frozenset[str]:
    """The keys that are read there: whoever writes another one is told them all."""
    with pytest.raises(JobFileError) as refused:
        parse_job(text, "movies.yaml", folder)
    told = re.search(rf"{re.escape(field)}: unknown key, expected one of ([\w, ]+)", str(refused.value))
    assert told is not None, refused.value
    return frozenset(told[1].split(", "))


def test_the_reference_is_fresh() -> None:
    written = "run: python -m spotctl.cli.file_reference > docs/job-file.md"
    assert build_file_reference() == REFERENCE, written


@pytest.mark.parametrize(("engine", "field"), [(e, f) for e, fields in SECTIONS.items() for f in fields])
def test_every_key_of_a_section_is_in_its_table(engine: str, field: str, tmp_path: Path) -> None:
    text = "{zzz: 1}"
    for part in reversed(field.split(".")):
        text = f"{{{part}: {text}}}"
    found = known(f"engine: {engine}\n{text[1:-1]}\n", f"{field}.zzz", tmp_path)
    assert found <= TABLES[SECTIONS[engine][field]]
    if engine == "agileml" or "command" in SECTIONS[engine][field]:
        assert found == TABLES[SECTIONS[engine][field]]


@pytest.mark.parametrize(("engine", "own"), [("agileml", ELASTIC), ("command", COMMAND)])
def test_every_key_of_a_job_is_in_a_table(engine: str, own: str, tmp_path: Path) -> None:
    found = known(f"engine: {engine}\nzzz: 1\n", "zzz", tmp_path)
    assert found == TABLES[COMMON] | TABLES[own]


def test_every_key_of_a_queue_is_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "movies.yaml").write_text("engine: command\nrun: python train.py\n")
    queue = tmp_path / "nightly.yaml"
    queue.write_text("zzz: 1\njobs: [{job: movies.yaml, zzz: 1}]\n")
    with pytest.raises(JobFileError) as refused:
        load_queue(queue)
    told = re.findall(r"(\S*zzz): unknown key, expected one of ([\w, ]+)", str(refused.value))
    assert {field: frozenset(keys.split(", ")) for field, keys in told} == {
        "zzz": TABLES["A queue's file"],
        "jobs.zzz": TABLES["One of its `jobs`"],
    }


@pytest.mark.parametrize("block", BLOCKS)
def test_the_least_that_a_job_says_is_enough(block: str, tmp_path: Path) -> None:
    (tmp_path / "ratings.csv.gz").touch()
    assert parse_job(block, "movies.yaml", tmp_path).name == "movies"
