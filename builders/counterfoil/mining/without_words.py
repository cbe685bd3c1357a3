"""Mining where CLIP cannot be had: what answers tell of classes, pairs of classes and labels, and nothing in words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.answered import AnsweredRows, answered
from counterfoil.mining.audited import WithoutClip, unit_names, unreadable_note
from counterfoil.mining.class_audits import ClassAudit
from counterfoil.mining.contents import contents_seen
from counterfoil.mining.findings import (
    AuditedImages,
    DealtHalves,
    Findings,
    Half,
    MethodUsed,
    MinedRecipe,
    Target,
)
from counterfoil.mining.mined_files import what_is_odd
from counterfoil.mining.rows_hash import keys_sha256
from counterfoil.prediction.failure_rules import failures
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.section import Section
from counterfoil.sources.halves import deal_halves

_NO_CLIP = "No failure is described in words, since that takes a CLIP"


def find_without_words(
    error: WithoutClip, recipe: Recipe, mine: Mine, settings: Section
) -> tuple[Findings, AnsweredRows]:
    """Findings without a hypothesis, of the answers that the target has given, and the rows behind them."""
    parts, target = error.parts, error.answers
    contents: list[str] = []
    for one in contents_seen(parts):
        contents += one.known()
    rows = np.flatnonzero(target.predictions.readable)
    keys = [key for part in parts for key in part.keys]
    every = np.concatenate([part.labels for part in parts])
    labels = every[rows]
    failed = failures(mine.failure, target.predictions, every, recipe.classes, target.class_map)[rows]
    names = np.asarray(unit_names(parts, contents), dtype=object)[rows].astype(str)
    units = np.unique(names, return_inverse=True)[1].astype(np.int64)
    halves = deal_halves(labels, mine.seed, names.tolist(), [contents[row] for row in rows.tolist()])
    paths = {key: path for part in parts for key, path in zip(part.keys, part.paths or (), strict=False)}
    own = [keys[row] for row in rows.tolist()]
    unreadable = [keys[row] for row in np.flatnonzero(~target.predictions.readable).tolist()]
    told = AnsweredRows.of(own, labels, failed, units, target.predictions, target.class_map, rows, paths)
    counts = np.bincount(labels, minlength=len(recipe.classes))
    wrong = np.bincount(labels[failed], minlength=len(recipe.classes))

    def half(places: NDArray[np.int64]) -> Half:
        return Half(len(places), len(np.unique(units[places])), keys_sha256([own[place] for place in places.tolist()]))

    by_content = any(part.units is None for part in parts)
    findings = Findings(
        recipe=MinedRecipe(recipe.name, recipe.recipe_hash),
        method=MethodUsed(mine.method, settings.model_dump(mode="json")),
        target=Target(mine.target or target.classifier.name, target.classifier.sha256, target.about),
        on=tuple(AuditedImages(part.name, part.content, len(part)) for part in parts),
        failure=mine.failure,
        halves=DealtHalves(
            mine.seed, half(halves.discover), half(halves.confirm), "content" if by_content else "unit"
        ),
        margin=mine.margin,
        fdr=mine.fdr,
        tested=0,
        smallest_difference=None,
        classes=tuple(
            ClassAudit(
                cls.id, cls.name, int(counts[cls.label]), int(wrong[cls.label]),
                float(wrong[cls.label] / counts[cls.label]) if counts[cls.label] else None,
                reason="there is no CLIP to look for words with",
            )
            for cls in recipe.classes
        ),
        findings=(),
        unreadable=len(keys) - len(rows),
        notes=(*unreadable_note(unreadable, paths), *what_is_odd(recipe, mine.on)),
        doubts=(f"{_NO_CLIP}: {'; '.join(error.problems)}", *([error.hint] if error.hint else [])),
        answered=answered(told, recipe, _NO_CLIP),
    )  # fmt: skip
    return findings, told
