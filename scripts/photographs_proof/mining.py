"""Part *mining*: `mine` without CLIP (method `slices`) on each network, and whether other networks
fail there too.

`mine` names groups on one half of the photographs and tests them on the other. The rates of other
networks are those of the same groups on the same photographs of the other half, so a hard
photograph counts for all networks: it shows that a group is no accident of one network, and nothing
of photographs that nobody has taken yet. A confusion of two classes has no failure rate on another
network; it is counted where the other network's own run confirms it too.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil import mine
from counterfoil.mining.findings import Finding
from counterfoil.recipe.names import PREDICTIONS
from photographs_proof.networks import CLASSES, load_network, transform

MARGIN = 0.05  # as `mine` tests
KINDS = {
    "answer": "confusions",
    "class": "whole classes",
    "measure": "measures",
    "alike": "look-alikes",
}
_SHOWN = "resnet20"


def write_answers(probabilities: Any, paths: Sequence[str], file: Path) -> None:
    """Write a network's answers as a file of predictions. probabilities: [n, 10], of photographs by
    path."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(("path", "label"))
        answers = probabilities.argmax(axis=1).tolist()
        rows.writerows((path, CLASSES[answer]) for path, answer in zip(paths, answers, strict=True))


def mined(weights: Path, recipe: Path, answers: Path, out: Path) -> dict[str, Any]:
    """Mine a network; return its findings, with differences of rates on every other network, and
    processor seconds.

    recipe: of the photographs. answers: a folder of every network's answers, by its name.
    """
    started = time.process_time()
    others = [file.resolve() for file in sorted(answers.glob("*.csv")) if file.stem != weights.stem]
    result = mine(
        recipe, out, target={weights.stem: load_network(weights)}, transform=transform(), method="slices",
        on=["train"], overrides=[f"mine.others={[f'{PREDICTIONS}{file}' for file in others]}"], device="cpu", workers=1,
    )  # fmt: skip
    seconds = time.process_time() - started
    return {
        "seconds": seconds,
        "findings": [_told(finding) for finding in result.findings.findings],
    }


def _told(finding: Finding) -> dict[str, Any]:
    kind = "answer"
    if finding.answered is None:
        kind = (
            "class"
            if finding.against_others
            else "alike"
            if "look-alikes" in finding.words
            else "measure"
        )
    differences = {}
    for other in finding.others:
        if other.set.rate is not None and other.rest.rate is not None:
            differences[Path(other.model.removeprefix(PREDICTIONS)).stem] = (
                other.set.rate - other.rest.rate
            )
    return {
        "words": finding.words,
        "kind": kind,
        "confirmed": finding.confirmed,
        "q": finding.q,
        "set": finding.set.rate,
        "rest": finding.rest.rate,
        "images": finding.set.rows,
        "others": differences,
    }


def mining_table(mined: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what was tested and confirmed for each network, and how other networks do in the same
    groups."""
    findings = {network: result["findings"] for network, result in mined.items()}
    confusions = {
        network: {
            finding["words"]
            for finding in rows
            if finding["kind"] == "answer" and finding["confirmed"]
        }
        for network, rows in findings.items()
    }
    lines = [
        "### Failures named by `mine` without CLIP",
        "",
        "Method `slices` on all photographs: groups are named on one half and tested on the other"
        " (margin 5 points,"
        " q ≤ .1). *Also on others*: of the confirmed groups that are no confusions, times the five"
        " other networks, how"
        " many fail more often in the group than in the rest by more than 5 points, on the same"
        " photographs of the"
        " other half; then the same of groups that were tested and not confirmed. *Confusions on"
        " others*: of the"
        " confirmed ones, times the other networks, how many the other network's own run confirms.",
        "",
        f"| network | tested | confirmed | {' | '.join(KINDS.values())} | also on others | not"
        " confirmed, on others |"
        " confusions on others | processor seconds |",
        "| :-- |" + " --: |" * (len(KINDS) + 6),
    ]
    for network, rows in findings.items():
        confirmed = [finding for finding in rows if finding["confirmed"]]
        counts = [sum(finding["kind"] == kind for finding in confirmed) for kind in KINDS]
        rest = [finding for finding in rows if not finding["confirmed"]]
        again = [
            words in confusions[other]
            for other in findings
            if other != network
            for words in confusions[network]
        ]
        lines.append(
            f"| {network} | {len(rows)} | {len(confirmed)} | {' | '.join(map(str, counts))} |"
            f" {_also(confirmed)} |"
            f" {_also(rest)} | {sum(again)} of {len(again)} | {mined[network]['seconds']:.0f} |"
        )
    every = [row for finding in findings.values() for row in finding]
    confirmed = [row for row in every if row["confirmed"]]
    rest = [row for row in every if not row["confirmed"]]
    lines += [
        "",
        f"All networks: {len(confirmed)} of {len(every)} confirmed. Also on others:"
        f" {_also(confirmed)}; not confirmed,"
        f" on others: {_also(rest)}.",
        "",
        f"Confirmed of {_SHOWN}; behind it the difference of the group and the rest in points, on"
        f" {', '.join(network for network in findings if network != _SHOWN)}.",
        "",
        "| group | images | wrong, % | rest, % | q | on other networks |",
        "| :-- | --: | --: | --: | --: | :-- |",
    ]
    for finding in findings.get(_SHOWN, ()):
        if finding["confirmed"]:
            values = [
                finding["others"][network] for network in findings if network in finding["others"]
            ]
            others = ", ".join(f"{100 * value:+.0f}" for value in values) or "–"
            lines.append(
                f"| {finding['words']} | {finding['images']} | {100 * finding['set']:.0f} |"
                f" {100 * finding['rest']:.0f} | {finding['q']:.2g} | {others} |"
            )
    return lines


def _also(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return how often another network fails more in these groups, of those with rates of
    failures."""
    larger = [value > MARGIN for finding in findings for value in finding["others"].values()]
    return f"{sum(larger)} of {len(larger)}" + (
        f" ({100 * np.mean(larger):.0f} %)" if larger else ""
    )
