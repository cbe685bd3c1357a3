"""Part *honesty*: are reported findings true, and are planted failures reported?

The mining that `counterfoil mine` does runs on a world's validation split: named on one half,
tested on the other. Its sets are then cut out of the world's `proof` rows by the same cosine, which
shows the true difference of each. *False* is a reported finding whose set fails by no more above
the rest than the margin allows. Beside it the *named attribute*: the same scenes of the class,
rendered with what the caption says and as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from counterfoil.arrays import Floats
from counterfoil.data.labelled_images import deal_halves
from counterfoil.mining.collected import Confirmation, confirm_sets
from counterfoil.mining.hypotheses import (
    CandidateCaptions,
    DiscoverHalf,
    Hypothesis,
    LabelledRows,
    Role,
)
from counterfoil.mining.methods.directions import find_directions
from counterfoil.recipe.schema_mine import DirectionsSettings, Mine
from counterfoil.stats import score_test
from directions_proof.captions import captions_of, claims_of, holding, says_context
from directions_proof.intervals import share_percent
from directions_proof.plan import kind_of
from directions_proof.ranking import WORTH_FINDING
from directions_proof.renders import Renderer
from directions_proof.worlds import AuditedWorld, Rows
from proof_files import Facts, Results, Values

ROLES: tuple[Role, ...] = get_args(Role)
MINE = Mine()
SETTINGS = DirectionsSettings()
# A set catches the planted slice where slice rows are this much more frequent in it than in the
# class.
_CAUGHT = 1.5
_FEWEST = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """A hypothesis and its test; `before`: on all rows of its class, whatever its hard sets are."""

    hypothesis: Hypothesis
    after: Confirmation
    before: Confirmation


def mined_rows(
    rows: Rows,
    whitening: tuple[Floats, Floats],
    captions: CandidateCaptions,
    class_names: tuple[str, ...],
    seed: int = MINE.seed,
    permutations: int = SETTINGS.permutations,
) -> list[Outcome]:
    """Return what mining tests on some rows, and what became of each."""
    halves = deal_halves(rows.labels, seed, [str(unit) for unit in rows.units.tolist()])
    discover = rows.of(halves.discover)
    other = rows.of(halves.confirm)
    centre, deviation = whitening
    half = DiscoverHalf(
        features=discover.features,
        labels=discover.labels,
        failed=discover.failed,
        taken_for=discover.answers[:, 0].astype(np.int64),
        units=discover.units,
        centre=centre,
        deviation=deviation,
        captions=captions,
        class_names=class_names,
        categories=(None,) * len(class_names),
    )
    settings = SETTINGS.model_copy(update={"permutations": permutations})
    hypotheses = find_directions(half, MINE, settings, 1).hypotheses
    answered = other.answers[:, 0].astype(np.int64)
    held_out = LabelledRows(other.features, other.labels, other.failed, other.units, answered)
    tests = []
    for several in (hypotheses, [replace(hypothesis, outside=()) for hypothesis in hypotheses]):
        counts = [hypothesis.count(held_out) for hypothesis in several]
        tests.append(
            confirm_sets(counts, [score_test(*sides, MINE.margin) for sides in counts], MINE.fdr)
        )
    after, before = tests
    return [Outcome(*each) for each in zip(hypotheses, after, before, strict=True)]


def measure(audited: AuditedWorld, proof_rows: int) -> Facts:
    """Return every tested hypothesis beside the truth, and the planted slice's own gap."""
    outcomes = mined_rows(
        audited.validation, audited.whitening, captions_of(audited), audited.world.class_names
    )
    proof = audited.rows("proof", proof_rows)
    renderer = Renderer(audited)
    tested = [_beside_truth(audited, outcome, proof, renderer) for outcome in outcomes]
    planted = _planted(audited, tested, proof)
    return {"tested": tested, "planted": planted, "classes": list(audited.world.class_names)}


def _beside_truth(audited: AuditedWorld, mined: Outcome, proof: Rows, renderer: Renderer) -> Facts:
    world = audited.world
    hypothesis = mined.hypothesis
    outcome = mined.after
    of_class = proof.of(np.isin(proof.labels, hypothesis.labels))
    rows = of_class.of(hypothesis.tested_on(of_class.features, of_class.labels))
    inside = hypothesis.members(rows.features, rows.labels)
    claims = claims_of(world, hypothesis.labels[0], hypothesis.caption)
    difference = outcome.compared().difference
    slice_share = float(of_class.members.mean())
    return {
        "name": hypothesis.name,
        "labels": list(hypothesis.labels),
        "words": hypothesis.words,
        "role": hypothesis.role,
        "p": outcome.p,
        "q": outcome.q,
        "class": world.class_names[hypothesis.labels[0]],
        "confirmed": outcome.confirmed,
        "before": mined.before.confirmed,
        "difference": difference.value,
        "interval": difference.interval,
        "reported_interval": difference.reported_interval,
        "true": _difference(rows.failed, inside),
        "attribute": _of_words(audited, hypothesis, claims, of_class, renderer),
        "lift": float(rows.members[inside].mean() / slice_share)
        if inside.any() and slice_share
        else None,
        "names_context": says_context(world, hypothesis.caption),
    }


def _of_words(
    audited: AuditedWorld,
    hypothesis: Hypothesis,
    claims: Values,
    rows: Rows,
    renderer: Renderer,
) -> dict[str, float] | None:
    """Return the difference that the words make: by renders, or for a subtype by the rows that show
    it."""
    if "class" not in claims:
        return renderer.difference(hypothesis.labels[0], rows.numbers, claims, hypothesis.role)
    has = holding(audited.world, "proof", rows.numbers, claims)
    return _difference(rows.failed, has == (hypothesis.role == "hard"))


def _difference(failed: np.ndarray, inside: np.ndarray) -> dict[str, float] | None:
    """Return the failure rate inside less outside, with its standard error; None if a side has
    fewer than 20 rows."""
    sizes = inside.sum(), (~inside).sum()
    if min(sizes) < _FEWEST:
        return None
    rates = failed[inside].mean(), failed[~inside].mean()
    error = np.sqrt(sum(rate * (1 - rate) / size for rate, size in zip(rates, sizes, strict=True)))
    return {"value": float(rates[0] - rates[1]), "error": float(error), "rows": int(sizes[0])}


def _planted(audited: AuditedWorld, tested: Sequence[Facts], proof: Rows) -> Facts | None:
    """Return the slice's true gap, and whether a confirmed finding of its class names it, or
    catches it."""
    world = audited.world
    if world.planted is None:
        return None
    rows = proof.of(proof.labels == world.planted)
    findings = [
        finding for finding in tested if finding["confirmed"] and world.planted in finding["labels"]
    ]
    role = "far_from" if world.kind == "correlation" else "hard"
    return {
        "gap": _difference(rows.failed, rows.members),
        "named": any(finding["names_context"] and finding["role"] == role for finding in findings),
        "caught": any((finding["lift"] or 0.0) >= _CAUGHT for finding in findings),
    }


def table(results: Results) -> list[str]:
    """Return Markdown: false findings, coverage, and what of the planted was confirmed; by kind and
    over all."""
    lines = [
        f"*False*: reported at q ≤ {MINE.fdr:g} while the set's true difference is at most"
        f" {MINE.margin:.0%}; by"
        " attribute: of scenes truly rendered with and without what the caption says. *Covered*:"
        " the interval holds the"
        " true difference. *Confirmed*: planted slices of 20 points and more with a confirmed"
        " finding of their class"
        f" that names what was planted (named), or whose set has slice rows {_CAUGHT:g} times as"
        " often as the class"
        " (caught).",
        "",
        "| worlds | tested | reported | false | false by attribute: hard | far from | 95 % covered,"
        " all tested |"
        " covered, reported | slices | named | caught |",
        "| -- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    kinds = list(dict.fromkeys(map(kind_of, results)))
    for kind in [*kinds, *(["all"] if len(kinds) > 1 else [])]:
        worlds = [world for name, world in results.items() if kind in (kind_of(name), "all")]
        lines.append(_row(kind, worlds))
    tested = [
        hypothesis
        for world in results.values()
        for hypothesis in world["tested"]
        if hypothesis["attribute"] is not None
    ]
    audits = Counter(name for world in results.values() for name in world["classes"])
    return [*lines, "", *by_class(tested, audits)]


def _row(kind: str, worlds: Sequence[Facts]) -> str:
    slices = [world["planted"] for world in worlds if world["planted"] and world["planted"]["gap"]]
    slices = [planted for planted in slices if planted["gap"]["value"] >= WORTH_FINDING]
    cells = [
        f"{kind} ({len(worlds)})",
        str(sum(len(world["tested"]) for world in worlds)),
        str(sum(len(_reported(world)) for world in worlds)),
        share_percent(_false(world, "true") for world in worlds),
        *(share_percent([_false(world, "attribute", role) for world in worlds]) for role in ROLES),
        share_percent(_covered(world["tested"], "interval") for world in worlds),
        share_percent(_covered(_reported(world), "reported_interval") for world in worlds),
        str(len(slices)),
        share_percent((planted["named"], 1) for planted in slices),
        share_percent((planted["caught"], 1) for planted in slices),
    ]
    return f"| {' | '.join(cells)} |"


def _reported(world: Facts) -> list[Facts]:
    return [hypothesis for hypothesis in world["tested"] if hypothesis["confirmed"]]


def _false(world: Facts, truth: str, role: Role | None = None) -> tuple[int, int]:
    """Return (false, reported with that truth known), of one role or of all."""
    reported = [finding for finding in _reported(world) if role in (None, finding["role"])]
    known = [finding[truth]["value"] for finding in reported if finding[truth] is not None]
    return sum(value <= MINE.margin for value in known), len(known)


def _covered(tested: Sequence[Facts], interval: str) -> tuple[int, int]:
    known = [
        hypothesis
        for hypothesis in tested
        if hypothesis["true"] is not None and hypothesis[interval] is not None
    ]
    held = [
        hypothesis
        for hypothesis in known
        if hypothesis[interval][0] <= hypothesis["true"]["value"] <= hypothesis[interval][1]
    ]
    return len(held), len(known)


def by_class(tested: Sequence[Facts], audits: Mapping[str, int]) -> list[str]:
    """Return Markdown of findings far from a caption, a row a class. audits: how often each class
    was audited."""
    lines = [
        "Far from a caption, by class: those confirmed whose words alone change the rate by at most"
        " the margin (false)"
        " or by more (true). *Before*: tested on all rows of the class; *after*: on those outside"
        " of its hard sets.",
        "",
        "| class | audited | tested | false before | true before | false after | true after |",
        "| -- | --: | --: | --: | --: | --: | --: |",
    ]
    far = [hypothesis for hypothesis in tested if hypothesis["role"] == "far_from"]
    for name, count in audits.items():
        of_class = [hypothesis for hypothesis in far if hypothesis["class"] == name]
        lines.append(f"| {name} | {count} | {len(of_class)} | {kept_cells(of_class)} |")
    return [*lines, f"| all | {sum(audits.values())} | {len(far)} | {kept_cells(far)} |"]


def kept_cells(tested: Sequence[Facts]) -> str:
    """Return false and true findings kept before, then after, as cells."""
    true = [hypothesis["attribute"]["value"] > MINE.margin for hypothesis in tested]
    counts = [
        sum(
            hypothesis[when] and is_true == wanted
            for hypothesis, is_true in zip(tested, true, strict=True)
        )
        for when in ("before", "after")
        for wanted in (False, True)
    ]
    return " | ".join(map(str, counts))
