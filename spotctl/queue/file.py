"""Reads and checks the queue file: the one place that does.

``load_queue`` returns a ``QueueSpec`` in which every default is filled in and every job file was read, or
raises JobFileError with all problems of the file. The order of the functions is the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from pricing_data.model.units import to_micros
from spotctl.errors import JobFileError
from spotctl.job.file import load_job
from spotctl.job.readers import ABOVE_ZERO, DOLLARS, FROM_1, JOB_NAME, SPAN, YES_OR_NO, own_keys
from spotctl.job.yaml_reader import (
    Document,
    Mismatch,
    Section,
    describe_node,
    list_of,
    number,
    open_document,
    read_text,
    suggest_nearest,
    word,
)
from spotctl.queue.spec import POLICY, ROUND_S, Member, PolicyChoice, QueueSpec

_POOL: Final = r"[A-Za-z0-9][\w.-]*(@[\w-]+)?"
_SOME_JOBS: Final = "a list of jobs, each like {job: movies.yaml}"
_NOBODY: Final[tuple[str, ...]] = ()
_NAME: Final = word("letters, digits, '.', '_' and '-', at most 64", JOB_NAME)
_PRIORITY: Final = number("a number")


def load_queue(path: Path) -> QueueSpec:
    """Reads and checks a queue file and the jobs it names. Raises JobFileError with every problem in it."""
    text, file, folder = read_text(path), str(path), path.resolve().parent
    document, root = open_document(text, file)
    if "jobs" not in root.entries and ("app" in root.entries or "engine" in root.entries):
        document.refuse(None, "found a job's file, expected a queue's; `spotctl launch` takes jobs")
    budget = root.get("budget", DOLLARS, None)
    spec = QueueSpec(
        name=root.get("name", _NAME, path.stem),
        policy=_read_policy(root),
        round_s=root.get("round", SPAN, ROUND_S),
        budget=None if budget is None else to_micros(budget),
        quotas=own_keys(
            root.section("quotas"), FROM_1, _POOL, "an instance type, or one in a zone: TYPE@ZONE"
        ),
        entities=own_keys(root.section("entities"), ABOVE_ZERO, _POOL, "an entity"),
        jobs=_read_jobs(document, root, folder),
    )
    _check_together(root, spec)
    document.raise_if_wrong()
    return spec


def _read_policy(root: Section) -> PolicyChoice:
    """Reads a policy: a name, or a mapping with a name and parameters."""
    from bidbrain.cluster.policies.registry import MENU, BadParameter, make_policy

    def read(node: yaml.Node) -> PolicyChoice:
        if isinstance(node, yaml.MappingNode):
            entries = {str(key.value): value for key, value in node.value}
            name = _read_word(entries.pop("name", node), "the name of a policy")
            parameters = {key: _read_parameter(value) for key, value in entries.items()}
        else:
            name, parameters = _read_word(node, "the name of a policy"), {}
        if name not in MENU:
            raise Mismatch(
                node, f"found {name!r}, expected one of {', '.join(MENU)}{suggest_nearest(name, MENU)}"
            )
        if name == "makespan-within" and "budget" not in parameters and "budget" in root.entries:
            return PolicyChoice(name, parameters)  # its budget is what is left of the queue's
        try:
            make_policy(name, parameters)
        except BadParameter as error:
            raise Mismatch(node, str(error)) from error
        return PolicyChoice(name, parameters)

    return root.get("policy", read, PolicyChoice(POLICY))


def _read_word(node: yaml.Node, expected: str) -> str:
    return word(expected)(node)


def _read_parameter(node: yaml.Node) -> float | str | bool:
    text = _read_word(node, "a number, a word, true or false")
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


# ---- jobs ---------------------------------------------------------------------------------------


def _read_jobs(document: Document, root: Section, folder: Path) -> tuple[Member, ...]:
    def read(node: yaml.Node) -> tuple[Member, ...]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            found = "an empty list" if isinstance(node, yaml.SequenceNode) else describe_node(node)
            raise Mismatch(node, f"found {found}, expected {_SOME_JOBS}")
        return tuple(_read_member(document, element, folder) for element in node.value)

    return root.get("jobs", read, (), _SOME_JOBS)


def _read_member(document: Document, node: yaml.Node, folder: Path) -> Member:
    if not isinstance(node, yaml.MappingNode):
        raise Mismatch(node, f"found {describe_node(node)}, expected a mapping like {{job: movies.yaml}}")
    section = Section(document, "jobs", node, silent=False)
    file = section.get("job", word("a job file"), "", "a job file, like movies.yaml")
    name = section.get("name", _NAME, None)
    deadline = section.get("deadline", SPAN, None)
    budget = section.get("budget", DOLLARS, None)
    weight = section.get("weight", ABOVE_ZERO, 1.0)
    entity = section.get("entity", word("whom the job belongs to"), "")
    priority = section.get("priority", _PRIORITY, 0.0)
    best_effort = section.get("best_effort", YES_OR_NO, False)
    after = section.get("after", list_of(_NAME, "a list of jobs of this queue"), _NOBODY)
    path = folder / Path(file).expanduser()
    if file and not path.is_file():
        near = suggest_nearest(file, sorted(other.name for other in path.parent.glob("*.yaml")))
        section.reject("job", f"found {file!r}, but there is no file {path}{near}")
        file = ""
    if not file:
        document.raise_if_wrong()
        raise Mismatch(node, "found a job without a file, expected {job: FILE.yaml}")
    try:
        spec = load_job(path)
    except JobFileError:
        document.raise_if_wrong()
        raise
    objective = replace(
        spec.objective,
        deadline=spec.objective.deadline if deadline is None else deadline,
        budget=spec.objective.budget if budget is None else to_micros(budget),
    )
    spec = replace(spec, name=name or spec.name, objective=objective)
    return Member(spec, weight, entity, priority, best_effort, after)


def _check_together(root: Section, spec: QueueSpec) -> None:
    """Checks what involves several keys."""
    types = {pool for pool in spec.quotas if "@" not in pool}
    for pool in spec.quotas:
        if "@" in pool and pool.partition("@")[0] in types:
            root.reject(
                "quotas", f"{pool} is counted twice, as {pool.partition('@')[0]} too; expected one of them"
            )
    problem = problem_of(spec.jobs)
    if problem is not None:
        root.reject("jobs", problem)


def problem_of(jobs: Sequence[Member]) -> str | None:
    """Returns what is wrong with jobs taken together; None where nothing is."""
    names = [member.name for member in jobs]
    for name in names:
        if names.count(name) > 1:
            return f"found {names.count(name)} jobs called {name}, expected names that differ (name: ...)"
    done: set[str] = set()
    for member in jobs:
        unknown = [name for name in member.after if name not in names]
        if unknown:
            nearest = suggest_nearest(unknown[0], names)
            return f"{member.name} waits for {unknown[0]}, which is no job here{nearest}"
        if member.after and member.spec.objective.deadline is not None and not member.best_effort:
            return (
                f"{member.name} waits for {', '.join(member.after)}, so its deadline cannot be promised; "
                "expected best_effort: true, or no deadline"
            )
    while ready := [m.name for m in jobs if m.name not in done and done.issuperset(m.after)]:
        done.update(ready)
    waiting = [name for name in names if name not in done]
    return f"{', '.join(waiting)} wait for each other" if waiting else None


# ---- where jobs are listed ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedJob:
    """Locates a job of a queue file: its name in the queue, its own file, and its line in the queue's."""

    name: str
    file: Path
    line: int


def list_jobs(path: Path) -> Iterator[ListedJob]:
    """Yields the jobs of a queue file that could be loaded, to locate problems in them."""
    root = yaml.compose(read_text(path), Loader=yaml.SafeLoader)
    found = root.value if isinstance(root, yaml.MappingNode) else []
    listed = [node for key, value in found if key.value == "jobs" for node in value.value]
    for node in listed:
        said = {key.value: value.value for key, value in node.value}
        file = path.parent / Path(said["job"]).expanduser()
        yield ListedJob(said.get("name") or load_job(file).name, file, node.start_mark.line + 1)
