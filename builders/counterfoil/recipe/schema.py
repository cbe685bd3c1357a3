"""A recipe as one frozen pydantic model, its portable form, and the hashes that it alone decides.

The plan hash covers all that decides which samples exist and how they are rendered and laid out.
The screen hash covers what decides which are accepted and what is stored of them. The inputs hash,
over commits, weights and vectors, belongs to the lock.

- `name`, `license`, `description`, `kind`, `evaluate` and `publish` change no image and no row, so
  they enter no hash.
- `keep_rejected`, `store_embeddings` and a second `judge` change the files and columns of a screen:
  screen.
- `source`, `revision`s, token vectors and embeddings are inputs. Their use changes prompts and
  drawing: plan.
- A class's parent and category enter if a prompt (plan), an object caption or a keep rule (screen)
  uses them.
- A key that was added later enters only if it is not at its default: older directories keep their
  hashes.
- `offload` changes no image and compiled blocks belong to the stack, so they enter no hash.
- A folder of this machine enters by its last part; its content is an input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import SerializeAsAny, field_validator

from counterfoil.documents import canonical_json, sha256_json
from counterfoil.errors import UserError
from counterfoil.recipe.checks import cross_section_problems
from counterfoil.recipe.keep import KEEP_RULES
from counterfoil.recipe.keep.misclassified import (
    PARENTS,
    TOP1,
    MisclassifiedRule,
    failure_of,
    judge_columns,
)
from counterfoil.recipe.keep.rule import (
    EVERY_ROWS,
    FIRST_ROWS,
    NEWEST_ROWS,
    AskingRule,
    Column,
    KeepRule,
)
from counterfoil.recipe.kinds import RETRIEVAL, DrawingKind, GeneratorKind, read_generator
from counterfoil.recipe.kinds.retrieve import RetrievalClip
from counterfoil.recipe.layering import (
    KEEP_ASKED,
    KEEP_JUDGES,
    OWN_EMBEDDINGS,
    OWN_ROWS,
    OWN_TOKENS,
    replace_names,
    texts_at,
)
from counterfoil.recipe.names import (
    REPOSITORY,
    dataset_name_problem,
    without_folders,
)
from counterfoil.recipe.parts import embedding_specs
from counterfoil.recipe.prompts import (
    BASE,
    RecipeClass,
    Shift,
    limit_shifts,
    own_key,
    resolve_shifts,
    severity_columns,
    severity_of,
    words_in_template,
)
from counterfoil.recipe.schema_inputs import Source, Tokens
from counterfoil.recipe.schema_mine import Mine
from counterfoil.recipe.schema_output import (
    PAIRED_BY,
    Evaluate,
    Output,
    Publish,
    Samples,
    pair_columns,
)
from counterfoil.recipe.schema_prompts import Prompts, Screen
from counterfoil.recipe.section import Section, field_check, written_keys
from counterfoil.recipe.strict_yaml import dump_yaml
from counterfoil.recipe.tasks import TASKS
from counterfoil.recipe.tasks.task import UNIT, SourceTask
from counterfoil.registry import GROUPS, Plugin, plugin_of


class Recipe(Section):
    """A recipe: everything that a dataset is made from."""

    recipe: Literal[1]
    """Version of this schema."""
    name: str
    """Name of the dataset, as the Hub takes it: at most 96 letters, digits, '.', '_' and '-'."""
    license: str = "other"
    """Licence of the dataset, as the Hub spells it."""
    description: str = ""
    """What the dataset is, in a sentence or two."""
    source: Source
    """The input dataset and its classes."""
    generator: SerializeAsAny[GeneratorKind]
    """What renders the samples."""
    tokens: Tokens | None = None
    """Class tokens; null: prompts use the class names."""
    prompts: Prompts
    """The base and the shifts."""
    screen: Screen = Screen()
    """How candidates are screened. kind corrupt does not need it."""
    samples: Samples
    """Samples per cell."""
    output: Output = Output()
    """How the dataset is stored."""
    evaluate: Evaluate = Evaluate()
    """How models are scored."""
    publish: Publish = Publish()
    """Where the dataset is published."""
    mine: Mine | None = None
    """How to search for failures of a classifier."""

    _name = field_check("name", by=dataset_name_problem)

    @field_validator("generator", mode="before")
    @classmethod
    def _of_its_kind(cls, values: Any) -> Any:
        return read_generator(with_tuples(values)) if isinstance(values, Mapping) else values

    def problem(self) -> str | None:
        lines: list[str] = []
        for path, problem in cross_section_problems(self.model_dump()):
            key = ".".join(map(str, path))
            lines.append(f"{key}: {problem}")
        return "; ".join(lines) or None

    @cached_property
    def classes(self) -> tuple[RecipeClass, ...]:
        """Return the classes in label order. UserError if their source labels must be read from the
        input dataset."""
        if not self.names_every_label:
            raise UserError(
                f"recipe {self.name}: its classes have no source labels yet; they must be read from"
                f" {self.source.dataset}",
                "In Python: recipe = counterfoil.resolve_classes(recipe)",
            )
        classes = []
        for label, entry in enumerate(self.source.classes or ()):
            # An entry has all other fields of a class, by the same names.
            classes.append(RecipeClass(label=label, **dict(entry)))
        return tuple(classes)

    @property
    def kind(self) -> type[GeneratorKind]:
        return type(self.generator)

    @property
    def drawing(self) -> DrawingKind:
        """Return the generator of a recipe whose images a model draws."""
        assert isinstance(self.generator, DrawingKind)
        return self.generator

    @property
    def task(self) -> SourceTask:
        return TASKS[self.source.task or "classes"]

    @property
    def stored_units(self) -> str | None:
        """Return the column of the units that rows store; None if images are not made from the rows
        that name them."""
        stores_units = self.kind.alters_rows and self.row_version >= self.task.unit_column.since
        return self.source.unit_column if stores_units else None

    @property
    def row_version(self) -> int:
        """Return the version of the rows' columns."""
        return self.output.row_version or NEWEST_ROWS

    def with_rows(self, version: Any) -> Recipe:
        """Return the recipe for rows of this version, which a dataset's lock says, unless the
        recipe says a version."""
        if self.output.row_version is not None or version not in range(FIRST_ROWS, NEWEST_ROWS):
            return self
        output = self.output.model_copy(update={"row_version": version})
        return self.model_copy(update={"output": output})

    @property
    def ranking_clip(self) -> RetrievalClip:
        """Return the CLIP that ranks a pool: `generator.clip`, or else the screen's."""
        clip = self.generator.get("clip")
        if clip is None:
            return RetrievalClip(model=self.screen.clip, weights=self.screen.weights)
        return clip

    @property
    def scales(self) -> dict[str, list[float]]:
        """Return shift → the share of the way of each realised level; an empty list if not measured
        yet."""
        scales: dict[str, list[float]] = {}
        for shift in self.all_shifts():
            if not shift.realised:
                continue
            measured = scales.setdefault(shift.of, [])
            if shift.scale is not None:
                measured.append(shift.scale)
        return scales

    @property
    def levels_away_from_base(self) -> list[str]:
        """Return the shifts with levels between prompts whose prompt does not begin with the
        base's."""
        base = self.prompts.base.prompt or ""
        away: dict[str, None] = {}
        for shift in self.all_shifts():
            prompt = shift.prompt or ""
            if shift.by in ("prompt", "mix") and not prompt.startswith(base):
                away[shift.of] = None
        return list(away)

    @property
    def names_every_label(self) -> bool:
        """Return whether every class has a source label; if not, `resolve_classes` reads them from
        the source."""
        entries = self.source.classes
        return entries is not None and all(entry.source_label is not None for entry in entries)

    @cached_property
    def _shifts(self) -> tuple[Shift, ...]:
        class_ids = [cls.id for cls in self.classes]
        way = (*self.kind.levels, "prompt")[0]
        shifts = resolve_shifts(
            class_ids,
            self.prompts,
            self.screen,
            self.samples,
            way,
        )
        limit = self.samples.limit
        return shifts if limit is None else limit_shifts(shifts, limit, len(class_ids))

    @property
    def _rules(self) -> list[KeepRule]:
        """Return the keep rules of all shifts, again for each shift that has them."""
        return [rule for shift in self.all_shifts() for rule in shift.keep]

    @cached_property
    def judges(self) -> tuple[str, ...]:
        """Return the classifiers of keep rules and of the screen, each once, in order."""
        names = [name for rule in self._rules for name in rule.judges()]
        if self.screen.judge is not None:
            names.append(self.screen.judge)
        return tuple(dict.fromkeys(names))

    @cached_property
    def asking_rules(self) -> tuple[AskingRule, ...]:
        """Return the keep rules that ask a model about images, each once, in order."""
        return tuple(dict.fromkeys(rule for rule in self._rules if isinstance(rule, AskingRule)))

    @property
    def runs_models(self) -> bool:
        """Return whether a model draws, ranks or screens images, so that rows depend on torch."""
        screens = self.screen.model is not None
        others = self.kind.models or self.judges or self.asking_rules
        return self.kind.draws or screens or bool(others)

    @property
    def plugins(self) -> dict[str, Plugin]:
        """Return the installed packages that images and rows depend on, by what each registers:
        `corruption rust`."""
        rules = {type(rule) for rule in self._rules}
        named = {
            "counterfoil.generators": [self.kind.name],
            "counterfoil.tasks": [self.task.name],
            "counterfoil.corruptions": [shift.corruption or "" for shift in self.all_shifts()],
            "counterfoil.keep_rules": [name for name, rule in KEEP_RULES.items() if rule in rules],
            "counterfoil.classifiers": [judge.partition(":")[0] for judge in self.judges],
        }
        plugins: dict[str, Plugin] = {}
        for group, names in named.items():
            for name in names:
                plugin = plugin_of(group, name)
                if plugin is not None:
                    plugins[f"{GROUPS[group]} {name}"] = plugin
        return plugins

    def failure_asked(self, shift: Shift, judge: str) -> str | None:
        """Return the failure rule of a judge for a shift's images, or None; the screen's judge sees
        every image."""
        return failure_of(shift.keep, judge) or (TOP1 if judge == self.screen.judge else None)

    @cached_property
    def added_columns(self) -> dict[str, Column]:
        """Return the columns that the generator, keep rules and the screen add to every table, in
        order."""
        columns = dict(self.generator.columns())
        columns |= pair_columns(self.samples.pairs)
        columns |= self._severity_columns
        columns |= self.task.columns(self.source)
        if self.stored_units is not None:
            columns[UNIT] = self.task.unit_column
        for rule in self._rules:
            columns |= rule.columns()
        return columns | self._judge_columns

    @cached_property
    def _severity_columns(self) -> dict[str, Column]:
        return severity_columns(self.all_shifts())

    def beside_base(self, shift: Shift) -> bool:
        """Return whether a shift's samples attend to their base sample."""
        return self.samples.pairs == "attention" and shift.name != BASE

    def given(self, shift: Shift) -> dict[str, str | float | None]:
        """Return the columns of pairs and levels with their values for all samples of a shift."""
        given: dict[str, str | float | None] = {}
        if self.samples.pairs != "noise":
            given[PAIRED_BY] = "attention" if self.beside_base(shift) else None
        for name in self._severity_columns:
            given[name] = severity_of(shift, name)
        return given

    def columns_of(self, shift: Shift) -> tuple[str, ...]:
        """Return the names of columns that a shift's keep rules and the screen add."""
        of_rules = [name for rule in shift.keep for name in rule.columns()]
        return (*of_rules, *self._judge_columns)

    @property
    def _judge_columns(self) -> dict[str, Column]:
        return {} if self.screen.judge is None else judge_columns(self.screen.judge)

    @cached_property
    def plan_document(self) -> dict[str, Any]:
        """Return the document of the plan hash, as JSON reads it back."""
        return as_read_back(plan_inputs(self))

    @cached_property
    def screen_document(self) -> dict[str, Any]:
        """Return the document of the screen hash, as JSON reads it back."""
        return as_read_back(screen_inputs(self))

    @cached_property
    def plan_hash(self) -> str:
        return sha256_json(self.plan_document)

    @cached_property
    def screen_hash(self) -> str:
        return sha256_json(self.screen_document)

    @cached_property
    def recipe_hash(self) -> str:
        """Return the SHA-256 over plan, screen and names of inputs, by which a layer knows the
        recipe that it extends.

        No directory depends on it. A recipe whose description, models to score or place on the Hub
        change is the same.
        """
        source = self.source.model_dump(mode="json", exclude_defaults=True, exclude={"classes"})
        source["dataset"] = without_folders(source["dataset"])
        tokens = None
        if self.tokens is not None:
            tokens = self.tokens.model_dump(mode="json", exclude_defaults=True)
            if "path" in tokens:
                tokens["path"] = without_folders(tokens["path"])
        inputs: dict[str, Any] = {
            "source": source,
            "labels": {cls.id: [cls.source_label, list(cls.imagenet)] for cls in self.classes},
            "tokens": tokens,
        }
        embeddings: dict[str, list[str]] = {}
        for shift in self.all_shifts():
            spec = shift.embedding
            if spec is not None:
                embeddings[shift.name] = [Path(spec.file).name, spec.key]
        if embeddings:
            inputs["embeddings"] = embeddings
        document = {"plan": self.plan_document, "screen": self.screen_document, "inputs": inputs}
        return sha256_json(document)

    @cached_property
    def portable_yaml(self) -> str:
        """Return the recipe as a dataset directory holds it: without a path of this machine, with
        the same hashes.

        A folder becomes `./` and its last part. Tokens that are not from the Hub, rows and
        embeddings become the copies in the directory.
        """
        values = _portable_values(self)
        if "rows" in values["generator"]:
            values["generator"]["rows"] = OWN_ROWS
        return dump_yaml(values)

    @cached_property
    def portable(self) -> Recipe:
        """Return the recipe that `portable_yaml` loads to."""
        values = _portable_values(self)
        values["output"].setdefault("row_version", FIRST_ROWS)
        return Recipe.model_validate(with_tuples(values), strict=True)

    def __copy__(self) -> Recipe:
        # A changed copy (`model_copy(update=…)`) must not keep what was computed from the old
        # values.
        copied = super().__copy__()
        values: dict[str, Any] = vars(copied)
        for name in set(values) - set(type(self).model_fields):
            values.pop(name)
        return copied

    def all_shifts(self) -> tuple[Shift, ...]:
        """Return the base first, then every shift in order, with defaults, group and labels filled
        in."""
        return self._shifts


# The keys of hashed sections when the first datasets were built.
_FIRST_KEYS = {
    "generator": (
        "kind", "model", "revision", "scheduler", "steps", "guidance", "size", "saved_size", "dtype", "batch_size",
        "negative_prompt",
    ),
    "output": ("format", "image", "rows_per_shard", "split"),
    "samples": ("candidates", "accepted", "at_most", "seed", "noise"),
}  # fmt: skip

_NOT_HASHED = {"generator": ("offload", "compile"), "output": ("row_version",)}


def as_read_back(document: Any) -> Any:
    return json.loads(canonical_json(document))


def plan_inputs(recipe: Recipe) -> dict[str, Any]:
    """Return the values that `Recipe.plan_hash` covers."""
    ids = [cls.id for cls in recipe.classes]
    generator = _dumped("generator", recipe.generator)
    output = _dumped("output", recipe.output)
    for name in ("model", "adapter", "dataset", "captioner"):
        if generator.get(name):
            generator[name] = without_folders(generator[name])
    for lora in generator.get("lora", {}).values():
        lora["path"] = without_folders(lora["path"])
        if lora["revision"] is None:
            del lora["revision"]
    rows = recipe.generator.get("rows")
    if rows is not None:
        generator["rows"] = sha256_json(rows)
    if RETRIEVAL in recipe.kind.models:  # even if it is the screen's, because it chooses the images
        clip = recipe.ranking_clip
        generator["clip"] = {"model": without_folders(clip.model), "weights": clip.weights}
    output["image"]["quality"] = recipe.output.image.encoding_quality
    prompts = []
    for shift in recipe.all_shifts():
        prompt: dict[str, Any] = {
            "shift": shift.name,
            "prompt": shift.prompt,
            "group": shift.group,
            "classes": None,
        }
        if len(shift.class_labels) < len(ids):
            prompt["classes"] = [ids[label] for label in shift.class_labels]
        prompt |= _about_classes(recipe, shift, shift.prompt)
        if shift.embedding is not None:
            prompt["embedding"] = True
        if shift.corruption is not None:
            prompt["corruption"] = shift.corruption
            prompt["severity"] = shift.severity
        if shift.level is not None:
            # The share of the way at a realised level is an input.
            level = {
                "of": shift.of,
                "by": shift.by,
                "at": shift.level,
                "realised": shift.realised,
            }
            if shift.lora is not None:
                level["lora"] = shift.lora
            prompt["level"] = level
        spec = recipe.prompts.shifts.get(shift.of)
        if spec is not None and spec.samples is not None:
            prompt["samples"] = spec.samples.model_dump(mode="json", exclude_none=True)
        prompts.append(prompt)
    document: dict[str, Any] = {
        "recipe": recipe.recipe,
        "classes": [{"id": cls.id, "name": cls.name, "label": cls.label} for cls in recipe.classes],
        "tokens": recipe.tokens is not None,
        "prompts": prompts,
        "samples": _dumped("samples", recipe.samples),
        "generator": generator,
        "output": output,
    }
    source = recipe.source
    if source.exif != "ignore":
        document["exif"] = source.exif
    if recipe.stored_units is not None:
        document["units"] = recipe.stored_units
    version = _version_needed(recipe)
    if version > FIRST_ROWS:
        document["row_version"] = version
    return document | recipe.task.planned(source)


def _version_needed(recipe: Recipe) -> int:
    """Return the version of rows that first had all columns of a recipe's rows."""
    added = [column.since for column in recipe.added_columns.values()]
    return max(min(EVERY_ROWS, recipe.row_version), *added, FIRST_ROWS)


def screen_inputs(recipe: Recipe) -> dict[str, Any]:
    """Return the values that `Recipe.screen_hash` covers."""
    shifts = []
    for shift in recipe.all_shifts():
        values: dict[str, Any] = {
            "shift": shift.name,
            "caption": shift.caption,
            "object_caption": shift.object_caption,
            "threshold": None,
            "object_threshold": shift.object_threshold.model_dump(exclude_none=True),
        }
        if shift.threshold:
            values["threshold"] = shift.threshold.model_dump(exclude_none=True)
        values |= _about_classes(recipe, shift, shift.object_caption)
        spec = recipe.prompts.shifts.get(shift.of)
        if spec is not None and spec.keep is not None:
            values["keep"] = _keep(spec.keep)
        for rule in shift.keep:
            if isinstance(rule, MisclassifiedRule) and rule.failure in PARENTS:
                values["parents"] = {
                    cls.id: list(cls.kinds) or cls.parent for cls in recipe.classes
                }
        shifts.append(values)
    screen = recipe.screen
    document: dict[str, Any] = {
        "model": None if screen.model is None else without_folders(screen.model),
        "weights": screen.weights,
        "keep": _keep(screen.keep),
        "keep_rejected": screen.keep_rejected,
        "store_embeddings": screen.store_embeddings,
        "names": [cls.name for cls in recipe.classes],
        "shifts": shifts,
    }
    if screen.judge is not None:
        document["judge"] = without_folders(screen.judge)
    return document


def _dumped(name: str, section: Section) -> dict[str, Any]:
    """Return the values of a section by its name, without later keys at their default."""
    first = _FIRST_KEYS[name]
    never = _NOT_HASHED.get(name, ())
    changed = written_keys(section, type(section).model_fields.keys() - never)
    values = section.model_dump(mode="json")
    return {key: value for key, value in values.items() if key in first or key in changed}


def _about_classes(recipe: Recipe, shift: Shift, template: str | None) -> dict[str, Any]:
    """Return the parents and categories by class id that a template of a shift uses."""
    about: dict[str, Any] = {}
    for word in words_in_template(template):
        classes = [recipe.classes[label] for label in shift.class_labels]
        about[word] = {cls.id: getattr(cls, word) for cls in classes}
    return about


def _keep(steps: Sequence[Any]) -> Any:
    """Return the keep rules; the default one by its bare name, as older directories hash it."""
    rules = [step.model_dump(mode="json") for step in steps]
    for values, key in texts_at({"keep": rules}, *KEEP_JUDGES, *KEEP_ASKED):
        values[key] = without_folders(values[key])
    return "thresholds" if rules == ["thresholds"] else rules


# Later keys whose default is not null: left out at it, they change no bytes of older datasets.
_LATER_KEYS = {
    "generator": (
        "lora",
        "options",
        "offload",
        "compile",
        "shift_column",
        "prompt_column",
        "seed_column",
        "repeats",
    ),
    "samples": ("pairs", "held"),
}


def _portable_values(recipe: Recipe) -> dict[str, Any]:
    values = recipe.model_dump(mode="json", exclude_none=True)
    for section, keys in _LATER_KEYS.items():
        unsaid = set(keys) & values[section].keys()
        changed = written_keys(getattr(recipe, section), unsaid)
        for key in unsaid.difference(changed):
            del values[section][key]
    values["output"].pop("row_version", None)
    version = _version_needed(recipe)
    if version > FIRST_ROWS:
        values["output"]["row_version"] = version
    tokens = values.get("tokens")
    copies_tokens = tokens is not None and not REPOSITORY.fullmatch(tokens.get("path", ""))
    replace_names(values, without_folders)
    for path, spec in embedding_specs(values):
        spec["file"] = OWN_EMBEDDINGS
        spec["key"] = own_key(path[-2], spec["key"])
    if copies_tokens:
        # The tokens' own manifest says how they were learned.
        values["tokens"] = {"path": OWN_TOKENS}
    return values


def with_tuples(value: Any) -> Any:
    """Return a value with every list as a tuple, which strict validation expects."""
    if isinstance(value, Mapping):
        return {key: with_tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(with_tuples(item) for item in value)
    return value
