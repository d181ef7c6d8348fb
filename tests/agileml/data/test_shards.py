"""The input: whatever it is kept in and wherever, the shards are the same, and memory stays bounded."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import fsspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.api import ApplicationError, Arrays, Columns, Kind, Outcome, Survey
from agileml.data.sharding import cut_input
from agileml.data.shards import ShardReader
from agileml.data.tables import Table
from agileml.model_shape import Shape
from agileml.node.arrays import Matrix, Rows
from agileml.protocol.messages import Patch
from tests.fakes.s3 import s3_bucket

COLUMNS = Columns({"user": Kind.INTEGER, "value": Kind.NUMBER, "note": Kind.TEXT})
NUMBERS = Columns({"user": Kind.INTEGER}, others=Kind.NUMBER)
N = 5000
USER = np.random.default_rng(1).integers(0, 40, N)
VALUE = np.arange(N) / 8
NOTE = np.array([f"note {i}, “ä”\nline {i % 7}" for i in range(N)], dtype=object)


@dataclass(frozen=True, slots=True)
class Keep:
    """An application that keeps its input as it is; ``by``: the column that is cut by, or none."""

    metric: ClassVar[str] = "none"
    columns: ClassVar[Columns] = COLUMNS
    by: str = ""

    def survey(self, table: Table, shards: int) -> Survey:
        shape, splits = Shape(table.rows, 1), np.linspace(0, 40, shards + 1)[1:-1]
        if self.by:
            return Survey(shape, {}, {}, self.by, splits)
        return Survey(shape, {}, {})

    def prepare(self, rows: Arrays, numbers: Rows, survey: Survey) -> Arrays:
        notes = np.array([note.encode() for note in rows["note"]] or [b""])
        return {"user": rows["user"], "value": rows["value"], "note": notes, "number": numbers}

    def initial(self, rows: Rows, shape: Shape) -> Matrix:
        return np.zeros((len(rows), 1), np.float32)

    def rows(self, shard: Arrays) -> Rows:
        return np.unique(shard["user"])

    def process(self, shard: Arrays, values: Matrix, seed: tuple[int, int]) -> Outcome:
        return Outcome(Patch(self.rows(shard), values), 0.0, 0.0)

    def objective(self, total: float, count: float) -> float:
        return 0.0


def write_csv(path: Path, first: int = 0, last: int = N, header: bool = True) -> Path:
    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    lines = [f"{USER[i]},{VALUE[i]},{quoted(NOTE[i])}\n" for i in range(first, last)]
    data = ("user,value,note\n" * header + "".join(lines)).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_parquet(path: Path) -> Path:
    rows = list(zip(USER.tolist(), VALUE.tolist(), NOTE.tolist(), strict=True))
    with duckdb.connect() as connection:
        connection.execute('create table t (note varchar, value double, spare int, "user" int)')
        connection.executemany(
            "insert into t values (?, ?, 7, ?)", [(note, value, user) for user, value, note in rows[:200]]
        )
        connection.execute(f"copy t to '{path}' (format parquet)")
    return path


def everything(table: Table) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for batch in table.batches():
        for name, values in batch.items():
            found.setdefault(name, []).extend(values.tolist())
    return found


# ---- what it is kept in --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("header", [True, False])
def test_csv_with_and_without_header_is_read_as_written(name: str, header: bool, tmp_path: Path) -> None:
    table = Table(write_csv(tmp_path / name, header=header), COLUMNS, batch_rows=2048)
    found = everything(table)
    assert (found["user"], found["value"]) == (USER.tolist(), VALUE.tolist())
    assert found["note"] == NOTE.tolist()
    assert table.rows == N
    assert [len(batch["user"]) for batch in table.batches()] == [2048, 2048, N - 4096]


def test_parquet_columns_are_found_by_name_and_others_are_left(tmp_path: Path) -> None:
    found = everything(Table(write_parquet(tmp_path / "a.parquet"), COLUMNS))
    assert list(found) == ["user", "value", "note"]
    assert found["note"] == NOTE[:200].tolist()
    assert found["user"] == USER[:200].tolist()


def test_numpy_arrays_structured_named_and_plain_hold_the_same(tmp_path: Path) -> None:
    structured = np.empty(N, [("value", "f4"), ("user", "i4")])
    structured["user"], structured["value"] = USER, VALUE
    np.save(tmp_path / "s.npy", structured)
    np.save(tmp_path / "p.npy", np.column_stack([USER, VALUE]))
    np.savez(tmp_path / "n.npz", user=USER, value=VALUE)
    np.savez_compressed(tmp_path / "c.npz", value=VALUE.astype(np.float32), user=USER)
    tables = [everything(Table(tmp_path / f, NUMBERS, 2048)) for f in ("s.npy", "p.npy", "n.npz", "c.npz")]
    assert [list(table["user"]) for table in tables] == [USER.tolist()] * 4
    assert [list(table)[1] for table in tables] == ["value", "1", "value", "value"]
    assert [list(table.values())[1] for table in tables] == [VALUE.tolist()] * 4


def test_a_named_block_of_columns_stays_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", user=USER, x=np.stack([VALUE, -VALUE], axis=1))
    batches = list(Table(tmp_path / "x.npz", NUMBERS, 2048).batches())
    assert np.array_equal(np.concatenate([b["x"] for b in batches])[:, 1], -VALUE)


def test_many_files_are_one_input_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    write_csv(tmp_path / "in" / "b.csv.gz", 1000, 3000)
    write_csv(tmp_path / "in" / "a.csv", 0, 1000)
    write_csv(tmp_path / "in" / "deep" / "c.csv", 3000, N, header=False)
    (tmp_path / "in" / "README").write_text("not data")
    assert everything(Table(tmp_path / "in", COLUMNS))["value"] == VALUE.tolist()
    assert everything(Table(tmp_path / "in" / "*.csv*", COLUMNS))["value"] == VALUE[:3000].tolist()


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    write_csv(tmp_path / "data[1].csv", 0, 1000)
    write_csv(tmp_path / "data1.csv", 1000, 2000)
    assert everything(Table(tmp_path / "data[1].csv", COLUMNS))["value"] == VALUE[:1000].tolist()
    assert everything(Table(tmp_path / "data[0-9].csv", COLUMNS))["value"] == VALUE[1000:2000].tolist()
    write_parquet(tmp_path / "data[2].parquet")
    assert everything(Table(tmp_path / "data[2].parquet", COLUMNS))["value"] == VALUE[:200].tolist()
    memory = fsspec.filesystem("memory")
    for file in tmp_path.iterdir():
        memory.pipe_file(f"{tmp_path.name}/{file.name}", file.read_bytes())
    there = Table(f"memory://{tmp_path.name}/data[1].csv", COLUMNS)
    assert everything(there)["value"] == VALUE[:1000].tolist()


# ---- where it is kept ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A bucket on a moto server, reached through s3fs as users reach theirs."""
    with s3_bucket("bucket") as url:
        yield url


@pytest.mark.parametrize("scheme", ["memory", "s3"])
def test_the_shards_are_the_same_from_and_to_anywhere(
    scheme: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = "memory://bucket" if scheme == "memory" else request.getfixturevalue("s3")
    local = tmp_path / "in"
    local.mkdir()
    write_csv(local / "a.csv.gz", 0, 2000)
    write_parquet(local / "b.parquet")
    filesystem = fsspec.filesystem(scheme)
    for file in local.iterdir():
        filesystem.pipe_file(f"bucket/in/{file.name}", file.read_bytes())
    cut_input(Keep(), local, 7, tmp_path / "cut")
    cut_input(Keep(), f"{root}/in/*", 7, f"{root}/cut")
    here, there = ShardReader(tmp_path / "cut"), ShardReader(f"{root}/cut")
    assert here.shape == there.shape == Shape(2200, 1)
    for shard in range(7):
        mine, theirs = here.read_shard(shard), there.read_shard(shard)
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
        assert np.array_equal(here.read_rows(shard), there.read_rows(shard))


# ---- how it is cut -------------------------------------------------------------------------------


@given(st.integers(1, 12), st.booleans())
@settings(max_examples=12, deadline=None)
def test_shards_are_ranges_that_hold_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, shards: int, by_user: bool
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    write_csv(folder / "a.csv", 0, 600)
    cut_input(Keep("user" if by_user else ""), folder / "a.csv", shards, folder / "cut")
    cut = [ShardReader(folder / "cut").read_shard(number) for number in range(shards)]
    values = np.concatenate([shard["value"] for shard in cut])
    if by_user:
        assert sorted(values.tolist()) == VALUE[:600].tolist()
        highest = [shard["user"].max() for shard in cut if len(shard["user"])]
        lowest = [shard["user"].min() for shard in cut if len(shard["user"])]
        assert all(high < low for high, low in zip(highest, lowest[1:], strict=False))
        assert all(np.all(np.diff(shard["value"]) > 0) for shard in cut)
    else:
        assert values.tolist() == VALUE[:600].tolist()
        assert np.concatenate([shard["number"] for shard in cut]).tolist() == list(range(600))
        assert np.ptp([len(shard["value"]) for shard in cut]) <= 1


def test_no_progress_bar_gets_into_standard_output() -> None:
    """DuckDB takes ``python -c`` for a person at a prompt, and draws one for what takes two seconds."""
    program = (
        "from fsspec.implementations.local import LocalFileSystem\n"
        "from agileml.data.duckdb_files import open_database\n"
        "asked = \"select current_setting('enable_progress_bar')\"\n"
        "with open_database(LocalFileSystem()) as database: print(database.execute(asked).fetchone())"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "(False,)"


def test_a_signal_while_it_is_read_is_no_flaw_of_the_input(tmp_path: Path) -> None:
    """DuckDB hears of it first, if a query runs: at some of these moments one does."""
    numbers = np.arange(600_000)
    names = pd.DataFrame({"name": numbers % 977, "value": 1.5})
    names.to_csv(tmp_path / "long.csv", index=False)
    keys = Columns({"name": Kind.KEY, "value": Kind.NUMBER})

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def read_on() -> None:
        while True:
            sum(len(batch["name"]) for batch in Table(str(tmp_path / "long.csv"), keys).batches())

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for after_s in np.linspace(0.02, 0.4, 12).tolist():
            signal.setitimer(signal.ITIMER_REAL, after_s)
            with pytest.raises(KeyboardInterrupt):
                read_on()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_input_that_was_not_cut_to_the_end_is_none(tmp_path: Path) -> None:
    (tmp_path / "shard-00000.npz").touch()
    with pytest.raises(ApplicationError, match="holds no cut input"):
        ShardReader(tmp_path)


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    """200 MB of input are cut within 100 MB more than 1 MB of it takes; the biggest shard is 13 MB."""
    peaks = []
    for megabytes in (1, 200):
        rows = megabytes * 1_000_000 // 16
        block = np.random.default_rng(2).random((rows, 2))
        np.save(tmp_path / "in.npy", block)
        del block
        program = (
            "from agileml.data.sharding import cut_input; from tests.agileml.processes.wide import Wide\n"
            f"cut_input(Wide(), {str(tmp_path / 'in.npy')!r}, 16, {str(tmp_path / 'cut')!r})\n"
            "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
        )
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        peaks.append(int(ran.stdout) * 1024)
    small, large = peaks
    print(f"peak memory {small / 1e6:.0f} MB for 1 MB of input, {large / 1e6:.0f} MB for 200 MB")
    assert large - small < 100e6


# ---- what is wrong with it -----------------------------------------------------------------------


HEAD = b"user,value,note\n"
WRONG: dict[str, tuple[str, bytes, str]] = {
    "a letter": ("a.csv", HEAD + b"1,2,x\n1,two,x\n", "row 2, column value: found 'two', expected a finite"),
    "a fraction": ("a.csv", HEAD + b"1.5,2,x\n", "row 1, column user: found '1.5', expected a whole number"),
    "nothing": ("a.csv", HEAD + b"1,2,x\n1,,x\n", "row 2, column value: found nothing, expected a finite"),
    "not finite": ("a.csv", HEAD + b"1,nan,x\n", "row 1, column value: found 'nan', expected a finite"),
    "infinite": ("a.csv", HEAD + b"1,inf,x\n", "row 1, column value: found inf, expected a finite"),
    "too few": ("a.csv", HEAD + b"1,2\n", "line 2: found '1,2'; Expected Number of Columns: 3 Found: 2"),
    "a column less": ("a.csv", b"user,value\n1,2\n", "has the columns user, value; expected user (whole"),
    "no names": ("a.csv", b"1,2\n", "has 2 columns without names; expected user (whole numbers), value"),
    "empty": ("a.csv", b"", "has no rows"),
    "only names": ("a.csv", HEAD, "has no rows"),
    "not UTF-8": ("a.csv", b"\xff\xfe\x00", "cannot read"),
    "no gzip": ("a.csv.gz", HEAD, "Not a gzipped file"),
    "no parquet": ("a.parquet", HEAD, "a.parquet"),
    "no array": ("a.npy", HEAD, "cannot read"),
    "no archive": ("a.npz", HEAD, "File is not a zip file"),
    "unknown": (
        "a.xls",
        HEAD,
        "a.xls is of no known kind; expected a name in .csv, .tsv, .txt, .dat, .data, .parquet",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_its_place(case: str, tmp_path: Path) -> None:
    name, content, expected = WRONG[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ApplicationError) as raised:
        everything(Table(tmp_path / name, COLUMNS))
    assert name in str(raised.value)
    assert expected in str(raised.value)


def test_parquet_is_checked_like_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"copy (select 1.5::double as \"user\", 'x' as v) to '{file}' (format parquet)")
    with pytest.raises(ApplicationError, match=r"row 1, column user: found 1.5, expected a whole number"):
        everything(Table(file, Columns({"user": Kind.INTEGER})))
    with pytest.raises(ApplicationError, match=r"column v holds object, expected a finite number"):
        everything(Table(file, Columns({"v": Kind.NUMBER})))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.array([7, 2**63 + 5], np.uint64), "found 9223372036854775813,"),
        (np.array([7.0, 1e19]), r"found 1e\+19,"),
        (np.array([7.0, 2.0**63]), r"found 9\.22"),
        (np.array([7.0, -1e19]), r"found -1e\+19,"),
    ],
)
def test_a_number_that_int64_has_no_room_for_is_refused_and_not_wrapped(
    values: np.ndarray[Any, Any], told: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "a.npz", user=values)
    np.save(tmp_path / "a.npy", values)
    with duckdb.connect() as connection:
        connection.register("t", pd.DataFrame({"user": values}))
        connection.execute(f"copy t to '{tmp_path / 'a.parquet'}' (format parquet)")
    for file in ("a.npz", "a.npy", "a.parquet"):
        with pytest.raises(ApplicationError, match=rf"row 2, column user: {told}.* whole number \(int64\)"):
            everything(Table(tmp_path / file, NUMBERS))


@pytest.mark.parametrize(
    "kept",
    [
        np.array([0, 2**63 - 1]),
        np.array([0, 2**63 - 1], np.uint64),
        np.array([0.0, 2.0**63 - 1024]),
        np.array([0, 65504], np.float16),
        np.array([0, 1], np.bool_),
    ],
)
def test_the_largest_number_of_each_kind_that_int64_has_room_for_is_kept(
    kept: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    np.savez(tmp_path / "a.npz", user=kept)
    assert everything(Table(tmp_path / "a.npz", NUMBERS))["user"] == kept.tolist()


def test_arrays_of_unequal_length_and_cut_short_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", user=USER, value=VALUE[:-1])
    with pytest.raises(ApplicationError, match="different numbers of rows"):
        everything(Table(tmp_path / "a.npz", NUMBERS))
    np.save(tmp_path / "b.npy", np.column_stack([USER, VALUE]))
    whole = (tmp_path / "b.npy").read_bytes()
    (tmp_path / "b.npy").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ApplicationError, match=r"it ends within row \d+ of 5000"):
        everything(Table(tmp_path / "b.npy", NUMBERS))


@pytest.mark.parametrize("place", ["nowhere.csv", "none/*.csv", "memory://none/x.csv", "nosuch://x/y.csv"])
def test_an_input_that_is_not_there_is_named(place: str, tmp_path: Path) -> None:
    with pytest.raises(ApplicationError, match=r"nowhere\.csv|none|nosuch"):
        Table(place if "://" in place else tmp_path / place, COLUMNS)


def refuse(*_: object, **__: object) -> None:
    raise RuntimeError("Unable to locate credentials")


def test_a_file_system_that_refuses_by_an_error_of_its_own_is_no_bug_of_ours() -> None:
    refusing = type("Refusing", (fsspec.AbstractFileSystem,), {"protocol": "refusing", "info": refuse})
    fsspec.register_implementation("refusing", refusing, clobber=True)
    with pytest.raises(ApplicationError, match=r"refusing://a\.csv: Unable to locate credentials"):
        Table("refusing://a.csv", COLUMNS)


def test_a_csv_whose_columns_have_other_names_is_told_which_are_needed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        ApplicationError, match=r"has the columns a, b; expected y \(numbers\).*, like columns: {y: a}"
    ):
        everything(Table(tmp_path / "a.csv", Columns({"y": Kind.NUMBER}, Kind.NUMBER)))
