"""Score a classifier on a folder of photographs: beside a plain loop of timm."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benches.evaluate import save_architecture, save_windows
from peers_bench.pair import Agreement, Pair

NEEDS = ("timm",)
PHOTOGRAPHS = 32
BATCH = 32
SIDE = 224
NETWORK = "resnet18"
CONFIDENCE = 1e-4
MOST_ROUNDS = 3
# The answer and the confidence of each photograph.
Answers = tuple[np.ndarray, np.ndarray]


def pairs(present: Sequence[str]) -> Iterator[Pair]:
    """Yield a first evaluation, and a second one, whose answers are kept."""
    from counterfoil.evaluation.evaluate_dataset import evaluate
    from counterfoil.models.classifiers import load_classifier

    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        folder = work / "photographs"
        save_windows(folder, PHOTOGRAPHS)
        name = save_architecture(work, NETWORK, ("china", "flower"), SIDE)

        def evaluated(cache: Path) -> Answers:
            os.environ["XDG_CACHE_HOME"] = str(cache)
            with tempfile.TemporaryDirectory(dir=work) as temporary:
                out = Path(temporary)
                evaluate(folder, [name], out=out, device="cpu", batch_size=BATCH, workers=1)
                table = pq.read_table(out / "predictions.parquet").sort_by("path")
            return table[f"answer.{name}"].to_numpy(), table[f"confidence.{name}"].to_numpy()

        def first() -> Answers:
            with tempfile.TemporaryDirectory(dir=work) as cache:
                return evaluated(Path(cache))

        def second() -> Answers:
            return evaluated(work / "kept")

        def peers() -> Answers:
            return plain_loop(folder, load_classifier(name))

        second()  # fills the cache
        size = f"{NETWORK} on {PHOTOGRAPHS} photographs of 500 × 400, with intervals and report"
        for run, ours in (("first run", first), ("again, answers kept", second)):
            yield Pair(
                what=f"{size}: {run}",
                peer="timm",
                way="a plain loop, answers alone",
                ours=ours,
                peers=peers,
                agreement=same_answers,
                most_rounds=MOST_ROUNDS,
            )


def plain_loop(folder: Path, model: Any) -> Answers:
    """Return what a plain validation loop answers that decodes in its own process."""
    import torch
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    data = ImageFolder(str(folder), transform=model.transform())
    answers = []
    with torch.inference_mode():
        for pictures, _ in DataLoader(data, batch_size=BATCH, num_workers=0):
            answers.append(model.module(pictures).softmax(dim=1))
    confidence, answer = torch.cat(answers).max(dim=1)
    return answer.numpy(), confidence.numpy()


def same_answers(ours: Answers, peers: Answers) -> Agreement:
    equal = int((ours[0] == peers[0]).sum())
    difference = float(np.abs(ours[1] - peers[1]).max())
    words = f"{equal} of {len(peers[0])} answers, confidences differ by {difference:.0e} at most"
    return Agreement(equal == len(peers[0]) and difference <= CONFIDENCE, words)
