"""Counterfoil beside other libraries, in one run: the same input, the same result first, and then the
time of both by turns.

    pip install imagecorruptions albumentations pycocotools faster-coco-eval torch-fidelity \\
        torchmetrics "setuptools<81"  # into an environment of Counterfoil; the others come with it
    python scripts/bench.py peers [--rounds 7] [--only detection features] [--write]

Without a network and with one thread. Each line is measured in a process of its own, with the others of its subject.
A ratio is the peer's seconds over ours, so that above 1 Counterfoil is faster. Seconds are of the
processor, which other work on the machine disturbs less; the ratio by the clock stands beside. A
peer that is not installed is named as not measured.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from statistics import median

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from benches import Page
from benches.evaluate import alone
from peers_bench.pair import Measured, measured
from results_page import table

TITLE = "Beside other libraries"
PARTS = ("peers",)
SUBJECTS = (
    "corruptions",
    "detection",
    "features",
    "resampling",
    "writing",
    "evaluating",
    "drawing",
)
TITLES = (
    "What",
    "Peer",
    "The same result?",
    "Ours",
    "Its",
    "Ratio",
    "lowest to highest (rounds)",
    "Ratio by the clock",
)
WORDS = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how often, and what."""
    parser.add_argument("--rounds", type=int, default=7, help="slow lines take 3 or 5 at most")
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Measure a subject after another; a page behind each."""
    rows_measured: list[Measured] = []
    absent: list[str] = []
    versions: dict[str, str] = {}
    for number, subject in enumerate(options.only, start=1):
        needs = importlib.import_module(f"peers_bench.{subject}").NEEDS
        for package in needs:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                absent.append(package)
        present = [package for package in needs if package in versions]
        if present:
            rows_measured += alone(measured_pairs, subject, present, options.rounds)
        left = [name for name in SUBJECTS if name not in options.only[:number]]
        yield Page(opening(options, versions), {"peers": lines(rows_measured, absent, left)})


def measured_pairs(subject: str, present: list[str], rounds: int) -> list[Measured]:
    """Measure the pairs of a subject, in this process and in one thread."""
    if importlib.util.find_spec("cv2") is not None:
        import cv2  # pyrefly: ignore

        cv2.setNumThreads(0)
    import torch

    torch.set_num_threads(1)
    results = []
    for pair in importlib.import_module(f"peers_bench.{subject}").pairs(present):
        results.append(measured(pair, rounds))
        print(f"| {' | '.join(results[-1].row())} |", flush=True)
    return results


def opening(options: argparse.Namespace, versions: dict[str, str]) -> list[str]:
    """Return what holds for all lines."""
    named = ", ".join(f"{package} {version}" for package, version in versions.items())
    return [
        f"`python scripts/bench.py peers --rounds {options.rounds}`, in one run on"
        f" {platform.machine()} with {os.cpu_count()} cores, in one thread"
        " and without a network. Both ways run once, their results are compared, and then they run"
        " by turns. *Ours* and *its* are the processor's seconds of the median round, and the ratio"
        " is its over ours: above 1, Counterfoil is faster. The lowest and highest ratio of 7 rounds"
        " hold the median ratio in 98 of 100 cases, of 5 in 94, of 3 in 75.",
        "",
        f"Peers: {named}. Two blurs of imagecorruptions fail with scikit-image 0.26 and are left out.",
    ]


def lines(rows_measured: list[Measured], absent: list[str], left: list[str]) -> list[str]:
    """Return the losses in words, the table, and what was not measured. left: subjects that the run
    did not reach, or was not asked for."""
    words = []
    losses = [row for row in rows_measured if row.slower]
    if losses:
        words += [
            f"Counterfoil is slower in the median round of {len(losses)} of {len(rows_measured)} lines:",
            "",
        ]
        for row in losses:
            what, peer, way = row.pair
            words.append(f"- {median(row.ratios):.2f}: {what}; {peer}, {way}")
        words.append("")
    words += table(TITLES, [row.row() for row in rows_measured], words=WORDS)
    if absent:
        named = " ".join(absent)
        words += ["", f"Not measured, because not installed: `pip install {named}`."]
    if left:
        words += ["", f"Not measured in this run: {', '.join(left)}."]
    return words
