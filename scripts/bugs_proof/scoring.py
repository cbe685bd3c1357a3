"""Parts *search*, *recall*, *precision*, *rates*: what each arm found, against the truth.

A finding names the attributes that its words tell. It is right when its true difference is above
the margin that the test asks for (5 points), by two truths: on the world's own renders with those
attributes, and on freshly drawn images of which the oracle sees the class and those attributes.
Where words tell nothing of the world, no render judges them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bugs_proof.plan import ARMS, MARGIN, Arm
from bugs_proof.proof import Proof
from bugs_proof.reachable import WorthCell, worth_finding
from bugs_proof.runs import Carried, Run
from bugs_proof.truth import Claims
from bugs_proof.words import renderable
from directions_proof.intervals import rank_correlation, share_of
from proof_files import Facts, Results


def measure_search(proof: Proof, arms: Sequence[Arm]) -> Facts:
    """Count what each arm drew, tested and confirmed, and list the findings' words."""
    _, base = proof.audit.baseline()
    measured: Facts = {"base": [int(base.failed.sum()), len(base.failed)], "arms": {}}
    for arm in arms:
        run = proof.run(arm)
        measured["arms"][arm] = {
            "images": run.images,
            "by_purpose": _by_purpose(run),
            "tested": len(run.tested),
            "futile": sum(finding.state == "futile" for finding in run.tested),
            "findings": [_told(finding) for finding in run.findings],
            "left_out": dict(run.left_out),
            "undescribed": run.undescribed,
        }
    return measured


def table_search(results: Results) -> list[str]:
    """Return Markdown: a line a target and arm."""
    lines = [
        "| classifier | base fails | arm | images | tested | futile | findings | findings / 1000"
        " images | such as |",
        "| -- | --: | -- | --: | --: | --: | --: | --: | -- |",
    ]
    for target, result in results.items():
        failed, images = result["base"]
        for index, (arm, run) in enumerate(result["arms"].items()):
            examples = "; ".join(each["words"] for each in run["findings"][:3])
            head = f"{target} | {_percent(failed / max(1, images))}" if index == 0 else " | "
            each = 1000 * len(run["findings"]) / max(1, run["images"])
            lines.append(
                f"| {head} | {ARMS[arm]} | {run['images']:,} | {run['tested']} | {run['futile']} |"
                f" {len(run['findings'])} | {each:.1f} | {examples} |"
            )
    return lines


def measure_recall(proof: Proof, arms: Sequence[Arm]) -> Facts:
    """Count the cells worth finding, and for each arm those that a finding names, and names
    alone."""
    every = worth_finding(proof)
    cells = [cell for cell in every if cell.reachable]
    measured: Facts = {
        "cells": len(cells),
        "every": len(every),
        "planted": sum(cell.planted for cell in cells),
        "arms": {},
    }
    for arm in arms:
        findings = [(finding.label, finding.claims) for finding in proof.run(arm).findings]
        named = [_named(cell, findings) for cell in cells]
        measured["arms"][arm] = {
            "named": sum(named),
            "alone": sum((cell.label, cell.claims) in findings for cell in cells),
            "planted": sum(yes for yes, cell in zip(named, cells, strict=True) if cell.planted),
            "every": sum(_named(cell, findings) for cell in every),
        }
    return measured


def _named(cell: WorthCell, findings: Sequence[tuple[int, Claims]]) -> bool:
    return any(
        label == cell.label and set(cell.claims) <= set(claims) for label, claims in findings
    )


def table_recall(results: Results) -> list[str]:
    """Return Markdown: a line an arm over all targets, and each target's counts."""
    lines = [
        "| arm | reachable cells named | named alone | planted ones | of all worth finding | by"
        " classifier |",
        "| -- | --: | --: | --: | --: | -- |",
    ]
    for arm in _arms(results):
        runs = [
            (result["arms"][arm], result) for result in results.values() if arm in result["arms"]
        ]
        shares = [
            share_of([(run[what], result["cells"]) for run, result in runs])
            for what in ("named", "alone")
        ]
        cells = [share.text(percent=True) for share in shares]
        planted = (
            sum(run["planted"] for run, _ in runs),
            sum(result["planted"] for _, result in runs),
        )
        every = share_of([(run["every"], result["every"]) for run, result in runs]).text(
            percent=True
        )
        each = ", ".join(f"{run['named']} / {result['cells']}" for run, result in runs)
        lines.append(
            f"| {ARMS[arm]} | {' | '.join(cells)} | {planted[0]} / {planted[1]} | {every} | {each}"
            " |"
        )
    return lines


def measure_precision(proof: Proof, arms: Sequence[Arm]) -> Facts:
    """Return both true differences of each finding; None if a truth cannot judge it."""
    runs = {arm: proof.run(arm).findings for arm in arms}
    fresh = iter(proof.fresh([finding for findings in runs.values() for finding in findings]))
    measured: Facts = {"arms": {}}
    for arm, findings in runs.items():
        rows = []
        for finding in findings:
            drawn = next(fresh)
            rate = (
                proof.truth.rate(proof.target, finding.label, finding.claims)
                if renderable(finding.claims)
                else None
            )
            rows.append(
                {
                    **_told(finding),
                    "rendered": None if rate is None else rate.drop,
                    "rendered_error": None if rate is None else rate.error,
                    "seen": drawn.seen_difference,
                    "agreement": drawn.agreement,
                    "fresh": drawn.count.difference if drawn.count.pairs else None,
                }
            )
        measured["arms"][arm] = rows
    return measured


def table_precision(results: Results) -> list[str]:
    """Return Markdown: a line an arm."""
    lines = [
        f"Right: a true difference above {100 * MARGIN:.0f} points. *renders*: of the named"
        " attributes, by the world"
        " itself; *oracle*: on fresh images that show them; *fresh*: on all fresh pairs, whatever"
        " they show.",
        "",
        "| arm | findings | right by renders | right by the oracle | right on fresh pairs | images"
        " show it |",
        "| -- | --: | --: | --: | --: | --: |",
    ]
    for arm in _arms(results):
        rows = [result["arms"][arm] for result in results.values() if arm in result["arms"]]
        cells = [_right(rows, what) for what in ("rendered", "seen", "fresh")]
        agreed = [row["agreement"] for of in rows for row in of if row["agreement"] is not None]
        shown = _percent(float(np.mean(agreed))) if agreed else "–"
        lines.append(f"| {ARMS[arm]} | {sum(map(len, rows))} | {' | '.join(cells)} | {shown} |")
    return lines


def measure_rates(proof: Proof) -> Facts:
    """Return estimated and true rates of all tested hypotheses that a scene can have; of findings,
    fresh ones too."""
    rows = []
    run = proof.run("bugs")
    fresh = [
        [finding.count.rate, finding.count.base_rate, drawn.count.rate, drawn.count.base_rate]
        for finding, drawn in zip(run.findings, proof.fresh(run.findings), strict=True)
        if drawn.count.pairs
    ]
    for finding in run.tested:
        count = finding.count
        if count.pairs and renderable(finding.claims):
            true = proof.truth.rate(proof.target, finding.label, finding.claims)
            rows.append([count.rate, count.base_rate, true.rate, true.base, finding.confirmed])
    return {"rows": rows, "fresh": fresh}


def table_rates(results: Results) -> list[str]:
    """Return Markdown: correlations over hypotheses of all targets, and how much worse than the
    base they are."""
    lines = [
        "True: of renders of the named attributes. *fresh*: of findings, on pairs that chose and"
        " confirmed nothing,"
        " which is what the generator draws of the words.",
        "",
        "| hypotheses | | rates, Spearman | differences, Spearman | estimated / base | true / base"
        " |",
        "| -- | --: | --: | --: | --: | --: |",
    ]
    every = [row for result in results.values() for row in result["rows"]]
    fresh = [row for result in results.values() for row in result["fresh"]]
    for name, rows in (
        ("all tested", every),
        ("confirmed", [row for row in every if row[4]]),
        ("findings, against *fresh*", fresh),
    ):
        rates = rank_correlation([(row[0], row[2]) for row in rows]).text()
        more = rank_correlation([(row[0] - row[1], row[2] - row[3]) for row in rows]).text()
        lines.append(
            f"| {name} | {len(rows)} | {rates} | {more} | {_ratio(rows, 0, 1)} |"
            f" {_ratio(rows, 2, 3)} |"
        )
    return lines


def _ratio(rows: Sequence[Sequence[float]], column: int, base: int) -> str:
    """Return the mean rate of all as a multiple of the mean rate of their bases."""
    below = sum(row[base] for row in rows)
    return f"{sum(row[column] for row in rows) / below:.2f}" if below else "–"


def _told(carried: Carried) -> Facts:
    count = carried.count
    return {
        "words": carried.words,
        "claims": [list(claim) for claim in carried.claims],
        "pairs": count.pairs,
        "rate": count.rate,
        "base": count.base_rate,
        "log_e": carried.looks[-1][1] if carried.looks else 0.0,
    }


def _by_purpose(run: Run) -> dict[str, int]:
    images_by_purpose: dict[str, int] = {}
    for purpose, images in run.rounds:
        images_by_purpose[purpose] = images_by_purpose.get(purpose, 0) + images
    return images_by_purpose


def _right(rows: Sequence[Sequence[Facts]], what: str) -> str:
    known = [[row[what] > MARGIN for row in of if row[what] is not None] for of in rows]
    return (
        f"{share_of([(sum(of), len(of)) for of in known]).text(percent=True)} of"
        f" {sum(map(len, known))}"
    )


def _arms(results: Results) -> list[Arm]:
    return [arm for arm in ARMS if any(arm in result["arms"] for result in results.values())]


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"
