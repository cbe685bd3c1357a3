"""What a recipe may say, as one frozen pydantic model, its portable form, and the hashes that a recipe alone decides.

The descriptions go into the JSON Schema. Checks of one key or one section live in the `schema_*` files;
checks across sections are in `checks.py`, and `loader.py` reports all of them together.

Two hashes, plan and screen, are over canonical JSON. The third, inputs, is over what the names in a recipe stand for
(commits, weights, vectors) and belongs to the lock. Layers know what they extend by a hash of their own, over plan,
screen and those names. Decisions on what enters where:

- `name`, `license`, `description`, `kind`, `evaluate` and `publish` change no image and no row: none.
- `keep_rejected`, `store_embeddings` and a second `judge` change which files and columns a screen writes: screen.
- `source`, `revision`s, token vectors and embeddings are inputs. That tokens are used at all changes prompts, and that
  a shift is drawn from embeddings is a way of drawing: plan.
- A class's parent and category enter only where a prompt (plan) or an object caption (screen) uses them, or a keep rule
  whose failures are decided by parents (screen).
- A key that was added later enters only where it is not at its default: older directories keep their hashes.
- Where a generator's weights wait changes no image, and compiled blocks are of the stack: none.
- A folder of this machine enters by its last part only; its content is pinned by the inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from counterfoil.errors import UserError
from counterfoil.recipe.checks import cross_section_problems
from counterfoil.recipe.keep import Column, MisclassifiedRule
from counterfoil.recipe.keep.misclassified import PARENT, TOP1, failure_of, judge_columns
from counterfoil.recipe.kinds import RETRIEVAL, GeneratorKind, kind_of
from counterfoil.recipe.layering import (
    KEEP_JUDGES,
    OWN_EMBEDDINGS,
    OWN_ROWS,
    OWN_TOKENS,
    embedding_specs,
    names_every_label,
    replace_names,
    texts_at,
)
from counterfoil.recipe.multilabel import condition_columns
from counterfoil.recipe.names import REPOSITORY, dataset_name_problem, without_folders
from counterfoil.recipe.objects import object_columns
from counterfoil.recipe.prompts import (
    BASE,
    RecipeClass,
    Shift,
    limit_shifts,
    own_key,
    resolve_shifts,
    severity_columns,
    severity_of,
    uses,
)
from counterfoil.recipe.schema_inputs import ClassEntry, Generator, RetrievalClip, Source, Tokens
from counterfoil.recipe.schema_mine import Mine
from counterfoil.recipe.schema_output import PAIRED_BY, Evaluate, Output, Publish, Samples, pair_columns
from counterfoil.recipe.schema_prompts import Prompts, Screen
from counterfoil.recipe.section import Section, refuse
from counterfoil.recipe.strict_yaml import dump_yaml


class Recipe(Section):
    """A recipe: everything that a dataset is made from."""

    recipe: Literal[1] = Field(description="Version of this schema.")
    name: str = Field(
        description="Name of the dataset, as the Hub takes it: at most 96 letters, digits, '.', '_' and '-'."
    )
    license: str = Field(default="other", description="Licence of the dataset, as the Hub spells it.")
    description: str = Field(default="", description="What the dataset is, in a sentence or two.")
    source: Source = Field(description="The input dataset and its classes.")
    generator: Generator = Field(description="What renders the samples.")
    tokens: Tokens | None = Field(default=None, description="Class tokens; null: prompts use the class names.")
    prompts: Prompts = Field(description="The base and the shifts.")
    screen: Screen = Field(default=Screen(), description="How candidates are screened. kind corrupt does not need it.")
    samples: Samples = Field(description="Samples per cell.")
    output: Output = Field(default=Output(), description="How the dataset is stored.")
    evaluate: Evaluate = Field(default=Evaluate(), description="How models are scored.")
    publish: Publish = Field(default=Publish(), description="Where the dataset is published.")
    mine: Mine | None = Field(default=None, description="How to search for failures of a classifier.")

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        refuse(dataset_name_problem(value))
        return value

    @model_validator(mode="after")
    def _sections_agree(self) -> Recipe:
        problems = cross_section_problems(self.model_dump())
        if problems:
            raise ValueError("; ".join(f"{'.'.join(map(str, path))}: {text}" for path, text in problems))
        return self

    @cached_property
    def classes(self) -> tuple[RecipeClass, ...]:
        """Return the classes in label order. UserError if the input dataset has yet to name them."""
        return tuple(
            RecipeClass(entry.id, entry.name, label, source_label, entry.imagenet, entry.parent, entry.category)
            for label, (entry, source_label) in enumerate(self._labelled_entries)
        )

    @cached_property
    def kind(self) -> GeneratorKind:
        """Return the kind of the generator: what to ask about where images come from."""
        return kind_of(self.generator)

    @property
    def ranking_clip(self) -> RetrievalClip:
        """Return the CLIP that ranks a pool: the one that `generator.clip` names, or else the screen's."""
        clip = self.generator.clip
        return RetrievalClip(model=self.screen.clip, weights=self.screen.weights) if clip is None else clip

    @property
    def scales(self) -> dict[str, list[float]]:
        """Return shift → the share of the way of each realised level; an empty list if not measured yet."""
        found: dict[str, list[float]] = {}
        for shift in self.all_shifts():
            if shift.realised:
                found.setdefault(shift.of, []).extend([] if shift.scale is None else [shift.scale])
        return found

    @property
    def levels_away_from_base(self) -> list[str]:
        """Return shifts with levels between two prompts, where the shift's does not begin with the base's."""
        base = self.prompts.base.prompt or ""
        levelled = {shift.of: shift for shift in self.all_shifts() if shift.by in ("prompt", "mix")}
        return [name for name, shift in levelled.items() if not (shift.prompt or "").startswith(base)]

    @property
    def names_every_label(self) -> bool:
        """Return whether the source label of every class is given; if not, `resolve_classes` asks the input dataset."""
        return names_every_label(None if self.source.classes is None else [dict(cls) for cls in self.source.classes])

    @property
    def _labelled_entries(self) -> Iterator[tuple[ClassEntry, int]]:
        entries = self.source.classes or ()
        labelled = [(entry, entry.source_label) for entry in entries if entry.source_label is not None]
        if not entries or len(labelled) < len(entries):
            raise UserError(
                f"recipe {self.name}: its classes have no source labels yet; they must be read from"
                f" {self.source.dataset}",
                "In Python: recipe = counterfoil.resolve_classes(recipe)",
            )
        yield from labelled

    @cached_property
    def _shifts(self) -> tuple[Shift, ...]:
        ids = [entry.id for entry, _ in self._labelled_entries]
        shifts = resolve_shifts(ids, self.prompts, self.screen, self.samples, (*self.kind.levels, "prompt")[0])
        return shifts if self.samples.limit is None else limit_shifts(shifts, self.samples.limit, len(ids))

    @cached_property
    def judges(self) -> tuple[str, ...]:
        """Return the classifiers of keep rules and of the screen, each once, in order."""
        rules = [rule for shift in self.all_shifts() for rule in shift.keep]
        second = () if self.screen.judge is None else (self.screen.judge,)
        return tuple(dict.fromkeys((*(name for rule in rules for name in rule.judges()), *second)))

    def failure_asked(self, shift: Shift, judge: str) -> str | None:
        """Return the failure rule by which a judge is asked about the images of a shift; None where it is not asked.

        The screen's own judge is asked about every image, the base's too, whatever else a keep rule asks it.
        """
        return failure_of(shift.keep, judge) or (TOP1 if judge == self.screen.judge else None)

    @cached_property
    def added_columns(self) -> dict[str, Column]:
        """Return the columns that the generator, keep rules and the screen add to every table, in order."""
        rules = [rule for shift in self.all_shifts() for rule in shift.keep]
        asked = {name: column for rule in rules for name, column in rule.columns().items()}
        given = pair_columns(self.samples.pairs) | self._severity_columns | object_columns(self.source.objects)
        given |= condition_columns(self.source.multilabel)
        return self.kind.columns(self.generator) | given | asked | self._judge_columns

    @cached_property
    def _severity_columns(self) -> dict[str, Column]:
        return severity_columns(self.all_shifts())

    def beside_base(self, shift: Shift) -> bool:
        """Return whether a shift's samples attend to their base sample."""
        return self.samples.pairs == "attention" and shift.name != BASE

    def given(self, shift: Shift) -> dict[str, str | float | None]:
        """Return the values of the columns of pairs and levels, which all samples of a shift share."""
        paired = {} if self.samples.pairs == "noise" else {PAIRED_BY: "attention" if self.beside_base(shift) else None}
        return paired | {name: severity_of(shift, name) for name in self._severity_columns}

    def columns_of(self, shift: Shift) -> tuple[str, ...]:
        """Return the names of columns that a shift's keep rules and the screen add."""
        return (*(name for rule in shift.keep for name in rule.columns()), *self._judge_columns)

    @property
    def _judge_columns(self) -> dict[str, Column]:
        return {} if self.screen.judge is None else judge_columns(self.screen.judge)

    @cached_property
    def plan_document(self) -> dict[str, Any]:
        """Return the document behind the plan hash, as JSON reads it back."""
        return as_read_back(plan_inputs(self))

    @cached_property
    def screen_document(self) -> dict[str, Any]:
        """Return the document behind the screen hash, as JSON reads it back."""
        return as_read_back(screen_inputs(self))

    @cached_property
    def plan_hash(self) -> str:
        """Return the SHA-256 over all that decides which samples exist, how they are rendered and laid out."""
        return sha256_json(self.plan_document)

    @cached_property
    def screen_hash(self) -> str:
        """Return the SHA-256 over all that decides which candidates are accepted and what is stored of them."""
        return sha256_json(self.screen_document)

    @cached_property
    def recipe_hash(self) -> str:
        """Return the SHA-256 over plan, screen and names of inputs: the recipe that a layer was written for."""
        return sha256_json(recipe_inputs(self))

    @cached_property
    def portable_yaml(self) -> str:
        """Return the recipe as a dataset directory holds it, with no path of this machine; of the same hashes.

        A folder becomes `./` and its last part; tokens, unless they are of the Hub, `./tokens`, rows `./rows.csv`, and
        embeddings `./embeddings.safetensors`, under keys by shift: the directory keeps copies of them.
        """
        values = _portable_values(self)
        if "rows" in values["generator"]:
            values["generator"]["rows"] = OWN_ROWS
        return dump_yaml(values)

    @cached_property
    def portable(self) -> Recipe:
        """Return the recipe that `portable_yaml` loads to."""
        return Recipe.model_validate(with_tuples(_portable_values(self)), strict=True)

    def __copy__(self) -> Recipe:
        # A changed copy (`model_copy(update=…)`) must not bring what was worked out of the old values.
        copied = super().__copy__()
        values: dict[str, Any] = vars(copied)
        for name in set(values) - set(type(self).model_fields):
            values.pop(name)
        return copied

    def all_shifts(self) -> tuple[Shift, ...]:
        """Return the base first, then every shift in order, with defaults, group and labels filled in."""
        return self._shifts


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
    """Write JSON with sorted keys and no spaces: equal values give equal text. NaN and infinity are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_json(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def as_read_back(document: Any) -> Any:
    return json.loads(canonical_json(document))


def plan_inputs(recipe: Recipe) -> dict[str, Any]:
    """Return what `Recipe.plan_hash` is over."""
    ids = [cls.id for cls in recipe.classes]
    generator, output = _dumped(recipe.generator), _dumped(recipe.output)
    generator |= {
        name: without_folders(generator[name])
        for name in ("model", "adapter", "dataset", "captioner")
        if generator.get(name)
    }
    if recipe.generator.lora:
        generator["lora"] = {
            name: lora.model_dump(mode="json", exclude_none=True) | {"path": without_folders(lora.path)}
            for name, lora in recipe.generator.lora.items()
        }
    if recipe.generator.rows is not None:
        generator["rows"] = sha256_json(recipe.generator.rows)
    if RETRIEVAL in recipe.kind.models:  # also where it is the screen's: by it the images are chosen
        clip = recipe.ranking_clip
        generator["clip"] = {"model": without_folders(clip.model), "weights": clip.weights}
    output["image"]["quality"] = recipe.output.image.encoding_quality
    prompts = []
    for shift in recipe.all_shifts():
        every = len(shift.class_labels) == len(ids)
        prompt: dict[str, Any] = {
            "shift": shift.name,
            "prompt": shift.prompt,
            "group": shift.group,
            "classes": None if every else [ids[label] for label in shift.class_labels],
        } | _about_classes(recipe, shift, shift.prompt)
        if shift.embedding is not None:
            prompt["embedding"] = True
        if shift.corruption is not None:
            prompt |= {"corruption": shift.corruption, "severity": shift.severity}
        if shift.level is not None:
            # The share of the way that reaches a share of CLIP's gain is an input.
            level = {"of": shift.of, "by": shift.by, "at": shift.level, "realised": shift.realised}
            prompt["level"] = level if shift.lora is None else level | {"lora": shift.lora}
        spec = recipe.prompts.shifts.get(shift.of)
        if spec is not None and spec.samples is not None:
            prompt["samples"] = spec.samples.model_dump(mode="json", exclude_none=True)
        prompts.append(prompt)
    return {
        "recipe": recipe.recipe,
        "classes": [{"id": cls.id, "name": cls.name, "label": cls.label} for cls in recipe.classes],
        "tokens": recipe.tokens is not None,
        "prompts": prompts,
        "samples": _dumped(recipe.samples),
        "generator": generator,
        "output": output,
        **({} if recipe.source.exif == "ignore" else {"exif": recipe.source.exif}),
        **({} if recipe.source.objects is None else {"objects": _objects(recipe.source)}),
        **({"conditions": _conditions(recipe.source)} if recipe.source.multilabel else {}),
    }


def _conditions(source: Source) -> dict[str, Any]:
    """Return what decides the conditions of rows."""
    written = {} if source.conditions is None else source.conditions.model_dump(mode="json")
    return written if written["columns"] else {**written, "column": source.label_column}


def _objects(source: Source) -> dict[str, Any]:
    """Return what decides the objects of rows."""
    return {"column": source.objects, "categories": list(source.categories), "boxes": source.boxes}


def screen_inputs(recipe: Recipe) -> dict[str, Any]:
    """Return what `Recipe.screen_hash` is over."""
    shifts = []
    for shift in recipe.all_shifts():
        asked: dict[str, Any] = {
            "shift": shift.name,
            "caption": shift.caption,
            "object_caption": shift.object_caption,
            "threshold": shift.threshold.model_dump(exclude_none=True) if shift.threshold else None,
            "object_threshold": shift.object_threshold.model_dump(exclude_none=True),
        } | _about_classes(recipe, shift, shift.object_caption)
        spec = recipe.prompts.shifts.get(shift.of)
        if spec is not None and spec.keep is not None:
            asked["keep"] = _keep(spec.keep)
        if any(isinstance(rule, MisclassifiedRule) and rule.failure == PARENT for rule in shift.keep):
            # A keep rule asks whether an answer shares the label's parent.
            asked["parents"] = {cls.id: cls.parent for cls in recipe.classes}
        shifts.append(asked)
    return {
        "model": None if recipe.screen.model is None else without_folders(recipe.screen.model),
        "weights": recipe.screen.weights,
        "keep": _keep(recipe.screen.keep),
        "keep_rejected": recipe.screen.keep_rejected,
        "store_embeddings": recipe.screen.store_embeddings,
        "names": [cls.name for cls in recipe.classes],
        **({} if recipe.screen.judge is None else {"judge": without_folders(recipe.screen.judge)}),
        "shifts": shifts,
    }


def recipe_inputs(recipe: Recipe) -> dict[str, Any]:
    """Return what `Recipe.recipe_hash` is over: all that decides images and rows, plan, screen, and the names of
    inputs.

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
    """Return a section's values, without newer keys at their default."""
    kind, fields = type(section).__name__, type(section).model_fields
    first, never = _FIRST_KEYS[kind], _NOT_HASHED.get(kind, ())
    return {
        name: value
        for name, value in section.model_dump(mode="json").items()
        if name in first
        or (name not in never and getattr(section, name) != fields[name].get_default(call_default_factory=True))
    }


def _about_classes(recipe: Recipe, shift: Shift, template: str | None) -> dict[str, Any]:
    """Return the parents and categories that a template of a shift uses, by class."""
    classes = [recipe.classes[label] for label in shift.class_labels]
    return {word: {cls.id: getattr(cls, word) for cls in classes} for word in uses(template)}


def _keep(steps: Sequence[Any]) -> Any:
    """Return the keep rules; the default one by its bare name, as before there were lists."""
    rules = [step.model_dump(mode="json") for step in steps]
    for models, place in texts_at({"keep": rules}, *KEEP_JUDGES):
        models[place] = without_folders(models[place])
    return "thresholds" if rules == ["thresholds"] else rules


# Keys that came later, and whose default is a value: a dataset's recipe without them keeps its bytes.
_UNSAID = {
    "generator": ("lora", "options", "offload", "compile", "shift_column", "prompt_column", "seed_column"),
    "samples": ("pairs", "held"),
}


def _portable_values(recipe: Recipe) -> dict[str, Any]:
    values = recipe.model_dump(mode="json", exclude_none=True)
    for key, names in _UNSAID.items():
        section = getattr(recipe, key)
        for name in names:
            if getattr(section, name) == type(section).model_fields[name].get_default(call_default_factory=True):
                values[key].pop(name, None)  # of other kinds it is not said at all
    tokens = dict(values.get("tokens", {}))
    replace_names(values, without_folders)
    for path, spec in embedding_specs(values):
        spec["file"], spec["key"] = OWN_EMBEDDINGS, own_key(path[-2], spec["key"])
    if tokens and not REPOSITORY.fullmatch(tokens.get("path", "")):
        # How they were learned stands in the tokens' own manifest; the lab may have learned others since.
        values["tokens"] = {"path": OWN_TOKENS}
    return values


def with_tuples(value: Any) -> Any:
    """Return lists as tuples, which strict validation wants."""
    if isinstance(value, Mapping):
        return {key: with_tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(with_tuples(item) for item in value)
    return value
