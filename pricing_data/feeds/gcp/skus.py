"""Computes what a GCP machine costs, from the SKUs of its cores, its memory and its GPUs.

Google lists no price per machine type: a VM is charged by the core-hour, the GiB-hour and the GPU-hour of its
family and region, and only prose says which SKU belongs to what ("Spot Preemptible N2D AMD Instance Core
running in Americas"). The reading is narrow on purpose: a wrong match prices the wrong thing, while no match
leaves a type without a price, which is reported. Knows no SDK, and gives no partial sums.

Not in the sum: bundled local SSDs, which are charged beside it. Not priced: M2 (a premium on M1's SKUs), the
shared-core f1 and g1, m4-ultramem-224 (SKUs of its own), custom types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pricing_data.model.units import Instant, UsdPerHour


class Usage(StrEnum):
    """Names the ``category.usageType`` of the SKUs that are read."""

    SPOT = "Preemptible"
    ON_DEMAND = "OnDemand"


class Resource(StrEnum):
    CORE = "core"
    RAM = "ram"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Component:
    """Says what a SKU charges for. ``of``: the machine family of cores and memory, or the GPU's model."""

    what: Resource
    of: str


@dataclass(frozen=True, slots=True)
class Sku:
    """Holds one SKU's price from ``effective`` on, billionths of a dollar per hour of its unit."""

    sku_id: str
    description: str
    usage: Usage
    unit: str
    regions: tuple[str, ...]
    timeline: tuple[tuple[Instant, int], ...]
    """(effective, nanos), in order of time."""


@dataclass(frozen=True, slots=True)
class MachineShape:
    """Says what a machine type is made of."""

    name: str
    vcpus: int
    memory_mib: int
    gpus: tuple[tuple[str, int], ...] = ()
    """(accelerator type, count), such as ("nvidia-tesla-a100", 8)."""

    @property
    def family(self) -> str:
        return self.name.partition("-")[0]

    @property
    def gpu_count(self) -> int:
        return sum(count for _, count in self.gpus)


Timelines = Mapping[tuple[Usage, str, Component], tuple[tuple[Instant, int], ...]]
"""Maps (usage, region, component) to (effective, nanos), in order of time."""

_INSTANCE: Final = re.compile(r"(?:(?:Spot )?Preemptible )?(.+?)(?: Instance)? (Core|Ram) running in .+")
_GPU: Final = re.compile(r"(.+?)(?: GPU)? (?:attached to Spot Preemptible VMs )?running in .+")
_FAMILY: Final = re.compile(r"[a-z]\d+[a-z]?")
_QUALIFIERS: Final = frozenset({"amd", "arm", "predefined", "memory-optimized"})
_SPELLED_OUT: Final = {"compute optimized": "c2", "memory-optimized": "m1"}
_UNITS: Final = {Resource.CORE: "h", Resource.RAM: "GiBy.h", Resource.GPU: "h"}
_WITHOUT_SUM: Final = frozenset({"m2", "f1", "g1"})
_OWN_SKUS: Final = frozenset({"m4-ultramem-224"})
_SHARE: Final = 1024
"""Amounts are counted in 1024ths: of a core, of a GiB (so: MiB), of a GPU."""
_SHARED_CORE: Final = {"e2-micro": _SHARE // 4, "e2-small": _SHARE // 2, "e2-medium": _SHARE}
_NANOS: Final = 1_000_000_000


def component_of(description: str) -> Component | None:
    """Returns what a SKU with this description charges for; None where it is no part of a predefined VM.

    >>> component_of("Spot Preemptible N2D AMD Instance Core running in Americas")
    Component(what=<Resource.CORE: 'core'>, of='n2d')
    >>> component_of("Nvidia Tesla A100 80GB GPU attached to Spot Preemptible VMs running in Iowa")
    Component(what=<Resource.GPU: 'gpu'>, of='80gb a100')
    >>> component_of("N2 Custom Instance Core running in Americas")
    """
    instance = _INSTANCE.fullmatch(description)
    if instance is not None:
        family = _family_code(instance[1].lower())
        return None if family is None else Component(Resource(instance[2].lower()), family)
    gpu = _GPU.fullmatch(description)
    if gpu is None or (" GPU " not in description and not description.startswith("RTX ")):
        return None
    return Component(Resource.GPU, gpu_model(gpu[1]))


def _family_code(words: str) -> str | None:
    if words in _SPELLED_OUT:
        return _SPELLED_OUT[words]
    code, *rest = words.split()
    # Any unknown word, such as "Custom", makes it another product.
    return code if _FAMILY.fullmatch(code) and set(rest) <= _QUALIFIERS else None


def gpu_model(name: str) -> str:
    """Returns one spelling for a GPU in a SKU's description and in a machine type.

    >>> gpu_model("nvidia-h100-mega-80gb") == gpu_model("Nvidia H100 80GB Mega GPU")
    True
    """
    # A set: descriptions and machine types order the words differently.
    words = set(re.split(r"[\s-]+", name.lower())) - {"nvidia", "tesla", "gpu", "vws", ""}
    return " ".join(sorted(words))


def component_timelines(skus: Iterable[Sku]) -> Timelines:
    """Returns the price of every component.

    Where two SKUs price the same thing, the dearer one counts: a machine that turns out cheaper than planned
    harms nobody.
    """
    found: dict[tuple[Usage, str, Component], tuple[tuple[Instant, int], ...]] = {}
    for sku in skus:
        component = component_of(sku.description)
        # Another unit means another product: a match by words alone would price the wrong thing.
        if component is None or _UNITS[component.what] != sku.unit or not sku.timeline:
            continue
        for region in sku.regions:
            key = (sku.usage, region, component)
            # The newest price of each SKU decides which is dearer.
            if key not in found or found[key][-1][1] < sku.timeline[-1][1]:
                found[key] = sku.timeline
    return found


def needed_components(shape: MachineShape) -> tuple[tuple[Component, int], ...] | None:
    """Returns the components of a machine type and how much of each, in 1024ths.

    None where no sum is its price.
    """
    if shape.family in _WITHOUT_SUM or shape.name in _OWN_SKUS or "custom" in shape.name:
        return None
    core = Component(Resource.CORE, shape.family)
    ram = Component(Resource.RAM, shape.family)
    gpus = ((Component(Resource.GPU, gpu_model(name)), _SHARE * count) for name, count in shape.gpus)
    return ((core, _SHARED_CORE.get(shape.name, _SHARE * shape.vcpus)), (ram, shape.memory_mib), *gpus)


def price_steps(
    shape: MachineShape, region: str, usage: Usage, known: Timelines
) -> tuple[tuple[Instant, UsdPerHour], ...]:
    """Returns when the price of the type changed, and to what; empty where a component has no price there.

    The first step is the moment from which all components are known.
    """
    parts = []
    for component, amount in needed_components(shape) or ():
        timeline = known.get((usage, region, component))
        if timeline is None:
            return ()
        parts.append((timeline, amount))
    if not parts:
        return ()
    # Before this moment the price of some component is unknown, and so is the sum.
    begin = max(timeline[0][0] for timeline, _ in parts)
    moments = sorted({begin, *(at for timeline, _ in parts for at, _ in timeline if at > begin)})
    return tuple((at, _price_at(parts, at)) for at in moments)


def _price_at(parts: list[tuple[tuple[tuple[Instant, int], ...], int]], at: Instant) -> UsdPerHour:
    """Sums the components. Whole numbers until the end keep it exact to the billionth of a dollar."""
    total = sum(
        amount * [nanos for since, nanos in timeline if since <= at][-1] for timeline, amount in parts
    )
    return UsdPerHour(total / (_SHARE * _NANOS))
