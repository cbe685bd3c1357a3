"""Part *around*: once around by the real commands, and what of it reaches images that nobody mined.

`mine wardrobe-contexts`, `build`, `mend` with the chosen contexts and once more with the control of
class names alone, and `evaluate` of the classifier and both mended folders on places of
`wardrobe-star` of another seed; then the same folders on true renders, where scenes of unseen
garments stand in any place. The drop is the accuracy in the usual places less that elsewhere: of
the built dataset its base less its shifts, as `evaluate` has it; of true renders plain walls and
floors less the outdoors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.lab.vocabulary import SHIFTS
from counterfoil.mending.document import HELDOUT
from counterfoil.mending.variants import RETRAINED
from directions_proof.intervals import DIFFERENCE, SHARE, mean_of
from mend_proof.plan import RunResults
from mend_proof.runs import Run
from mend_proof.targets import Target
from proof_files import Facts

STAR_SEED = 1000
_CANDIDATES = 8
_AT_MOST = 5
_NAMES = {"before": "as it was", "contexts": "contexts", "class_name": "class names"}
_GROUPS = ("contexts", "class_name")
_INDOORS = ("wall", "brick", "wood")


def measure(run: Run) -> Facts:
    """Return accuracies by head: on the built dataset's base and shifts, on true renders, on the
    test split."""
    target = run.target
    kept = run.target.kept
    work = kept / "around" / f"{target.name.removeprefix('lab:')}-{run.seed}"
    work.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    star = _star(kept, seconds)
    mined = work / "mined"
    built = work / "built"
    changes = ["--set", f"mine.seed={run.seed}", "--set", f"samples.seed={run.seed}"]
    if not built.exists():
        _told("mine", ["mine", "wardrobe-contexts", "--target", target.name, "--out", str(mined), *changes,
                       "--set", f"mine.settings.at_most_images={_AT_MOST}"], seconds)  # fmt: skip
    _told(
        "build",
        ["build", str(mined / "recipe.yaml"), "--out", str(built), "--workers", "1"],
        seconds,
    )
    models = {"before": target.name}
    for group in _GROUPS:
        out = work / group
        if not (out / "model" / "config.json").exists():
            _told(f"mend {group}", ["mend", "--model", target.name, "--on", "wardrobe-contexts", *changes, "--with",
                                    f"{built}:{group}", "--per-class", str(run.settings.per_class), "--save", "best",
                                    "--out", str(out)], seconds)  # fmt: skip
        models[group] = f"local-dir:{(out / 'model').resolve()}"
    heads: dict[str, Facts] = {name: _on_renders(run, model) for name, model in models.items()}
    for group in _GROUPS:
        heads[group] |= _told_by_mend(work / group / "mend.json")
    for name, more in _evaluated(star, models, work, seconds).items():
        heads[name] |= more
    return {"heads": heads, "seconds": seconds}


def _star(kept: Path, seconds: dict[str, float]) -> Path:
    """Return `wardrobe-star` of another seed with shifts of background only, built once."""
    star = kept / "around" / f"star-{STAR_SEED}-{_CANDIDATES}"
    left_out = [
        f"--set=prompts.shifts.{shift.name}=null"
        for shift in SHIFTS
        if shift.attribute != "background"
    ]
    _told("star", ["build", "wardrobe-star", "--set", f"samples.seed={STAR_SEED}", "--set",
                   f"samples.candidates={_CANDIDATES}", *left_out, "--out", str(star), "--workers", "1"],
          seconds)  # fmt: skip
    return star


def _told(what: str, words: Sequence[str], seconds: dict[str, float]) -> str:
    """Run a command; its standard output. RuntimeError with what it said where it fails."""
    began = time.monotonic()
    command = [str(Path(sys.executable).with_name("counterfoil")), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}\n{done.stderr}")
    seconds[what] = seconds.get(what, 0.0) + time.monotonic() - began
    return done.stdout


def _evaluated(
    star: Path, models: Mapping[str, str], work: Path, seconds: dict[str, float]
) -> dict[str, dict[str, float]]:
    chosen = [word for model in models.values() for word in ("--models", model)]
    words = [
        "evaluate",
        str(star),
        *chosen,
        "--out",
        str(work / "evaluated"),
        "--json",
        "--device",
        "cpu",
    ]
    document = json.loads(_told("evaluate", words, seconds))
    by_name = {measured["name"]: measured for measured in document["models"]}
    accuracies = {}
    for name, model in models.items():
        measured = by_name[model]
        base = measured["base_accuracy"]
        drop = measured["average_drop"]
        accuracies[name] = {"star base": base, "star shifts": base - drop, "star drop": drop}
    return accuracies


def _told_by_mend(document: Path) -> Facts:
    """Return λ of `mend`'s one arm, its gain over the head retrained alone on failures held out,
    and the verdict."""
    (model,) = json.loads(document.read_text(encoding="utf-8"))["models"]
    arm = next(arm for arm in model["arms"] if arm["role"] == "mended")
    heldout = next(
        comparison["difference"]
        for comparison in arm["comparisons"]
        if (comparison["against"], comparison["set"]) == (RETRAINED, HELDOUT)
    )
    return {
        "lambda": arm["lam"],
        "heldout": heldout,
        "images": arm["images"],
        "verdict": arm["verdict"],
    }


def _on_renders(run: Run, model: str) -> dict[str, float]:
    audit = run.audit
    target = Target(model, Path(), run.target.kept)
    layer = target.classifier.module.get_classifier()
    weight = layer.weight.detach().double().numpy()
    bias = layer.bias.detach().double().numpy()

    def right(rows: Any) -> Any:
        return (rows.features @ weight.T + bias).argmax(axis=1) == rows.labels

    renders = right(audit.truth)
    test = right(audit.measured)
    indoors = np.logical_or.reduce(
        [audit.truth.has("background", background) for background in _INDOORS]
    )
    inside = float(renders[indoors].mean())
    outside = float(renders[~indoors].mean())
    return {
        "test": float(test.mean()),
        "renders": float(renders.mean()),
        "renders slice": float(renders[audit.truth.members].mean()),
        "renders drop": inside - outside,
    }


def table(results: RunResults) -> list[str]:
    """Return Markdown: one line a head, and by how much the drop is smaller than with class
    names."""
    lines = [
        "*drop*: accuracy in usual places less that elsewhere. *slice*: sandals off the beach,"
        " sneakers off the road,"
        " ankle boots out of the snow. `wardrobe-star`: its seven places, `samples.seed`"
        f" {STAR_SEED}.",
        "",
        "| classifiers | head | star base | star shifts | star drop | renders | slice | renders"
        " drop | test |",
        "| -- | -- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    heads = [run["heads"] for runs in results.values() for run in runs]
    columns = (
        "star base",
        "star shifts",
        "star drop",
        "renders",
        "renders slice",
        "renders drop",
        "test",
    )
    for head, title in _NAMES.items():
        cells = []
        for column in columns:
            possible = DIFFERENCE if "drop" in column else SHARE
            values = [run_heads[head][column] for run_heads in heads]
            cells.append(mean_of(values, possible).text(percent=True))
        count = len(heads) if head == "before" else ""
        lines.append(f"| {count} | {title} | {' | '.join(cells)} |")
    for what in ("star drop", "renders drop"):
        more = mean_of(
            [run_heads["class_name"][what] - run_heads["contexts"][what] for run_heads in heads]
        )
        lines += ["", f"- {what}, less than with class names, in points: {more.points()}"]
    for target, runs in results.items():
        for run in runs:
            for group in _GROUPS:
                head = run["heads"][group]
                lines += ["", f"- {target}, {_NAMES[group]}: {head['images']} images, λ ="
                    f" {head['lambda']:g}, on"
                          f" failures held out {100 * head['heldout']:+.1f} points over the head"
                          " retrained alone."
                          f" `mend` says: {head['verdict']}"]  # fmt: skip
    took: dict[str, list[float]] = {}
    for runs in results.values():
        for run in runs:
            for what, seconds in run["seconds"].items():
                took.setdefault(what, []).append(seconds)
    text = ", ".join(f"{what} {np.mean(seconds):.0f} s" for what, seconds in took.items())
    return [*lines, "", f"- on one core: {text}"]
