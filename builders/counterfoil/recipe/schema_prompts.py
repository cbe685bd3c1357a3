"""Sections of a recipe: the base, the shifts, and the captions, thresholds and keep rules that
screen them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    create_model,
    field_validator,
    model_serializer,
    model_validator,
)

from counterfoil.corrupting.corruptions import CORRUPTIONS, MATCH
from counterfoil.errors import UserError
from counterfoil.recipe.corrupted import corruption_problem, severities_are_levels
from counterfoil.recipe.keep import KEEP_RULES
from counterfoil.recipe.keep.rule import KeepRule
from counterfoil.recipe.names import (
    group_name_problem,
    judge_problem,
    nameless_problem,
)
from counterfoil.recipe.prompts import CLASS_ID, embedding_key_problem, template_problem
from counterfoil.recipe.schema_output import CellSamples
from counterfoil.recipe.section import NonEmpty, Section, field_check
from counterfoil.recipe.severity import SeveritySpec


class ThresholdSpec(Section):
    """The lowest cosine that passes: a value, or a percentile of scores.

    An object percentile is over the validation images of the class. A shift percentile is over all
    candidates of the shift, so it is known only after they are rendered. Until then the shift has
    no threshold.
    """

    written_as = "a number, or `value:` or `percentile:`"
    short = ("value", (int, float))

    value: float | None = Field(default=None, ge=-1, le=1)
    """Lowest cosine similarity that passes."""
    percentile: float | None = Field(default=None, ge=0, le=100)
    """Percentile of scores. Object: over validation images of the class. Shift: over all candidates
    of the shift; the shift has no threshold until `counterfoil calibrate`."""

    def problem(self) -> str | None:
        if self.value is not None and self.percentile is not None:
            return "found value and percentile, expected one of them (null drops an inherited one)"
        if self._says_nothing():
            return "found neither, expected a number, `value:` or `percentile:`"
        return None

    def _says_nothing(self) -> bool:
        return self.value is None and self.percentile is None


class ObjectThresholdSpec(ThresholdSpec):
    """The lowest object cosine that passes, and values for single classes, which take precedence.

    A base or a shift may name only classes: the others keep the screen's threshold. A layer adds
    classes to those of the recipe that it extends; null removes one.
    """

    classes: dict[str, Annotated[float, Field(ge=-1, le=1)]] | None = None
    """Lowest cosine that passes for single classes, by class id. It takes precedence."""

    @field_validator("classes", mode="before")
    @classmethod
    def _without_those_taken_out(cls, values: Any) -> Any:
        """Drop nulls and sort, because the order must change no bytes."""
        if not isinstance(values, Mapping):
            return values
        kept = {}
        for key in sorted(values, key=str):
            if values[key] is not None:
                kept[key] = values[key]
        return kept or None

    def _says_nothing(self) -> bool:
        return super()._says_nothing() and self.classes is None

    def over(self, default: ObjectThresholdSpec) -> ObjectThresholdSpec:
        """Return this spec of a base or shift, filled from the screen's `default`."""
        if self.value is not None or self.percentile is not None:
            return self
        both = {**(default.classes or {}), **(self.classes or {})}
        classes = dict(sorted(both.items()))
        return default.model_copy(update={"classes": classes})

    def of_class(self, class_id: str) -> float | None:
        """Return the class's own value, or None."""
        return (self.classes or {}).get(class_id)


class _Step(Section):
    """One keep rule: its name, or its name with settings."""

    @model_validator(mode="before")
    @classmethod
    def _name_is_defaults(cls, data: Any) -> Any:
        return {data: {}} if isinstance(data, str) else data

    def problem(self) -> str | None:
        found = [name for name in KEEP_RULES if getattr(self, name) is not None]
        if len(found) == 1:
            return None
        shown = " and ".join(found) or "no rule"
        return f"found {shown}, expected one of: {', '.join(KEEP_RULES)}"

    @model_serializer
    def _as_written(self) -> Any:
        name = self.name
        settings = getattr(self, name).model_dump(mode="json", exclude_none=True)
        return {name: settings} if settings else name

    @property
    def name(self) -> str:
        return next(name for name in KEEP_RULES if getattr(self, name) is not None)

    @property
    def rule(self) -> KeepRule:
        return getattr(self, self.name)


_FIELDS: dict[str, Any] = {}
for _name, _rule in KEEP_RULES.items():
    _about = (_rule.__doc__ or "").partition("\n\n")[0]
    _FIELDS[_name] = (_rule | None, Field(default=None, description=_about))
KeepStep = create_model(
    "KeepStep",
    __base__=_Step,
    __doc__=_Step.__doc__,
    **_FIELDS,
)
DEFAULT_KEEP: tuple[Any, ...] = (KeepStep.model_validate("thresholds"),)


def order_problem(steps: Sequence[Any] | None) -> str | None:
    """Return a problem with the order of steps, or None."""
    names = [step.name for step in steps or ()]
    for index, name in enumerate(names):
        missing = [other for other in KEEP_RULES[name].after if other not in names[:index]]
        if missing:
            return f"found '{name}', expected '{missing[0]}' before it"
    for index, name in enumerate(names):
        if name in names[:index]:
            return f"found '{name}' again, expected each rule once"
    return None


def as_steps(value: Any) -> Any:
    """Return a bare name or a single rule as a list of one."""
    if isinstance(value, list | tuple) and not value:
        raise ValueError(f"found an empty list, expected at least one of: {', '.join(KEEP_RULES)}")
    return (value,) if isinstance(value, str | Mapping) else value


DEEPEST = 8  # levels of mappings and lists, with the outermost
MOST_VALUES = 1000  # keys count too
MOST_CHARACTERS = 100_000  # of all keys and texts together
# Readers of JSON that use floats lose digits above 2^53.
LARGEST = 2**53


def free_form_problem(value: Any) -> str | None:
    """Return a problem with a value that must be plain JSON of bounded size, or None."""
    values = characters = 0
    # Without recursion, which a deep value would exhaust.
    left: list[tuple[Any, int]] = [(value, 1)]
    while left:
        item, depth = left.pop()
        inside: list[Any] = []
        match item:
            case Mapping():
                if not all(isinstance(key, str) for key in item):
                    return "found a key that is not text, expected text"
                inside = [*item.keys(), *item.values()]
            case list() | tuple():
                inside = list(item)
            case str():
                characters += len(item)
            case None | bool():
                pass
            case int():
                if abs(item) > LARGEST:
                    return "found a whole number past 2^53, expected it in quotes"
            case float():
                if not math.isfinite(item):
                    return f"found {item}, expected finite numbers"
            case _:
                return (
                    f"found {type(item).__name__}, expected mappings, lists, text, numbers,"
                    " true, false or null"
                )
        if inside and depth > DEEPEST:
            return f"nested too deeply, expected at most {DEEPEST} levels"
        values += len(inside)
        if values > MOST_VALUES:
            return f"found more than {MOST_VALUES:,} keys and values, expected at most these"
        if characters > MOST_CHARACTERS:
            return f"found more than {MOST_CHARACTERS:,} characters, expected at most these"
        left += [(part, depth + 1) for part in inside]
    return None


# A shift that mining found is `mined`, whatever it changes.
Kind = Literal[
    "background", "weather", "light", "colour", "co-occurrence", "style", "noise", "blur", "digital", "camera", "mined"
]  # fmt: skip


class EmbeddingSpec(Section):
    """CLIP image embeddings to render samples from, with a prompt or without one."""

    file: NonEmpty
    """A safetensors file of vectors by key, from the CLIP that the generator was made for."""
    key: str = f"{{{CLASS_ID}}}"
    """Key of the vector in the file. `{class_id}` stands for the id of each class."""

    _key = field_check("key", by=embedding_key_problem)


class Prompted(Section):
    """Keys that the base and the shifts share: a prompt, an embedding, and how the object is
    screened."""

    written_as = "a prompt, or a mapping of keys"

    prompt: str | None = None
    """Prompt with `{class}`: the token if tokens exist, otherwise the name. It may hold `{parent}`
    and `{category}` if the classes have them, and `{caption}` if rows are edited. null only if
    there is an embedding."""
    embedding: EmbeddingSpec | None = None
    """Image embeddings to render from. The generator, or its adapter, must take embeddings."""
    object_caption: str | None = None
    """Caption of the object, like a prompt, but `{class}` is always the name; null: the caption of
    the screen."""
    style: bool = False
    """Screen the object with the style caption of the screen."""
    object_threshold: ObjectThresholdSpec | None = None
    """Object threshold; null: that of the screen. With only `classes`, it changes these classes and
    the others keep the screen's."""

    _prompt = field_check(
        "prompt",
        by=partial(
            template_problem,
            with_class=None,
            about_class=True,
            captioned=True,
        ),
    )
    _object_caption = field_check(
        "object_caption", by=partial(template_problem, with_class=None, about_class=True)
    )


class BaseSpec(Prompted):
    """The prompt without a shift."""

    classes: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Class ids of the base; null: every class. Shifts can only use these."""


class ShiftSpec(Prompted):
    """A shift: how the prompt changes and how its presence is screened."""

    caption: str | None = None
    """Caption of the shift alone (`a photo in the grass`); null: the shift is not screened."""
    corruption: str | None = Field(
        default=None,
        description="kind corrupt: the corruption of each row, by name: "
        + ", ".join(CORRUPTIONS)
        + "; or match: each row gets the brightness and contrast of its partner in the config with"
        " the shift's name, in"
        " a built dataset whose base is the source.",
        json_schema_extra={"enum": [*CORRUPTIONS, MATCH, None]},
    )
    severity: SeveritySpec | None = None
    """How much of the shift: levels, each a set of images of the same scenes; null: the whole
    shift. kind corrupt: also one severity, from 1 to 5 (null: 3), and severities as levels, as in
    [1, 3, 5]; [1] alone is the whole shift."""
    threshold: ThresholdSpec | None = None
    """Shift threshold; null: that of the screen."""
    classes: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Class ids; null: every class."""
    group: str | None = None
    """Directory, config and split that the shift is stored in; null: its own name."""
    keep: tuple[KeepStep, ...] | None = None
    """Keep rules of this shift; null: the screen's."""
    samples: CellSamples | None = None
    """Samples per cell of this shift; null: as `samples` says."""
    kind: Kind | None = None
    """What changes, or `mined` for a failure that was found. Reports group shifts by it."""
    mined_from: dict[str, Any] | None = None
    """Where a mined shift came from, in any words and numbers. It changes no image."""

    _mined_from = field_check("mined_from", by=free_form_problem)
    _keep = field_validator("keep", mode="before")(as_steps)
    _keep_order = field_check("keep", by=order_problem)
    _caption = field_check("caption", by=partial(template_problem, with_class=False))
    _group = field_check("group", by=partial(group_name_problem, what="group"))

    _severities = field_validator("severity", mode="before")(severities_are_levels)
    _known = field_check("corruption", by=partial(corruption_problem, others=(MATCH,)))


class Prompts(Section):
    """The base and the shifts, in the order of the dataset."""

    base: BaseSpec = BaseSpec()
    """The prompt without a shift. kind corrupt: no prompt; the rows are unchanged."""
    shifts: dict[str, ShiftSpec] = Field(default_factory=dict)
    """Shifts by name (a-z, 0-9, `_`)."""


def _others_problem(threshold: ObjectThresholdSpec) -> str | None:
    if threshold.value is None and threshold.percentile is None:
        return "found classes alone, expected also `value:` or `percentile:` for the others"
    return None


class Screen(Section):
    """How CLIP decides which candidates are accepted."""

    model: NonEmpty | None = None
    """`lab:clip`, an open_clip name, `local-dir:…` or `hf-hub:…`. kind corrupt does not need it:
    without it nothing is screened and every row is kept."""
    weights: str | None = None
    """open_clip's tag of the pretrained weights."""
    object_caption: str = "a photo of a {class}"
    """Caption of the object."""
    style_object_caption: str = "a {class}"
    """Caption of the object for shifts of style."""
    object_threshold: ObjectThresholdSpec = ObjectThresholdSpec(value=-1)
    """Default threshold of the object score."""
    shift_threshold: ThresholdSpec | None = None
    """Default threshold of the shift score."""
    keep: tuple[KeepStep, ...] = DEFAULT_KEEP
    """The keep rules, applied in order. Each rule sees what the rules before it kept."""
    judge: NonEmpty | None = None
    """A second judge: any classifier, named as in `evaluate.models` (`open_clip:…` is a second
    CLIP). It predicts every candidate but rejects none; the dataset reports how often it disagrees
    with the labels."""
    keep_rejected: bool = False
    """Store rejected images too (config `rejected`)."""
    store_embeddings: bool = False
    """Store the CLIP image embeddings."""

    _has_a_name = field_check("model", by=nameless_problem)
    _looks_at_images = field_check("judge", by=judge_problem)
    _keep = field_validator("keep", mode="before")(as_steps)
    _keep_order = field_check("keep", by=order_problem)
    _captions = field_check(
        "object_caption",
        "style_object_caption",
        by=partial(template_problem, with_class=True, about_class=True),
    )

    @property
    def clip(self) -> str:
        """Return the model. Raise UserError if there is none."""
        if self.model is None:
            raise UserError(
                "the recipe names no CLIP (screen.model)",
                "Name one that knows the classes: --set screen.model=ViT-B-32 --set"
                " screen.weights=laion2b_s34b_b79k --set screen.object_threshold=-1",
            )
        return self.model

    def problem(self) -> str | None:
        if self.model is not None and "object_threshold" not in self.model_fields_set:
            return "missing object_threshold, expected a number, or `percentile:`"
        return None

    _of_every_class = field_check("object_threshold", by=_others_problem)
