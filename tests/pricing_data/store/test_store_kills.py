"""Killed at any moment, by two processes at once: the store opens and holds whole batches, nothing else."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from pricing_data.model.units import Instant, format_instant, parse_instant
from pricing_data.store.importing import import_file
from pricing_data.store.store import PriceStore
from tests.pricing_data.store.test_store import files

pytestmark = pytest.mark.process

NOW = parse_instant("2026-11-20")
BEGIN = parse_instant("2016-01-01")
KILLS, KILLS_IN_CAMPAIGN = 3, 50
IMPORT = """
import sys
from pathlib import Path
from pricing_data.store.importing import import_file
from pricing_data.store.store import PriceStore
print("begun", flush=True)
store = PriceStore(Path(sys.argv[1]))
for file in sys.argv[3:]:
    print(import_file(store, Path(file), int(sys.argv[2])).added, flush=True)
"""


def recorded(folder: Path, number: int) -> Path:
    """Prices of two regions over half a year, a few bad; other files have some of these months too."""
    random, lines = Random(number), ["timestamp_utc,region,zone,instance_type,product,price_usd_hour"]
    for row in range(4000):
        at = format_instant(Instant(BEGIN + number * 40 * 86400 + row * 3600))
        region = random.choice(["us-east-1", "eu-west-1"])
        price = 0.0 if row % 97 == 0 else round(random.uniform(0.01, 0.05), 4)
        lines.append(f"{at},{region},{region}{random.choice('abc')},m4.large,Linux/UNIX,{price}")
    file = folder / f"prices-{number}.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("recorded")
    return [recorded(folder, number) for number in range(3)]


@pytest.fixture(scope="module")
def expected(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> PriceStore:
    store = PriceStore(tmp_path_factory.mktemp("expected"))
    for file in sources:
        import_file(store, file, NOW)
    return store


def importing(root: Path, sources: list[Path]) -> subprocess.Popen[str]:
    """A process that has everything loaded and begins to import."""
    command = [sys.executable, "-c", IMPORT, str(root), str(NOW), *map(str, sources)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def small_files_only() -> None:
    """The next one that grows larger cannot be written, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (3500, 3500))


def ended(process: subprocess.Popen[str]) -> int:
    process.communicate()
    return process.returncode


def rows_by_source(store: PriceStore) -> dict[str, tuple[int, int]]:
    """Returns how many rows each source has, believed and not."""
    frame = store.frame()
    aside = [row.source for row in store.quality.list_quarantined()]
    return {
        source: (int((frame["source"] == source).sum()), aside.count(source))
        for source in sorted({*frame["source"], *aside})
    }


def test_a_killed_import_leaves_whole_batches_and_is_completed_by_the_next(
    sources: list[Path], expected: PriceStore, tmp_path: Path, campaign: bool
) -> None:
    whole = rows_by_source(expected)
    began = time.monotonic()
    assert ended(importing(tmp_path / "timing", sources)) == 0
    usual_s = time.monotonic() - began
    random = Random(20161120)
    interrupted = 0
    for number in range(KILLS_IN_CAMPAIGN if campaign else KILLS):
        root = tmp_path / f"store-{number}"
        process = importing(root, sources)
        time.sleep(random.uniform(0, usual_s / 2))
        process.kill()
        interrupted += ended(process) != 0
        store = PriceStore(root)
        found = rows_by_source(store)
        assert found == {source: whole[source] for source in found}
        assert not list(root.glob("incoming/*"))
        for file in sources:
            import_file(store, file, NOW)
        assert files(root) == files(expected.root)
    assert interrupted > 0


def test_a_full_disk_stops_an_import_between_batches(sources: list[Path], tmp_path: Path) -> None:
    small = tmp_path / "small.csv"
    small.write_text("".join(sources[0].read_text().splitlines(keepends=True)[:5]))
    root = tmp_path / "store"
    command = [sys.executable, "-c", IMPORT, str(root), str(NOW), str(small), str(sources[1])]
    where = Path(__file__).parents[3]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=where, preexec_fn=small_files_only, check=False
    )
    assert done.returncode == 1
    assert "StoreUnwritable" in done.stderr.splitlines()[-1]
    store = PriceStore(root)
    assert set(rows_by_source(store)) == {f"file {small.parent.name}/small.csv"}
    assert not list(root.glob("incoming/*"))
    import_file(store, sources[1], NOW)
    assert len(store.frame()) > 3000


def test_two_processes_import_at_once(sources: list[Path], expected: PriceStore, tmp_path: Path) -> None:
    both = [importing(tmp_path, sources), importing(tmp_path, sources[::-1])]
    assert [ended(process) for process in both] == [0, 0]
    assert files(tmp_path) == files(expected.root)
