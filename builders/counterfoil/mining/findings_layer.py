"""Findings as a layer of shifts over the recipe that was mined."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.documents import Interval
from counterfoil.errors import UserError
from counterfoil.mining.findings import CountedPairs, Finding, Findings, Rate
from counterfoil.mining.hypotheses import Found, Hypothesis, MiningRun
from counterfoil.recipe import Recipe, RecipeClass, load_recipe
from counterfoil.recipe.layering import bundled_recipes, find_recipe, same_classes, with_overrides
from counterfoil.recipe.loader import layer_text, merged_deeply, with_classes
from counterfoil.recipe.names import derived_name, without_folders
from counterfoil.recipe.schema_inputs import ClassEntry
from counterfoil.recipe.strict_yaml import LocatedMapping

_LONGEST_SLUG = 60


def unique_slugs(names: Sequence[str]) -> list[str]:
    """Return names in the letters of shift names, each once: equal or empty ones get their
    index."""
    plain = []
    for name in names:
        slug = re.sub(r"[^a-z0-9]+", "_", name.lower())
        slug = slug.strip("_")[:_LONGEST_SLUG]
        plain.append(slug.rstrip("_"))
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


def layer_of(
    findings: Findings,
    run: MiningRun,
    decoded: Container[str] = (),
) -> str | None:
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
    shifts = mined_shifts(findings, recipe, decoded)
    return shifts_layer(shifts, changes, run)


def shifts_layer(
    shifts: Mapping[str, Mapping[str, Any]],
    changes: Mapping[str, Any],
    run: MiningRun,
) -> str:
    """Return a layer in the run's folder with these shifts alone, the base of their classes, and
    `changes`."""
    below, carried, extends = laid_over(run.source, run.overrides, run.folder)
    specs = below.prompts.shifts
    classes: set[str] = set()
    # None removes a shift of the recipe below when the layer is merged over it.
    all_shifts: dict[str, Any] = dict.fromkeys(specs)
    for name, shift in shifts.items():
        classes.update(shift["classes"])
        replaced = {}
        if name in specs:
            replaced = specs[name].model_dump(mode="json", exclude_none=True)
        all_shifts[name] = replacement(replaced, shift)
    base = {"classes": [cls.id for cls in run.recipe.classes if cls.id in classes]}
    prompts = merged_deeply(carried.get("prompts", {}), {"base": base})
    prompts["shifts"] = all_shifts
    layer = carried | {"prompts": prompts}
    # Drop the LoRA weights of levels, because otherwise every image would be rendered with them.
    loras = [shift.lora for shift in run.recipe.all_shifts()]
    levelled = dict.fromkeys(lora for lora in loras if lora is not None)
    if levelled:
        layer = merged_deeply(layer, {"generator": {"lora": levelled}})
    layer = merged_deeply(layer, changes)
    return layer_text(layer, below, extends)


def replacement(old: Any, new: Any) -> Any:
    """Return a mapping that leaves nothing of the mapping `old` when it is merged over it."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    merged = dict.fromkeys(old)  # None removes a key
    for key, value in new.items():
        merged[key] = replacement(old.get(key), value)
    return merged


def laid_over(
    source: str | Path,
    overrides: Sequence[str],
    folder: Path,
) -> tuple[Recipe, dict[str, Any], str]:
    """Return the recipe without overrides, the overrides as a mapping, and the recipe's name as
    seen from `folder`. If the recipe takes its classes from the input dataset, the mapping holds
    the resolved classes. Raise UserError if the overrides change such classes.
    """
    below = load_recipe(source)
    carried = _plain(with_overrides(LocatedMapping(), overrides), str)
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
    classes = list(map(_entry_values, entries))
    if not below.names_every_label:
        stated = below.source.classes
        if stated is not None:
            stated = list(map(_entry_values, stated))
        if not same_classes(stated, classes):
            raise UserError(
                f"source.classes: --set changes the classes of {source}, which leaves labels to the"
                " input dataset",
                "Write the classes in the recipe.",
            )
        below = with_classes(below, entries)
    carried = merged_deeply(carried, {"source": {"classes": classes}})
    return below, carried, extends


def _entry_values(entry: ClassEntry) -> dict[str, Any]:
    return entry.model_dump(mode="json", exclude_defaults=True)


def derived_seed(seed: int, purpose: str, findings: Findings) -> int:
    """Return a seed of 53 bits. No other purpose or run of this recipe has it, so no two of them
    share their noise."""
    method = findings.method.name
    return seed_for(seed, purpose, method, findings.target.name, findings.run_seed)


def seed_for(
    seed: int,
    purpose: str,
    method: str,
    target: str,
    halves_seed: int,
) -> int:
    """Return the seed that `derived_seed` gives, from values that are known before there are
    findings."""
    words = f"{seed}\0{purpose}\0{method}\0{without_folders(target)}\0{halves_seed}"
    digest = hashlib.sha256(words.encode()).digest()
    return int.from_bytes(digest[:8]) >> 11


def mined_shifts(
    findings: Findings,
    recipe: Recipe,
    decoded: Container[str] = (),
) -> dict[str, dict[str, Any]]:
    """Return the layer's shifts by name: hard ones by finding, an easy and a reference one by
    classes."""
    audits = {audit.id: audit for audit in findings.classes}
    by_id = {cls.id: cls for cls in recipe.classes}
    # Only a threshold of the recipe says which score is enough.
    screened = recipe.screen.shift_threshold is not None
    base = findings.method.settings.get("base") or recipe.prompts.base.prompt
    hard: dict[str, dict[str, Any]] = {}
    easy: dict[str, dict[str, Any]] = {}
    reference: dict[str, dict[str, Any]] = {}
    for finding in findings.standing:
        ids = list(finding.classes)
        classes = [by_id[class_id] for class_id in ids]
        if finding.prompt is not None:
            caption = None
            if finding.role == "hard" and screened:
                caption = finding.caption
            origin = mined_from(findings, finding)
            words = finding.about.get(SHIFT_CAPTION)
            shift = mined_shift(finding.prompt, caption, HARD, classes, origin, words)
            if finding.about.get(STYLED):
                shift["style"] = True
            hard[finding.name] = shift
        stem = finding.name.removesuffix(f"_{finding.role}")
        single = ids[0] if len(ids) == 1 else ""  # no class has the id ""
        if single in decoded and recipe.generator.get("adapter") is not None:
            # Drawn from the direction itself, without a word (Jain 2023, A.7).
            hard[f"{stem}_{DECODED}"] = {
                "kind": "mined",
                "group": HARD,
                "classes": ids,
                "embedding": {"file": f"./{VECTORS}", "key": f"{{class_id}}_{HARD}"},
                "mined_from": _beside(findings, finding, DECODED),
            }
        # Findings of another recipe's test have no class audits.
        audit = audits.get(single)
        easiest = None
        if finding.role == "far_from":
            easiest = finding.caption
        elif audit is not None and audit.easy:
            easiest = audit.easy[0].caption
        if easiest is not None:
            origin = _beside(findings, finding, EASY, easiest)
            prompt = prompt_of(easiest, classes)
            caption = easiest if screened else None
            shift = mined_shift(prompt, caption, EASY, classes, origin)
            easy[f"{stem}_{EASY}"] = shift
        if base is not None:
            origin = _beside(findings, finding, REFERENCE)
            shift = mined_shift(base, None, REFERENCE, classes, origin)
            reference[f"{stem}_{REFERENCE}"] = shift
    for others in (easy, reference):
        hard |= dict(sorted(others.items()))
    return hard


def drawing_prompt(
    hypothesis: Hypothesis,
    outcome: Found,
    recipe: Recipe,
) -> str | None:
    """Return the prompt that draws images of the set. It is the set's caption. For a set far from a
    caption, it is the hardest caption that no other set uses.
    """
    labels = hypothesis.labels
    classes = [recipe.classes[label] for label in labels]
    if hypothesis.role == "hard":
        return prompt_of(hypothesis.caption, classes)
    if len(labels) > 1:
        return None
    same = [other for other in outcome.hypotheses if other.labels == labels]
    drawn = {other.caption for other in same if other.role == "hard"}
    for hard in outcome.notes[labels[0]].hard:
        # A negative score is on the side of the failures.
        if hard.score < 0 and hard.caption not in drawn:
            return prompt_of(hard.caption, classes)
    return None


def prompt_of(caption: str, classes: Sequence[RecipeClass]) -> str:
    """Return a caption as a prompt: the class's name becomes `{class}`, so that a class token can
    take its place."""
    nouns = {cls.category for cls in classes if cls.category is not None}
    if len(classes) == 1:
        nouns.add(classes[0].name)
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
    origin |= {"role": finding.role, "caption": finding.caption}
    if finding.role == "far_from" and finding.prompt is not None:
        origin["drawn_by"] = finding.prompt
    origin["classes"] = list(finding.class_names[:_MOST_NAMES])
    origin |= audit_origin(findings)
    origin |= {
        "set": _numbers(finding.set),
        "rest": _numbers(finding.rest),
        "difference": finding.difference.value,
        "interval": _ends(finding.difference.reported_interval),
        "p": finding.p,
        "q": finding.q,
    }
    pairs = finding.pairs
    rendered = finding.rendered
    if pairs is not None:
        origin["tested_on"] = finding.tested_on
        origin["origin"] = finding.origin
        origin["pairs"] = _counts(pairs) | {"log_e": finding.last_log_e}
        if pairs.fresh is not None:
            origin["fresh"] = _counts(pairs.fresh)
    elif rendered is not None:
        origin["tested_on"] = finding.tested_on
        origin["rendered"] = {
            "set": _numbers(rendered.set),
            "rest": _numbers(rendered.rest),
            "p": rendered.p,
        }
    return origin


def _counts(pairs: CountedPairs) -> dict[str, int]:
    return {
        "pairs": pairs.pairs,
        "both": pairs.both,
        "failing": pairs.failing,
        "rescued": pairs.rescued,
    }


def _beside(
    findings: Findings,
    finding: Finding,
    role: str,
    caption: str | None = None,
) -> dict[str, Any]:
    """Return the origin of a shift for comparison, which has no test of its own."""
    origin = {"finding": finding.name, "role": role}
    if caption is not None:
        origin["caption"] = caption
    return origin | audit_origin(findings)


def audit_origin(findings: Findings) -> dict[str, Any]:
    """Return what was audited, and by which method, for `mined_from`."""
    method = findings.method
    target = findings.target
    images = [{"name": without_folders(part.name), "content": part.content} for part in findings.on]
    origin: dict[str, Any] = {
        "method": method.name,
        # Files and folders have their names alone.
        "settings": _plain(method.settings, without_folders),
        "target": {
            "name": without_folders(target.name),
            "sha256": target.sha256,
        },
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


def _plain(value: Any, of_text: Callable[[str], str]) -> Any:
    """Return a value of plain mappings and lists, without the lines where it was written."""
    if isinstance(value, Mapping):
        return {key: _plain(item, of_text) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, of_text) for item in value]
    return of_text(value) if isinstance(value, str) else value


def _numbers(rate: Rate) -> dict[str, Any]:
    return {
        "rows": rate.rows,
        "failures": rate.failures,
        "rate": rate.rate,
        "interval": _ends(rate.interval),
    }


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)


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
    shift: dict[str, Any] = {
        "kind": "mined",
        "group": group,
        "classes": [cls.id for cls in classes],
        "prompt": prompt,
    }
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
    road". Return None if the caption does not name the class, or adds nothing."""
    prompt = prompt_of(caption, classes)
    before, placeholder, after = prompt.partition("{class}")
    if not placeholder:
        return None
    words = before.removeprefix(_A_PHOTO).strip()
    words = words.removeprefix("of").strip()
    words = re.sub(r"^(a|an|the)(\s|$)", "", words)
    added = f"{words} {after.strip()}".strip()
    return f"{_A_PHOTO} {added}" if added else None
