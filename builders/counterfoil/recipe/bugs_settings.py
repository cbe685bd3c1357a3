"""The form of `mine.settings` for the method `bugs`: how much is drawn, what describes failures, when a test ends."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from counterfoil.recipe.templates import template_problem
from counterfoil.section import Section, refuse

_CLASS = "{class}"


class ExampleDescription(Section):
    """An image that a person has described, for captioners that are shown how to describe."""

    image: str = Field(min_length=1, description="Path of the image, from the recipe's folder.")
    text: str = Field(min_length=1, max_length=1000, description="Its description: a few short sentences.")


class BugsSettings(Section):
    """Settings of `bugs` (Wiles 2022, section 3): draw, look where the target fails, describe that, and test it."""

    captioner: str = Field(
        min_length=1, description="What describes failures: a captioner of the Hub, `local-dir:…` or `lab:captioner`."
    )
    base: str | None = Field(
        default=None,
        description="The open prompt of a class, with {class}; null: the recipe's own base. Wiles 2022: `a realistic"
        " photograph of a {class} ({parent}).`",
    )
    classes: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="Ids of the classes that are looked at; null: all."
    )
    baseline: int = Field(
        default=64, ge=8, le=1_000_000, description="Images of the base a class, to find failures in."
    )
    clusters: int = Field(
        default=4, ge=1, le=100, description="Descriptions a class, at most: one a cluster of failures."
    )
    fewest_failures: int = Field(default=2, ge=1, le=1000, description="Failures that make a cluster.")
    captions: int = Field(
        default=4, ge=1, le=100, description="Captions an image: the likeliest one, and others drawn."
    )
    described: int = Field(default=8, ge=1, le=1000, description="Images of a cluster that are described, at most.")
    sentences: int = Field(
        default=2, ge=1, le=10, description="Sentences (or phrases) that a description joins, at most."
    )
    seeds: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Describe failures on images that exist, and not on those of the base: splits of the source, or one"
        " built dataset (Wiles 2022, section 4.2: ImageNet-A).",
    )
    rank: Literal["likelihood", "contrast"] = Field(
        default="contrast",
        description="What a description maximises: `likelihood`, that of its images (Wiles 2022); `contrast`, how far"
        " that is above the likelihood of images of the class that are answered right.",
    )
    examples: tuple[ExampleDescription, ...] = Field(
        default=(),
        max_length=8,
        description="Described images that the captioner is shown first, where its kind takes them.",
    )
    batch: int = Field(
        default=16, ge=4, le=100_000, description="Pairs before the first look; each next look doubles them."
    )
    pairs: int = Field(default=128, ge=8, le=1_000_000, description="Pairs that a hypothesis is tested on, at most.")
    images: int = Field(
        default=5000,
        ge=100,
        le=100_000_000,
        description="Images that the search draws, at most; what estimates the rates of its findings comes on top.",
    )
    half_width: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="How far the interval of a finding's difference is to reach to either side, by the number of fresh"
        " pairs that are drawn for its rates after its test.",
    )
    estimate_pairs: int = Field(
        default=512,
        ge=8,
        le=1_000_000,
        description="Fresh pairs drawn for a finding, at most, whatever half_width asks.",
    )
    shorten: bool = Field(
        default=True,
        description="Whether shorter words are tried for what is confirmed, and for the rest each piece by itself.",
    )
    until: int | None = Field(
        default=None,
        ge=2,
        le=10_000,
        description="Also estimate each finding's failure rate by drawing until so many failures (Wiles 2022: 20).",
    )
    adversarial: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Failures a description that adversarial.yaml asks for (Wiles 2022: at most 1,000 images are drawn"
        " for each); 0 writes no such recipe.",
    )
    at_most: int = Field(
        default=1000, ge=1, le=1_000_000, description="Images that adversarial.yaml draws a description, at most."
    )

    @field_validator("base")
    @classmethod
    def _names_the_class(cls, base: str | None) -> str | None:
        if base is not None:
            once = None if base.count(_CLASS) == 1 else f"found '{base}', expected {_CLASS} once"
            refuse(template_problem(base, with_class=True, about_class=True) or once)
        return base

    @model_validator(mode="after")
    def _numbers_fit(self) -> BugsSettings:
        if self.batch > self.pairs:
            raise ValueError(f"batch is {self.batch}, expected at most pairs ({self.pairs})")
        if self.adversarial > self.at_most:
            raise ValueError(f"at_most is {self.at_most}, expected at least adversarial ({self.adversarial})")
        return self
