"""The JSON Schema of job and queue files takes every good file, and refuses none that the reader takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from spotctl.errors import UsageError
from spotctl.job.choices import JobKind
from spotctl.job.file import JOB_TABLES, job_schema, job_table, parse_job
from spotctl.job.templates import job_file
from spotctl.queue.file import JOB_ENTRY, load_queue, queue_schema, queue_table
from spotctl.schema.document import Document
from spotctl.schema.kinds import Place
from spotctl.schema.table import Key, KeyTable
from tests.spotctl.cli.commandline import spotctl
from tests.spotctl.job import test_command_section, test_file

ROOT = Path(__file__).resolve().parents[3]
YAML_12 = (  # its core schema, which editors read by
    (re.compile(r"|~|null|Null|NULL"), lambda _: None),
    (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    (re.compile(r"[-+]?[0-9]{1,4000}"), int),
    (re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
)
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCKS = [block for page in PAGES for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SCALARS = (
    *("4", "'4'", "-1", "0", "4.5", "1e-3", "'0.5'", "+7", "007", "0x10", "1_000", ".5", "1:30", "9e99"),
    *("on", "'off'", "true", "'false'", "yes", "~", "''", "x y", "word", "aws", "'[aws]'", "2024-01-01"),
    *(
        "6h",
        "90s",
        "1h 30m",
        "90",
        "0s",
        "2GB",
        "1.5 GiB",
        "4+",
        "a:B",
        "a.py:B",
        "../up",
        "größe",
        "s3://b/c",
    ),
    *("[]", "[aws]", "[aws, aws]", "[1, true]", "[[a]]", "{}", "{a: 1}", "{a: ~}", "{A_B: x}", "{1: 2}"),
)


def to_json(node: yaml.Node | None) -> Any:
    """Returns what an editor makes of a node of YAML 1.2; of a file without any, nothing."""
    if node is None:
        return None
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): to_json(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [to_json(element) for element in node.value]
    kinds = YAML_12 if isinstance(node, yaml.ScalarNode) and node.style is None else ()
    return next((make(node.value) for kind, make in kinds if kind.fullmatch(node.value)), node.value)


def errors(schema: Any, text: str) -> list[str]:
    """Returns what the schema refuses in a file."""
    validator = Draft202012Validator(json.loads(json.dumps(schema)))
    return [error.message for error in validator.iter_errors(to_json(yaml.compose(text)))]


def list_keys(table: KeyTable[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Key]]:
    """Yields all keys of a mapping, and those of the mappings below."""
    for key in table.keys:
        yield (*path, key.name), key
        if isinstance(key.kind, KeyTable):
            yield from list_keys(key.kind, (*path, key.name))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    for name in ("ratings.csv", "table.csv"):
        (tmp_path / name).write_text("1,1,3.0\n")
    return tmp_path


def is_refused(text: str, folder: Path) -> bool:
    try:
        parse_job(text, "job.yaml", folder)
    except UsageError:
        return True
    return False


@pytest.mark.parametrize("kind", ["job", "queue"])
def test_a_command_writes_it(kind: str) -> None:
    shown = json.loads(spotctl("schema", kind).stdout)
    Draft202012Validator.check_schema(shown)
    assert shown["$schema"].endswith("2020-12/schema")
    assert shown == json.loads(json.dumps(queue_schema() if kind == "queue" else job_schema()))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_is_valid(file: Path) -> None:
    text = file.read_text()
    assert errors(queue_schema() if "\njobs:" in text else job_schema(), text) == []


@pytest.mark.parametrize("block", BLOCKS)
def test_every_file_of_the_documentation_is_valid(block: str) -> None:
    assert errors(queue_schema() if "\njobs:" in block else job_schema(), block) == []


@pytest.mark.parametrize("kind", JobKind)
def test_every_file_to_begin_with_is_valid(kind: JobKind, tmp_path: Path) -> None:
    assert errors(job_schema(), job_file(kind, "data.csv", tmp_path / "job.yaml")) == []


@pytest.mark.parametrize("text", [test_file.COMPLETE, test_command_section.COMPLETE])
def test_files_with_every_key_are_valid(text: str) -> None:
    assert errors(job_schema(), text) == []


MALFORMED = {
    **{
        f"agileml: {case}": test_file.MINIMAL.replace(old, new, 1)
        for case, (old, new, *_) in test_file.MALFORMED.items()
    },
    **{
        f"command: {case}": test_command_section.MINIMAL.replace(old, new, 1)
        for case, (old, new, _) in test_command_section.MALFORMED.items()
    },
}
NO_YAML = {
    "no YAML",
    "tab",
    "open quote",
    "undefined alias",
    "two documents",
    "control character",
    "deep nesting",
}
BEYOND_A_SCHEMA = {
    # what involves several keys, or files that are not there, or YAML that means the same to an editor
    *("duplicate key", "tag", "no such application file", "no such data"),
    *("allocation too large", "several regions", "checkpoints in memory", "checkpoints of what is modelled"),
    *("deadline zero", "deadline endless", "no memory", "stages crossed"),
    *("no folder", "no source", "memory", "a huge size"),
}


@pytest.mark.parametrize("case", [case for case in MALFORMED if case.partition(": ")[2] not in NO_YAML])
def test_it_refuses_what_the_reader_refuses_as_far_as_it_can(case: str) -> None:
    found = errors(job_schema(), MALFORMED[case])
    assert bool(found) is (case.partition(": ")[2] not in BEYOND_A_SCHEMA), found


def test_a_value_of_the_wrong_kind_is_explained() -> None:
    bad = test_file.MINIMAL.replace("max_instances: 8", "max_instances: -1") + "trainig: {}\n"
    found = " ".join(errors(job_schema(), bad))
    assert "-1 is less than the minimum of 0" in found
    assert "'trainig' was unexpected" in found


@settings(max_examples=400, deadline=None)
@given(
    engine=st.sampled_from(("agileml", "command")),
    which=st.integers(0, 10_000),
    value=st.one_of(st.sampled_from(SCALARS), st.text(alphabet="01.e+-hsm: a_B/", min_size=1, max_size=5)),
)
def test_what_it_refuses_the_reader_refuses(engine: str, which: int, value: str) -> None:
    """The other way round is not promised: a schema knows no files, and nothing of two keys."""
    keys = [path for path, _ in list_keys(job_table(engine))]
    path = keys[which % len(keys)]
    least = test_file.MINIMAL if engine == "agileml" else test_command_section.MINIMAL
    document = to_json(yaml.compose(least.replace("ratings.csv", "s3://b/ratings.csv")))
    below = document
    for name in path[:-1]:
        below = below.setdefault(name, {})
    below[path[-1]] = "VALUE"
    text = yaml.safe_dump(document).replace("VALUE", value)
    try:
        refused = errors(job_schema(), text)
    except yaml.YAMLError:
        return
    assert not refused or is_refused(text, Path("/nowhere")), refused


@pytest.mark.parametrize(
    "text",
    [
        "polisy: las\njobs: [{job: a.yaml}]",
        "policy: lass\njobs: [{job: a.yaml}]",
        "policy: {depth: 3}\njobs: [{job: a.yaml}]",
        "round: 6\njobs: [{job: a.yaml}]",
        "quotas: {c4.xlarge: 0}\njobs: [{job: a.yaml}]",
        "jobs: []",
        "name: x",
        "jobs: [a.yaml]",
        "jobs: [{job: a.yaml, weight: 0}]",
        "jobs: [{job: a.yaml, after: b}]",
    ],
)
def test_a_queue_that_it_refuses_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("run: python train.py\n")
    (tmp_path / "queue.yaml").write_text(text)
    assert errors(queue_schema(), text)
    with pytest.raises(UsageError):
        load_queue(tmp_path / "queue.yaml")


@pytest.mark.parametrize(
    "table", [*map(job_table, JOB_TABLES), queue_table(), JOB_ENTRY], ids=[*JOB_TABLES, "queue", "its job"]
)
def test_defaults_are_shown_as_a_file_would_have_them(table: KeyTable[Any], tmp_path: Path) -> None:
    shown = [key for _, key in list_keys(table) if key.shown_default is not None]
    assert shown
    for key in shown:
        node = yaml.ScalarNode("tag:yaml.org,2002:str", json.dumps(key.shown_default).strip('"'))
        assert key.kind.read(node, Place(Document("job.yaml", tmp_path), key.name)) == key.default
