"""What renders the samples of a recipe, which real images are taken in their place, or which are edited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from counterfoil.keep import Column
from counterfoil.recipe.corruptions import SEVERITY
from counterfoil.recipe.generator_options import OPTIONS_SCHEMA, checked_options
from counterfoil.recipe.layering import nameless_problem
from counterfoil.recipe.names import quoted
from counterfoil.recipe.schema_inputs import LARGEST_SIDE
from counterfoil.section import Section, refuse

# The columns that say which row of its pool an image is, the how-manieth it is to its prompt there, and how near.
ROW, RANK, SCORE = "source_row", "retrieval_rank", "retrieval_score"

_POOL = ("dataset", "config", "split", "image_column", "license_column")
# What each kind reads that not all do.
_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "diffusers": (
        "model", "adapter", "adapter_revision", "scheduler", "steps", "guidance", "guidance_interval", "size",
        "negative_prompt", "options", "offload", "quantize", "compile",
    ),
    "rows": (*_POOL, "label_column", "labels", "rows"),
    "retrieve": (*_POOL, "clip"),
    "edit": (
        "model", "scheduler", "steps", "guidance", "size", "negative_prompt", "options", "offload", "quantize", "split",
        "license_column", "caption_column", "captioner",
    ),
    "corrupt": ("size", "split", "license_column"),
}  # fmt: skip
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "diffusers": ("model",), "rows": ("rows",), "retrieve": (), "edit": ("model",), "corrupt": (),
}  # fmt: skip


def _of_others(kind: str) -> list[str]:
    """The keys that this kind does not read, and another does; each once."""
    others = dict.fromkeys(name for other, names in _OF_KIND.items() if other != kind for name in names)
    return [name for name in others if name not in _OF_KIND[kind]]


class RetrievalClip(Section):
    """The CLIP by which a pool is ranked."""

    model: str = Field(min_length=1, description="As screen.model.")
    weights: str | None = Field(default=None, description="As screen.weights.")

    @field_validator("model")
    @classmethod
    def _has_a_name(cls, value: str) -> str:
        refuse(nameless_problem(value))
        return value


class Generator(Section):
    """What renders the samples, or where they are taken from."""

    kind: Literal["diffusers", "rows", "retrieve", "edit", "corrupt"] = Field(
        default="diffusers",
        description="`diffusers` renders; `rows` takes chosen rows of an input dataset, the pool, as they are;"
        " `retrieve` takes the rows of a pool that are nearest to each prompt by CLIP, none of them twice; `edit` draws"
        " rows of the input dataset anew, each under the base's prompt and every shift's; `corrupt` takes rows of the"
        " input dataset, untouched as the base and under a known change (fog, noise, a darker exposure) as each shift.",
    )
    model: str = Field(default="", description="`lab:sd`, a Hub id, or a folder of a diffusers pipeline.")
    revision: str | None = Field(default=None, description="Branch, tag or commit on the Hub; the lock pins it.")
    adapter: str | None = Field(
        default=None,
        min_length=1,
        description="IP-Adapter by which the model takes image embeddings: `lab:decoder`, a Hub id, a Hub id with the"
        " file in it (`user/name/models/adapter.safetensors`), or a folder. It is for samples with an embedding alone.",
    )
    adapter_revision: str | None = Field(
        default=None, description="Branch, tag or commit of the adapter on the Hub; the lock pins it."
    )
    scheduler: str | None = Field(
        default=None,
        description="diffusers scheduler without the word Scheduler (`DDIM`); null keeps the model's.",
    )
    steps: int = Field(default=50, ge=1, le=1000, description="Denoising steps.")
    guidance: float = Field(default=7.5, ge=0, description="Classifier-free guidance scale; 1 or less turns it off.")
    size: int | None = Field(
        default=None,
        ge=8,
        le=LARGEST_SIDE,
        multiple_of=8,
        description="Rendered side in pixels; null: the model's. kind corrupt: the shorter side that larger"
        " rows are reduced to before anything is done to them; null: as they are.",
    )
    saved_size: int | None = Field(
        default=None, ge=8, le=LARGEST_SIDE, description="Stored side in pixels; null: as rendered."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Number format; `auto` is bfloat16 on CUDA and float32 on CPU."
    )
    batch_size: int = Field(default=8, ge=1, le=4096, description="Images a batch; part of what the bytes depend on.")
    negative_prompt: str | None = Field(default=None, description="Text to steer away from.")
    guidance_interval: tuple[float, float] | None = Field(
        default=None,
        description="Guidance only in this part of the steps, `[0.2, 0.8]` of all; null: in every step. A step without"
        " costs half (Stable Diffusion 1, 2 and XL).",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="What a call of the pipeline takes beside, by its own names (`max_sequence_length: 256`): numbers,"
        " text, true, false, null and lists of these.",
        json_schema_extra=OPTIONS_SCHEMA,
    )
    offload: Literal["none", "model", "sequential"] = Field(
        default="none",
        description="Where weights wait that are not in use: on the GPU, or in memory by part (`model`) or by layer"
        " (`sequential`, slow). It changes no image.",
    )
    quantize: Literal["bnb-8bit", "bnb-4bit", "torchao-int8"] | None = Field(
        default=None, description="Weights in fewer bits, by the library named first, which is an extra."
    )
    compile: bool = Field(
        default=False,
        description="Compile the blocks that the model repeats when a worker first draws: faster on CUDA, and other"
        " bytes, so another stack. On a CPU it takes a C++ compiler.",
    )

    dataset: str | None = Field(
        default=None,
        min_length=1,
        description="The pool of kinds rows and retrieve, named as source.dataset is; null: that one.",
    )
    config: str | None = Field(default=None, description="Config of the pool.")
    split: str = Field(
        default="train",
        description="Split of the pool; kinds edit and corrupt: of the input dataset, and not the one that models learn"
        " from.",
    )
    image_column: str = Field(default="image", description="Column of the pool that holds the images.")
    label_column: str = Field(
        default="label", description="kind rows: column of the pool's labels; a row's must be that of its class."
    )
    labels: Literal["column", "predicted"] = Field(
        default="column",
        description="kind rows: where a row's class is from: `column`, the pool's labels, which are compared; or"
        " `predicted`, what a classifier answered, which nothing is compared with.",
    )
    license_column: str | None = Field(
        default=None,
        description="Column of the pool that tells each row's licence; it becomes a column. Kinds edit and corrupt"
        " without it: the input dataset's licence is in that column.",
    )
    caption_column: str | None = Field(
        default=None,
        min_length=1,
        description="kind edit: column of the input dataset with a caption a row, for `{caption}` in prompts.",
    )
    captioner: str | None = Field(
        default=None,
        min_length=1,
        description="kind edit: what writes the captions where no column has them, named as mine's captioners are.",
    )
    rows: dict[str, dict[str, tuple[int, ...]]] | None = Field(
        default=None,
        description="kind rows: shift → class id → rows of the pool, or a CSV file of shift,class_id,row.",
    )
    clip: RetrievalClip | None = Field(
        default=None, description="kind retrieve: the CLIP that ranks the pool; null: the screen's."
    )

    @field_validator("model", "adapter", "dataset", "captioner")
    @classmethod
    def _has_a_name(cls, value: str | None) -> str | None:
        refuse(nameless_problem(value))
        return value

    @field_validator("options")
    @classmethod
    def _plain_values(cls, value: dict[str, Any]) -> dict[str, Any]:
        return checked_options(value)

    @model_validator(mode="after")
    def _one_kind(self) -> Generator:
        """What one kind needs, and nothing that only the other reads."""
        missing = [name for name in _NEEDED[self.kind] if not getattr(self, name)]
        refuse(f"missing {missing[0]}, which kind {self.kind} needs" if missing else None)
        found = [name for name in _of_others(self.kind) if getattr(self, name) != _default(name)]
        both = self.caption_column is not None and self.captioner is not None
        refuse("found caption_column and captioner, expected one of them: a row has one caption" if both else None)
        refuse(
            f"found {' and '.join(found)}, expected none with kind {self.kind} (null drops an inherited one)"
            if found
            else None
        )
        return self

    @model_serializer(mode="wrap")
    def _of_its_kind(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the keys that only other kinds read."""
        others = _of_others(self.kind)
        return {name: value for name, value in dump(self).items() if name not in others}

    @property
    def draws(self) -> bool:
        """Whether images are drawn by a model, also from real ones, and not taken from a pool or computed from it."""
        return self.kind in ("diffusers", "edit")

    @property
    def takes_rows(self) -> bool:
        """Whether each sample is, or is drawn from, a row of real images, of which there are only so many."""
        return self.kind != "diffusers"

    @property
    def alters_rows(self) -> bool:
        """Whether each sample is made from a row of the input dataset, the same one under the base and every shift."""
        return self.kind in ("edit", "corrupt")

    @property
    def captioned(self) -> bool:
        """Whether something tells a caption of each row, so that prompts may hold it."""
        return self.caption_column is not None or self.captioner is not None

    @property
    def columns(self) -> dict[str, Column]:
        """The columns that the generator adds to every row."""
        if not self.takes_rows:
            return {}
        which = "the input dataset's split that it was made from" if self.alters_rows else "its pool"
        found = {ROW: Column("int64", f"Number of the row in {which}.")}
        if self.kind == "retrieve":
            nearest = (
                "Place of the row among all images of the pool, the nearest to the prompt first; 1 is the nearest."
            )
            found[RANK] = Column("int64", nearest)
            found[SCORE] = Column("float32", "Cosine of the row and the prompt in the CLIP that ranked the pool.")
        if self.license_column:
            found["license"] = Column("string", "Licence of the row, as its dataset tells it.")
        elif self.alters_rows:
            found["license"] = Column("string", "Licence of the input dataset that the row is of, where one is known.")
        if self.kind == "corrupt":
            found[SEVERITY] = Column("int32", "Severity of the corruption, 1 to 5; 0 for the base, which has none.")
        return found

    @field_validator("scheduler")
    @classmethod
    def _short_name(cls, value: str | None) -> str | None:
        if value is not None and value.endswith("Scheduler"):
            raise ValueError(f"found {quoted(value)}, expected it short: {quoted(value.removesuffix('Scheduler'))}")
        return value

    @field_validator("guidance_interval")
    @classmethod
    def _shares(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not 0 <= value[0] < value[1] <= 1:
            raise ValueError(
                f"found [{value[0]:g}, {value[1]:g}], expected two shares of the steps, rising from 0 to 1"
            )
        return value

    @model_validator(mode="after")
    def _guided_steps(self) -> Generator:
        """Guidance in a part of the steps is of some step, and is some guidance."""
        if self.guidance_interval is None:
            return self
        begin, end = self.guidance_interval
        shown = f"guidance_interval is [{begin:g}, {end:g}]"
        if self.guidance <= 1:
            raise ValueError(f"{shown} and guidance {self.guidance:g}, which is none: drop one of them")
        if self.adapter is not None:
            raise ValueError(f"{shown}, and images drawn by an adapter are guided in every step: drop one of them")
        if not any(begin <= step / self.steps < end for step in range(self.steps)):
            raise ValueError(f"{shown}, in which none of the {self.steps} steps begins")
        return self

    @model_validator(mode="after")
    def _compiled_where_they_stay(self) -> Generator:
        if self.compile and self.offload == "sequential":
            raise ValueError(
                "compile is true and offload sequential, which brings the layers of a block one by one;"
                " expected offload model or none"
            )
        return self

    @model_validator(mode="after")
    def _no_enlarging(self) -> Generator:
        if self.size is not None and self.saved_size is not None and self.saved_size > self.size:
            raise ValueError(f"saved_size is {self.saved_size}, expected at most size ({self.size})")
        return self


def _default(name: str) -> Any:
    return Generator.model_fields[name].get_default(call_default_factory=True)
