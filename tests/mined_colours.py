"""A dataset of plain colours with a mined shift whose keep rules ask a judge: every answer is
known.

Under `swap` the first images of each class are painted as the next class, which a model that reads
colours gets wrong. The screen drops the first and the last candidate of each cell; of the others a
rule keeps what the judge gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from colour_world import CANDIDATES, COLOURS, RECIPE, painted, png_of
from counterfoil.documents import sha256_json
from counterfoil.models.classifiers import load_classifier
from counterfoil.plan.layout import Plan, Sample, make_plan
from counterfoil.recipe import dump_recipe
from counterfoil.recipe.keep.cells import ACCEPTED, decide_cell
from counterfoil.recipe.keep.rule import CLIP_SCORES, Verdict
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.rows import Candidate

JUDGE = "hf-hub:someone/judge"
RECORD = {
    "words": "swapped things",
    "caption": "a swapped photo",
    "role": "hard",
    "method": "directions",
    "target": {"name": "hf-hub:someone/target", "sha256": "ab" * 32},
    "set": {"rate": 0.61},
    "rest": {"rate": 0.09},
    "p": 0.0004,
    "q": 0.002,
    "classes": ["00", "01", "02"],
}
PICKED = f"prompts.shifts.swap.keep=[thresholds, {{misclassified: {{models: ['{JUDGE}']}}}}]"
ALL_STORED = "screen.keep_rejected=true"
Right = Callable[[Sample], bool]


def mined(record: Any = RECORD) -> str:
    return f"prompts.shifts.swap={yaml.safe_dump({'kind': 'mined', 'mined_from': record}, default_flow_style=True)}"


def passes_screen(sample: Sample) -> bool:
    return 0 < sample.index < CANDIDATES - 1


def reads_right(sample: Sample) -> bool:
    """Return whether a model that reads colours is right."""
    return painted(sample) in (
        COLOURS[sample.label],
        tuple(part * 3 // 4 for part in COLOURS[sample.label]),
    )


def build_mined(
    out: Path,
    judge: str,
    *overrides: str,
    judged: Right = reads_right,
    screen: Right = passes_screen,
) -> Path:
    """Write a finished dataset that pins the model `judge` as `JUDGE`, right where `judged`
    holds."""
    plan = make_plan(load_recipe_text(RECIPE, [mined(), *overrides]))
    model = load_classifier(judge)
    pin = {"revision": None, "sha256": "0" * 64, "license": None}
    judge_pin = {
        "architecture": model.architecture,
        "sha256": model.sha256,
        "targets": [[0], [1], [2]],
    }
    inputs = {
        "models": {"generator": {"name": "lab:sd", **pin}, "screen": {"name": "lab:clip", **pin}},
        "source": {},
        "tokens": None,
        "thresholds": None,
        "judges": {JUDGE: judge_pin},
    }
    hashes = {
        "plan": plan.recipe.plan_hash,
        "screen": plan.recipe.screen_hash,
        "inputs": sha256_json(inputs),
    }
    recipe = dump_recipe(plan.recipe)
    with DatasetStore.open(
        out, plan, hashes, inputs, {"device": "cpu"}, recipe_yaml=recipe
    ) as store:
        for shard in store.pending():
            store.writer.write(
                shard, [row for cell in shard.cells for row in _cell(plan, cell, judged, screen)]
            )
        store.finish("# Colours\n", {})
    return out


def _cell(plan: Plan, cell: Any, judged: Right, screen: Right) -> list[Candidate]:
    samples = list(plan.samples(cell))
    shift = plan.shift(cell.shift)
    judging = any(rule.judges() for rule in shift.keep)
    verdicts = [_verdict(sample, judged, screen, judging) for sample in samples]
    reasons = decide_cell(shift.keep, verdicts, cell.accepted)
    if cell.accepted is not None and reasons.count(ACCEPTED) == cell.accepted:
        # Drawing stops at the sample that fills the cell.
        samples = samples[: len(reasons) - reasons[::-1].index(ACCEPTED)]
    rows = zip(samples, verdicts, reasons, strict=False)
    return [
        Candidate(sample=sample, verdict=seen, reason=why, image=png_of(sample))
        for sample, seen, why in rows
    ]


def _verdict(sample: Sample, judged: Right, screen: Right, judging: bool) -> Verdict:
    seen = 0.3 if screen(sample) else 0.1
    base = sample.shift == "base"
    scores: dict[str, Any] = dict(zip(CLIP_SCORES, (seen, None if base else 0.3), strict=True))
    if judging:
        right = judged(sample)
        answer = sample.label if right else (sample.label + 1) % len(COLOURS)
        scores |= {"judge_answer": answer, "judge_confidence": 0.9, "judge_right": float(right)}
    return Verdict(scores, dict(zip(CLIP_SCORES, (0.25, None if base else 0.2), strict=True)))
