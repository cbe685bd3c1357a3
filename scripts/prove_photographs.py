"""Prove what is said of photographs: real images, trained networks and published numbers, none of
them of our making.

    python scripts/prove_photographs.py --data DATA --write       # the tables, into
    photographs_proof/RESULTS.md python scripts/prove_photographs.py --data DATA --photographs 5
    --per-class 100   # a look at it, in minutes

DATA holds cifar10-test-even.zip (photos/CLASS/NNNN.jpg), cifar10-resnets/*.safetensors,
robustbench_cifar10c.csv and cifar10-label-errors-even.json; nothing of it is copied into the
project. Datasets are built from the photographs with `counterfoil build`: some of them under the
corruptions of the published table at five severities, all of them under a few at severity 3, and a
split of them each to mend with, to choose by and to judge on. Every network is scored by
`counterfoil.evaluate`, and three of them by a plain loop too. What chooses anything says so: the
parts *labels* and *mending*. Frost on small pictures was changed after it had been compared with
resnet20 and resnet32 on the first 50 photographs of each class, so its rows of these two are no
test of it. Resumes after a kill.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

import proving
from counterfoil.accuracy_stats import ClassUnits, drops_of_classes
from photographs_proof.labels import label_answers, labels_table, measured_labels
from photographs_proof.mending import LEARNED, UNSEEN, measured_mending, mending_table
from photographs_proof.mining import mined, mining_table, write_answers
from photographs_proof.networks import CLASSES, load_network, transform
from photographs_proof.published import published_table
from photographs_proof.robust import robust_table
from photographs_proof.scored import NETWORKS, SEED, WHOLE, PhotographProof
from proof_files import measured

TEST_SETS = 200
SIZES = (20, 50, 100)
Facts = dict[str, Any]
PARTS = ("equal", "published", "intervals", "robust", "labels", "mining", "mending")


def equal(proof: PhotographProof) -> Facts:
    """Compare hits and drops with a plain loop over the dataset as `datasets` loads it."""
    import datasets
    import torch

    datasets.disable_progress_bars()
    folder = proof.dataset("whole")
    prepare = transform()
    by_network: Facts = {}
    for name in ("resnet20", "resnet56", "resnet20-ehanw-adversarial"):
        network = load_network(proof.data / "cifar10-resnets" / f"{name}.safetensors")
        stored_hits = proof.hits(folder, name)
        differing = 0
        images = 0
        drop_error = 0.0
        shares: dict[str, float] = {}
        for shift in ("base", *WHOLE):
            rows = datasets.load_dataset(str(folder), shift, split="test")
            keys = rows["key"]
            labels = np.array(rows["label"])
            right = []
            with torch.inference_mode():
                for start in range(0, len(rows), 64):
                    of_batch = slice(start, start + 64)
                    images_of_batch = rows[of_batch]["image"]
                    batch = [prepare(image.convert("RGB")) for image in images_of_batch]
                    answers = network(torch.stack(batch)).argmax(1).numpy()
                    right += (answers == labels[of_batch]).tolist()
            order = np.lexsort((keys, labels))
            plain = np.array(right)[order].reshape(len(CLASSES), -1)
            differing += int((plain != stored_hits[shift]).sum())
            images += plain.size
            shares[shift] = float(plain.mean())
        rows = _rows(proof, folder, name, "drop")
        for shift in WHOLE:
            drop = shares["base"] - shares[shift]
            drop_error = max(drop_error, abs(rows[shift]["value"] - drop))
        by_network[name] = {
            "images": images,
            "differing": differing,
            "base": shares["base"],
            "drop_error": drop_error,
        }
    return by_network


def _rows(proof: PhotographProof, folder: Path, network: str, measure: str) -> dict[str, Facts]:
    """Return the numbers of a measure by shift."""
    file = proof.evaluation(folder, network) / "results.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return {
        row["group"]: row
        for row in rows
        if row["measure"] == measure and "group" in row and not {"class_id", "at"} & row.keys()
    }


def equal_table(by_network: Facts) -> list[str]:
    lines = [
        "### Against a plain loop",
        "",
        "The same dataset, loaded by `datasets` and answered by a loop of torch in batches of 64.",
        "",
        "| network | images | answered otherwise | accuracy on the base, % | largest difference of"
        " a drop, points |",
        "| :-- | --: | --: | --: | --: |",
    ]
    for name, result in by_network.items():
        lines.append(
            f"| {name} | {result['images']:,} | {result['differing']:,} |"
            f" {100 * result['base']:.1f} |"
            f" {100 * result['drop_error']:.4f} |"
        )
    return lines


def intervals(proof: PhotographProof) -> Facts:
    """Count how often the interval of a small random test set holds the drop of all photographs."""
    folder = proof.dataset("whole")
    coverage: Facts = {}
    for network in ("resnet44", "resnet56", "resnet20-ehanw-adversarial"):
        hits = proof.hits(folder, network)
        for shift in WHOLE:
            truth = float(hits["base"].mean() - hits[shift].mean())
            for size in SIZES:
                for paired in (True, False):
                    rng = np.random.default_rng([SEED, size])
                    held = 0
                    widths = []
                    for number in range(TEST_SETS):
                        estimate = drops_of_classes(
                            _test_set(hits, shift, size, rng, paired),
                            paired=paired,
                            seed=number,
                            salt=shift,
                        )
                        interval = estimate.interval(0)
                        assert interval.low is not None and interval.high is not None
                        held += interval.low <= truth <= interval.high
                        widths.append(interval.high - interval.low)
                    key = f"{network} {shift} {size} {'pairs' if paired else 'apart'}"
                    coverage[key] = {"held": held, "width": float(np.mean(widths))}
    return coverage


def _test_set(
    hits: dict[str, NDArray[np.bool_]],
    shift: str,
    size: int,
    rng: np.random.Generator,
    paired: bool,
) -> list[ClassUnits]:
    """Draw photographs of each class with replacement: all of them are the population."""
    units = []
    for label, name in enumerate(CLASSES):
        base = rng.integers(hits["base"].shape[1], size=size)
        shifted = base if paired else rng.integers(hits["base"].shape[1], size=size)
        present = np.ones(size, dtype=bool)
        units.append(
            ClassUnits(
                name,
                present,
                hits["base"][label, base, None],
                present,
                hits[shift][label, shifted, None],
            )
        )
    return units


def intervals_table(coverage: Facts) -> list[str]:
    lines = [
        "### Intervals on real images",
        "",
        f"Of {TEST_SETS} test sets, drawn with replacement from all photographs, those whose 95 %"
        " interval holds the"
        " drop of all, in %, at severity 3; behind it the mean width of the interval in points."
        " *Pairs*: base and"
        " shifted image of a photograph are drawn together. *Apart*: they are different"
        " photographs.",
        "",
        "| network | corruption | "
        + " | ".join(f"{size} a class, pairs | {size}, apart" for size in SIZES)
        + " |",
        "| :-- | :-- |" + " --: |" * (2 * len(SIZES)),
    ]
    networks = list(dict.fromkeys(key.split()[0] for key in coverage))
    shares = []
    for network in networks:
        for shift in WHOLE:
            cells = []
            for size in SIZES:
                for way in ("pairs", "apart"):
                    cell = coverage[f"{network} {shift} {size} {way}"]
                    shares.append(cell["held"] / TEST_SETS)
                    cells.append(f"{100 * shares[-1]:.1f} ({100 * cell['width']:.1f})")
            lines.append(f"| {network} | {shift} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Over all cells: {100 * np.mean(shares):.1f} % on average, {100 * min(shares):.1f} to"
        f" {100 * max(shares):.1f}."
        f" A share of {TEST_SETS} sets has a standard error of 1.5 points.",
    ]
    return lines


def by_network(
    proof: PhotographProof, part: str, measure: Callable[..., Any], given: Sequence[Any]
) -> Facts:
    """Return what `measure` finds of each network, kept in a file each; a network in each process.

    given: what it takes beside the network's weights.
    """
    files = {network: proof.work / f"{part}-{network}.json" for network in NETWORKS}
    waiting = [network for network in NETWORKS if not files[network].exists()]
    with ProcessPoolExecutor(proof.workers, mp_context=get_context("spawn")) as pool:
        running = {
            network: pool.submit(
                measure, proof.weights(network), *given, proof.work / f"{part}-{network}"
            )
            for network in waiting
        }
        for network, future in running.items():
            measured(files[network], future.result)
            print(f"{part}: {network}", flush=True)
    return {
        network: json.loads(file.read_text(encoding="utf-8")) for network, file in files.items()
    }


def mining_inputs(proof: PhotographProof) -> tuple[Path, Path]:
    """Return the recipe of all photographs, and the folder of every network's answers on them."""
    folder = proof.work / "answers"
    folder.mkdir(exist_ok=True)
    paths = sorted(
        path.relative_to(proof.photographs).as_posix() for path in proof.photographs.rglob("*.jpg")
    )
    for network in NETWORKS:
        kept = proof.work / f"label-answers-{network}.npz"
        answers = label_answers(proof.weights(network), proof.photographs, paths, kept)
        write_answers(answers["p"], paths, folder / f"{network}.csv")
    return proof.dataset("whole").with_suffix(".yaml"), folder


def mending_inputs(proof: PhotographProof) -> tuple[Path, Path, Path, Path]:
    """Return the recipe of the split photographs, and datasets of its splits: learned from,
    audited, judged on."""
    learned = proof.split_dataset("train", LEARNED)
    audited = proof.split_dataset("validation", LEARNED)
    judged = proof.split_dataset("test", (*LEARNED, UNSEEN))
    return audited.with_suffix(".yaml"), learned, audited, judged


def main() -> None:
    parser = proving.parser(__doc__, PARTS)
    parser.add_argument(
        "--data", type=Path, required=True, help="photographs, networks and published tables"
    )
    parser.add_argument("--work", type=Path, default=Path(".train/photographs-proof"))
    parser.add_argument(
        "--photographs", type=int, default=60, help="of each class, at every severity"
    )
    parser.add_argument(
        "--per-class", type=int, default=500, help="of each class, under a few corruptions"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    proof = PhotographProof(
        options.data, options.work, options.photographs, options.per_class, options.workers
    )

    def of_all(name: str, measure: Callable[[PhotographProof], Facts]) -> Facts:
        return measured(proof.work / f"{name}-{proof.whole}.json", lambda: measure(proof))

    def labels() -> Facts:
        return measured_labels(proof.data, proof.photographs, proof.work, NETWORKS)

    makers = {
        "equal": lambda: equal_table(of_all("equal", equal)),
        "published": lambda: published_table(proof),
        "intervals": lambda: intervals_table(of_all("intervals", intervals)),
        "robust": lambda: robust_table(proof),
        "labels": lambda: labels_table(measured(proof.work / "labels.json", labels)),
        "mining": lambda: mining_table(by_network(proof, "mining", mined, mining_inputs(proof))),
        "mending": lambda: mending_table(
            by_network(proof, f"mending-{proof.whole}", measured_mending, mending_inputs(proof))
        ),
    }
    if {"equal", "published", "intervals", "robust"} & {*options.parts}:
        proof.score()
    of = (
        f"{len(NETWORKS)} networks for CIFAR-10, {10 * proof.levels:,} and"
        f" {10 * proof.whole:,} photographs"
    )
    tables = (proving.Table(part, makers[part](), of) for part in PARTS if part in options.parts)
    proving.tell("prove_photographs", "Photographs", [], tables, PARTS, options.write)


if __name__ == "__main__":
    main()
