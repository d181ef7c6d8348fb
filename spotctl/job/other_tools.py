"""Recognises job files of other tools and says what each of their keys becomes here.

One message for the whole file: a user with a SkyPilot task wants to know how to write it here, not that each
of its keys is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from spotctl.schema.document import Document, describe_node
from spotctl.schema.table import Section

_SAME: Final = "as it is"
_NO_GPUS: Final = (
    "no counterpart: this version asks for no machines with GPUs; cpus: 8+ and memory: 32+ it can"
)
_NO_NODES: Final = "no counterpart above 1: a command runs on one machine at a time"
_NONE: Final = "no counterpart"


@dataclass(frozen=True, slots=True)
class Tool:
    """Describes another tool's job file. ``keys``: by dotted key, what to write here; ``{}`` is its value.

    ``marks``: keys that no job file of spotctl has; any of them shows whose file it is.
    """

    name: str
    marks: frozenset[str]
    keys: Mapping[str, str]


_SKYPILOT: Final = Tool(
    "a SkyPilot task",
    frozenset(
        f"resources.{key}"
        for key in (
            *(
                "cloud",
                "region",
                "zone",
                "infra",
                "instance_type",
                "accelerators",
                "accelerator_args",
                "cpus",
            ),
            *("memory", "use_spot", "disk_size", "disk_tier", "image_id", "ports", "any_of", "ordered"),
            *("job_recovery", "spot_recovery", "autostop", "labels", "network_tier"),
        )
    )
    | {"service", "volumes", "pool"},
    {
        **dict.fromkeys(("name", "workdir", "setup", "run", "envs"), _SAME),
        "resources.cloud": "resources: {spot: {clouds: [{}]}}",
        "resources.region": "resources: {spot: {regions: [{}]}}",
        "resources.zone": "resources: {spot: {zones: [{}]}}",
        "resources.infra": "resources: {spot: {clouds: [...], regions: [...]}}, of its CLOUD/REGION",
        "resources.instance_type": "resources: {spot: {instance_types: [{}]}}",
        "resources.cpus": "resources: {spot: {cpus: {}}}",
        "resources.memory": "resources: {spot: {memory: {}}}",
        "resources.accelerators": _NO_GPUS,
        "resources.accelerator_args": _NO_GPUS,
        "resources.use_spot": "leave it out for spot; objective: {strategy: on-demand} has the others",
        "resources.disk_size": f"{_NONE}: the program has the disk of its machine",
        "resources.disk_tier": f"{_NONE}: the program has the disk of its machine",
        "resources.image_id": f"{_NONE}: the program has the machine's own system; put the rest into setup",
        "resources.any_of": "lists of resources.spot: clouds, regions, zones, instance_types",
        "resources.ordered": "lists of resources.spot, without an order: the cheapest work decides",
        "resources.job_recovery": "leave it out: jobs go on from a checkpoint; retries: 3 is for failures",
        "resources.spot_recovery": "leave it out: jobs go on from their newest checkpoint",
        "num_nodes": _NO_NODES,
        "file_mounts": "file_mounts, whose targets are below the working folder: data, not /data",
        "secrets": "secrets: [NAME, ...], names alone: export the values before you launch",
        "service": f"{_NONE}: spotctl trains, and serves nothing",
        "volumes": "file_mounts for what is read, checkpoint: {store: s3://...} for what is kept",
    },
)
_DSTACK: Final = Tool(
    "a dstack configuration",
    frozenset(("commands", "spot_policy", "backends", "max_price", "max_duration", "ide", "creation_policy")),
    {
        "name": _SAME,
        "type": "leave it out",
        "commands": "run: |, and the commands on lines of their own",
        "python": f"{_NONE}: the program has the Python of the machine; setup: may make an environment",
        "image": f"{_NONE}: the program has the machine's own system; put the rest into setup",
        "env": "envs: {NAME: value} for variables, secrets: [NAME] for those of your environment",
        "nodes": _NO_NODES,
        "resources.gpu": _NO_GPUS,
        "resources.cpu": "resources: {spot: {cpus: {}}}, where 8.. is 8+",
        "resources.memory": "resources: {spot: {memory: ...}}, in GiB without a unit, where 16GB.. is 16+",
        "resources.disk": f"{_NONE}: the program has the disk of its machine",
        "backends": "resources: {spot: {clouds: [...]}}",
        "regions": "resources: {spot: {regions: [...]}}",
        "instance_types": "resources: {spot: {instance_types: [...]}}",
        "spot_policy": "leave it out for spot; objective: {strategy: on-demand} is its on-demand",
        "max_price": "objective: {budget: ...}, in dollars for the whole job",
        "max_duration": "objective: {deadline: {}}",
        "retry": "retries: 3",
        "working_dir": "workdir: {}",
        "files": "file_mounts: {target: source}",
    },
)
_AWS_BATCH: Final = Tool(
    "an AWS Batch job",
    frozenset(
        ("jobDefinitionName", "containerProperties", "jobQueue", "jobDefinition", "containerOverrides")
    ),
    {
        "jobName": "name: {}",
        "jobDefinitionName": "name: {}",
        "jobQueue": f"{_NONE}: `spotctl queue run` has queues of its own",
        "jobDefinition": "the definition's own keys, in this file",
        "type": "leave it out",
        "parameters": "envs: {NAME: value}",
        "containerProperties.command": "run: the command as a line of shell",
        "containerProperties.image": f"{_NONE}: the program has the machine's own system",
        "containerProperties.environment": "envs: {NAME: value}",
        "containerProperties.secrets": "secrets: [NAME, ...], exported before you launch",
        "containerProperties.vcpus": "resources: {spot: {cpus: {}+}}",
        "containerProperties.memory": "resources: {spot: {memory: ...}}, in GiB",
        "containerProperties.resourceRequirements": "resources: {spot: {cpus: 4+, memory: 16+}}",
        "retryStrategy": "retries: one less than its attempts",
        "timeout": "objective: {deadline: 6h}",
        "platformCapabilities": "leave it out",
    },
)
_TOOLS: Final = (_SKYPILOT, _DSTACK, _AWS_BATCH)


def refuse_foreign(document: Document, root: Section) -> None:
    """Raises JobFileError with the translation of every key where ``root`` is another tool's file."""
    if "app" in root:
        return
    written = dict(_list_keys(root))
    for tool in _TOOLS:
        marks = tool.marks & written.keys() | tool.marks & root.entries.keys()
        if marks:
            document.refuse(None, _translate_keys(tool, written))


def _translate_keys(tool: Tool, written: Mapping[str, yaml.Node]) -> str:
    same = [key for key in written if tool.keys.get(key) == _SAME]
    rest = {
        f"{key}: {describe_node(node)}".replace("'", ""): _translate_key(tool, key, node)
        for key, node in written.items()
        if key not in same
    }
    width = max(map(len, rest), default=0)
    lines = [f"    {key:<{width}}  ->  {becomes}" for key, becomes in rest.items()]
    kept = [f"    as they are: {', '.join(same)}"] if same else []
    head = f"this is {tool.name}; spotctl runs job files of its own (docs/job-file.md). What its keys become:"
    return "\n".join((head, *lines, *kept))


def _translate_key(tool: Tool, key: str, node: yaml.Node) -> str:
    value = node.value if isinstance(node, yaml.ScalarNode) else "..."
    return tool.keys.get(key, _NONE).replace("{}", str(value))


def _list_keys(root: Section) -> Iterator[tuple[str, yaml.Node]]:
    """Yields all keys of the outermost mapping, and those below the mappings that other tools nest in."""
    for key in root.entries:
        node = root.node(key)
        below = key in ("resources", "containerProperties") and isinstance(node, yaml.MappingNode)
        if not below:
            yield key, node
            continue
        for name, value in node.value:
            yield f"{key}.{name.value}", value
