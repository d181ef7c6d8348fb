"""Defines the keys of queue files; reads and checks such a file with the job files that it names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import yaml

from spotctl.errors import JobFileError
from spotctl.job.file import load_job
from spotctl.job.keys.kinds import ABOVE_ZERO, BUDGET, JOB_NAME, SOME_TIME
from spotctl.queue.spec import POLICY, ROUND_S, Member, PolicyChoice, QueueSpec
from spotctl.schema.document import Mismatch, open_document, read_text, suggest_nearest
from spotctl.schema.kinds import (
    JsonSchema,
    Place,
    ValueKind,
    list_of,
    number,
    one_of,
    switch,
    whole_number,
    word,
)
from spotctl.schema.table import Key, KeyTable, Section, Values, list_of_mappings, mapping_of

_POOL: Final = r"[A-Za-z0-9][\w.-]*(@[\w-]+)?"
_NAME: Final = word("letters, digits, '.', '_' and '-', at most 64", JOB_NAME)
_FILE: Final = word("a job file")
_PARAMETER: Final = word("a number, a word, true or false")


def load_queue(path: Path) -> QueueSpec:
    """Returns a queue file's content, with its jobs. Raises JobFileError with every problem in the file."""
    document, node = open_document(read_text(path), str(path), path.resolve().parent)
    root = Section(Place(document, ""), node)
    if "jobs" not in root and ("app" in root or "engine" in root):
        document.refuse(None, "found a job's file, expected a queue's; `spotctl launch` takes jobs")
    spec = queue_table(path.stem).read_section(root)
    document.raise_if_wrong()
    return spec


def queue_schema() -> JsonSchema:
    """Returns the JSON Schema of queue files."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": "A queue file of spotctl", **queue_table().schema}


@cache
def queue_table(stem: str = "queue") -> KeyTable[QueueSpec]:
    """Returns the keys of a queue file; ``stem``: the file's name without .yaml, the default of ``name``."""
    return KeyTable(
        _make_queue,
        (
            Key(
                "jobs",
                list_of_mappings(JOB_ENTRY, "a list of jobs, each like {job: movies.yaml}"),
                "a list of jobs, with their own keys",
                (),
                needs="a list of jobs, each like {job: movies.yaml}",
            ),
            Key("name", _NAME, "letters, digits, `.`, `_`, `-`", stem, otherwise="the file's"),
            Key(
                "policy",
                _policy_kind(),
                "a name of `spotctl queue policies`, or `{name: ..., and its parameters}`",
                PolicyChoice(POLICY),
            ),
            Key(
                "round",
                SOME_TIME,
                "how often the policy reassigns machines",
                ROUND_S,
                field="round_s",
            ),
            Key("budget", BUDGET, "dollars for all jobs together", otherwise="none"),
            Key(
                "quotas",
                mapping_of(whole_number(1), _POOL, "an instance type, or one in a zone: TYPE@ZONE"),
                "machines at once, by instance type or `TYPE@ZONE`, spot and on demand",
                {},
                otherwise="none",
            ),
            Key(
                "entities",
                mapping_of(ABOVE_ZERO, _POOL, "an entity"),
                "weights of the entities that jobs belong to",
                {},
                otherwise="1 each",
            ),
        ),
    )


def _make_queue(section: Section, values: Values) -> QueueSpec:
    spec = QueueSpec(**values)
    _check_policy(section, spec.policy)
    _check_together(section, spec)
    return spec


# ---- its policy ---------------------------------------------------------------------------------


def _policy_kind() -> ValueKind[PolicyChoice]:
    """Returns the kind of a policy: a name, or a mapping with a name and parameters."""
    from bidbrain.cluster.policies.registry import (
        MENU,  # loads numpy, which not all users of this module need
    )

    name = one_of(*MENU)

    def read(node: yaml.Node, place: Place) -> PolicyChoice:
        if not isinstance(node, yaml.MappingNode):
            return PolicyChoice(name.read(node, place))
        entries = {str(key.value): value for key, value in node.value}
        chosen = name.read(entries.pop("name", node), place)
        return PolicyChoice(
            chosen, {key: _parse_parameter(_PARAMETER.read(value, place)) for key, value in entries.items()}
        )

    mapping = {
        "type": "object",
        "properties": {"name": name.schema},
        "required": ("name",),
        "additionalProperties": _PARAMETER.schema,
    }
    return ValueKind(read, {"anyOf": (name.schema, mapping)}, name.expected, lambda choice: choice.name)


def _parse_parameter(text: str) -> float | str | bool:
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _check_policy(root: Section, policy: PolicyChoice) -> None:
    """Reports parameters that the policy does not take, and those that it lacks."""
    from bidbrain.cluster.policies.registry import BadParameter, make_policy

    # Each round fills in this parameter: what is left of the queue's budget.
    if policy.name == "makespan-within" and "budget" not in policy.parameters and "budget" in root:
        return
    try:
        make_policy(policy.name, policy.parameters)
    except BadParameter as error:
        root.reject("policy", str(error))


# ---- jobs ---------------------------------------------------------------------------------------


def _read_path(node: yaml.Node, place: Place) -> Path:
    """Reads the path of a job file, relative to the queue's."""
    file = _FILE.read(node, place)
    path = place.document.folder / Path(file).expanduser()
    if not path.is_file():
        near = suggest_nearest(file, sorted(other.name for other in path.parent.glob("*.yaml")))
        raise Mismatch(node, f"found {file!r}, but there is no file {path}{near}")
    return path


def _load_member(section: Section, values: Values) -> Member:
    """Returns a job of the queue. Raises JobFileError if its file is missing or wrong."""
    path, name, deadline, budget = (values.pop(key) for key in ("job", "name", "deadline", "budget"))
    # A bad path is on the document's list of problems already, so this raises.
    if path is None:
        section.document.raise_if_wrong()
    try:
        spec = load_job(path)
    except JobFileError:
        # The queue file's own problems come first: they may be why the wrong job file was read.
        section.document.raise_if_wrong()
        raise
    objective = replace(
        spec.objective,
        deadline=spec.objective.deadline if deadline is None else deadline,
        budget=spec.objective.budget if budget is None else budget,
    )
    return Member(replace(spec, name=name or spec.name, objective=objective), **values)


JOB_ENTRY: Final = KeyTable(
    _load_member,
    (
        Key(
            "job",
            ValueKind(_read_path, _FILE.schema, _FILE.expected),
            "a job file",
            needs="a job file, like movies.yaml",
        ),
        Key("name", _NAME, "of the job in the queue", otherwise="the job file's"),
        Key("deadline", SOME_TIME, "from the start of the job", otherwise="the job file's"),
        Key("budget", BUDGET, "dollars for the job", otherwise="the job file's"),
        Key("weight", ABOVE_ZERO, "its share relative to other jobs", 1.0),
        Key("priority", number(), "a higher one counts as an earlier arrival", 0.0),
        Key("entity", word("whom the job belongs to"), "who the job belongs to", "", otherwise="none"),
        Key("best_effort", switch(), "the policy tries to keep the deadline, and nothing is promised", False),
        Key(
            "after",
            list_of(_NAME, "a list of jobs of this queue"),
            "jobs of the queue that must be done first",
            (),
            otherwise="none",
        ),
    ),
    expected="{job: movies.yaml}",
)


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
    """Returns the first problem of the jobs taken together; None if there is none."""
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
        # When its predecessors end is unknown, so nothing can be reserved for it now.
        if member.after and member.spec.objective.deadline is not None and not member.best_effort:
            return (
                f"{member.name} waits for {', '.join(member.after)}, so its deadline cannot be promised; "
                "expected best_effort: true, or no deadline"
            )
    # Jobs become ready in waves; those that never do are in a circle, or wait for one.
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
    """Yields the jobs of a queue file that loads, to locate problems in them."""
    # Composed and not loaded: only nodes know their lines.
    root = yaml.compose(read_text(path), Loader=yaml.SafeLoader)
    found = root.value if isinstance(root, yaml.MappingNode) else []
    listed = [node for key, value in found if key.value == "jobs" for node in value.value]
    for node in listed:
        said = {key.value: value.value for key, value in node.value}
        file = path.parent / Path(said["job"]).expanduser()
        yield ListedJob(said.get("name") or load_job(file).name, file, node.start_mark.line + 1)
