"""A file as MovieLens publishes its ratings, with names for ids: launched as it is, by real processes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from spotctl.records.run import RunStore
from spotctl.records.shared_inputs import InputStore, claim_of
from tests.spotctl.cli.commandline import JOB, spotctl

pytestmark = pytest.mark.process


def test_ratings_with_names_train_and_can_be_joined_again(home: Path) -> None:
    rng = np.random.default_rng(5)
    people, films = rng.integers(0, 30, 400), rng.integers(0, 12, 400)
    rows = "".join(f"anna-{u},tt{f:07}X,3.5,111\n" for u, f in zip(people, films, strict=True))
    Path("ratings.csv").write_text(f"userId,movieId,rating,timestamp\n{rows}")
    Path("nightly.yaml").write_text(f"{JOB}score: off\n".replace("clocks: 24", "clocks: 4"))
    launched = spotctl("launch", "nightly.yaml", "--yes", "--json", "--speed", "100000")
    assert launched.exit_code == 0, launched.output
    final = json.loads(launched.stdout.splitlines()[-1])
    with np.load("models/nightly/latest/model.npz") as kept:
        assert kept["users"].tolist() == sorted({f"anna-{u}" for u in people.tolist()})
        assert kept["items"].tolist() == sorted({f"tt{f:07}X" for f in films.tolist()})
        assert len(kept["model"]) >= len(kept["users"]) + len(kept["items"])
    assert final["model"].endswith(f"models/nightly/{final['run']}/model.npz")
    (run,) = RunStore(home).list_runs()
    (cut,) = InputStore(home).list_inputs()
    assert claim_of(run.folder) == cut.key
    assert not (run.training_folder / "input").exists(), "its input is not kept with its record"
