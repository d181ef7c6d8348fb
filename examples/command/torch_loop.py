"""A PyTorch loop that survives the loss of its machine, on the CPU.

A checkpoint holds whatever the next step depends on: the model, the optimizer, where the random numbers
stand, and the place in the shuffled data. So a run that was interrupted ends with the very losses, and the
very weights, of one that was not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import torch

STEPS, CHECKPOINT_EVERY, BATCH = 120, 20, 32
FOLDER = Path(os.environ["SPOTCTL_CHECKPOINT_DIR"])
asked_to_stop = False


def on_sigterm(_: int, __: FrameType | None) -> None:
    global asked_to_stop
    asked_to_stop = True


class Sampler:
    """Goes through the data in a new random order each epoch; its place is part of a checkpoint."""

    def __init__(self, size: int) -> None:
        self.order, self.at = torch.randperm(size), 0

    def next(self) -> torch.Tensor:
        if self.at + BATCH > len(self.order):
            self.order, self.at = torch.randperm(len(self.order)), 0
        self.at += BATCH
        return self.order[self.at - BATCH : self.at]


def main() -> None:
    signal.signal(signal.SIGTERM, on_sigterm)
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    inputs = torch.randn(512, 10)
    targets = (inputs.sum(dim=1, keepdim=True) > 0).float()
    model = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler, step, losses = Sampler(len(inputs)), 0, []
    if begin_from := os.environ["SPOTCTL_CHECKPOINT"]:
        found = torch.load(Path(begin_from) / "all.pt")
        step, losses = found["step"], found["losses"]
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        sampler.order, sampler.at = found["order"], found["at"]
        torch.set_rng_state(found["chance"])
    while step < STEPS:
        rows = sampler.next()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(float(os.environ.get("SECONDS_PER_STEP", "0")))  # stands for a larger model
        step += 1
        losses.append(loss.item())
        with Path(os.environ["SPOTCTL_PROGRESS_FILE"]).open("a") as progress:
            progress.write(json.dumps({"step": step, "objective": loss.item()}) + "\n")
        if asked_to_stop or step % CHECKPOINT_EVERY == 0:
            partial = FOLDER / "writing"
            partial.mkdir(exist_ok=True)
            everything = {
                "step": step,
                "losses": losses,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "order": sampler.order,
                "at": sampler.at,
                "chance": torch.get_rng_state(),
            }
            torch.save(everything, partial / "all.pt")
            (partial / "losses.json").write_text(json.dumps(losses))
            partial.rename(FOLDER / f"step-{step}")  # whole from now on
        if asked_to_stop:
            sys.exit(1)
    print(f"done after step {step}: loss {losses[-1]:.6f}")


main()
