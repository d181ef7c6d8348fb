from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.api import Application, ApplicationError, Outcome, load_application, validated_delta
from agileml.apps import planted
from agileml.apps.als import sweep_als
from agileml.apps.compiled import CompiledPasses
from agileml.apps.mf import MatrixFactorization, VectorizedPasses, _Coded, _cut_shard, _stable_order
from agileml.apps.tally import Tally
from agileml.data.sharding import cut_input
from agileml.data.shards import ShardReader
from agileml.data.tables import Table
from agileml.model_shape import Shape
from agileml.protocol.messages import Patch
from tests.agileml.processes.real_jobs import serial


def ratings_file(folder: Path, **more: float) -> Path:
    out = folder / "ratings.csv.gz"
    wanted = {"users": 300, "items": 80, "rank": 4, "noise": 0.3, "density": 0.3, "seed": 5, **more}
    planted.main([str(out), *(f"--{name}={value}" for name, value in wanted.items())])
    return out


def train(folder: Path, app: Application, source: Path, shards: int, clocks: int) -> tuple[float, bytes]:
    place = folder / f"cut into {shards}"
    cut_input(app, source, shards, place)
    model, objectives = serial(app, ShardReader(place), shards, clocks)
    return objectives[-1], model.tobytes()


@pytest.mark.parametrize(
    ("shards", "rank", "regularization", "more"),
    [
        (16, 4, 0.02, {}),
        (16, 8, 0.02, {}),
        (5, 6, 0.05, {"users": 600, "items": 150, "rank": 6, "density": 0.06}),
    ],
    ids=["as planted", "too many factors", "sparse"],
)
def test_the_objective_comes_within_two_percent_of_alternating_least_squares(
    shards: int, rank: int, regularization: float, more: dict[str, float], tmp_path: Path
) -> None:
    source = ratings_file(tmp_path, **more)
    app = MatrixFactorization(rank=rank, regularization=regularization)
    rmse, _ = train(tmp_path, app, source, shards, clocks=100)
    *_, trusted = app.reference_objectives(Table(source, app.columns))
    assert rmse == pytest.approx(trusted, rel=0.02)


def test_the_trusted_solver_finds_the_best_approximation_of_a_full_matrix() -> None:
    """Without regularization, every cell observed: the truncated SVD (Eckart and Young, 1936)."""
    rng = np.random.default_rng(1)
    full = rng.normal(size=(6, 5))
    user, item = np.indices(full.shape)
    singular = np.linalg.svd(full - full.mean(), compute_uv=False)
    best = np.sqrt(np.sum(singular[2:] ** 2) / full.size)
    *_, rmse = sweep_als(user.ravel(), item.ravel(), full.ravel(), 2, 0.0, tolerance=1e-12)
    assert rmse == pytest.approx(best, rel=1e-6)


def test_the_trusted_solver_takes_time_in_proportion_to_the_ratings() -> None:
    """Less than a second for 33 000 rows. Looking for each row's ratings among all of them takes an hour."""
    rng = np.random.default_rng(2)
    user, item = rng.integers(30_000, size=300_000), rng.integers(3_000, size=300_000)
    began = time.process_time()
    sweeps = [*sweep_als(user, item, rng.normal(size=300_000), 4, 0.5)]
    assert len(sweeps) > 1
    assert time.process_time() - began < 20.0


def test_one_rating_alone_is_shrunk_as_the_closed_form_says() -> None:
    """Two ratings, 1 off the mean, of a user and an item each: p q = 1 - r minimizes (1 - pq)^2 + 2 r p q."""
    *_, rmse = sweep_als(np.arange(2), np.arange(2), np.array([4.0, 2.0]), 1, 0.25, tolerance=1e-12)
    assert rmse == pytest.approx(0.25, rel=1e-6)


def test_a_shards_steps_leave_the_optimum_alone(tmp_path: Path) -> None:
    """Where the objective no longer falls, cutting the input differently changes nothing."""
    source = ratings_file(tmp_path)
    app = MatrixFactorization(rank=4)
    few, _ = train(tmp_path, app, source, 2, clocks=80)
    many, _ = train(tmp_path, app, source, 20, clocks=80)
    assert many == pytest.approx(few, rel=1e-3)


@given(st.lists(st.integers(0, 49), min_size=1, max_size=10, unique=True), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_a_row_starts_the_same_whoever_asks(rows: list[int], seed: int) -> None:
    app, shape = MatrixFactorization(rank=3, seed=seed), Shape(50, 3)
    everything = app.initial(np.arange(50), shape)
    assert app.initial(np.array(rows), shape).tobytes() == everything[rows].tobytes()


def test_more_shards_than_users_leaves_some_empty(tmp_path: Path) -> None:
    source = tmp_path / "few.csv"
    source.write_text("7,100,1.0\n7,200,2.0\n9,100,4.0\n")
    rmse, _ = train(tmp_path, MatrixFactorization(rank=1), source, 5, clocks=30)
    assert np.isfinite(rmse)
    with np.load(tmp_path / "cut into 5" / "index.npz") as index:
        assert index["users"].tolist() == [7, 9]
        assert index["items"].tolist() == [100, 200]


@pytest.mark.parametrize("content", ["", "user,item,value\n", "1,2\n", "1,2,many\n"])
def test_files_that_are_not_ratings_are_named(content: str, tmp_path: Path) -> None:
    source = tmp_path / "bad.csv"
    source.write_text(content)
    with pytest.raises(ApplicationError, match=r"bad\.csv"):
        cut_input(MatrixFactorization(), source, 2, tmp_path / "cut")


def test_applications_are_loaded_by_module_or_by_file(tmp_path: Path) -> None:
    loaded = load_application("agileml.apps.mf:MatrixFactorization", {"rank": 3})
    assert loaded == MatrixFactorization(rank=3)
    mine = tmp_path / "mine.py"
    mine.write_text("import agileml.apps.mf as mf\nclass Mine(mf.MatrixFactorization): pass\n")
    assert type(load_application(f"{mine}:Mine", {"rank": 2})).__name__ == "Mine"


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("mf", {}, "does not name an application"),
        ("no.such.module:App", {}, "cannot import"),
        ("nowhere.py:App", {}, "no application file"),
        ("agileml.apps.mf:Nothing", {}, "has no class Nothing"),
        ("agileml.apps.mf:MatrixFactorisation", {}, "did you mean MatrixFactorization"),
        ("agileml.apps.mf:MatrixFactorization", {"ranks": 3}, "cannot be made from"),
        ("agileml.apps.mf:MatrixFactorization", {"rank": 0}, "found 0, expected at least 1"),
        ("agileml.apps.mf:MatrixFactorization", {"rank": "8"}, "args.rank of .* expected a whole number"),
        ("agileml.apps.mf:MatrixFactorization", {"rank": True}, "expected a whole number"),
        ("agileml.apps.mf:MatrixFactorization", {"step": "1e-3"}, "expected a number"),
        ("agileml.apps.mf:MatrixFactorization", {"compiled": 1}, "expected true or false"),
        ("agileml.apps.lda:LatentDirichletAllocation", {"topics": 0}, "topics: found 0"),
    ],
)
def test_what_is_wrong_with_an_application_is_said(name: str, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ApplicationError, match=why):
        load_application(name, arguments)


@pytest.mark.parametrize("rows", [[1, 1], [2, 1], [-1, 1], [1, 9]])
def test_a_delta_that_does_not_fit_the_model_is_refused(rows: list[int]) -> None:
    delta = Patch(np.array(rows), np.zeros((2, 2), np.float32))
    with pytest.raises(ApplicationError, match="sorted, unique, from 0 to 8"):
        validated_delta(Outcome(delta, 0.0, 0.0), Shape(9, 2))


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=30, unique=True),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_compiled_passes_find_what_the_vectorized_ones_find(
    rated: list[tuple[int, int]], rank: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ratings = np.array(sorted(rated))
    user, item = (_Coded.from_ids(column, np.unique(column)) for column in ratings.T)
    value = rng.normal(size=len(rated)).astype(np.float32)
    shard = _cut_shard(user, item, value, np.bincount(item.at), len(user.rows), rank)
    people, items = (rng.normal(size=(len(side.rows), rank)).astype(np.float32) for side in (user, item))
    plain, compiled = VectorizedPasses(shard, items), CompiledPasses(shard, items)
    assert np.allclose(compiled.by_item(people), plain.by_item(people), rtol=1e-4, atol=1e-4)
    (asked, total), (expected, sum_of_squares) = compiled.by_user(people), plain.by_user(people)
    assert np.allclose(asked, expected, rtol=1e-4, atol=1e-4)
    assert total == pytest.approx(sum_of_squares, rel=1e-4)


def test_ids_seen_in_many_batches_are_counted_once_each() -> None:
    """Each batch merged with all before it takes a minute here; the ids lie anywhere, below zero too."""
    rng = np.random.default_rng(3)
    seen = rng.integers(-(2**62), 2**62, size=300_000)[rng.integers(300_000, size=(2_000, 500))]
    tally = Tally()
    began = time.process_time()
    for batch in seen:
        tally.add_keys(batch)
    ids, counts = tally.sums_by_key()
    assert time.process_time() - began < 10.0
    expected = np.unique(seen, return_counts=True)
    assert np.array_equal(ids, expected[0])
    assert np.array_equal(counts, expected[1])


@pytest.mark.parametrize("most", [1, 300, 2**16, 2**16 + 1, 2**31 - 1])
def test_numbers_are_ordered_as_a_stable_sort_orders_them(most: int) -> None:
    keys = np.random.default_rng(4).integers(most, size=2_000).astype(np.int32)
    assert np.array_equal(_stable_order(keys), np.argsort(keys, kind="stable"))


def test_a_compiled_job_reaches_the_objective_and_says_so_in_its_arguments(tmp_path: Path) -> None:
    source = ratings_file(tmp_path)
    app = MatrixFactorization(rank=4, compiled=True)
    rmse, _ = train(tmp_path, app, source, 16, clocks=100)
    *_, trusted = app.reference_objectives(Table(source, app.columns))
    assert rmse == pytest.approx(trusted, rel=0.02)


def test_without_numba_a_compiled_job_is_refused_and_told_what_to_install() -> None:
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from agileml.api import load_application\n"
        "load_application('agileml.apps.mf:MatrixFactorization', {'compiled': True})"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ApplicationError" in told.stderr
    assert "pip install 'spotctl[fast]'" in told.stderr
