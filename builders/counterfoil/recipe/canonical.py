"""Canonical JSON, and the two hashes that a recipe alone decides: plan and screen.

The third, inputs, is over what the names in a recipe stand for (commits, weights, vectors) and belongs
to the lock. Layers know what they extend by a hash of their own, over plan, screen and those names. Decisions on
what enters where:

- `name`, `license`, `description`, `kind`, `evaluate` and `publish` change no image and no row: none.
- `keep_rejected`, `store_embeddings` and a second `judge` change which files and columns a screen writes: screen.
- `source`, `revision`s, token vectors and embeddings are inputs. That tokens are used at all changes prompts, and that
  a shift is drawn from embeddings is a way of drawing: plan.
- A class's parent and category enter only where a prompt (plan) or an object caption (screen) uses them, or a keep rule
  whose failures are told by parents (screen).
- A key that was added later enters only where it is not at its default: older directories keep their hashes.
- Where a generator's weights wait changes no image, and compiled blocks are of the stack: none.
- A folder of this machine enters by its last part only; its content is pinned by the inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterfoil.keep import MisclassifiedRule
from counterfoil.keep.failure_names import PARENT
from counterfoil.recipe.layering import model_lists, without_folders
from counterfoil.recipe.prompts import Shift
from counterfoil.recipe.schema import Recipe
from counterfoil.recipe.templates import uses
from counterfoil.section import Section

# What sections that are hashed whole held when the first datasets were built.
_FIRST_KEYS = {
    "Generator": (
        "kind", "model", "revision", "scheduler", "steps", "guidance", "size", "saved_size", "dtype", "batch_size",
        "negative_prompt",
    ),
    "Output": ("format", "image", "rows_per_shard", "split"),
    "Samples": ("candidates", "accepted", "at_most", "seed", "noise"),
}  # fmt: skip

# What changes no image: where weights wait, and compiled blocks, which are of the stack.
_NOT_HASHED = {"Generator": ("offload", "compile")}


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces; equal values have equal text. NaN and infinity are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_json(value: Any) -> str:
    """SHA-256, in hex, of the canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def as_read_back(document: Any) -> Any:
    """A document as its JSON reads back: tuples are lists there."""
    return json.loads(canonical_json(document))


def plan_inputs(recipe: Recipe) -> dict[str, Any]:
    """What `Recipe.plan_hash` is over."""
    ids = [cls.id for cls in recipe.classes]
    generator, output = _dumped(recipe.generator), _dumped(recipe.output)
    generator |= {
        name: without_folders(generator[name])
        for name in ("model", "adapter", "dataset", "captioner")
        if generator.get(name)
    }
    if recipe.generator.rows is not None:
        generator["rows"] = sha256_json(recipe.generator.rows)
    if recipe.generator.kind == "retrieve":  # also where it is the screen's: by it the images are chosen
        clip = recipe.ranking_clip
        generator["clip"] = {"model": without_folders(clip.model), "weights": clip.weights}
    output["image"]["quality"] = recipe.output.image.encoding_quality
    return {
        "recipe": recipe.recipe,
        "classes": [{"id": cls.id, "name": cls.name, "label": cls.label} for cls in recipe.classes],
        "tokens": recipe.tokens is not None,
        "prompts": [
            {
                "shift": shift.name,
                "prompt": shift.prompt,
                "group": shift.group,
                "classes": None
                if len(shift.class_labels) == len(ids)
                else [ids[label] for label in shift.class_labels],
            }
            | _about_classes(recipe, shift, shift.prompt)
            | ({} if shift.embedding is None else {"embedding": True})
            | ({} if shift.corruption is None else {"corruption": shift.corruption, "severity": shift.severity})
            | _own_samples(recipe, shift.name)
            for shift in recipe.all_shifts()
        ],
        "samples": _dumped(recipe.samples),
        "generator": generator,
        "output": output,
    }


def screen_inputs(recipe: Recipe) -> dict[str, Any]:
    """What `Recipe.screen_hash` is over."""
    return {
        "model": None if recipe.screen.model is None else without_folders(recipe.screen.model),
        "weights": recipe.screen.weights,
        "keep": _keep(recipe.screen.keep),
        "keep_rejected": recipe.screen.keep_rejected,
        "store_embeddings": recipe.screen.store_embeddings,
        "names": [cls.name for cls in recipe.classes],
        **({} if recipe.screen.judge is None else {"judge": without_folders(recipe.screen.judge)}),
        "shifts": [
            {
                "shift": shift.name,
                "caption": shift.caption,
                "object_caption": shift.object_caption,
                "threshold": shift.threshold.model_dump(exclude_none=True) if shift.threshold else None,
                "object_threshold": shift.object_threshold.model_dump(exclude_none=True),
            }
            | _about_classes(recipe, shift, shift.object_caption)
            | _own_keep(recipe, shift.name)
            | _kin(recipe, shift)
            for shift in recipe.all_shifts()
        ],
    }


def recipe_inputs(recipe: Recipe) -> dict[str, Any]:
    """What `Recipe.recipe_hash` is over: all that decides images and rows, plan, screen, and the names of inputs.

    What a layer records of the recipe that it extends. No directory depends on it. A bundled recipe whose
    description, classifiers to score or place on the Hub change is the same one.
    """
    source = recipe.source.model_dump(mode="json", exclude_defaults=True, exclude={"classes"})
    tokens = None if recipe.tokens is None else recipe.tokens.model_dump(mode="json", exclude_defaults=True)
    for names, key in ((source, "dataset"), (tokens or {}, "path")):
        if key in names:
            names[key] = without_folders(names[key])
    labels = {cls.id: [cls.source_label, list(cls.imagenet)] for cls in recipe.classes}
    inputs = {"source": source, "labels": labels, "tokens": tokens}
    embeddings = {
        shift.name: [Path(shift.embedding.file).name, shift.embedding.key]
        for shift in recipe.all_shifts()
        if shift.embedding is not None
    }
    inputs |= {"embeddings": embeddings} if embeddings else {}
    return {"plan": plan_inputs(recipe), "screen": screen_inputs(recipe), "inputs": inputs}


def _dumped(section: Section) -> dict[str, Any]:
    """A section's values; of keys that came later only those that are not at their default."""
    kind, fields = type(section).__name__, type(section).model_fields
    first, never = _FIRST_KEYS[kind], _NOT_HASHED.get(kind, ())
    return {
        name: value
        for name, value in section.model_dump(mode="json").items()
        if name in first
        or (name not in never and getattr(section, name) != fields[name].get_default(call_default_factory=True))
    }


def _about_classes(recipe: Recipe, shift: Shift, template: str | None) -> dict[str, Any]:
    """The parents and categories that a template of a shift uses, by class."""
    classes = [recipe.classes[label] for label in shift.class_labels]
    return {word: {cls.id: getattr(cls, word) for cls in classes} for word in uses(template)}


def _kin(recipe: Recipe, shift: Shift) -> dict[str, Any]:
    """The parents of all classes, where a keep rule of a shift asks whether an answer shares the label's."""
    asked = any(isinstance(rule, MisclassifiedRule) and rule.failure == PARENT for rule in shift.keep)
    return {"parents": {cls.id: cls.parent for cls in recipe.classes}} if asked else {}


def _keep(steps: Sequence[Any]) -> Any:
    """The list of keep rules; the default one by its bare name, as it was before there were lists."""
    rules = [step.model_dump(mode="json") for step in steps]
    for models in model_lists({"screen": {"keep": rules}}):
        models[:] = [without_folders(name) for name in models]
    return "thresholds" if rules == ["thresholds"] else rules


def _own_keep(recipe: Recipe, shift: str) -> dict[str, Any]:
    spec = recipe.prompts.shifts.get(shift)
    return {} if spec is None or spec.keep is None else {"keep": _keep(spec.keep)}


def _own_samples(recipe: Recipe, shift: str) -> dict[str, Any]:
    spec = recipe.prompts.shifts.get(shift)
    own = None if spec is None else spec.samples
    return {} if own is None else {"samples": own.model_dump(mode="json", exclude_none=True)}
