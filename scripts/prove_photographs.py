"""Prove what is said of photographs: real images, trained networks and published numbers, none of them of our making.

    python scripts/prove_photographs.py --data DATA --write       # the tables, into photographs_proof/RESULTS.md
    python scripts/prove_photographs.py --data DATA --photographs 5 --per-class 20    # a look at it, in minutes

DATA holds cifar10-test-even.zip (photos/CLASS/NNNN.jpg), cifar10-resnets/*.safetensors, robustbench_cifar10c.csv and
cifar10-label-errors-even.json; nothing of it is copied into the project. Two datasets are built from the photographs
with `counterfoil build`: some of them under the corruptions of the published table at five severities, and all of them
under a few at severity 3. Every network is scored on both by `counterfoil.evaluate`, and three of them by a plain loop
too. Only the part on labels chooses anything (`photographs_proof/labels.py`). Frost on small pictures was changed after
it had been compared with resnet20 and resnet32 on the first 50 photographs of each class, so its rows of these two are
no test of it. Resumes after a kill.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import zipfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.stats import spearmanr

import results_page
from counterfoil import evaluate
from counterfoil.building import build
from counterfoil.evaluation.statistics import ClassUnits, drops
from photographs_proof.labels import labels_table, measured_labels
from photographs_proof.networks import CLASSES, load_network, transform
from proof_files import measured

RESULTS = Path(__file__).parent / "photographs_proof" / "RESULTS.md"
NETWORKS = ("resnet20", "resnet32", "resnet44", "resnet56", "resnet20-ehanw", "resnet20-ehanw-adversarial")
TWINS = ("resnet20-ehanw", "resnet20-ehanw-adversarial")
# Those of the published table, by its names.
PUBLISHED = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
SEVERITIES = (1, 2, 3, 4, 5)
WHOLE = ("fog", "gaussian_noise", "low_resolution", "motion_blur")  # of all photographs, at severity 3
WHOLE_SEVERITY = 3
TEST_SETS, SIZES, SEED = 200, (20, 50, 100), 100
PARTS = ("equal", "published", "intervals", "robust", "labels")


@dataclass(frozen=True)
class PhotographProof:
    """The datasets and answers of the proof, in one folder; what is there is not made again.

    data: the folder of photographs, networks and tables. levels: photographs of each class at all severities. whole:
    photographs of each class under the few corruptions.
    """

    data: Path
    work: Path
    levels: int
    whole: int
    workers: int

    @cached_property
    def photographs(self) -> Path:
        folder = self.work / "photos"
        if not folder.exists():
            with zipfile.ZipFile(self.data / "cifar10-test-even.zip") as archive:
                archive.extractall(self.work / "unpacked")
            (self.work / "unpacked" / "photos").rename(folder)
        return folder

    def dataset(self, name: str) -> Path:
        """Return the folder of one of the two datasets, built where it is not there or not finished."""
        shifts: dict[str, Any]
        if name == "levels":
            levels = [severity / 5 for severity in SEVERITIES]
            shifts = {one: {"corruption": one, "severity": {"by": "corruption", "levels": levels}} for one in PUBLISHED}
            candidates = self.levels
        else:
            shifts = {one: {"corruption": one, "severity": WHOLE_SEVERITY} for one in WHOLE}
            candidates = self.whole
        recipe = {
            "recipe": 1,
            "name": f"photographs-{name}",
            "license": "other",
            "source": {
                "dataset": str(self.photographs),
                "train_split": "train",
                "validation_split": "train",
                "classes": list(CLASSES),
            },
            "generator": {"kind": "corrupt", "split": "train"},
            "prompts": {"shifts": shifts},
            "samples": {"candidates": candidates, "seed": SEED},
        }
        path = self.work / f"{name}-{candidates}.yaml"
        path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
        folder = path.with_suffix("")
        if not (folder / "manifest.json").exists():
            print(f"building {folder.name}", flush=True)
            build(path, folder, workers=self.workers)
        return folder

    def score(self) -> None:
        """Score every network on both datasets, a network in each process."""
        waiting = [
            (self.data / "cifar10-resnets" / f"{network}.safetensors", dataset, self.evaluation(dataset, network))
            for dataset in (self.dataset("whole"), self.dataset("levels"))
            for network in NETWORKS
            if not (self.evaluation(dataset, network) / "results.json").exists()
        ]
        with ProcessPoolExecutor(self.workers, mp_context=get_context("spawn")) as pool:
            for done in pool.map(_evaluate, *zip(*waiting, strict=True)) if waiting else ():
                print(f"scored {done}", flush=True)

    def evaluation(self, dataset: Path, network: str) -> Path:
        return dataset.with_name(f"{dataset.name}-{network}")

    def hits(self, dataset: Path, network: str) -> dict[str, NDArray[np.bool_]]:
        """Whether each image is answered rightly, by shift: [10 classes, photographs], in the order of their keys."""
        import pyarrow.parquet as parquet

        table = parquet.read_table(self.evaluation(dataset, network) / "predictions.parquet")
        frame = table.select(["key", "label", "shift", f"right.{network}"]).to_pandas().sort_values(["label", "key"])
        return {
            str(shift): own[f"right.{network}"].to_numpy(bool).reshape(len(CLASSES), -1)
            for shift, own in frame.groupby("shift")
        }


def _evaluate(weights: Path, dataset: Path, out: Path) -> str:
    network = load_network(weights)
    evaluate(dataset, {weights.stem: network}, transform=transform(), out=out, device="cpu", reference=False, seed=SEED)
    return out.name


def equal(proof: PhotographProof) -> dict[str, Any]:
    """Compare hits and drops with a plain loop over the dataset as `datasets` loads it."""
    import datasets
    import torch

    datasets.disable_progress_bars()
    folder, prepare = proof.dataset("whole"), transform()
    found: dict[str, Any] = {}
    for name in ("resnet20", "resnet56", "resnet20-ehanw-adversarial"):
        network, told = load_network(proof.data / "cifar10-resnets" / f"{name}.safetensors"), proof.hits(folder, name)
        differing, images, drop_error = 0, 0, 0.0
        shares: dict[str, float] = {}
        for shift in ("base", *WHOLE):
            rows = datasets.load_dataset(str(folder), shift, split="test")
            keys, labels = rows["key"], np.array(rows["label"])
            right = []
            with torch.inference_mode():
                for start in range(0, len(rows), 64):
                    batch = torch.stack([prepare(image.convert("RGB")) for image in rows[start : start + 64]["image"]])
                    right += (network(batch).argmax(1).numpy() == labels[start : start + 64]).tolist()
            order = np.lexsort((keys, labels))
            plain = np.array(right)[order].reshape(len(CLASSES), -1)
            differing += int((plain != told[shift]).sum())
            images += plain.size
            shares[shift] = float(plain.mean())
        rows = _rows(proof, folder, name, "drop")
        for shift in WHOLE:
            drop_error = max(drop_error, abs(rows[shift]["value"] - (shares["base"] - shares[shift])))
        found[name] = {"images": images, "differing": differing, "base": shares["base"], "drop_error": drop_error}
    return found


def _rows(proof: PhotographProof, folder: Path, network: str, measure: str) -> dict[str, dict[str, Any]]:
    """The numbers of a measure by shift."""
    document = json.loads((proof.evaluation(folder, network) / "results.json").read_text(encoding="utf-8"))
    return {
        row["group"]: row
        for row in document["rows"]
        if row["measure"] == measure and "group" in row and "class_id" not in row and "at" not in row
    }


def equal_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "### Against a plain loop",
        "",
        "The same dataset, loaded by `datasets` and answered by a loop of torch in batches of 64.",
        "",
        "| network | images | answered otherwise | accuracy on the base, % | largest difference of a drop, points |",
        "| :-- | --: | --: | --: | --: |",
    ]
    for name, one in found.items():
        lines.append(
            f"| {name} | {one['images']:,} | {one['differing']:,} | {100 * one['base']:.1f} |"
            f" {100 * one['drop_error']:.4f} |"
        )
    return lines


def published_accuracies(file: Path) -> dict[str, NDArray[np.float64]]:
    """By corruption, the accuracy of every published model at each severity: [models, 5], in %."""
    with file.open(encoding="utf-8", newline="") as stream:
        names, severities, *rows = csv.reader(stream)
    found = {}
    for name in PUBLISHED:
        columns = [names.index(name) + severity - 1 for severity in SEVERITIES]
        assert [severities[column] for column in columns] == [str(severity) for severity in SEVERITIES]
        found[name] = np.array([[100 * float(row[column]) for column in columns] for row in rows])
    return found


def accuracies(proof: PhotographProof, network: str) -> tuple[float, NDArray[np.float64]]:
    """Accuracy on the base, and by published corruption and severity: [15, 5], in %."""
    hits = proof.hits(proof.dataset("levels"), network)
    names = [[f"{one}_{step}" for step in SEVERITIES[:-1]] + [one] for one in PUBLISHED]
    return 100 * hits["base"].mean(), np.array([[100 * hits[name].mean() for name in own] for own in names])


def published_table(proof: PhotographProof) -> list[str]:
    """Accuracies by corruption beside those of the published models, which were never given our networks."""
    published = published_accuracies(proof.data / "robustbench_cifar10c.csv")
    # Published models differ in accuracy; what is compared is what each loses from severity 1 of the mildest.
    theirs = np.array([published[name].mean(axis=1) for name in PUBLISHED])
    own = {network: accuracies(proof, network) for network in NETWORKS}
    lines = [
        "### Against the published table",
        "",
        f"Accuracy in % over severities 1 to 5 on {10 * proof.levels:,} photographs; published: the lowest, the median"
        f" and the highest of {theirs.shape[1]} models on CIFAR-10-C (RobustBench). The published models were made for"
        " robustness; ours, but for the last, were not, so they may lie below. The photographs are JPEG files of"
        " quality 75 here.",
        "",
        f"| corruption | {' | '.join(NETWORKS)} | published: lowest, median, highest |",
        "| :-- |" + " --: |" * (len(NETWORKS) + 1),
        f"| none | {' | '.join(f'{base:.1f}' for base, _ in own.values())} | |",
    ]
    for row, name in enumerate(PUBLISHED):
        cells = [f"{by_severity[row].mean():.1f}" for _, by_severity in own.values()]
        spread = ", ".join(f"{value:.1f}" for value in np.quantile(theirs[row], (0, 0.5, 1)))
        lines.append(f"| {name} | {' | '.join(cells)} | {spread} |")
    median = np.median(theirs, axis=1)
    lines += [
        "",
        "Rank correlation (Spearman) of a network's accuracies over the fifteen corruptions with the median published"
        " ones, and with the single published model that is nearest in rank; and published models among themselves"
        " (5th, 50th and 95th percentile of all pairs).",
        "",
        "| network | with the median | with the nearest |",
        "| :-- | --: | --: |",
    ]
    for network, (_, by_severity) in own.items():
        mine = by_severity.mean(axis=1)
        each = [spearmanr(mine, theirs[:, model]).statistic for model in range(theirs.shape[1])]
        lines.append(f"| {network} | {spearmanr(mine, median).statistic:.2f} | {max(each):.2f} |")
    pairs = [
        spearmanr(theirs[:, one], theirs[:, other]).statistic for one in range(theirs.shape[1]) for other in range(one)
    ]
    lines.append(
        f"| published pairs | {', '.join(f'{value:.2f}' for value in np.quantile(pairs, (0.05, 0.5, 0.95)))} | |"
    )
    return lines


def intervals(proof: PhotographProof) -> dict[str, Any]:
    """How often the interval of a small random test set holds the drop of all photographs."""
    folder = proof.dataset("whole")
    found: dict[str, Any] = {}
    for network in ("resnet44", "resnet56", "resnet20-ehanw-adversarial"):
        hits = proof.hits(folder, network)
        for shift in WHOLE:
            truth = float(hits["base"].mean() - hits[shift].mean())
            for size in SIZES:
                for paired in (True, False):
                    rng = np.random.default_rng([SEED, size])
                    held, widths = 0, []
                    for number in range(TEST_SETS):
                        estimate = drops(
                            _test_set(hits, shift, size, rng, paired), paired=paired, seed=number, salt=shift
                        )
                        one = estimate.interval(0)
                        assert one.low is not None and one.high is not None
                        held += one.low <= truth <= one.high
                        widths.append(one.high - one.low)
                    key = f"{network} {shift} {size} {'pairs' if paired else 'apart'}"
                    found[key] = {"held": held, "width": float(np.mean(widths))}
    return found


def _test_set(
    hits: dict[str, NDArray[np.bool_]], shift: str, size: int, rng: np.random.Generator, paired: bool
) -> list[ClassUnits]:
    """Photographs of each class, drawn with replacement: all of them are the population."""
    units = []
    for label, name in enumerate(CLASSES):
        base = rng.integers(hits["base"].shape[1], size=size)
        shifted = base if paired else rng.integers(hits["base"].shape[1], size=size)
        present = np.ones(size, dtype=bool)
        units.append(
            ClassUnits(name, present, hits["base"][label, base, None], present, hits[shift][label, shifted, None])
        )
    return units


def intervals_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "### Intervals on real images",
        "",
        f"Of {TEST_SETS} test sets, drawn with replacement from all photographs, those whose 95 % interval holds the"
        " drop of all, in %, at severity 3; behind it the mean width of the interval in points. *Pairs*: base and"
        " shifted image of a photograph are drawn together. *Apart*: they are different photographs.",
        "",
        "| network | corruption | " + " | ".join(f"{size} a class, pairs | {size}, apart" for size in SIZES) + " |",
        "| :-- | :-- |" + " --: |" * (2 * len(SIZES)),
    ]
    networks = list(dict.fromkeys(key.split()[0] for key in found))
    shares = []
    for network in networks:
        for shift in WHOLE:
            cells = []
            for size in SIZES:
                for way in ("pairs", "apart"):
                    one = found[f"{network} {shift} {size} {way}"]
                    shares.append(one["held"] / TEST_SETS)
                    cells.append(f"{100 * shares[-1]:.1f} ({100 * one['width']:.1f})")
            lines.append(f"| {network} | {shift} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Over all cells: {100 * np.mean(shares):.1f} % on average, {100 * min(shares):.1f} to {100 * max(shares):.1f}."
        f" A share of {TEST_SETS} sets has a standard error of 1.5 points.",
    ]
    return lines


def robust_table(proof: PhotographProof) -> list[str]:
    """The adversarially trained network beside its twin."""
    plain, robust = (accuracies(proof, network) for network in TWINS)
    hits = [proof.hits(proof.dataset("levels"), network) for network in TWINS]
    lines = [
        "### An adversarially trained network beside its twin",
        "",
        f"Accuracy in % at each severity on {10 * proof.levels:,} photographs: {TWINS[0]}, then {TWINS[1]}. *Better"
        " from*: the first severity from which on the robust one is more accurate; in bold where the difference there"
        " is beyond twice its standard error over photographs.",
        "",
        f"| corruption | {' | '.join(map(str, SEVERITIES))} | better from |",
        "| :-- |" + " --: |" * (len(SEVERITIES) + 1),
        f"| none | {plain[0]:.1f}, {robust[0]:.1f} |" + " |" * len(SEVERITIES),
    ]
    for row, name in enumerate(PUBLISHED):
        cells = [f"{one:.1f}, {other:.1f}" for one, other in zip(plain[1][row], robust[1][row], strict=True)]
        ahead = robust[1][row] > plain[1][row]
        first = next((at for at in range(len(SEVERITIES)) if ahead[at:].all()), None)
        told = "–"
        if first is not None:
            shift = name if first == len(SEVERITIES) - 1 else f"{name}_{first + 1}"
            difference = hits[1][shift].astype(float) - hits[0][shift]
            clear = difference.mean() > 2 * difference.std(ddof=1) / np.sqrt(difference.size)
            told = f"**{first + 1}**" if clear else str(first + 1)
        lines.append(f"| {name} | {' | '.join(cells)} | {told} |")
    means = [one[1].mean() for one in (plain, robust)]
    lines += ["", f"Mean over corruptions and severities: {means[0]:.1f} and {means[1]:.1f} %."]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="photographs, networks and published tables")
    parser.add_argument("--work", type=Path, default=Path(".train/photographs-proof"))
    parser.add_argument("--photographs", type=int, default=60, help="of each class, at every severity")
    parser.add_argument("--per-class", type=int, default=500, help="of each class, under a few corruptions")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="put the tables into photographs_proof/RESULTS.md")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    proof = PhotographProof(
        arguments.data, arguments.work, arguments.photographs, arguments.per_class, arguments.workers
    )
    proof.score()
    tables = {
        "equal": equal_table(measured(proof.work / f"equal-{proof.whole}.json", lambda: equal(proof))),
        "published": published_table(proof),
        "intervals": intervals_table(measured(proof.work / f"intervals-{proof.whole}.json", lambda: intervals(proof))),
        "robust": robust_table(proof),
        "labels": labels_table(
            measured(
                proof.work / "labels.json",
                lambda: measured_labels(proof.data, proof.photographs, proof.work, NETWORKS),
            )
        ),
    }
    print("\n\n".join("\n".join(lines) for lines in tables.values()))
    if arguments.write:
        of = f"{len(NETWORKS)} networks for CIFAR-10, {10 * proof.levels:,} and {10 * proof.whole:,} photographs"
        results_page.write(RESULTS, "prove_photographs", "Photographs", (), tables, PARTS, dict.fromkeys(tables, of))


if __name__ == "__main__":
    main()
