"""The datasets of the proof, built from the photographs by `counterfoil build`, and the answers of
each network."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from counterfoil import evaluate
from counterfoil.arrays import Bools
from counterfoil.building.build_dataset import build
from photographs_proof.networks import CLASSES, load_network, transform

NETWORKS = (
    "resnet20",
    "resnet32",
    "resnet44",
    "resnet56",
    "resnet20-ehanw",
    "resnet20-ehanw-adversarial",
)
# The corruptions of the published table, by its names.
PUBLISHED = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
SEVERITIES = (1, 2, 3, 4, 5)
# of all photographs, at severity 3
WHOLE = ("fog", "gaussian_noise", "low_resolution", "motion_blur")
WHOLE_SEVERITY = 3
SEED = 100
# Of each class's photographs in the order of their numbers: how many tenths each split has.
SPLITS = {"train": (0, 4), "validation": (4, 6), "test": (6, 10)}


@dataclass(frozen=True)
class PhotographProof:
    """The datasets and answers of the proof, in one folder; what is there is not made again.

    data: the folder of photographs, networks and tables. levels: photographs of each class at all
    severities. whole: photographs of each class under the few corruptions.
    """

    data: Path
    work: Path
    levels: int
    whole: int
    workers: int

    @cached_property
    def photographs(self) -> Path:
        """Return the folder of all photographs, in folders of their classes."""
        folder = self.work / "photos"
        if not folder.exists():
            with zipfile.ZipFile(self.data / "cifar10-test-even.zip") as archive:
                archive.extractall(self.work / "unpacked")
            (self.work / "unpacked" / "photos").rename(folder)
        return folder

    @cached_property
    def split_photographs(self) -> Path:
        """Return a folder of three splits: of each class the first photographs by number, the next,
        and the last."""
        folder = self.work / f"splits-{self.whole}"
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.part")
            for name in CLASSES:
                photographs = sorted((self.photographs / name).iterdir())[: self.whole]
                for split, (first, end) in SPLITS.items():
                    (partial / split / name).mkdir(parents=True, exist_ok=True)
                    of_split = slice(first * self.whole // 10, end * self.whole // 10)
                    for photograph in photographs[of_split]:
                        shutil.copyfile(photograph, partial / split / name / photograph.name)
            partial.rename(folder)
        return folder

    def weights(self, network: str) -> Path:
        return self.data / "cifar10-resnets" / f"{network}.safetensors"

    def dataset(self, name: str) -> Path:
        """Return the folder of `levels` or `whole`, built where it is not there or not finished."""
        if name == "levels":
            levels = [severity / 5 for severity in SEVERITIES]
            shifts = _shifts(PUBLISHED, {"by": "corruption", "levels": levels})
            candidates = self.levels
        else:
            shifts = _shifts(WHOLE)
            candidates = self.whole
        return self.built(f"{name}-{candidates}", self.photographs, "train", shifts, candidates)

    def split_dataset(self, split: str, corruptions: Sequence[str]) -> Path:
        """Return the folder of a split's photographs under some corruptions."""
        first, end = SPLITS[split]
        candidates = (end - first) * self.whole // 10
        name = f"{split}-{candidates}"
        shifts = _shifts(corruptions)
        return self.built(name, self.split_photographs, split, shifts, candidates)

    def built(
        self,
        name: str,
        photographs: Path,
        split: str,
        shifts: Mapping[str, Any],
        candidates: int,
    ) -> Path:
        """Return the folder of photographs of one split, untouched and under each of `shifts`; its
        recipe is beside it.

        candidates: how many photographs of each class.
        """
        # Without other splits, and for images to learn from, the training split serves as the
        # validation split too.
        validation = "train" if split == "train" else "validation"
        recipe = {
            "recipe": 1,
            "name": f"photographs-{name.rpartition('-')[0]}",
            "license": "other",
            "source": {
                "dataset": str(photographs),
                "train_split": "train",
                "validation_split": validation,
                "classes": list(CLASSES),
            },
            "generator": {"kind": "corrupt", "split": split},
            "prompts": {"shifts": dict(shifts)},
            "samples": {"candidates": candidates, "seed": SEED},
        }
        path = self.work / f"{name}.yaml"
        path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
        folder = path.with_suffix("")
        if not (folder / "manifest.json").exists():
            print(f"building {folder.name}", flush=True)
            build(path, folder, workers=self.workers)
        return folder

    def score(self) -> None:
        """Score every network on both datasets, a network in each process."""
        waiting = [
            (self.weights(network), dataset, self.evaluation(dataset, network))
            for dataset in (self.dataset("whole"), self.dataset("levels"))
            for network in NETWORKS
            if not (self.evaluation(dataset, network) / "results.json").exists()
        ]
        with ProcessPoolExecutor(self.workers, mp_context=get_context("spawn")) as pool:
            for done in pool.map(_evaluate, *zip(*waiting, strict=True)) if waiting else ():
                print(f"scored {done}", flush=True)

    def evaluation(self, dataset: Path, network: str) -> Path:
        return dataset.with_name(f"{dataset.name}-{network}")

    def hits(self, dataset: Path, network: str) -> dict[str, Bools]:
        """Return by shift whether each image is answered rightly: [10 classes, photographs], in the
        order of keys."""
        return hits_of(self.evaluation(dataset, network), network)

    def hits_by_severity(self, network: str) -> tuple[Bools, Bools]:
        """Return the hits of `levels`: on the base [10, photographs], and corrupted [15, 5, 10,
        photographs]."""
        hits = self.hits(self.dataset("levels"), network)
        names = [
            [f"{corruption}_{step}" for step in SEVERITIES[:-1]] + [corruption]
            for corruption in PUBLISHED
        ]
        return hits["base"], np.array([[hits[name] for name in severities] for severities in names])


def _shifts(corruptions: Sequence[str], severity: Any = WHOLE_SEVERITY) -> dict[str, Any]:
    return {name: {"corruption": name, "severity": severity} for name in corruptions}


def hits_of(evaluation: Path, model: str) -> dict[str, Bools]:
    """Return by shift whether a model answers each image of an evaluation rightly: [10 classes,
    photographs]."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(evaluation / "predictions.parquet")
    right = f"right.{model}"
    frame = table.select(["key", "label", "shift", right]).to_pandas()
    return {
        str(shift): rows[right].to_numpy(bool).reshape(len(CLASSES), -1)
        for shift, rows in frame.sort_values(["label", "key"]).groupby("shift")
    }


def _evaluate(weights: Path, dataset: Path, out: Path) -> str:
    network = load_network(weights)
    evaluate(
        dataset,
        {weights.stem: network},
        transform=transform(),
        out=out,
        device="cpu",
        reference=False,
        seed=SEED,
    )
    return out.name
