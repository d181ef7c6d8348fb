"""Tells whether an input is the same as before: by its content, or by what a store promises about it.

For a local file that is the SHA-256 of its bytes. For a remote file it is the store's own identifier of this
version of it (an ETag, a checksum, a generation), or else the SHA-256 too. A date and a size alone are never
enough: files are written twice within a tick of the clock, and copied with their old dates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agileml.data.sources import find_files, is_local, vocabulary_of

_IDENTIFIERS: Final = ("etag", "md5hash", "md5", "crc32c", "generation", "versionid", "content_md5", "sha256")
"""The names that fsspec's file systems give to an identifier of content, in lower case without dashes."""
_CHUNK: Final = 1 << 20
_TICK_NS: Final = 3_000_000_000
"""A file that changed so short before it was read may change again without a new date (FAT: two seconds)."""

Stat = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Identifies every file of an input.

    ``files``: each file's name within the input, and its content. ``stats``: of local files, what would be
    different if they had been written since; ``settled``: whether that can be relied on later, too.
    """

    files: tuple[tuple[str, str], ...]
    stats: Mapping[str, Stat]
    settled: bool


def fingerprint_input(
    location: str,
    known: Callable[[str, Stat], str | None],
    now_ns: int,
    check: Callable[[], None] = lambda: None,
) -> Fingerprints:
    """Identifies the files at ``location``, vocabularies included. Raises ApplicationError or OSError.

    ``known``: returns the digest of a local file that was settled with this stat, if it is remembered.
    ``now_ns``: the time since the epoch. ``check`` is called now and then and may raise to give up.
    """
    filesystem, names = find_files(location)
    found, stats, settled = [], {}, True
    for name in [*names, *_find_vocabularies(filesystem, names)]:
        label = name.rpartition("/")[2]
        if not is_local(filesystem):
            identifier = _content_identifier(filesystem.info(name))
            url = str(filesystem.unstrip_protocol(name))
            found.append((url, identifier) if identifier else (label, _hash_file(filesystem, name, check)))
            continue
        stats[name] = stat_of(name)
        digest = known(name, stats[name])
        found.append((label, _hash_file(filesystem, name, check) if digest is None else digest))
        settled = settled and now_ns - max(stats[name][1:3]) > _TICK_NS
    return Fingerprints(tuple(found), stats, settled)


def changed_since(location: str, before: Fingerprints) -> list[str]:
    """Returns which files are different from ``before``; of remote files without identifiers, none."""
    filesystem, names = find_files(location)
    if is_local(filesystem):
        return [name for name, stat in before.stats.items() if stat_of(name) != stat]
    identified = dict(before.files)
    urls = {str(filesystem.unstrip_protocol(name)): name for name in names}
    return [
        url
        for url, name in urls.items()
        if url in identified and _content_identifier(filesystem.info(name)) != identified[url]
    ]


def stat_of(name: str) -> Stat:
    """Returns size, time of change, time of change of the inode, inode and device of a local file."""
    stat = Path(name).stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev


def digest_of(parts: Any) -> str:
    """Returns a short name for a JSON value, and for no other in practice."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def digest_of_package(folder: Path) -> str:
    """Returns a name for the Python source below ``folder``."""
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        found.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()


def _hash_file(filesystem: Any, name: str, check: Callable[[], None]) -> str:
    found = hashlib.sha256()
    with filesystem.open(name, "rb") as raw:
        while chunk := raw.read(_CHUNK):
            found.update(chunk)
            check()
    return f"sha256:{found.hexdigest()}"


def _content_identifier(info: Mapping[str, Any]) -> str:
    plain = {key.lower().replace("-", "").replace("_", ""): value for key, value in info.items()}
    for key in _IDENTIFIERS:
        value = plain.get(key.replace("_", ""))
        if value:
            return f"{key}:{value}:{info.get('size')}"
    return ""


def _find_vocabularies(filesystem: Any, names: list[str]) -> Iterator[str]:
    for name in names:
        place = vocabulary_of(name)
        if place is not None and filesystem.exists(place):
            yield place
