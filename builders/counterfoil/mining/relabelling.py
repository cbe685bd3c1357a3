"""Which failing rows of findings look mislabelled: told in the findings, and listed in a table to relabel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.csv_text import csv_text
from counterfoil.mining.answered import class_of_output
from counterfoil.mining.audited import Audited
from counterfoil.mining.collected import place_of
from counterfoil.mining.findings import Findings, LabelCheck
from counterfoil.mining.label_check import CheckedRows, SeenLabels
from counterfoil.mining.method import Hypothesis
from counterfoil.models.clip import ClipModel
from counterfoil.recipe import Recipe
from counterfoil.screen import ScreenDoubts
from counterfoil.screen.scores import own_captions

COLUMNS = (
    "key", "path", "label_id", "label", "suggested_id", "suggested", "caption_margin", "neighbour_margin", "depth",
    "findings",
)  # fmt: skip


def with_checked_labels(
    findings: Findings,
    recipe: Recipe,
    clip: ClipModel,
    audits: Sequence[Audited],
    hypotheses: Sequence[Hypothesis],
    doubts: ScreenDoubts | None,
) -> tuple[Findings, str | None]:
    """The findings with what CLIP says of the labels behind those that rows tested, and the table to relabel.

    doubts: what speaks against CLIP on these images (`clip_doubts`); the table is None where no confirmed finding is
    perhaps one of wrong labels.
    """
    by_name = {one.name: one for one in hypotheses}
    asked = [one for one in findings.findings if one.tested_on in ("rows", "both")]
    if not asked:
        return findings, None
    captions = _captions(recipe, clip)
    known = np.asarray([doubts is None or not doubts.of_any([cls.id]) for cls in recipe.classes])
    seen = [_seen(one, captions, known) for one in audits]
    checks: dict[str, LabelCheck] = {}
    listed: dict[tuple[str, str], dict[str, Any]] = {}
    for one in asked:
        place = place_of(audits, by_name[one.name].labels[0])
        checks[one.name], looked = _check(by_name[one.name], audits[place], seen[place])
        if one.confirmed and checks[one.name].suspected:
            for row in _told(recipe, audits[place], looked):
                listed.setdefault((row["key"], row["label_id"]), row | {"findings": []})["findings"].append(one.name)
    told = tuple(replace(one, labels=checks.get(one.name)) for one in findings.findings)
    return replace(findings, findings=told), _table(listed.values()) if listed else None


def _captions(recipe: Recipe, clip: ClipModel) -> NDArray[np.float32]:
    """(classes, width) what the base calls each class, as CLIP has it; NaN for a class without the words."""
    texts = own_captions(recipe)
    encoded = np.asarray(clip.embed_texts(list(texts.values())), dtype=np.float32)
    captions = np.full((len(recipe.classes), encoded.shape[1]), np.nan, dtype=np.float32)
    captions[[cls.label for cls in recipe.classes if cls.id in texts]] = encoded
    return captions


def _seen(audited: Audited, captions: NDArray[np.float32], known: NDArray[np.bool_]) -> SeenLabels:
    right = np.asarray(
        class_of_output(audited.target.class_map)[audited.target.predictions.prediction[audited.rows]] == audited.labels
    )
    return SeenLabels(audited.features, audited.labels, audited.units, right, captions, known)


def _check(hypothesis: Hypothesis, audited: Audited, seen: SeenLabels) -> tuple[LabelCheck, CheckedRows]:
    inside = hypothesis.members(audited.features, audited.labels)
    inside &= hypothesis.tested_on(audited.features, audited.labels)
    rows = np.flatnonzero(inside & audited.failed)
    return seen.check(rows, _taken_for(audited, rows))


def _taken_for(audited: Audited, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """(m,) of failing rows the first answer that is of another class of the question; -1 where none is."""
    answers = class_of_output(audited.target.class_map)[audited.target.predictions.answers[audited.rows[rows]]]
    fits = np.isin(answers, audited.classes) & (answers != audited.labels[rows][:, None])
    return np.where(fits.any(axis=1), answers[np.arange(len(rows)), fits.argmax(axis=1)], -1)


def _told(recipe: Recipe, audited: Audited, looked: CheckedRows) -> Iterator[dict[str, Any]]:
    """The rows that look mislabelled, the surest first."""
    for place in np.flatnonzero(looked.mislabelled)[np.argsort(-looked.depth[looked.mislabelled], kind="stable")]:
        row = int(looked.rows[place])
        label, other = recipe.classes[int(audited.labels[row])], recipe.classes[int(looked.others[place])]
        yield {
            "key": audited.keys[row],
            "path": audited.paths.get(audited.keys[row]),
            "label_id": label.id,
            "label": label.name,
            "suggested_id": other.id,
            "suggested": other.name,
            "caption_margin": round(float(looked.captions[place]), 4),
            "neighbour_margin": round(float(looked.neighbours[place]), 4),
            "depth": round(float(looked.depth[place]), 4),
        }


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    return csv_text(({**row, "findings": " ".join(row["findings"])} for row in rows), COLUMNS)
