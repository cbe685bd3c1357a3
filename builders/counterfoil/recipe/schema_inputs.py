"""What a recipe starts from: the input dataset and the class tokens."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from counterfoil.recipe.layering import nameless_problem
from counterfoil.recipe.names import ELSEWHERE, LONGEST_CLASS_NAME, REPOSITORY, class_id_problem, quoted
from counterfoil.recipe.schema_conditions import Conditions, class_problem
from counterfoil.recipe.templates import template_problem
from counterfoil.section import Section, refuse

# Generators of today draw up to about 2048 pixels a side. The limit is what readers of a stranger's dataset allocate.
LARGEST_SIDE = 4096

# The neutral photograph prompts of textual inversion (Gal et al. 2022, appendix), with a class in the gap.
TEMPLATES = (
    "a photo of a {class}",
    "a rendering of a {class}",
    "a cropped photo of the {class}",
    "the photo of a {class}",
    "a photo of a clean {class}",
    "a photo of a dirty {class}",
    "a dark photo of the {class}",
    "a photo of my {class}",
    "a photo of the cool {class}",
    "a close-up photo of a {class}",
    "a bright photo of the {class}",
    "a cropped photo of a {class}",
    "a photo of the {class}",
    "a good photo of the {class}",
    "a photo of one {class}",
    "a close-up photo of the {class}",
    "a rendition of the {class}",
    "a photo of the clean {class}",
    "a rendition of a {class}",
    "a photo of a nice {class}",
    "a good photo of a {class}",
    "a photo of the nice {class}",
    "a photo of the small {class}",
    "a photo of the weird {class}",
    "a photo of the large {class}",
    "a photo of a cool {class}",
    "a photo of a small {class}",
)


class ClassEntry(Section):
    """A class of the dataset; its label is its position in the list."""

    written_as = "a class: a name, or a mapping with name and, where the input dataset tells no names, source_label"

    id: str = Field(
        description="Unique slug: a WordNet id, or the zero-padded source label in quotes; left out, it is made of the"
        " letters and digits of the name."
    )
    name: str = Field(
        min_length=1,
        max_length=LONGEST_CLASS_NAME,
        description="The name that prompts and captions use; names may repeat.",
    )
    source_label: int | None = Field(
        default=None,
        ge=0,
        description="The label of this class in the input dataset; left out, that of the class's name there.",
    )
    imagenet: tuple[int, ...] = Field(default=(), description="ImageNet-1k indices that count as this class.")
    parent: str | None = Field(
        default=None,
        min_length=1,
        max_length=LONGEST_CLASS_NAME,
        description="The kind of thing that the class is (`spaniel`): `{parent}` in prompts.",
    )
    category: str | None = Field(
        default=None,
        min_length=1,
        max_length=LONGEST_CLASS_NAME,
        description="A wider kind (`canine`) of a few for many classes: `{category}`.",
    )

    @field_validator("id")
    @classmethod
    def _slug(cls, value: str) -> str:
        refuse(class_id_problem(value))
        return value

    @field_validator("imagenet")
    @classmethod
    def _indices(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        wrong = [index for index in value if not 0 <= index <= 999]
        refuse(f"found {wrong[0]}, expected ImageNet-1k indices from 0 to 999" if wrong else None)
        return value


class Source(Section):
    """The input dataset that the built one matches, and its classes."""

    dataset: str = Field(min_length=1, description="`lab:wardrobe`, a Hub id, or a folder (`./…`, `/…`).")
    config: str | None = Field(default=None, description="Config of the input dataset.")
    revision: str | None = Field(default=None, description="Branch, tag or commit on the Hub; the lock pins it.")
    train_split: str = Field(default="train", description="Split that tokens are learned from.")
    validation_split: str = Field(default="validation", description="Split that percentile thresholds come from.")
    image_column: str = Field(default="image", description="Column that holds the images.")
    label_column: str = Field(default="label", description="Column that holds the integer labels.")
    unit_column: str | None = Field(
        default=None,
        min_length=1,
        description="Column that names what rows share (a garment, a patient, a photo); null: each row is for itself.",
    )
    conditions: Conditions | None = Field(
        default=None,
        description="What a row may have several of, or none; each is two classes. Null: a row has one label.",
    )
    classes: tuple[ClassEntry, ...] | None = Field(
        default=None,
        min_length=1,
        description="The classes in label order, each a name or a mapping, or the path of a YAML file with that list;"
        " null: every class of the input dataset, by its own names and in its own order.",
    )

    @field_validator("dataset")
    @classmethod
    def _has_a_name(cls, value: str) -> str:
        refuse(nameless_problem(value))
        return value

    @model_validator(mode="after")
    def _two_classes_a_condition(self) -> Source:
        if self.conditions is not None:
            refuse(class_problem(self.conditions.names, [entry.source_label for entry in self.classes or ()]))
        return self


class LearnSettings(Section):
    """How class tokens are learned by textual inversion. Defaults: the released code of Vendrow 2023."""

    steps: int = Field(default=3000, ge=1, description="Optimisation steps a token.")
    learning_rate: float = Field(default=5e-4, gt=0, le=100, description="Constant learning rate of AdamW.")
    batch_size: int = Field(default=1, ge=1, description="Images of a class in each step.")
    weight_decay: float = Field(default=1e-2, ge=0, description="AdamW weight decay.")
    pin_norm: bool = Field(default=True, description="Keep each vector at the norm it started with.")
    vectors: int = Field(default=1, ge=1, le=32, description="Vectors a token: that many places of the prompt.")
    initial_word: str | None = Field(
        default=None,
        min_length=1,
        description="Word that every token starts from (`pet`), by the mean of its sub-tokens; null: the class's name.",
    )
    templates: tuple[str, ...] = Field(
        default=TEMPLATES, min_length=1, description="Prompts with `{class}` that training images are paired with."
    )
    flip: float = Field(default=0.5, ge=0, le=1, description="Share of training images that are mirrored.")
    size: int | None = Field(
        default=None,
        ge=8,
        le=LARGEST_SIDE,
        multiple_of=8,
        description="Side of training images in pixels; null: the rendered size.",
    )
    min_images: int = Field(default=4, ge=1, description="The fewest training images of a class; fewer are refused.")
    classes_in_flight: int = Field(
        default=8, ge=1, le=1024, description="Classes learned together in one batch; limited by memory."
    )
    seed: int = Field(default=0, ge=0, lt=2**53, description="Seed of image order, noise, times, templates and flips.")

    @field_validator("templates")
    @classmethod
    def _templates(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for template in value:
            refuse(template_problem(template, with_class=True))
        return value


class Tokens(Section):
    """Class tokens that take the place of class names in prompts."""

    path: str | None = Field(default=None, description="Folder (`./tokens`), `lab:tokens` or Hub id (`user/name`).")
    revision: str | None = Field(default=None, description="Branch, tag or commit on the Hub; the lock pins it.")
    learn: LearnSettings | None = Field(default=None, description="Learn the tokens from the input dataset.")

    @field_validator("path")
    @classmethod
    def _folder_or_repository(cls, value: str | None) -> str | None:
        if value is None or value.startswith(("/", "./", "../", "lab:", ELSEWHERE)) or REPOSITORY.fullmatch(value):
            return value
        raise ValueError(f"found {quoted(value)}, expected a folder (./{value[:40]}) or a Hub id (user/name)")

    @model_validator(mode="after")
    def _one_of_both(self) -> Tokens:
        if (self.path is None) == (self.learn is None):
            found = "neither path nor learn" if self.path is None else "path and learn"
            raise ValueError(f"found {found}, expected one of them (null drops an inherited one)")
        if self.learn is not None and self.revision is not None:
            raise ValueError("found revision with learn, expected it only with path")
        return self
