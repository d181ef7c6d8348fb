"""A training loop that survives the loss of its machine: logistic regression by SGD, NumPy alone.

Everything that the next step depends on is in a checkpoint: the weights, and where the random numbers
stand. So a run that was interrupted ends with the very numbers of one that was not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import numpy as np

STEPS, CHECKPOINT_EVERY, BATCH = 240, 20, 64
FOLDER = Path(os.environ["SPOTCTL_CHECKPOINT_DIR"])
asked_to_stop = False


def on_sigterm(_: int, __: FrameType | None) -> None:
    global asked_to_stop
    asked_to_stop = True


def save(step: int, weights: np.ndarray, chance: np.random.Generator) -> None:
    """Under a name of its own first: what is called step-N is whole."""
    partial = FOLDER / "writing"
    partial.mkdir(exist_ok=True)
    np.save(partial / "weights.npy", weights)
    (partial / "chance.json").write_text(json.dumps(chance.bit_generator.state))
    if not (FOLDER / f"step-{step}").exists():
        partial.rename(FOLDER / f"step-{step}")


def load() -> tuple[int, np.ndarray, np.random.Generator]:
    chance = np.random.default_rng(1)
    begin_from = os.environ["SPOTCTL_CHECKPOINT"]
    if not begin_from:
        return 0, np.zeros(20), chance
    found = Path(begin_from)
    chance.bit_generator.state = json.loads((found / "chance.json").read_text())
    return int(found.name.removeprefix("step-")), np.load(found / "weights.npy"), chance


def main() -> None:
    signal.signal(signal.SIGTERM, on_sigterm)
    step, weights, chance = load()
    truth = np.linspace(-1, 1, 20)
    with Path(os.environ["SPOTCTL_PROGRESS_FILE"]).open("a") as progress:
        while step < STEPS:
            inputs = chance.normal(size=(BATCH, 20))
            labels = (inputs @ truth + chance.normal(size=BATCH) > 0).astype(float)
            predicted = 1 / (1 + np.exp(-inputs @ weights))
            weights = weights - 0.05 * inputs.T @ (predicted - labels) / BATCH
            loss = -np.mean(np.log(np.where(labels > 0, predicted, 1 - predicted)))
            time.sleep(float(os.environ.get("SECONDS_PER_STEP", "0")))  # stands for a longer step
            step += 1
            progress.write(json.dumps({"step": step, "objective": float(loss)}) + "\n")
            progress.flush()
            if asked_to_stop or step % CHECKPOINT_EVERY == 0:
                save(step, weights, chance)
            if asked_to_stop:
                print(f"stopped after step {step}, as asked")
                sys.exit(1)
    print(f"done after step {step}")  # which the checkpoint it began from may have been of already


main()
