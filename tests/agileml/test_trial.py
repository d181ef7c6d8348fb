"""Tests how long a clock takes, as a trial on a part of the input measures it, and as applications estimate
it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agileml.api import ApplicationError, HasClockEstimate, load_application
from agileml.data.sampling import Sample
from agileml.trial import Trial, measure_clock, run_trial

MF = "agileml.apps.mf:MatrixFactorization"
BUNDLED: tuple[tuple[str, dict[str, int]], ...] = (
    (MF, {"rank": 16}),
    ("agileml.apps.mlr:LogisticRegression", {}),
    ("agileml.apps.lda:LatentDirichletAllocation", {"topics": 10}),
)


def _data(folder: Path, application: str) -> Path:
    rng = np.random.default_rng(1)
    if application == MF:
        users, items = rng.integers(0, 600, 60_000), rng.integers(0, 200, 60_000)
        np.savez(folder / "data.npz", user=users, item=items, value=rng.normal(size=60_000))
        return folder / "data.npz"
    if "mlr" in application:
        table = np.column_stack([rng.integers(0, 6, 8000), rng.normal(size=(8000, 40))])
        np.save(folder / "data.npy", table)
        return folder / "data.npy"
    words = np.array([f"w{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(500)])
    texts = [" ".join(words[(500 * rng.random(60) ** 3).astype(int)]) for _ in range(1500)]
    (folder / "data.csv").write_text("text\n" + "\n".join(texts) + "\n")
    return folder / "data.csv"


@pytest.mark.parametrize(("application", "arguments"), BUNDLED)
def test_bundled_applications_estimate_what_a_trial_measures(
    application: str, arguments: dict[str, int], tmp_path: Path
) -> None:
    """Within the factor of three that plans tell, and as much again for a computer that is busy."""
    data = _data(tmp_path, application)
    app = load_application(application, arguments)
    counts = Sample(data, app.columns).count_input()
    found = run_trial(Trial(application, arguments, str(data), counts.rows, 4), each_s=0.2)
    assert found.low < found.core_seconds < found.high
    assert isinstance(app, HasClockEstimate)
    assert 1 / 9 < app.clock_core_seconds(counts) / found.core_seconds < 9


def test_an_input_in_no_order_is_tried_with_as_few_users_as_a_shard_has(tmp_path: Path) -> None:
    """Else every user of the part has a rating or two, and is paid for as one with hundreds."""
    data = _data(tmp_path, MF)
    sorted_data = tmp_path / "sorted.npz"
    arrays = np.load(data)
    order = np.argsort(arrays["user"], kind="stable")
    np.savez(sorted_data, **{name: arrays[name][order] for name in arrays.files})
    both = [
        run_trial(Trial(MF, {"rank": 32}, str(file), 60_000, 16), most_values=12_000, each_s=0.3).core_seconds
        for file in (data, sorted_data)
    ]
    assert both[0] == pytest.approx(both[1], rel=0.6)


def test_what_an_application_does_in_a_trial_stays_in_its_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from agileml.apps.mf import MatrixFactorization\n"
        "class Fails(MatrixFactorization):\n"
        "    def process(self, shard, values, seed):\n"
        "        print('to standard output')\n"
        "        raise ValueError('no idea')\n"
        "class Hangs(MatrixFactorization):\n"
        "    def process(self, shard, values, seed):\n"
        "        while True: pass\n"
    )
    data = str(_data(tmp_path, MF))
    with pytest.raises(ApplicationError, match=r"process failed: ValueError: no idea \(.*mine.py, line 5\)"):
        measure_clock(Trial(f"{tmp_path}/mine.py:Fails", {}, data, 60_000, 4))
    with pytest.raises(ApplicationError, match="measuring a clock takes more than 4 s, and was ended"):
        measure_clock(Trial(f"{tmp_path}/mine.py:Hangs", {}, data, 60_000, 4), at_most_s=4)
