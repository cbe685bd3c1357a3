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
from bugs_proof.truth import Claims
from directions_proof.intervals import percent_of, rank_correlation, share_percent
from proof_files import Facts, Results


def measure_search(proof: Proof) -> Facts:
    """Return what fails on the base, and the run of each arm."""
    _, base = proof.audit.baseline()
    return {"failed": base.failed, "arms": {arm: proof.run(arm) for arm in proof.arms}}


def table_search(results: Results) -> list[str]:
    """Return Markdown: a line a target and arm."""
    lines = [
        "| classifier | base fails | arm | images | tested | futile | findings | findings / 1000"
        " images | such as |",
        "| -- | --: | -- | --: | --: | --: | --: | --: | -- |",
    ]
    for target, result in results.items():
        failed = result["failed"]
        head = f"{target} | {percent_of(failed.sum() / max(1, len(failed)))}"
        for arm, run in result["arms"].items():
            examples = "; ".join(finding.words for finding in run.findings[:3])
            futile = sum(trial.state == "futile" for trial in run.tested)
            each = 1000 * len(run.findings) / max(1, run.images)
            lines.append(
                f"| {head} | {ARMS[arm]} | {run.images:,} | {len(run.tested)} | {futile} |"
                f" {len(run.findings)} | {each:.1f} | {examples} |"
            )
            head = " | "
    return lines


def measure_recall(proof: Proof) -> Facts:
    """Return the cells worth finding, and what each arm's findings name."""
    named = {}
    for arm in proof.arms:
        findings = proof.run(arm).findings
        named[arm] = [(finding.label, finding.claims) for finding in findings]
    return {"cells": worth_finding(proof), "arms": named}


def table_recall(results: Results) -> list[str]:
    """Return Markdown: a line an arm over all targets, and each target's counts."""
    lines = [
        "| arm | reachable cells named | named alone | planted ones | of all worth finding | by"
        " classifier |",
        "| -- | --: | --: | --: | --: | -- |",
    ]
    for arm in _arms(results):
        counts = [_recalled(result["cells"], result["arms"][arm]) for result in results.values()]
        named, alone, planted, every = zip(*counts, strict=True)
        of_planted, among = map(sum, zip(*planted, strict=True))
        each = ", ".join(f"{count} / {cells}" for count, cells in named)
        lines.append(
            f"| {ARMS[arm]} | {share_percent(named)} | {share_percent(alone)} |"
            f" {of_planted} / {among} | {share_percent(every)} | {each} |"
        )
    return lines


def _recalled(cells: list[WorthCell], findings: list[tuple[int, Claims]]) -> list[tuple[int, int]]:
    """Return how many cells there are and are named: of reachable ones, the same named alone, of
    planted ones, and of all."""
    reachable = [cell for cell in cells if cell.reachable]
    alone = sum((cell.label, cell.claims) in findings for cell in reachable)
    planted = [cell for cell in reachable if cell.planted]
    return [
        _named(reachable, findings),
        (alone, len(reachable)),
        _named(planted, findings),
        _named(cells, findings),
    ]


def _named(cells: list[WorthCell], findings: list[tuple[int, Claims]]) -> tuple[int, int]:
    named = [
        cell
        for cell in cells
        if any(
            cell.label == label and set(cell.claims) <= set(claims) for label, claims in findings
        )
    ]
    return len(named), len(cells)


def measure_precision(proof: Proof) -> Facts:
    """Return both true differences of each finding; None if a truth cannot judge it."""
    runs = {arm: proof.run(arm).findings for arm in proof.arms}
    fresh = iter(proof.fresh([finding for findings in runs.values() for finding in findings]))
    judged: Facts = {}
    for arm, findings in runs.items():
        judged[arm] = []
        for finding in findings:
            drawn = next(fresh)
            rate = proof.true_rate(finding.label, finding.claims)
            judged[arm].append(
                {
                    "rendered": None if rate is None else rate.drop,
                    "seen": drawn.seen_difference,
                    "agreement": drawn.agreement,
                    "fresh": drawn.count.difference if drawn.count.pairs else None,
                }
            )
    return {"arms": judged}


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
        rows = [result["arms"][arm] for result in results.values()]
        cells = [_right(rows, what) for what in ("rendered", "seen", "fresh")]
        agreed = [row["agreement"] for of in rows for row in of if row["agreement"] is not None]
        shown = percent_of(float(np.mean(agreed))) if agreed else "–"
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
        true = proof.true_rate(finding.label, finding.claims) if count.pairs else None
        if true is not None:
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


def _right(rows: Sequence[Sequence[Facts]], what: str) -> str:
    known = []
    for of_target in rows:
        right = [row[what] > MARGIN for row in of_target if row[what] is not None]
        known.append((sum(right), len(right)))
    return f"{share_percent(known)} of {sum(among for _, among in known)}"


def _arms(results: Results) -> list[Arm]:
    measured = next(iter(results.values()))["arms"]
    return [arm for arm in ARMS if arm in measured]
