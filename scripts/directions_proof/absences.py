"""Part *absences*: of failures whose one cause is known, which "not X" are true, and which are
kept?

No classifier is trained: rows of a world's validation split fail by chance, in each class with the
context that is its cause, by so many points more often than otherwise (*with*), or without it
(*without*). So what a caption's words alone do is known exactly: the same scenes with and without
what it claims. A finding is *false* where that is no more than the margin, whatever its set does.
*Before* is the same run with each set tested on all rows of its class; *after*, as mining tests it,
those far from a caption on rows outside of the class's hard sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from counterfoil.arrays import Bools
from counterfoil.lab.vocabulary import BACKGROUNDS, CLASSES, COLOURS
from counterfoil.mining.hypotheses import Role
from directions_proof.captions import captions_of, claims_of
from directions_proof.honesty import MINE, ROLES, by_class, kept_cells, mined_rows
from directions_proof.worlds import AuditedWorld, Rows
from proof_files import Facts, Results, Values

Cause = Literal["with", "without"]
CAUSES: tuple[Cause, ...] = ("with", "without")
RUNS = 5
GAPS = (0.2, 0.3)
USUAL = 0.05
# Of the class: of a context that fewer rows show, too few are left to be tested.
_LEAST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Planted:
    """What makes images of a class fail: `value` of `attribute`, or any other one (`without`)."""

    attribute: str
    value: str
    cause: Cause
    gap: float

    def rate(self, attributes: Values) -> float:
        """Return how often a scene with these attributes fails."""
        return USUAL + self.gap * (
            (attributes[self.attribute] == self.value) == (self.cause == "with")
        )

    def difference(
        self, scenes: Sequence[Values], claims: Values, role: Role
    ) -> dict[str, float] | None:
        """Return how much more often scenes fail with (`hard`) or without what is claimed; None if
        none differs."""
        changed = [{**scene, **claims} for scene in scenes]
        more = [
            self.rate(new) - self.rate(old)
            for new, old in zip(changed, scenes, strict=True)
            if new != old
        ]
        if not claims or not more:
            return None
        return {"value": float(np.mean(more)) * (1 if role == "hard" else -1)}


def measure(audited: AuditedWorld) -> Facts:
    """Return every hypothesis of every run beside the truth of its words."""
    rows, scenes = _rows(audited)
    captions = captions_of(audited)
    tested: list[Facts] = []
    for run, gap, cause in product(range(RUNS), GAPS, CAUSES):
        rng = np.random.default_rng(
            [audited.world.seed, run, round(100 * gap), int(cause == "with")]
        )
        planted = [
            _planted(scenes, rows.labels == label, cause, gap, rng)
            for label in range(len(audited.classes))
        ]
        rates = [
            planted[label].rate(scene)
            for label, scene in zip(rows.labels.tolist(), scenes, strict=True)
        ]
        failing = replace(rows, failed=rng.random(len(rates)) < rates)
        for outcome in mined_rows(
            failing, audited.whitening, captions, audited.world.class_names, run, 0
        ):
            label = outcome.hypothesis.labels[0]
            claims = claims_of(audited.world, label, outcome.hypothesis.caption)
            of_class = [scenes[row] for row in np.flatnonzero(rows.labels == label).tolist()]
            words = planted[label].difference(of_class, claims, outcome.hypothesis.role)
            tested.append(
                {
                    "run": run,
                    "gap": gap,
                    "cause": cause,
                    "attribute": words,
                    "class": audited.world.class_names[label],
                    "words": outcome.hypothesis.words,
                    "role": outcome.hypothesis.role,
                    "before": outcome.before.confirmed,
                    "after": outcome.after.confirmed,
                }
            )
    return {"tested": tested, "classes": len(audited.classes)}


def _rows(audited: AuditedWorld) -> tuple[Rows, list[Values]]:
    """Return the validation split with its features, where nothing fails yet, and its scenes'
    attributes."""
    features, labels, units = audited.seen("validation")
    count = len(labels)
    rows = Rows(
        numbers=np.arange(count),
        features=features,
        labels=labels,
        units=units,
        members=np.zeros(count, np.bool_),
        failed=np.zeros(count, np.bool_),
        shares=np.zeros((count, 1)),
        answers=np.zeros((count, 1), np.int32),
    )
    return rows, [audited.world.scene("validation", row).attributes() for row in range(count)]


def _planted(
    scenes: Sequence[Values],
    of_class: Bools,
    cause: Cause,
    gap: float,
    rng: np.random.Generator,
) -> Planted:
    """Draw a cause: of `with` any colour or background that is frequent enough, of `without` the
    most frequent."""
    rows = np.flatnonzero(of_class).tolist()
    shares = {
        (attribute, value): sum(scenes[row][attribute] == value for row in rows) / len(rows)
        for attribute, values in (("background", BACKGROUNDS), ("colour", COLOURS))
        for value in values
    }
    frequent = [value for value, share in shares.items() if share >= _LEAST_SHARE]
    if cause == "without":
        frequent = [max(shares, key=lambda value: shares[value])]
    return Planted(*frequent[int(rng.integers(len(frequent)))], cause, gap)


def table(results: Results) -> list[str]:
    """Return Markdown: false and true findings kept, by cause and role, and of those far from
    captions by class."""
    tested = [
        hypothesis
        for world in results.values()
        for hypothesis in world["tested"]
        if hypothesis["attribute"] is not None
    ]
    runs = RUNS * sum(world["classes"] for world in results.values())
    lines = [
        f"In each class one cause adds points to a failure rate of {USUAL:.0%}: {len(results)}"
        f" worlds, {RUNS} runs of"
        f" each, {runs:,} classes a line. *False*: confirmed at q ≤ {MINE.fdr:g}, and the words"
        " alone change the rate"
        f" by at most {MINE.margin:.0%}. *Before*: tested on all rows of the class.",
        "",
        "| fails | points | role | tested | false before | true before | false after | true after |",
        "| -- | --: | -- | --: | --: | --: | --: | --: |",
    ]
    for cause, gap, role in product(CAUSES, GAPS, ROLES):
        hypotheses = [
            hypothesis
            for hypothesis in tested
            if (hypothesis["cause"], hypothesis["gap"], hypothesis["role"]) == (cause, gap, role)
        ]
        lines.append(
            f"| {cause} the cause | +{100 * gap:.0f} | {role} | {len(hypotheses)} |"
            f" {kept_cells(hypotheses)} |"
        )
    return [
        *lines,
        "",
        *by_class(tested, {name: 2 * len(GAPS) * RUNS * len(results) for name in CLASSES}),
    ]
