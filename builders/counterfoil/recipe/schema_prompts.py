"""What a recipe says in words: the base, the shifts, and the captions and thresholds that screen them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from counterfoil.errors import UserError
from counterfoil.recipe.corruptions import KIND_OF, MATCH, MOST_SEVERE
from counterfoil.recipe.free_form import free_form_problem
from counterfoil.recipe.layering import judge_problem, nameless_problem
from counterfoil.recipe.names import did_you_mean, group_name_problem, quoted
from counterfoil.recipe.schema_keep import DEFAULT_KEEP, KeepStep, as_steps, order_problem
from counterfoil.recipe.schema_output import CellSamples
from counterfoil.recipe.templates import CLASS_ID, embedding_key_problem, template_problem
from counterfoil.recipe.threshold_spec import ObjectThresholdSpec, ThresholdSpec
from counterfoil.section import Section, refuse

# A shift that was found by looking for failures is `mined`, whatever it changes.
Kind = Literal[
    "background", "weather", "light", "colour", "co-occurrence", "style", "noise", "blur", "digital", "camera", "mined"
]  # fmt: skip


class EmbeddingSpec(Section):
    """CLIP image embeddings that samples are drawn from, beside a prompt or in place of one."""

    file: str = Field(
        min_length=1, description="A safetensors file of vectors by key, of the CLIP that the generator was made for."
    )
    key: str = Field(
        default=f"{{{CLASS_ID}}}",
        description="The vector's key in the file; `{class_id}` in it is the id of each class.",
    )

    @field_validator("key")
    @classmethod
    def _key(cls, value: str) -> str:
        refuse(embedding_key_problem(value))
        return value


class Prompted(Section):
    """What the base and the shifts share: a prompt, an embedding, and how the object is screened."""

    written_as = "a prompt, or a mapping of keys"

    prompt: str | None = Field(
        default=None,
        description="Prompt with `{class}`: the placeholder where tokens exist, else the name; also with `{parent}` and"
        " `{category}`, where the classes have them, and with `{caption}`, where rows are edited. Null only where there"
        " is an embedding.",
    )
    embedding: EmbeddingSpec | None = Field(
        default=None, description="Image embeddings to draw from; for a generator, or its adapter, that takes them."
    )
    object_caption: str | None = Field(
        default=None,
        description="Caption of the object, as a prompt, but `{class}` is always the name; null: the screen's default.",
    )
    style: bool = Field(default=False, description="Screen the object by the screen's style caption instead.")
    object_threshold: ObjectThresholdSpec | None = Field(
        default=None,
        description="Wins over the screen's default; with `classes` alone, for these, and the others are as there.",
    )

    @field_validator("prompt", "object_caption")
    @classmethod
    def _template(cls, value: str | None, info: ValidationInfo) -> str | None:
        captioned = info.field_name == "prompt"
        if value is not None:
            refuse(template_problem(value, with_class=None, about_class=True, captioned=captioned))
        return value


class BaseSpec(Prompted):
    """The prompt without a shift."""

    classes: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="Class ids that the base has; null: every class. Shifts have no others."
    )


class ShiftSpec(Prompted):
    """A shift: how the prompt changes and how its presence is screened."""

    caption: str | None = Field(
        default=None,
        description="Caption of the shift alone (`a photo in the grass`); null: the shift is not screened.",
    )
    corruption: str | None = Field(
        default=None,
        description="kind corrupt: what is done to each row, by name: "
        + ", ".join(KIND_OF)
        + "; or match: the brightness and contrast of its partner in the config of the shift's name, of a built dataset"
        " whose base is the source.",
        json_schema_extra={"enum": [*KIND_OF, MATCH, None]},
    )
    severity: int | None = Field(
        default=None, ge=1, le=MOST_SEVERE, description="kind corrupt: how much of it, from 1 to 5; null: 3."
    )
    threshold: ThresholdSpec | None = Field(
        default=None, description="Shift threshold; wins over the screen's default."
    )
    classes: tuple[str, ...] | None = Field(default=None, min_length=1, description="Class ids; null: every class.")
    group: str | None = Field(
        default=None,
        description="Directory, config and split that the shift is stored in; null: its own name.",
    )
    keep: tuple[KeepStep, ...] | None = Field(default=None, description="Keep rules of this shift; null: the screen's.")
    samples: CellSamples | None = Field(
        default=None, description="How many samples this shift's cells have; null: as `samples` says."
    )
    kind: Kind | None = Field(
        default=None, description="What changes, or `mined` for a failure that was found; reports are grouped by it."
    )
    mined_from: dict[str, Any] | None = Field(
        default=None, description="What a mined shift came from, in any words and numbers; it changes no image."
    )

    @field_validator("corruption")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value not in (*KIND_OF, MATCH):
            near = did_you_mean(value, [*KIND_OF, MATCH]) or f" ({', '.join(KIND_OF)})"
            refuse(f"found {quoted(value)}, expected the name of a corruption{near}")
        return value

    @field_validator("mined_from")
    @classmethod
    def _mined_from(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        refuse(free_form_problem(value))
        return value

    @field_validator("keep", mode="before")
    @classmethod
    def _keep(cls, value: Any) -> Any:
        return as_steps(value)

    @field_validator("keep")
    @classmethod
    def _keep_order(cls, value: Any) -> Any:
        refuse(order_problem(value))
        return value

    @field_validator("caption")
    @classmethod
    def _caption(cls, value: str | None) -> str | None:
        refuse(template_problem(value, with_class=False) if value is not None else None)
        return value

    @field_validator("group")
    @classmethod
    def _group(cls, value: str | None) -> str | None:
        refuse(group_name_problem(value, "group") if value is not None else None)
        return value


class Prompts(Section):
    """The base and the shifts, in the order of the dataset."""

    base: BaseSpec = Field(
        default=BaseSpec(), description="The prompt without a shift; kind corrupt: nothing, the rows as they are."
    )
    shifts: dict[str, ShiftSpec] = Field(default_factory=dict, description="Shifts by name (a-z, 0-9, `_`).")


class Screen(Section):
    """How CLIP decides which candidates are accepted."""

    model: str | None = Field(
        default=None,
        min_length=1,
        description="`lab:clip`, an open_clip name, `local-dir:…` or `hf-hub:…`. kind corrupt may leave it out: then"
        " nothing is screened, and every row is kept.",
    )
    weights: str | None = Field(default=None, description="open_clip's tag of the pretrained weights.")
    object_caption: str = Field(default="a photo of a {class}", description="Caption of the object.")
    style_object_caption: str = Field(default="a {class}", description="Caption of the object for shifts of style.")
    object_threshold: ObjectThresholdSpec = Field(
        default=ObjectThresholdSpec(value=-1), description="Default threshold of the object score."
    )
    shift_threshold: ThresholdSpec | None = Field(default=None, description="Default threshold of the shift score.")
    keep: tuple[KeepStep, ...] = Field(
        default=DEFAULT_KEEP, description="The keep rules, applied in order to what those before left."
    )
    judge: str | None = Field(
        default=None,
        min_length=1,
        description="A second judge: any classifier, as `evaluate.models` names them (`open_clip:…` is a second CLIP)."
        " It is asked about every candidate's image and decides nothing; how often it disagrees with labels is told.",
    )
    keep_rejected: bool = Field(default=False, description="Store rejected images too (config `rejected`).")
    store_embeddings: bool = Field(default=False, description="Store the CLIP image embeddings.")

    @field_validator("keep", mode="before")
    @classmethod
    def _keep(cls, value: Any) -> Any:
        return as_steps(value)

    @field_validator("keep")
    @classmethod
    def _keep_order(cls, value: Any) -> Any:
        refuse(order_problem(value))
        return value

    @property
    def clip(self) -> str:
        """The model, for whoever cannot do without one. UserError where there is none."""
        if self.model is None:
            raise UserError(
                "screen.model: the recipe names no CLIP, which this needs",
                "Name one that knows the classes, as in --set screen.model=ViT-B-32"
                " --set screen.weights=laion2b_s34b_b79k --set screen.object_threshold=-1",
            )
        return self.model

    @model_validator(mode="after")
    def _screens_by_a_number(self) -> Screen:
        lacks = self.model is not None and "object_threshold" not in self.model_fields_set
        refuse("missing object_threshold, expected a number, or `percentile:`" if lacks else None)
        return self

    @field_validator("object_threshold")
    @classmethod
    def _of_every_class(cls, value: ObjectThresholdSpec) -> ObjectThresholdSpec:
        alone = value.value is None and value.percentile is None
        refuse("found classes alone, expected also `value:` or `percentile:` for the others" if alone else None)
        return value

    @field_validator("model")
    @classmethod
    def _has_a_name(cls, value: str | None) -> str | None:
        refuse(nameless_problem(value))
        return value

    @field_validator("judge")
    @classmethod
    def _looks_at_images(cls, value: str | None) -> str | None:
        refuse(None if value is None else judge_problem(value))
        return value

    @field_validator("object_caption", "style_object_caption")
    @classmethod
    def _template(cls, value: str) -> str:
        refuse(template_problem(value, with_class=True, about_class=True))
        return value
