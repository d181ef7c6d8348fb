"""What was found of an input: kept, it is the same as looking again, and never that of another input."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from agileml.api import load_application
from agileml.data.sampling import MOST_VALUES
from spotctl.errors import JobError
from spotctl.job.file import load_job
from spotctl.job.input_survey import InputSize, look_at_input
from spotctl.job.spec import JobSpec
from tests.scenarios.support.product import ROOT

JOB = ROOT / "examples" / "quickstart.yaml"
MF = "agileml.apps.mf:MatrixFactorization"
MLR = "agileml.apps.mlr:LogisticRegression"
LDA = "agileml.apps.lda:LatentDirichletAllocation"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is there: a plan makes none, and then nothing is kept."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("SPOTCTL_HOME", str(place))
    return place


def settled(path: Path) -> Path:
    """As if nobody had changed it for a minute."""
    for file in [path, *path.iterdir()] if path.is_dir() else [path]:
        before = file.stat().st_mtime - 60
        os.utime(file, (before, before))
    return path


def job(data: Path | str, app: str = MF, columns: dict[str, str | tuple[str, ...]] | None = None) -> JobSpec:
    spec = load_job(JOB)
    args = dict(spec.args) if app == MF else {"topics": 4, "documents": 1} if app == LDA else {}
    return replace(spec, app=app, args=args, data=str(data), columns=columns or {})


def look(spec: JobSpec, most: int | None = None) -> InputSize:
    """With a limit of ``most`` bytes for the model."""

    def limit(size: int) -> None:
        if most is not None and size > most:
            raise JobError("data", "the model is too large")

    return look_at_input(spec, load_application(spec.app, spec.args), limit)


def kept(home: Path) -> list[Path]:
    return sorted((home / "cache" / "inputs").glob("*"))


def ratings(path: Path, rows: int = 900, name: str = "", header: str = "user,item,value") -> Path:
    lines = [f"{name}{n % 61},{name}{n % 17},{n % 5}.5" for n in range(rows)]
    text = "\n".join([*([header] if header else []), *lines]) + "\n"
    packed = gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode()
    path.write_bytes(packed)
    return settled(path)


def as_parquet(path: Path) -> Path:
    source = ratings(path.with_suffix(".csv"))
    duckdb.sql(f"copy (from '{source}') to '{path}'")
    return settled(path)


def as_arrays(path: Path) -> Path:
    number = np.arange(900)
    np.savez(path, user=number % 61, item=number % 17, value=number % 5 + 0.5)
    return settled(path)


def in_parts(folder: Path) -> Path:
    folder.mkdir()
    for part in range(3):
        ratings(folder / f"{part}.csv", rows=300 + part)
    return settled(folder)


def labels(path: Path) -> Path:
    path.write_text("label,x,y\n" + "".join(f"{n % 3},{n}.5,{n * n % 7}\n" for n in range(400)))
    return settled(path)


def docword(folder: Path) -> Path:
    folder.mkdir()
    counts = [(doc, 1 + (doc + k) % 9, 1 + k) for doc in range(1, 31) for k in range(5)]
    rows = "".join("{} {} {}\n".format(*row) for row in counts)
    (folder / "docword.a.txt").write_text(f"30\n9\n{len(counts)}\n{rows}")
    (folder / "vocab.a.txt").write_text("".join(f"word{n}\n" for n in range(9)))
    settled(folder)
    return folder / "docword.a.txt"


CASES: dict[str, Callable[[Path], JobSpec]] = {
    "csv": lambda here: job(ratings(here / "a.csv")),
    "csv.gz": lambda here: job(ratings(here / "a.csv.gz")),
    "parquet": lambda here: job(as_parquet(here / "a.parquet")),
    "npz": lambda here: job(as_arrays(here / "a.npz")),
    "no header": lambda here: job(ratings(here / "a.csv", header="")),
    "names of its own": lambda here: job(
        ratings(here / "a.csv", header="who,what,stars"),
        columns={"user": "who", "item": "what", "value": "stars"},
    ),
    "names as keys": lambda here: job(ratings(here / "a.csv", name="u")),
    "a folder": lambda here: job(in_parts(here / "parts")),
    "a pattern": lambda here: job(f"{in_parts(here / 'parts')}/*.csv"),
    "a part of it": lambda here: job(ratings(here / "a.csv", rows=MOST_VALUES // 2)),
    "labels": lambda here: job(labels(here / "a.csv"), MLR),
    "docword": lambda here: job(docword(here / "words"), LDA),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_is_what_looking_gives(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = CASES[case](tmp_path)
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "no home"))
    fresh = look(spec)
    assert not (tmp_path / "no home").exists()
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    assert [look(spec), look(spec)] == [fresh, fresh]
    (found,) = kept(tmp_path / "home")
    told = json.loads(found.read_text())
    found.write_text(json.dumps({**told, "description": "what was kept"}))
    assert look(spec) == replace(fresh, description="what was kept")


def _other_content(spec: JobSpec) -> JobSpec:
    ratings(Path(spec.data), rows=901)
    return spec


def _other_columns(spec: JobSpec) -> JobSpec:
    return replace(spec, columns={"user": "item", "item": "user"})


def _other_arguments(spec: JobSpec) -> JobSpec:
    return replace(spec, args={**spec.args, "rank": 5})


def _other_shards(spec: JobSpec) -> JobSpec:
    return replace(spec, training=replace(spec.training, shards=spec.training.shards + 1))


@pytest.mark.parametrize("other", [_other_content, _other_columns, _other_arguments, _other_shards])
def test_what_was_found_of_another_job_is_not_taken(
    other: Callable[[JobSpec], JobSpec], home: Path, tmp_path: Path
) -> None:
    spec = job(ratings(tmp_path / "a.csv"))
    look(spec)
    changed = other(spec)
    look(changed)
    assert len(kept(home)) == 2


def test_an_application_that_was_edited_looks_again(home: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    text = "from agileml.apps.mf import MatrixFactorization\n\nclass Mine(MatrixFactorization):\n    pass\n"
    mine.write_text(text)
    spec = replace(job(ratings(tmp_path / "a.csv")), app=f"{mine}:Mine")
    look(spec)
    look(spec)
    assert len(kept(home)) == 1
    mine.write_text(text + "\nMORE = 1\n")
    look(spec)
    assert len(kept(home)) == 2


def test_an_input_that_may_change_within_its_clock_is_not_kept(home: Path, tmp_path: Path) -> None:
    source = ratings(tmp_path / "a.csv")
    os.utime(source)
    look(job(source))
    assert not kept(home)


@pytest.mark.parametrize("harm", [lambda path: path.write_text("{"), lambda path: path.write_bytes(b"")])
def test_what_was_damaged_is_found_anew(harm: Callable[[Path], None], home: Path, tmp_path: Path) -> None:
    spec = job(ratings(tmp_path / "a.csv"))
    fresh = look(spec)
    (found,) = kept(home)
    harm(found)
    assert look(spec) == fresh == look(spec)


@pytest.mark.usefixtures("home")
def test_a_bound_that_is_too_large_is_replaced_by_what_counting_all_gives(tmp_path: Path) -> None:
    """The model has at most so many values as long as they may be as many; else all of the input is read."""
    spec = job(ratings(tmp_path / "a.csv", rows=MOST_VALUES // 2))
    bound = look(spec)
    assert not bound.model_exact
    counted = look(spec, most=bound.model_values * 2)
    assert counted.model_exact
    assert counted.model_values < bound.model_values
    assert look(spec) == counted, "what is exact is better than a bound"
    with pytest.raises(JobError, match="the model is too large"):
        look(spec, most=10)


def test_a_refusal_is_not_kept(home: Path, tmp_path: Path) -> None:
    source = ratings(tmp_path / "a.csv", header="what,ever,else")
    for _ in range(2):
        with pytest.raises(JobError, match="expected user"):
            look(job(source))
    assert not kept(home)


@pytest.mark.usefixtures("home")
def test_a_plan_of_an_input_that_is_known_loads_nothing_heavy(tmp_path: Path) -> None:
    """DuckDB and pandas take longer to load than all the rest of a plan."""
    ratings(tmp_path / "a.csv")
    text = JOB.read_text().replace("data/ratings.csv.gz", "a.csv").replace("../models", "models")
    (tmp_path / "job.yaml").write_text(text)
    code = (
        "import sys\nfrom spotctl.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'pandas', 'duckdb', 'scipy', 'fsspec', 'asyncio', 'sqlite3', 'highspy', 'zmq'}\n"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)"
    )
    told = []
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", code, "plan", str(tmp_path / "job.yaml")],
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(ran.stderr.strip().splitlines()[-1])
        assert "900 rows (61 users, 17 items)" in ran.stdout
    assert "duckdb" in told[0]
    assert told[1] == "[]"
