"""Findings as a layer of shifts over the recipe that was mined."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.errors import UserError
from counterfoil.mining.findings import CountedPairs, Finding, Findings, Rate
from counterfoil.mining.hypotheses import Found, Hypothesis, MiningRun
from counterfoil.recipe import Recipe, RecipeClass, load_recipe
from counterfoil.recipe.layering import bundled_recipes, find_recipe, same_classes, with_overrides
from counterfoil.recipe.loader import layer_text, merged_deeply, with_classes
from counterfoil.recipe.names import derived_name, without_folders
from counterfoil.recipe.schema_inputs import ClassEntry
from counterfoil.recipe.schema_prompts import ShiftSpec
from counterfoil.recipe.strict_yaml import LocatedMapping

_LONGEST_SLUG = 60


def unique_slugs(names: Sequence[str]) -> list[str]:
    """Return names in the letters of shift names, each once: equal or empty ones get their
    index."""
    plain = []
    for name in names:
        slug = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        plain.append(slug[:_LONGEST_SLUG].rstrip("_"))
    often = Counter(plain)
    taken = {slug for slug in plain if slug and often[slug] == 1}
    slugs = []
    for index, slug in enumerate(plain):
        if slug not in taken:
            slug = f"{slug or 'class'}_{index}"
            while slug in {*taken, *slugs}:
                slug += "_"
        slugs.append(slug)
    return slugs


HARD = "hard"
EASY = "easy"
REFERENCE = "reference"
DECODED = "decoded"
# The file that decoded vectors are drawn from.
VECTORS = "vectors.safetensors"
# Keys of a finding's `about`: the caption without the class, and whether it describes another kind
# of picture.
SHIFT_CAPTION = "shift_caption"
STYLED = "styled"
_A_PHOTO = "a photo"
_MOST_NAMES = 12


def layer_of(findings: Findings, run: MiningRun, decoded: Container[str] = ()) -> str | None:
    """Return the text of `recipe.yaml`, with confirmed findings as shifts of the groups `hard`,
    `easy` and `reference`. Return None if no finding was confirmed, or if the recipe cannot render
    images from noise. decoded: ids of classes with a hard vector in `VECTORS`.
    """
    recipe = run.recipe
    if not findings.confirmed or not recipe.kind.from_noise:
        return None
    seed = derived_seed(recipe.samples.seed, "layer", findings)
    changes: dict[str, Any] = {
        "samples": {"seed": seed},
        "name": derived_name(recipe.name, "mined"),
    }
    base = findings.method.settings.get("base")
    if base:
        changes["prompts"] = {"base": {"prompt": base}}
    return shifts_layer(mined_shifts(findings, recipe, decoded), changes, run)


def shifts_layer(
    shifts: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Any], run: MiningRun
) -> str:
    """Return a layer in the run's folder with these shifts alone, the base of their classes, and
    `changes`."""
    below, carried, extends = laid_over(run.source, run.overrides, run.folder)
    classes: set[str] = set()
    all_shifts: dict[str, Any] = dict.fromkeys(below.prompts.shifts)
    for name, shift in shifts.items():
        classes.update(shift["classes"])
        all_shifts[name] = _over(shift, below.prompts.shifts.get(name))
    ids = [cls.id for cls in run.recipe.classes if cls.id in classes]
    prompts = merged_deeply(carried.get("prompts", {}), {"base": {"classes": ids}})
    prompts["shifts"] = all_shifts
    layer = carried | {"prompts": prompts}
    # Drop the LoRA weights of levels, because otherwise every image would be rendered with them.
    levelled = {}
    for shift in run.recipe.all_shifts():
        if shift.lora is not None:
            levelled[shift.lora] = None
    if levelled:
        layer = merged_deeply(layer, {"generator": {"lora": levelled}})
    return layer_text(merged_deeply(layer, changes), below, extends)


def _over(shift: Mapping[str, Any], spec: ShiftSpec | None) -> dict[str, Any]:
    """Return a shift that leaves nothing of another shift with the same name when it is merged over
    it."""
    old = {} if spec is None else spec.model_dump(mode="json", exclude_none=True)
    return _instead(old, shift)


def _instead(old: Any, new: Any) -> Any:
    """Return a mapping that leaves nothing of the mapping `old` when it is merged over it."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    merged = dict.fromkeys(old)
    for key, value in new.items():
        merged[key] = _instead(old.get(key), value)
    return merged


def laid_over(
    source: str | Path, overrides: Sequence[str], folder: Path
) -> tuple[Recipe, dict[str, Any], str]:
    """Return the recipe without overrides, the overrides as a mapping, and the recipe's name as
    seen from `folder`. If the recipe takes its classes from the input dataset, the mapping holds
    the resolved classes. Raise UserError if the overrides change such classes.
    """
    below = load_recipe(source)
    carried = _plain(with_overrides(LocatedMapping(), overrides))
    # The layer names a bundled recipe, or a path from its own folder.
    path = find_recipe(source)
    extends = os.path.relpath(path.resolve(), folder.resolve())
    if isinstance(source, str) and path == bundled_recipes().get(source):
        extends = source
    elif not extends.startswith("."):
        extends = f"./{extends}"
    laid = load_recipe(source, overrides)
    if below.names_every_label and laid.names_every_label:
        return below, carried, extends
    entries = resolve_classes(laid).source.classes or ()
    classes = [_entry_values(entry) for entry in entries]
    if not below.names_every_label:
        stated = below.source.classes
        if stated is not None:
            stated = [_entry_values(entry) for entry in stated]
        if not same_classes(stated, classes):
            raise UserError(
                f"source.classes: --set changes the classes of {source}, which leaves labels to the"
                " input dataset",
                "Write the classes in the recipe.",
            )
        below = with_classes(below, entries)
    return below, merged_deeply(carried, {"source": {"classes": classes}}), extends


def _entry_values(entry: ClassEntry) -> dict[str, Any]:
    return entry.model_dump(mode="json", exclude_defaults=True)


def derived_seed(seed: int, purpose: str, findings: Findings) -> int:
    """Return a seed of 53 bits. No other purpose or run of this recipe has it, so no two of them
    share their noise."""
    return seed_for(seed, purpose, findings.method.name, findings.target.name, findings.run_seed)


def seed_for(seed: int, purpose: str, method: str, target: str, halves_seed: int) -> int:
    """Return the seed that `derived_seed` gives, from values that are known before there are
    findings."""
    words = f"{seed}\0{purpose}\0{method}\0{without_folders(target)}\0{halves_seed}"
    digest = hashlib.sha256(words.encode()).digest()
    return int.from_bytes(digest[:8]) >> 11


def mined_shifts(
    findings: Findings, recipe: Recipe, decoded: Container[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the layer's shifts by name: hard ones by finding, an easy and a reference one by
    classes."""
    audits = {audit.id: audit for audit in findings.classes}
    by_id = {cls.id: cls for cls in recipe.classes}
    # Only a threshold of the recipe says which score is enough.
    screened = recipe.screen.shift_threshold is not None
    hard: dict[str, dict[str, Any]] = {}
    others: dict[str, dict[str, Any]] = {}
    base = findings.method.settings.get("base") or recipe.prompts.base.prompt
    for finding in findings.standing:
        classes = [by_id[class_id] for class_id in finding.classes]
        if finding.prompt is not None:
            origin = mined_from(findings, finding)
            caption = finding.caption if finding.role == "hard" and screened else None
            words = finding.about.get(SHIFT_CAPTION)
            shift = mined_shift(finding.prompt, caption, HARD, classes, origin, words)
            if finding.about.get(STYLED):
                shift["style"] = True
            hard[finding.name] = shift
        stem = finding.name.removesuffix(f"_{finding.role}")
        ids = list(finding.classes)
        single = ids[0] if len(ids) == 1 else ""
        if single in decoded and recipe.generator.get("adapter") is not None:
            # Drawn from the direction itself, without a word (Jain 2023, A.7).
            hard[f"{stem}_{DECODED}"] = {
                "kind": "mined",
                "group": HARD,
                "classes": ids,
                "embedding": {"file": f"./{VECTORS}", "key": f"{{class_id}}_{HARD}"},
                "mined_from": _beside(findings, finding, DECODED, None),
            }
        # Findings of another recipe's test have no class audits.
        audit = audits.get(single)
        easy = None
        if finding.role == "far_from":
            easy = finding.caption
        elif audit is not None and audit.easy:
            easy = audit.easy[0].caption
        if easy is not None:
            origin = _beside(findings, finding, EASY, easy)
            prompt = prompt_of(easy, classes)
            caption = easy if screened else None
            others[f"{stem}_{EASY}"] = mined_shift(prompt, caption, EASY, classes, origin)
        if base is not None:
            origin = _beside(findings, finding, REFERENCE, None)
            others[f"{stem}_{REFERENCE}"] = mined_shift(base, None, REFERENCE, classes, origin)
    in_order = sorted(others, key=lambda name: (others[name]["group"], name))
    return hard | {name: others[name] for name in in_order}


def drawing_prompt(hypothesis: Hypothesis, outcome: Found, recipe: Recipe) -> str | None:
    """Return the prompt that draws images of the set. It is the set's caption. For a set far from a
    caption, it is the hardest caption that no other set uses.
    """
    classes = [recipe.classes[label] for label in hypothesis.labels]
    if hypothesis.role == "hard":
        return prompt_of(hypothesis.caption, classes)
    hard_sets = [other for other in outcome.hypotheses if other.role == "hard"]
    drawn = {other.caption for other in hard_sets if other.labels == hypothesis.labels}
    if len(classes) > 1:
        return None
    for hard in outcome.notes[hypothesis.labels[0]].hard:
        if hard.score < 0 and hard.caption not in drawn:
            return prompt_of(hard.caption, classes)
    return None


def prompt_of(caption: str, classes: Sequence[RecipeClass]) -> str:
    """Return a caption as a prompt: the class's name becomes `{class}`, so that a class token can
    take its place."""
    nouns = {classes[0].name} if len(classes) == 1 else set()
    nouns |= {cls.category for cls in classes if cls.category is not None}
    for noun in sorted(nouns, key=len, reverse=True):
        parts = re.split(rf"(?<!\w){re.escape(noun)}(?!\w)", caption)
        if len(parts) > 1:
            # The last: "a photo of a road sign on the road".
            before = noun.join(parts[:-1])
            return f"{before}{{class}}{parts[-1]}"
    return caption


def mined_from(findings: Findings, finding: Finding) -> dict[str, Any]:
    """Return a shift's origin for its recipe: its rates, its test, and the audited images."""
    origin: dict[str, Any] = {"finding": finding.name, "words": finding.words}
    if finding.marks:
        origin["marks"] = list(finding.marks)
    origin["role"] = finding.role
    origin["caption"] = finding.caption
    if finding.role == "far_from" and finding.prompt is not None:
        origin["drawn_by"] = finding.prompt
    origin["classes"] = list(finding.class_names[:_MOST_NAMES])
    origin |= audit_origin(findings)
    interval = finding.difference.reported_interval
    numbers = {
        "set": _numbers(finding.set),
        "rest": _numbers(finding.rest),
        "difference": finding.difference.value,
        "interval": None if interval is None else list(interval),
        "p": finding.p,
        "q": finding.q,
    }
    return origin | numbers | _drawn(finding)


def _drawn(finding: Finding) -> dict[str, Any]:
    if finding.pairs is not None:
        counts = _counts(finding.pairs) | {"log_e": finding.last_log_e}
        facts: dict[str, Any] = {
            "tested_on": finding.tested_on,
            "origin": finding.origin,
            "pairs": counts,
        }
        if finding.pairs.fresh is not None:
            facts["fresh"] = _counts(finding.pairs.fresh)
        return facts
    if finding.rendered is None:
        return {}
    numbers = {
        "set": _numbers(finding.rendered.set),
        "rest": _numbers(finding.rendered.rest),
        "p": finding.rendered.p,
    }
    return {"tested_on": finding.tested_on, "rendered": numbers}


def _counts(pairs: CountedPairs) -> dict[str, int]:
    return {name: getattr(pairs, name) for name in ("pairs", "both", "failing", "rescued")}


def _beside(findings: Findings, finding: Finding, role: str, caption: str | None) -> dict[str, Any]:
    """Return the origin of a shift for comparison, which has no test of its own."""
    facts = {"finding": finding.name, "role": role, "caption": caption, **audit_origin(findings)}
    return {key: value for key, value in facts.items() if value is not None}


def audit_origin(findings: Findings) -> dict[str, Any]:
    """Return what was audited, and by which method, for `mined_from`."""
    target = findings.target
    images = []
    for part in findings.on:
        images.append({"name": without_folders(part.name), "content": part.content})
    origin: dict[str, Any] = {
        "method": findings.method.name,
        "settings": _shared(findings.method.settings),
        "target": {"name": without_folders(target.name), "sha256": target.sha256},
        "on": images,
        "failure": findings.failure,
        "margin": findings.margin,
        "fdr": findings.fdr,
        "tested": findings.tested,
        "seed": findings.run_seed,
    }
    if findings.halves is not None:
        origin["discover_sha256"] = findings.halves.discover.sha256
    return origin


def _shared(value: Any) -> Any:
    """Return a method's settings for a recipe: files and folders by their names alone."""
    if isinstance(value, Mapping):
        return {key: _shared(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shared(item) for item in value]
    return without_folders(value) if isinstance(value, str) else value


def _numbers(rate: Rate) -> dict[str, Any]:
    interval = None if rate.interval is None else list(rate.interval)
    return {"rows": rate.rows, "failures": rate.failures, "rate": rate.rate, "interval": interval}


def mined_shift(
    prompt: str,
    caption: str | None,
    group: str,
    classes: Sequence[RecipeClass],
    origin: Mapping[str, Any],
    alone: str | None = None,
) -> dict[str, Any]:
    """Return a shift of kind `mined`. caption: to screen it by. alone: the caption without its
    class."""
    ids = [cls.id for cls in classes]
    shift: dict[str, Any] = {"kind": "mined", "group": group, "classes": ids, "prompt": prompt}
    if caption is not None:
        added = alone or _added(caption, classes)
        if added is not None:
            shift["caption"] = added
    if "{class}" not in prompt:
        shift["object_caption"] = prompt
    shift["mined_from"] = origin
    return shift


def _added(caption: str, classes: Sequence[RecipeClass]) -> str | None:
    """Return the caption of the shift alone: "a photo on the road" of "a photo of a sandal on the
    road"."""
    before, placeholder, after = prompt_of(caption, classes).partition("{class}")
    words = before.removeprefix(_A_PHOTO).strip().removeprefix("of").strip()
    words = re.sub(r"^(a|an|the)(\s|$)", "", words)
    parts = (_A_PHOTO, words, after.strip())
    alone = " ".join(part for part in parts if part)
    return alone if placeholder and alone != _A_PHOTO else None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
